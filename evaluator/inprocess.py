"""Asks the in-process loop: starts ``loop.py`` in the jail, gives it both sources, and reads its claim.

The loop is there to be compared with the judge. It holds the candidate in the process that measures it, so that the
candidate may have written whatever comes back: a claim is checked for form, bounded and cleaned, and decides nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

from pydantic import Field, ValidationError

from evaluator import cgroup
from evaluator.channel import LOG_BYTES, Buffer, Channel, Frozen
from evaluator.claim import TOLERANCES, Claim, ClaimStatus, tolerance_of
from evaluator.lease import device_lease
from evaluator.model import EvaluatorError, Isolation, Lane, Limits
from evaluator.plain import sanitize
from evaluator.processes import Tree, exit_text
from evaluator.sandbox import Limits as JailLimits
from evaluator.sandbox import Mounts, environment, jailed, python_trees, require
from problems.model import Problem

SCRIPT = Path(__file__).with_name("loop.py")
INSIDE = "/opt/loop.py"
IMPORT_SECONDS = 120.0
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

    with device_lease("cpu"), _LoopProcess(level, limits) as process:
        process.ask(problem.source, source, limits.search_seconds)
        try:
            byte = process.channel.receive(seconds)
        except TimeoutError:
            return claim("timeout", f"no answer within {seconds:g} s; everything it had started was ended")
        if byte != b"d":
            return claim("crashed", f"{exit_text(process.process)} inside the loop")
        try:
            answer = _Answer.model_validate_json(process.channel.report.text())
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


class _LoopProcess:
    """One jailed ``loop.py``, from start to end. Nothing that it started outlives the ``with``."""

    def __init__(self, level: str, limits: Limits) -> None:
        self.threads = len(os.sched_getaffinity(0))
        self.channel = Channel()
        self.log = Buffer(LOG_BYTES)
        self.group = cgroup.Group.create(limits.processes)
        fd = self.channel.theirs.fileno()
        trees = tuple((tree, tree) for tree in python_trees())
        mounts = Mounts(read_only=(*trees, (str(SCRIPT), INSIDE)), scratch_bytes=limits.scratch_bytes)
        rlimits = JailLimits(limits.memory_bytes, limits.processes, limits.file_bytes)
        script = str(SCRIPT) if level == "none" else INSIDE
        self.process = subprocess.Popen(
            jailed(level, mounts, rlimits, [sys.executable, "-I", script, str(fd)]),
            stdin=subprocess.DEVNULL,
            stdout=self.log.fd,
            stderr=self.log.fd,
            env=environment(self.threads),
            pass_fds=[fd],
            cwd="/",
            start_new_session=True,
        )
        self.channel.theirs.close()
        self.tree = Tree(self.process.pid, wrapped=level != "none")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tree.kill()
        with suppress(ProcessLookupError):
            # Without a jail, what lost its parent is no descendant any more, but mostly still of the group.
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.channel.close()
        self.log.close()
        if self.group is not None:
            self.group.remove()

    def ask(self, problem: str, candidate: str, timed_seconds: float) -> None:
        """Wait for the loop to be there, then hand it the sources. Raises EvaluatorError: no candidate ran yet."""
        try:
            byte = self.channel.receive(IMPORT_SECONDS)
        except TimeoutError:
            byte = b""
        if byte != b"r":
            said = sanitize(self.log.text(), REASON_LIMIT).strip()
            raise EvaluatorError(f"the in-process loop did not start in the jail: {said or exit_text(self.process)}")
        if self.group is not None:
            self.tree.walk()
            self.group.add(self.tree.pids)
        request = {
            "problem": problem,
            "candidate": candidate,
            "threads": self.threads,
            "tolerances": TOLERANCES,
            "timed_seconds": timed_seconds,
        }
        self.channel.assign(request, [])
