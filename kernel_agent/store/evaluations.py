"""Verdicts: stored whole before anyone hears them, never changed, found again by content."""

from __future__ import annotations

import json
import secrets

from sqlalchemy import func, select
from sqlalchemy.orm import Session as OrmSession

from evaluator.model import Evaluation, GateResult, Purpose
from kernel_agent.errors import StoreError
from kernel_agent.model import EvaluationRecord
from kernel_agent.store import outbox
from kernel_agent.store.candidates import candidate_row
from kernel_agent.store.part import StorePart, fenced, session_row
from kernel_agent.store.records import Fence
from kernel_agent.store.schema import CandidateRow, EvaluationRow, GateResultRow, SessionRow


class Evaluations(StorePart):
    def add_evaluation(
        self,
        fence: Fence,
        candidate_id: str,
        spec_sha: str,
        purpose: Purpose,
        repeat: int,
        evaluation: Evaluation,
    ) -> EvaluationRecord:
        """Store a verdict. The same (candidate, spec, purpose, repeat) again returns the one stored first.

        Event ``evaluation`` {candidate, n, step, purpose, repeat, status, reason, speedup, speedup_low,
        speedup_high, reference_ms, candidate_ms} on the first.

        :raises StoreError: the verdict is about another source or purpose, or the candidate is another session's.
        """
        now = self._now()
        with self._db.write() as tx:
            session = fenced(tx, fence)
            candidate = own_candidate(tx, session, candidate_id)
            stored = tx.scalar(
                select(EvaluationRow).where(
                    EvaluationRow.candidate_id == candidate_id,
                    EvaluationRow.spec_sha == spec_sha,
                    EvaluationRow.purpose == purpose,
                    EvaluationRow.repeat == repeat,
                )
            )
            if stored is not None:
                return to_record(stored)
            _check(session, candidate, purpose, evaluation)
            newest = tx.scalar(select(func.max(EvaluationRow.n)).where(EvaluationRow.session_id == session.id))
            row = EvaluationRow(
                id="e" + secrets.token_hex(8),
                n=(newest or 0) + 1,
                candidate_id=candidate_id,
                session_id=session.id,
                source_sha=candidate.source_sha,
                spec_sha=spec_sha,
                purpose=purpose,
                repeat=repeat,
                status=evaluation.status,
                target=evaluation.target,
                gpu=evaluation.gpu,
                gate=evaluation.gate,
                lane=evaluation.lane,
                isolation=evaluation.isolation,
                protocol_version=evaluation.evidence.protocol_version,
                speedup=evaluation.speedup,
                speedup_low=evaluation.speedup_low,
                speedup_high=evaluation.speedup_high,
                reference_ms=evaluation.reference_ms,
                candidate_ms=evaluation.candidate_ms,
                gain_low=evaluation.gain_low,
                accepted=evaluation.accepted,
                body=_whole(evaluation),
                at=now,
            )
            tx.add(row)
            tx.flush()
            tx.add_all(_gate_row(row.id, gate) for gate in evaluation.gates if gate.applicable)
            data = {
                "candidate": candidate_id,
                "n": candidate.n,
                "step": candidate.step,
                "purpose": purpose,
                "repeat": repeat,
                **evaluation.model_dump(
                    include={
                        "status",
                        "reason",
                        "speedup",
                        "speedup_low",
                        "speedup_high",
                        "reference_ms",
                        "candidate_ms",
                    }
                ),
            }
            outbox.append(tx, session.campaign_id, "evaluation", now, session.id, data)
            return to_record(row)

    def evaluations(self, session_id: str) -> list[EvaluationRecord]:
        """A session's verdicts in the order they were stored."""
        with self._db.read() as tx:
            session_row(tx, session_id)
            rows = tx.scalars(
                select(EvaluationRow).where(EvaluationRow.session_id == session_id).order_by(EvaluationRow.n)
            )
            return [to_record(row) for row in rows]

    def verdict(
        self, source_sha: str, spec_sha: str, purpose: Purpose, campaign_id: str | None = None
    ) -> Evaluation | None:
        """The first verdict on this source under this spec, whoever submitted it; None when there is none.

        Resubmitting is no lottery: the first answer stands. ``campaign_id`` narrows it to one campaign, for a store
        whose older campaigns ran on other hardware (a spec does not name the device).
        """
        with self._db.read() as tx:
            query = (
                select(EvaluationRow.body)
                .join(SessionRow, SessionRow.id == EvaluationRow.session_id)
                .where(
                    EvaluationRow.source_sha == source_sha,
                    EvaluationRow.spec_sha == spec_sha,
                    EvaluationRow.purpose == purpose,
                )
                .order_by(EvaluationRow.at, EvaluationRow.n)
                .limit(1)
            )
            if campaign_id is not None:
                query = query.where(SessionRow.campaign_id == campaign_id)
            body = tx.scalar(query)
            return None if body is None else Evaluation.model_validate_json(body)


def to_record(row: EvaluationRow) -> EvaluationRecord:
    return EvaluationRecord(
        id=row.id,
        candidate_id=row.candidate_id,
        purpose=row.purpose,
        repeat=row.repeat,
        spec_sha=row.spec_sha,
        at=row.at,
        evaluation=Evaluation.model_validate_json(row.body),
    )


def own_candidate(tx: OrmSession, session: SessionRow, candidate_id: str) -> CandidateRow:
    """The candidate, which must be this session's."""
    candidate = candidate_row(tx, candidate_id)
    if candidate.session_id != session.id:
        raise StoreError(f"candidate {candidate_id} belongs to session {candidate.session_id}, not to {session.id}")
    return candidate


def _check(session: SessionRow, candidate: CandidateRow, purpose: Purpose, evaluation: Evaluation) -> None:
    if evaluation.source_sha != candidate.source_sha:
        raise StoreError(f"the verdict is about source {evaluation.source_sha[:12]}…, not about {candidate.id}'s")
    if evaluation.problem_sha != session.problem_sha:
        raise StoreError(f"the verdict is about problem {evaluation.problem_sha[:12]}…, not about {session.problem_id}")
    if evaluation.purpose != purpose:
        raise StoreError(f"a verdict made to {evaluation.purpose} cannot be stored as one to {purpose}")


def _whole(evaluation: Evaluation) -> str:
    """As JSON that reads back equal: pydantic's own would turn infinities and NaN, which gates do see, into null."""
    return json.dumps(evaluation.model_dump(mode="json"), ensure_ascii=False)


def _gate_row(evaluation_id: str, gate: GateResult) -> GateResultRow:
    return GateResultRow(
        evaluation_id=evaluation_id,
        gate=gate.gate,
        lane=gate.lane or "",
        passed=gate.passed,
        rms=gate.rms,
        rms_bound=gate.rms_bound,
        tail=gate.tail,
        tail_bound=gate.tail_bound,
        pass_share=gate.pass_share,
    )
