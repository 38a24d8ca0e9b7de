"""Candidates: submitted sources, counted once however often their step is replayed."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session as OrmSession

from evaluator.model import Evaluation
from kernel_agent.errors import StoreError
from kernel_agent.model import Candidate
from kernel_agent.store import outbox
from kernel_agent.store.part import StorePart, fenced, not_found, put_source, session_row
from kernel_agent.store.records import Fence
from kernel_agent.store.schema import CandidateRow, EvaluationRow


class Candidates(StorePart):
    def add_candidate(
        self, fence: Fence, step: int, tool_call_id: str, source: str, parent_id: str | None, hypothesis: str
    ) -> Candidate:
        """Store an attempt. The same (session, step, tool call) again returns the stored one, so a resume repeats it.

        Event ``candidate`` {candidate, n, step, source_sha, parent, hypothesis} on the first.

        :raises StoreError: the repeated attempt has another source, or the parent is another session's.
        """
        now = self._now()
        with self._db.write() as tx:
            session = fenced(tx, fence)
            stored = tx.scalar(
                select(CandidateRow).where(
                    CandidateRow.session_id == session.id,
                    CandidateRow.step == step,
                    CandidateRow.tool_call_id == tool_call_id,
                )
            )
            source_sha = put_source(tx, source)
            if stored is not None:
                if stored.source_sha != source_sha:
                    raise StoreError(
                        f"session {session.id} submitted another source at step {step} in call {tool_call_id} before "
                        f"({stored.id}); restore the workspace of that step, then repeat it"
                    )
                return _with_verdicts(tx, [stored])[0]
            if parent_id is not None:
                parent = tx.get(CandidateRow, parent_id)
                if parent is None or parent.session_id != session.id:
                    raise StoreError(
                        f"candidate {parent_id!r} is not one of session {session.id}; it cannot be a parent"
                    )
            newest = tx.scalar(select(func.max(CandidateRow.n)).where(CandidateRow.session_id == session.id))
            n = (newest or 0) + 1
            row = CandidateRow(
                id=f"{session.id}-k{n}",
                session_id=session.id,
                n=n,
                step=step,
                tool_call_id=tool_call_id,
                source_sha=source_sha,
                parent_id=parent_id,
                hypothesis=hypothesis,
                at=now,
            )
            tx.add(row)
            tx.flush()
            data = {
                "candidate": row.id,
                "n": n,
                "step": step,
                "source_sha": source_sha,
                "parent": parent_id,
                "hypothesis": hypothesis,
            }
            outbox.append(tx, session.campaign_id, "candidate", now, session.id, data)
            return _with_verdicts(tx, [row])[0]

    def candidate(self, id: str) -> Candidate:
        with self._db.read() as tx:
            return _with_verdicts(tx, [candidate_row(tx, id)])[0]

    def candidates(self, session_id: str) -> list[Candidate]:
        """A session's attempts, oldest first, with their verdicts."""
        with self._db.read() as tx:
            session_row(tx, session_id)
            rows = tx.scalars(
                select(CandidateRow).where(CandidateRow.session_id == session_id).order_by(CandidateRow.n)
            )
            return _with_verdicts(tx, list(rows))


def candidate_row(tx: OrmSession, id: str) -> CandidateRow:
    row = tx.get(CandidateRow, id)
    if row is None:
        session_id = id.rpartition("-k")[0]
        known = tx.scalars(select(CandidateRow.id).where(CandidateRow.session_id == session_id))
        raise not_found("candidate", id, known)
    return row


def _with_verdicts(tx: OrmSession, rows: Sequence[CandidateRow]) -> list[Candidate]:
    """With each one's first screening (asking again is no lottery) and newest promotion (the incumbent may differ)."""
    session_ids = {row.session_id for row in rows}
    wanted = select(EvaluationRow).where(EvaluationRow.session_id.in_(session_ids), EvaluationRow.purpose != "final")
    if len(rows) == 1:
        wanted = wanted.where(EvaluationRow.candidate_id == rows[0].id)
    screens: dict[str, EvaluationRow] = {}
    promotions: dict[str, EvaluationRow] = {}
    for row in tx.scalars(wanted.order_by(EvaluationRow.n)):
        if row.purpose == "screen":
            screens.setdefault(row.candidate_id, row)
        else:
            promotions[row.candidate_id] = row
    return [
        Candidate(
            id=row.id,
            session_id=row.session_id,
            step=row.step,
            n=row.n,
            tool_call_id=row.tool_call_id,
            source_sha=row.source_sha,
            parent_id=row.parent_id,
            hypothesis=row.hypothesis,
            at=row.at,
            screen=_parsed(screens.get(row.id)),
            promotion=_parsed(promotions.get(row.id)),
        )
        for row in rows
    ]


def _parsed(row: EvaluationRow | None) -> Evaluation | None:
    return None if row is None else Evaluation.model_validate_json(row.body)
