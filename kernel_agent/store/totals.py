"""A session's totals, for many sessions in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Select, Subquery, func, select
from sqlalchemy.orm import Session as OrmSession

from kernel_agent.model import Improvement, Session, Usage
from kernel_agent.store.schema import (
    CandidateRow,
    CompactionRow,
    EvaluationRow,
    ImprovementRow,
    ModelCallRow,
    SessionRow,
    StepRow,
)


def filled(tx: OrmSession, rows: Sequence[SessionRow]) -> list[Session]:
    """The rows as sessions, in their order."""
    ids = [row.id for row in rows]
    steps = _pairs(tx, select(StepRow.session_id, func.count()).where(StepRow.session_id.in_(ids)))
    candidates = _pairs(tx, select(CandidateRow.session_id, func.count()).where(CandidateRow.session_id.in_(ids)))
    compactions = _pairs(tx, select(CompactionRow.session_id, func.count()).where(CompactionRow.session_id.in_(ids)))
    usage = _usage(tx, ids)
    statuses = _statuses(tx, ids)
    bests = newest_improvements(tx, ids)
    return [
        Session(
            id=row.id,
            campaign_id=row.campaign_id,
            problem_id=row.problem_id,
            problem_sha=row.problem_sha,
            rollout=row.rollout,
            profile=row.profile,
            state=row.state,
            reason=row.reason,
            lease_epoch=row.lease_epoch,
            started_at=row.started_at,
            ended_at=row.ended_at,
            steps=steps.get(row.id, 0),
            candidates=candidates.get(row.id, 0),
            statuses=statuses.get(row.id, {}),
            best=bests.get(row.id),
            compactions=compactions.get(row.id, 0),
            usage=usage.get(row.id, Usage()),
            spent_usd=row.spent_usd,
        )
        for row in rows
    ]


def newest_improvements(tx: OrmSession, session_ids: Sequence[str]) -> dict[str, Improvement]:
    """Each session's best: its newest improvement, which was measured against the one before it."""
    newest = (
        select(ImprovementRow.session_id, func.max(ImprovementRow.n).label("n"))
        .where(ImprovementRow.session_id.in_(session_ids))
        .group_by(ImprovementRow.session_id)
        .subquery()
    )
    rows = tx.scalars(
        select(ImprovementRow).join(
            newest, (ImprovementRow.session_id == newest.c.session_id) & (ImprovementRow.n == newest.c.n)
        )
    )
    return {row.session_id: to_improvement(row) for row in rows}


def to_improvement(row: ImprovementRow) -> Improvement:
    return Improvement(
        session_id=row.session_id,
        n=row.n,
        candidate_id=row.candidate_id,
        step=row.step,
        attempt=row.attempt,
        speedup=row.speedup,
        speedup_low=row.speedup_low,
        speedup_high=row.speedup_high,
        reference_ms=row.reference_ms,
        candidate_ms=row.candidate_ms,
        at=row.at,
    )


def _pairs(tx: OrmSession, query: Select[str, int]) -> dict[str, int]:
    key = query.selected_columns[0]
    return dict(tx.execute(query.group_by(key)).tuples().all())


def _usage(tx: OrmSession, ids: Sequence[str]) -> dict[str, Usage]:
    """Tokens of all answered calls, summaries included, so that they belong to the money spent."""
    query = (
        select(
            ModelCallRow.session_id,
            func.sum(ModelCallRow.prompt_tokens),
            func.sum(ModelCallRow.cached_tokens),
            func.sum(ModelCallRow.cache_write_tokens),
            func.sum(ModelCallRow.completion_tokens),
        )
        .where(ModelCallRow.session_id.in_(ids))
        .group_by(ModelCallRow.session_id)
    )
    return {
        id_: Usage(prompt_tokens=prompt, cached_tokens=cached, cache_write_tokens=written, completion_tokens=completion)
        for id_, prompt, cached, written, completion in tx.execute(query)
    }


def _statuses(tx: OrmSession, ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Verdicts of each candidate's first screening, counted by status."""
    first: Subquery = (
        select(EvaluationRow.candidate_id, func.min(EvaluationRow.n).label("n"))
        .where(EvaluationRow.session_id.in_(ids), EvaluationRow.purpose == "screen")
        .group_by(EvaluationRow.candidate_id)
        .subquery()
    )
    query = (
        select(EvaluationRow.session_id, EvaluationRow.status, func.count())
        .join(first, (EvaluationRow.candidate_id == first.c.candidate_id) & (EvaluationRow.n == first.c.n))
        .group_by(EvaluationRow.session_id, EvaluationRow.status)
        .order_by(EvaluationRow.session_id, EvaluationRow.status)
    )
    counted: dict[str, dict[str, int]] = {}
    for id_, status, count in tx.execute(query):
        counted.setdefault(id_, {})[status] = count
    return counted
