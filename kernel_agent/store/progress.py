"""What a session has reached and what it forgot: improvements and compactions, both append-only."""

from __future__ import annotations

from sqlalchemy import func, select

from evaluator.model import Evaluation
from kernel_agent.errors import StoreError
from kernel_agent.model import Compaction, Improvement
from kernel_agent.store import outbox
from kernel_agent.store.evaluations import own_candidate
from kernel_agent.store.part import StorePart, fenced, session_row
from kernel_agent.store.records import Fence
from kernel_agent.store.schema import CompactionRow, ImprovementRow
from kernel_agent.store.totals import newest_improvements, to_improvement

BASELINE = "eager"
"""What speedups are relative to: the problem's own module, run eagerly."""


class Progress(StorePart):
    def add_improvement(self, fence: Fence, candidate_id: str, evaluation: Evaluation) -> Improvement:
        """Record a confirmed new best with its promotion's own numbers; the same candidate again changes nothing.

        Event ``improvement`` {n, candidate, step, attempt, speedup, low, high}.

        :raises StoreError: the verdict confirms nothing: not correct, a mere screening, or not accepted.
        """
        now = self._now()
        with self._db.write() as tx:
            session = fenced(tx, fence)
            candidate = own_candidate(tx, session, candidate_id)
            stored = tx.scalar(select(ImprovementRow).where(ImprovementRow.candidate_id == candidate_id))
            if stored is not None:
                return to_improvement(stored)
            confirmed = evaluation.purpose != "screen" and evaluation.accepted is not False
            if evaluation.status != "correct" or not confirmed or evaluation.source_sha != candidate.source_sha:
                raise StoreError(
                    f"candidate {candidate_id} is no improvement: its {evaluation.purpose} verdict is "
                    f"{evaluation.status}, accepted: {evaluation.accepted}; only an accepted promotion counts"
                )
            newest = tx.scalar(select(func.max(ImprovementRow.n)).where(ImprovementRow.session_id == session.id))
            row = ImprovementRow(
                session_id=session.id,
                target=evaluation.target,
                gate=evaluation.gate,
                lane=evaluation.lane or "",
                baseline=BASELINE,
                n=(newest or 0) + 1,
                candidate_id=candidate_id,
                step=candidate.step,
                attempt=candidate.n,
                speedup=evaluation.speedup,
                speedup_low=evaluation.speedup_low,
                speedup_high=evaluation.speedup_high,
                reference_ms=evaluation.reference_ms,
                candidate_ms=evaluation.candidate_ms,
                at=now,
            )
            tx.add(row)
            tx.flush()
            data = {
                "n": row.n,
                "candidate": candidate_id,
                "step": row.step,
                "attempt": row.attempt,
                "speedup": row.speedup,
                "low": row.speedup_low,
                "high": row.speedup_high,
            }
            outbox.append(tx, session.campaign_id, "improvement", now, session.id, data)
            return to_improvement(row)

    def improvements(self, session_id: str) -> list[Improvement]:
        """A session's confirmed bests, oldest first."""
        with self._db.read() as tx:
            session_row(tx, session_id)
            rows = tx.scalars(
                select(ImprovementRow).where(ImprovementRow.session_id == session_id).order_by(ImprovementRow.n)
            )
            return [to_improvement(row) for row in rows]

    def best(self, session_id: str) -> Improvement | None:
        """The newest improvement: each one beat the one before it in the same rounds."""
        with self._db.read() as tx:
            session_row(tx, session_id)
            return newest_improvements(tx, [session_id]).get(session_id)

    def add_compaction(
        self, fence: Fence, from_step: int, tokens_before: int, tokens_after: int, strategy: str
    ) -> Compaction:
        """Record that the context was cut before ``from_step``. The same step again returns the stored one.

        Event ``compaction`` {from_step, tokens_before, tokens_after, strategy} on the first.
        """
        now = self._now()
        with self._db.write() as tx:
            session = fenced(tx, fence)
            stored = tx.get(CompactionRow, (session.id, from_step))
            if stored is not None:
                return to_compaction(stored)
            data = {
                "from_step": from_step,
                "tokens_before": tokens_before,
                "tokens_after": tokens_after,
                "strategy": strategy,
            }
            row = CompactionRow(session_id=session.id, at=now, **data)
            tx.add(row)
            tx.flush()
            outbox.append(tx, session.campaign_id, "compaction", now, session.id, data)
            return to_compaction(row)

    def compactions(self, session_id: str) -> list[Compaction]:
        """A session's compactions, oldest first."""
        with self._db.read() as tx:
            session_row(tx, session_id)
            rows = tx.scalars(
                select(CompactionRow).where(CompactionRow.session_id == session_id).order_by(CompactionRow.from_step)
            )
            return [to_compaction(row) for row in rows]


def to_compaction(row: CompactionRow) -> Compaction:
    return Compaction(
        session_id=row.session_id,
        from_step=row.from_step,
        tokens_before=row.tokens_before,
        tokens_after=row.tokens_after,
        strategy=row.strategy,
        at=row.at,
    )
