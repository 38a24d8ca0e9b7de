"""Scoring existing candidates again: which files of a folder are candidates for what, and what both evaluators say.

Folders in the layout of KernelBench runs name the problem in each file's name; otherwise all files are candidates for
one problem. Every candidate is judged, and asked of the in-process loop as well (``evaluator.claim``).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from evaluator.claim import TOLERANCES, Claim
from evaluator.model import ON_THE_PROBLEM, Evaluation, EvaluationSpec
from evaluator.pool import Evaluator
from kernel_agent.candidate_file import read_candidate
from kernel_agent.errors import UsageError
from kernel_agent.model import Frozen
from problems.catalog import Catalog
from problems.model import Problem, ProblemError, SizeOverride

_RUN_NAME = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
RUN_LAYOUT = "level_L_problem_P_sample_S_kernel.py"
UNSTABLE_TRIES = 3
"""As in a campaign."""
NO_OPINION = ON_THE_PROBLEM | {"unstable"}
"""Statuses that leave open whether a candidate is right."""


class RunName(Frozen):
    """What a file's name says in the layout of KernelBench runs."""

    level: int
    problem: int
    sample: int

    @classmethod
    def of(cls, name: str) -> RunName | None:
        found = _RUN_NAME.fullmatch(name)
        return None if found is None else cls(level=int(found[1]), problem=int(found[2]), sample=int(found[3]))


class Candidate(Frozen):
    file: str
    problem: Problem
    source: str


class LeftOut(Frozen):
    file: str
    reason: str


class Found(Frozen):
    """A folder's files: those that can be judged, and those that cannot, with the reason."""

    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]


class Rescored(Frozen):
    file: str
    problem: str
    evaluation: Evaluation
    claim: Claim | None = None
    """None: interrupted before the in-process loop was asked."""

    @property
    def differs(self) -> bool:
        """One calls it correct and the other wrong; a judge without an opinion contradicts nobody."""
        if self.claim is None or self.evaluation.status in NO_OPINION:
            return False
        return (self.claim.status == "correct") != (self.evaluation.status == "correct")


class Means(Frozen):
    """How many candidates, and the geometric mean of their speedups; None of none."""

    candidates: int
    speedup: float | None

    @classmethod
    def of(cls, speedups: Iterable[float | None]) -> Means:
        values = [s for s in speedups if s is not None]
        return cls(candidates=len(values), speedup=statistics.geometric_mean(values) if values else None)


class Summary(Frozen):
    judged: int
    correct: int
    """By the judge."""
    claimed: int
    """Correct by the in-process loop at the lane's tolerance."""
    claimed_loosely: int
    """Correct by it at the loosest tolerance, 1e-2."""
    speedup: Means
    """The judge's, over those that it calls correct."""
    claimed_speedup: Means
    """The loop's, over those that it calls correct and whose clock ran."""
    agreed_speedup: Means
    """The judge's, over those that both call correct and timed."""
    agreed_claimed_speedup: Means
    """The loop's, over the same ones."""
    differ: tuple[str, ...]
    """Files that one calls correct and the other wrong."""

    @classmethod
    def of(cls, rows: Sequence[Rescored]) -> Summary:
        correct = [r for r in rows if r.evaluation.status == "correct"]
        claims = [r for r in rows if r.claim is not None and r.claim.status == "correct"]
        agreed = [r for r in claims if r.evaluation.status == "correct" and _claimed(r) is not None]
        return cls(
            judged=len(rows),
            correct=len(correct),
            claimed=len(claims),
            claimed_loosely=sum(r.claim is not None and TOLERANCES[-1] in r.claim.passed for r in rows),
            speedup=Means.of(r.evaluation.speedup for r in correct),
            claimed_speedup=Means.of(map(_claimed, claims)),
            agreed_speedup=Means.of(r.evaluation.speedup for r in agreed),
            agreed_claimed_speedup=Means.of(map(_claimed, agreed)),
            differ=tuple(r.file for r in rows if r.differs),
        )


class Rescoring(Frozen):
    """A folder scored again: the whole of what ``--json`` prints."""

    folder: str
    rows: tuple[Rescored, ...]
    left_out: tuple[LeftOut, ...]
    """Files that fit no problem or cannot be read."""
    not_reached: tuple[str, ...]
    """Files without a verdict, because of an interrupt."""
    summary: Summary


