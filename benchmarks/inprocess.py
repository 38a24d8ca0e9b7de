"""The judge beside an in-process loop, on the same candidates: how many each takes in, and how many it gets through."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.table import Row
from evaluator.claim import TOLERANCES, Claim
from evaluator.inprocess import claim_of
from evaluator.model import Evaluation, EvaluationSpec, Lane, Limits, reference_candidate
from evaluator.pool import Evaluator, LocalEvaluator
from problems.model import Problem
from tests.evaluator.corpus import HONEST, HOSTILE, Entry

LIMITS = Limits(
    load_seconds=10,
    first_call_seconds=6,
    call_seconds=6,
    search_seconds=4,
    processes=96,
    scratch_bytes=256 << 20,
)
LOOP_SECONDS = 90.0
TRIES = 3
"""For verdicts that the machine's noise prevents."""
BEYOND = 1.5
"""A claim has no interval: so many times the honest version's speedup counts as faster, if seen twice, since its means
follow the machine's moods."""


@dataclass
class Opinions:
    """What judge and loop say of candidates, in their order, and the seconds that each took for all of them."""

    verdicts: list[Evaluation] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    judge_seconds: float = 0.0
    loop_seconds: float = 0.0

    def correct(self) -> int:
        return sum(verdict.status == "correct" for verdict in self.verdicts)

    def claimed(self, tolerance: float) -> int:
        return sum(tolerance in claim.passed for claim in self.claims)


def evaluation(evaluator: Evaluator, problem: Problem, source: str, lane: Lane) -> Evaluation:
    spec = EvaluationSpec(problem=problem, source=source, lane=lane, limits=LIMITS)
    for _ in range(TRIES):
        verdict = evaluator.evaluate(spec)
        if verdict.status != "unstable":
            break
    return verdict


def claimed(entry: Entry) -> Claim:
    return claim_of(entry.problem, entry.source, lane=entry.lane, limits=LIMITS, seconds=LOOP_SECONDS)


def both(evaluator: Evaluator, entries: Sequence[Entry]) -> Opinions:
    """All by the loop first, then all by the judge, so that neither starts processes while the other measures."""
    made = Opinions()
    start = time.monotonic()
    for e in entries:
        made.claims.append(claimed(e))
    made.loop_seconds = time.monotonic() - start
    start = time.monotonic()
    for e in entries:
        made.verdicts.append(evaluation(evaluator, e.problem, e.source, e.lane))
    made.judge_seconds = time.monotonic() - start
    return made


def honest_versions(evaluator: Evaluator, entries: Sequence[Entry]) -> dict[str, tuple[Evaluation, Claim]]:
    """The reference as its own candidate, by the problem's hash."""
    problems = {e.problem.sha256: e.problem for e in entries}
    return {
        sha: (
            evaluation(evaluator, problem, reference_candidate(problem), "fp32"),
            claim_of(problem, reference_candidate(problem), limits=LIMITS, seconds=LOOP_SECONDS),
        )
        for sha, problem in problems.items()
    }


def judged_faster(verdict: Evaluation, honest: Evaluation) -> bool:
    """Called correct, and faster beyond doubt than the honest version."""
    return verdict.speedup_low is not None and verdict.speedup_low > max(1.0, honest.speedup_high or 1.0)


def claimed_faster(claim: Claim, honest: Claim) -> bool:
    """Called correct, and well above the honest version. A clock that the candidate stopped gives no number."""
    return claim.status == "correct" and claim.speedup is not None and claim.speedup > BEYOND * (honest.speedup or 1.0)


def compare(evaluator: Evaluator, hostile: Sequence[Entry], honest: Sequence[Entry]) -> list[Row]:
    bad, good = both(evaluator, hostile), both(evaluator, honest)
    eager = honest_versions(evaluator, hostile)
    through = [
        e.name for e, v in zip(hostile, bad.verdicts, strict=True) if judged_faster(v, eager[e.problem.sha256][0])
    ]
    fooled = [
        e.name
        for e, c in zip(hostile, bad.claims, strict=True)
        if claimed_faster(c, eager[e.problem.sha256][1]) and claimed_faster(claimed(e), eager[e.problem.sha256][1])
    ]
    refused = [e.name for e, v in zip(honest, good.verdicts, strict=True) if v.status != "correct"]
    total = len(hostile) + len(honest)
    judge_seconds, loop_seconds = bad.judge_seconds + good.judge_seconds, bad.loop_seconds + good.loop_seconds
    return [
        Row(
            f"of {len(hostile)} hostile candidates, called correct and faster than honest code: by the judge",
            "0",
            f"{len(through)}{_names(through)}",
            not through,
        ),
        Row("the same, by an in-process loop", "for comparison", f"{len(fooled)}", True),
        Row(
            f"of {len(hostile)} hostile candidates, called correct at whatever speed",
            "for comparison",
            f"judge {bad.correct()}; {_loop(bad)}",
            True,
        ),
        Row(
            f"of {len(honest)} honest candidates, called correct: by the judge",
            f"{len(honest)}",
            f"{good.correct()}{_names(refused)}",
            not refused,
        ),
        Row("the same, by an in-process loop", "for comparison", _loop(good), True),
        Row(
            f"evaluations a minute, all {total}, one after the other",
            "for comparison",
            f"judge {60 * total / judge_seconds:.1f}; loop {60 * total / loop_seconds:.1f}",
            True,
        ),
    ]


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, LocalEvaluator(Path(folder)) as evaluator:
        return compare(evaluator, HOSTILE, HONEST)


def _loop(opinions: Opinions) -> str:
    return "loop " + ", ".join(f"{opinions.claimed(t)} at {t:g}" for t in TOLERANCES)


def _names(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""
