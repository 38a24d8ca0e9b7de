"""Best-so-far curves and a campaign's score: pure functions on the service's nouns."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from pydantic import BaseModel, ConfigDict

from kernel_agent.model import CurvePoint, Improvement, Session, Step


class CampaignScore(BaseModel):
    """What a campaign achieved over its problems. A problem with several sessions counts once, with its best."""

    model_config = ConfigDict(frozen=True)

    problems: int
    improved: int
    """Problems with a confirmed best faster than the reference."""
    geometric_mean: float
    """Of the speedups, where a problem without one counts as 1: its user keeps the reference. 1.0 for no problems."""
    fast_1: float
    """Share of the problems with a speedup above 1 (KernelBench's fast_p at p = 1); 0.0 for no problems."""
    fast_2: float
    """Share of the problems with a speedup above 2."""


def curve(session: Session, improvements: Sequence[Improvement], steps: Sequence[Step]) -> tuple[CurvePoint, ...]:
    """One point per confirmed improvement, in order of confirmation.

    Each point has its own promotion's numbers. Every one beat the best before it in the same rounds, but two
    promotions are two measurements: a point may lie a little below the one before it, and is not lifted.

    :param steps: the session's steps; a point's ``usd`` is what they cost up to and including its own.
    """
    ordered = sorted(steps, key=lambda step: step.idx)
    indices = [step.idx for step in ordered]
    paid = [0.0, *accumulate(step.usd for step in ordered)]
    return tuple(
        CurvePoint(
            step=improvement.step,
            attempt=improvement.attempt,
            usd=paid[bisect_right(indices, improvement.step)],
            seconds=_seconds(session, improvement),
            speedup=improvement.speedup,
            speedup_low=improvement.speedup_low,
            speedup_high=improvement.speedup_high,
        )
        for improvement in sorted(improvements, key=lambda improvement: improvement.n)
    )


def best_per_problem(sessions: Iterable[Session]) -> dict[str, Improvement | None]:
    """Each problem's best over its sessions, by the interval's lower end: the surest, not the luckiest."""
    best: dict[str, Improvement | None] = {}
    for session in sessions:
        held = best.setdefault(session.problem_id, None)
        if session.best is not None and (held is None or session.best.speedup_low > held.speedup_low):
            best[session.problem_id] = session.best
    return best


def score(sessions: Iterable[Session]) -> CampaignScore:
    """The score of the campaign these sessions make up."""
    speedups = [1.0 if best is None else best.speedup for best in best_per_problem(sessions).values()]
    return CampaignScore(
        problems=len(speedups),
        improved=sum(speedup > 1 for speedup in speedups),
        # A slower kernel is not used either: its problem counts as 1, too.
        geometric_mean=math.exp(_mean([math.log(max(speedup, 1.0)) for speedup in speedups])),
        fast_1=_mean([float(speedup > 1) for speedup in speedups]),
        fast_2=_mean([float(speedup > 2) for speedup in speedups]),
    )


def _seconds(session: Session, improvement: Improvement) -> float:
    if session.started_at is None:
        return 0.0
    return max(0.0, (improvement.at - session.started_at).total_seconds())


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