def find(folder: Path, catalog: Catalog, pattern: str | None, overrides: Sequence[SizeOverride]) -> Found:
    """The candidates of ``folder``: every ``*.py`` there.

    Where ``pattern`` means one problem, all are candidates for it, but those that the layout of KernelBench runs names
    for another one. Otherwise each file's name says which, out of those that ``pattern`` means or, without one, out of
    the checkout's.
    Raises UsageError when there is nothing to judge, and ProblemError for a pattern that means no problem.
    """
    try:
        files = [path for path in folder.iterdir() if path.suffix == ".py"]
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror or error}") from error
    if not files:
        raise UsageError(f"{folder} holds no candidates: no file in it is named *.py")
    chosen = () if pattern is None else _meant(pattern, catalog, overrides)
    candidates, left_out = [], []
    for path in sorted(files, key=_order):
        try:
            problem = _problem_of(path.name, catalog, chosen, overrides)
            candidates.append(Candidate(file=path.name, problem=problem, source=read_candidate(path)))
        except (UsageError, ProblemError) as error:
            left_out.append(LeftOut(file=path.name, reason=str(error)))
    if not candidates:
        more = f" ({len(left_out) - 1} more files do not fit either)" if len(left_out) > 1 else ""
        raise UsageError(f"nothing in {folder} can be judged: {left_out[0].file}: {left_out[0].reason}{more}")
    return Found(candidates=tuple(candidates), left_out=tuple(left_out))


def rescore(
    candidates: Sequence[Candidate],
    evaluator: Evaluator,
    request: Callable[[Candidate], EvaluationSpec],
    say: Callable[[str], None],
) -> tuple[Rescored, ...]:
    """Judge each candidate, then ask the in-process loop about it. An interrupt ends this early, with what is done.

    Raises EvaluatorError.
    """
    rows: list[Rescored] = []
    try:
        # Imports torch, which nothing else in this process needs.
        from evaluator.inprocess import claim_of

        for n, candidate in enumerate(candidates, 1):
            say(f"{n} of {len(candidates)}: {candidate.file} against {candidate.problem.id} …")
            spec = request(candidate)
            row = Rescored(file=candidate.file, problem=candidate.problem.id, evaluation=_verdict(evaluator, spec))
            rows.append(row)
            claim = claim_of(spec.problem, spec.source, lane=spec.lane, isolation=spec.isolation, limits=spec.limits)
            rows[-1] = row.model_copy(update={"claim": claim})
    except KeyboardInterrupt:
        pass
    return tuple(rows)


def rescoring(folder: Path, found: Found, rows: tuple[Rescored, ...]) -> Rescoring:
    """Rows and what follows from them."""
    return Rescoring(
        folder=str(folder),
        rows=rows,
        left_out=found.left_out,
        not_reached=tuple(c.file for c in found.candidates[len(rows) :]),
        summary=Summary.of(rows),
    )


def _verdict(evaluator: Evaluator, spec: EvaluationSpec) -> Evaluation:
    for _ in range(UNSTABLE_TRIES):
        evaluation = evaluator.evaluate(spec)
        if evaluation.status != "unstable":
            break
    return evaluation


def _meant(pattern: str, catalog: Catalog, overrides: Sequence[SizeOverride]) -> tuple[Problem, ...]:
    if pattern.endswith(".py"):
        return (catalog.resolve(pattern, overrides),)
    found = catalog.list(pattern)
    return tuple(catalog.get(problem.id, overrides) for problem in found) if overrides else found


def _problem_of(name: str, catalog: Catalog, chosen: Sequence[Problem], overrides: Sequence[SizeOverride]) -> Problem:
    run = RunName.of(name)
    if len(chosen) == 1 and (run is None or chosen[0].origin != "kernelbench"):
        return chosen[0]
    if run is None:
        raise UsageError(f"its name is not {RUN_LAYOUT}; name the one problem of such files with --problem")
    id = f"kernelbench/level{run.level}/{run.problem}"
    if not chosen:
        return catalog.get(id, overrides)
    match = next((problem for problem in chosen if problem.id.startswith(f"{id}_")), None)
    if match is None:
        raise UsageError(f"{id} is not among the problems that --problem names")
    return match


def _order(path: Path) -> tuple[int, int, int, str]:
    """By level, problem and sample as numbers; other names after them."""
    run = RunName.of(path.name)
    return (10**9, 0, 0, path.name) if run is None else (run.level, run.problem, run.sample, path.name)


def _claimed(row: Rescored) -> float | None:
    return None if row.claim is None else row.claim.speedup
