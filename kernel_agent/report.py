"""What a campaign achieved and what it took: data only; ``report_text`` and ``report_html`` say it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict

from evaluator.model import Lane, Target
from kernel_agent.curves import CampaignScore, curve, score
from kernel_agent.figures import NamedCurve
from kernel_agent.model import Campaign, CampaignState, Improvement, Session, Usage
from kernel_agent.store.repository import Store


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Work(Frozen):
    """What was done and spent. ``tokens`` counts prompt (cached ones included) and completion."""

    statuses: dict[str, int]
    """Screening verdicts by status."""
    steps: int
    candidates: int
    compactions: int
    tokens: int
    usage: Usage
    cost_usd: float
    wall_seconds: float
    """Session time added up; parallel sessions add more than the clock shows."""


class ProblemReport(Work):
    """One problem over all its rollouts. The speedup is the best rollout's confirmed one; None: unsolved."""

    problem: str
    sessions: int
    states: dict[str, int]
    """Sessions by state."""
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    speedup_compile: float | None
    """Of that same kernel over torch.compile, where that was measured."""
    speedup_lane: float | None
    """Of it over eager in the lane's own precision, where that was measured."""
    soundness: str
    """Verdict on the problem, as it was known when that kernel was judged; empty: not probed."""
    best_session: str | None
    best_step: int | None


class Totals(Work):
    problems: int
    solved: int
    """Problems with a confirmed correct kernel, faster or not."""
    faster: int
    """Problems whose best has its whole interval above 1."""


class Report(Frozen):
    campaign_id: str
    name: str
    state: CampaignState
    reason: str
    model: str
    compaction: str
    target: Target
    profile: str
    lane: Lane
    provenance: str
    """``live``, or how the model's replies came about: ``recorded``, ``scripted``."""
    price_name: str
    """Whose prices the costs are in."""
    at: datetime
    problems: tuple[ProblemReport, ...]
    totals: Totals
    geometric_mean_speedup: float | None
    """Over the solved problems; None when there is none."""
    score: CampaignScore
    """Over all problems, the unsolved and the slower ones counted as 1."""
    curves: tuple[NamedCurve, ...]


def campaign_report(store: Store, campaign_id: str, *, now: datetime | None = None) -> Report:
    """The report of a campaign as the store has it now, running or not.

    ``now`` closes the wall time of sessions that still run; None: this moment. NotFoundError for an unknown campaign.
    """
    campaign = store.campaign(campaign_id)
    at = now or datetime.now(UTC)
    sessions = store.sessions(campaign.id)
    problems = tuple(_problem(store, group, at) for group in by_problem(sessions))
    return Report(
        campaign_id=campaign.id,
        name=campaign.settings.name,
        state=campaign.state,
        reason=campaign.reason,
        model=campaign.settings.model,
        compaction=campaign.settings.compaction,
        target=campaign.settings.target,
        profile=campaign.settings.profile,
        lane=campaign.settings.lane,
        provenance=campaign.settings.provenance,
        price_name=campaign.settings.price.name,
        at=at,
        problems=problems,
        totals=_totals(problems, sessions, at),
        geometric_mean_speedup=geometric_mean([p.speedup for p in problems if p.speedup is not None]),
        score=score(sessions),
        curves=named_curves(store, campaign, sessions),
    )


def named_curves(store: Store, campaign: Campaign, sessions: Sequence[Session]) -> tuple[NamedCurve, ...]:
    """One curve per session, in the order given."""
    return tuple(
        NamedCurve(
            label=session_label(session, campaign.settings.rollouts),
            points=curve(session, store.improvements(session.id), store.steps(session.id)) if session.best else (),
            last_step=max(session.steps - 1, 0),
        )
        for session in sessions
    )


def session_label(session: Session, rollouts: int) -> str:
    """The problem, with the rollout's number (from 1) where there are several."""
    return f"{session.problem_id} #{session.rollout + 1}" if rollouts > 1 else session.problem_id


def best_of(sessions: Iterable[Session]) -> tuple[Session, Improvement] | None:
    """The session with the best confirmed result, and that result.

    By the interval's lower end: of several noisy results the largest point estimate is the luckiest one.
    """
    solved = [(session, session.best) for session in sessions if session.best is not None]
    return max(solved, key=lambda pair: pair[1].speedup_low, default=None)


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """exp of the mean of logarithms; None for no ratios."""
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios)) if ratios else None


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Field by field."""
    counted = list(usages)
    return Usage(**{name: sum(getattr(usage, name) for usage in counted) for name in Usage.model_fields})


def by_problem(sessions: Sequence[Session]) -> list[list[Session]]:
    """The rollouts of each problem together, in the order of their first."""
    groups: dict[tuple[str, str], list[Session]] = {}
    for session in sessions:
        groups.setdefault((session.problem_sha, session.profile), []).append(session)
    return list(groups.values())


def _problem(store: Store, sessions: Sequence[Session], now: datetime) -> ProblemReport:
    best = best_of(sessions)
    confirmed = store.candidate(best[1].candidate_id).promotion if best else None
    return ProblemReport(
        **_work(sessions, now).model_dump(),
        problem=sessions[0].problem_id,
        sessions=len(sessions),
        states=dict(Counter(session.state for session in sessions)),
        speedup=best[1].speedup if best else None,
        speedup_low=best[1].speedup_low if best else None,
        speedup_high=best[1].speedup_high if best else None,
        speedup_compile=confirmed.speedup_compile if confirmed else None,
        speedup_lane=confirmed.speedup_lane if confirmed else None,
        soundness=(confirmed.soundness if confirmed else None) or "",
        best_session=best[0].id if best else None,
        best_step=best[1].step if best else None,
    )


def _totals(problems: Sequence[ProblemReport], sessions: Sequence[Session], now: datetime) -> Totals:
    return Totals(
        **_work(sessions, now).model_dump(),
        problems=len(problems),
        solved=sum(problem.speedup is not None for problem in problems),
        faster=sum(problem.speedup_low is not None and problem.speedup_low > 1 for problem in problems),
    )


def _work(sessions: Sequence[Session], now: datetime) -> Work:
    statuses: Counter[str] = Counter()
    for session in sessions:
        statuses.update(session.statuses)
    usage = total_usage(session.usage for session in sessions)
    return Work(
        statuses=dict(statuses),
        steps=sum(session.steps for session in sessions),
        candidates=sum(session.candidates for session in sessions),
        compactions=sum(session.compactions for session in sessions),
        tokens=usage.prompt_tokens + usage.completion_tokens,
        usage=usage,
        cost_usd=math.fsum(session.spent_usd for session in sessions),
        wall_seconds=math.fsum(_wall_seconds(session, now) for session in sessions),
    )


def _wall_seconds(session: Session, now: datetime) -> float:
    if session.started_at is None:
        return 0.0
    return max(((session.ended_at or now) - session.started_at).total_seconds(), 0.0)
