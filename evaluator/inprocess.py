"""Asks the in-process loop: starts ``loop.py`` in the jail, gives it both sources, and reads its claim.

The loop is there to be compared with the judge. It holds the candidate in the process that measures it, so that the
candidate may have written whatever comes back: a claim is checked for form, bounded and cleaned, and decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from evaluator import cgroup
from evaluator.cell import Cell
from evaluator.channel import Frozen
from evaluator.claim import TOLERANCES, Claim, ClaimStatus, tolerance_of
from evaluator.lease import device_lease
from evaluator.model import Isolation, Lane, Limits
from evaluator.plain import sanitize
from evaluator.processes import exit_text, usable_cores
from evaluator.sandbox import require
from problems.model import Problem

SCRIPT = Path(__file__).resolve().with_name("loop.py")
LOOP_SECONDS = 180.0
"""For everything after the import of torch: building, trials, warm-ups and timed calls of both sides."""
REASON_LIMIT = 400

Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Answer(Frozen):
    """What lies in the buffer when the loop says it is done."""

    error: str = ""
    detail: str = ""
    mismatch: str = ""
    passed: tuple[float, ...] = ()
    largest_error: Milliseconds | None = None
    candidate_ms: Milliseconds | None = None
    reference_ms: Milliseconds | None = None
    calls: Annotated[int, Field(ge=0)] = 0


def claim_of(
    problem: Problem,
    source: str,
    *,
    lane: Lane = "fp32",
    isolation: Isolation = "jail",
    limits: Limits = Limits(),
    seconds: float = LOOP_SECONDS,
) -> Claim:
    """What an in-process evaluator says of ``source`` as a candidate for ``problem``. A failure is a status.

    ``seconds`` caps everything after the start; ``limits`` gives the caps on memory, processes and files, and
    ``limits.search_seconds`` the time for the timed calls of each side. Holds the CPU's lease while it runs. Raises
    EvaluatorError when no jail works here, or a process cannot be started in it.
    """
    level = require(isolation)
    tolerance = tolerance_of(lane)
    begin = time.monotonic()

    def claim(status: ClaimStatus, reason: str, answer: _Answer = _Answer()) -> Claim:
        return Claim(
            status=status,
            reason=sanitize(reason, REASON_LIMIT),
            tolerance=tolerance,
            passed=tuple(t for t in TOLERANCES if t in answer.passed),
            largest_error=answer.largest_error,
            speedup=_ratio(answer),
            candidate_ms=answer.candidate_ms,
            reference_ms=answer.reference_ms,
            calls=answer.calls,
            seconds=time.monotonic() - begin,
        )

    with device_lease("cpu"), _ended(_Loop(level, limits)) as loop:
        loop.ask(problem.source, source, limits.search_seconds)
        try:
            byte = loop.channel.receive(seconds)
        except TimeoutError:
            return claim("timeout", f"no answer within {seconds:g} s; everything it had started was ended")
        if byte != b"d":
            return claim("crashed", f"{exit_text(loop.process)} inside the loop")
        try:
            answer = _Answer.model_validate_json(loop.channel.report.text())
        except ValidationError:
            return claim("unreadable", "the loop said it was done and left no readable answer")
    if answer.error:
        return claim("error", answer.error)
    if answer.mismatch:
        return claim("incorrect", answer.mismatch)
    if tolerance in answer.passed:
        return claim("correct", f"allclose at {tolerance:g} in every trial", answer)
    error = "not finite" if answer.largest_error is None else f"{answer.largest_error:.3g}"
    return claim("incorrect", f"not allclose at {tolerance:g}; the largest difference is {error}", answer)


def _ratio(answer: _Answer) -> float | None:
    """None without both times, or where a clock in the candidate's reach stood still."""
    if not answer.candidate_ms or not answer.reference_ms:
        return None
    return answer.reference_ms / answer.candidate_ms


@contextmanager
def _ended(loop: _Loop) -> Iterator[_Loop]:
    try:
        yield loop
    finally:
        loop.kill()
        cgroup.remove_emptied()


class _Loop(Cell):
    """One jailed ``loop.py``."""

    def __init__(self, level: str, limits: Limits) -> None:
        super().__init__(level, SCRIPT, usable_cores(), limits)

    def ask(self, problem: str, candidate: str, timed_seconds: float) -> None:
        """Wait for the loop to be there, then hand it the sources. Raises EvaluatorError: no candidate ran yet."""
        self.started()
        request = {
            "problem": problem,
            "candidate": candidate,
            "threads": self.threads,
            "tolerances": TOLERANCES,
            "timed_seconds": timed_seconds,
        }
        self.channel.assign(request, [])
