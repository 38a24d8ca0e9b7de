"""The tables. Constraints here are the last line: what they refuse cannot be stored by any code path.

``migrations/versions`` creates exactly these (a test compares them); change both together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from evaluator.model import LANES, Purpose, Status, Target
from kernel_agent.model import CallKind, CampaignState, SessionState
from kernel_agent.store.column_types import Usd, UtcDateTime
from kernel_agent.store.records import CallState

Sha = String(64)
Id = String(40)
Word = String(40)


def _one_of(column: str, kind: object) -> str:
    return f"{column} IN ({', '.join(repr(v) for v in get_args(kind))})"


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: UtcDateTime(), dict[str, Any]: JSON()}  # noqa: RUF012 (SQLAlchemy's protocol)


class CampaignRow(Base):
    __tablename__ = "campaign"
    __table_args__ = (
        CheckConstraint(_one_of("state", CampaignState), name="state"),
        CheckConstraint("spent_nanousd >= 0 AND reserved_nanousd >= 0", name="money"),
        CheckConstraint("cap_nanousd IS NULL OR cap_nanousd >= 0", name="cap"),
        CheckConstraint("next_seq >= 1", name="next_seq"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(Text, index=True)
    settings: Mapped[str] = mapped_column(Text)
    """``CampaignSettings`` as JSON, resolved at launch."""
    state: Mapped[CampaignState] = mapped_column(Word)
    reason: Mapped[str] = mapped_column(Text, default="")
    cap_usd: Mapped[float | None] = mapped_column("cap_nanousd", Usd)
    spent_usd: Mapped[float] = mapped_column("spent_nanousd", Usd, default=0.0)
    reserved_usd: Mapped[float] = mapped_column("reserved_nanousd", Usd, default=0.0)
    cap_seconds: Mapped[float | None]
    ran_seconds: Mapped[float] = mapped_column(default=0.0)
    """Seconds in state ``running`` before ``running_since``."""
    running_since: Mapped[datetime | None]
    next_seq: Mapped[int] = mapped_column(BigInteger, default=1)
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class SourceRow(Base):
    """Text by its hash: problems and candidates alike."""

    __tablename__ = "source"
    __table_args__ = (CheckConstraint("length(sha256) = 64", name="sha256"),)

    sha256: Mapped[str] = mapped_column(Sha, primary_key=True)
    text: Mapped[str] = mapped_column(Text)


class BlobRow(Base):
    """Bytes by their hash, compressed with zlib: the answers of models."""

    __tablename__ = "blob"
    __table_args__ = (
        CheckConstraint("length(sha256) = 64", name="sha256"),
        CheckConstraint("size_bytes >= 0", name="size"),
    )

    sha256: Mapped[str] = mapped_column(Sha, primary_key=True)
    """Of the bytes before compression."""
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    data: Mapped[bytes] = mapped_column(LargeBinary)


class SessionRow(Base):
    __tablename__ = "session"
    __table_args__ = (
        UniqueConstraint("campaign_id", "problem_sha", "rollout", "profile"),
        UniqueConstraint("campaign_id", "n"),
        CheckConstraint(_one_of("state", SessionState), name="state"),
        CheckConstraint("spent_nanousd >= 0 AND reserved_nanousd >= 0", name="money"),
        CheckConstraint("lease_epoch >= 0", name="lease_epoch"),
        CheckConstraint("(lease_owner IS NULL) = (lease_expires_at IS NULL)", name="lease"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    campaign_id: Mapped[str] = mapped_column(ForeignKey("campaign.id"))
    n: Mapped[int]
    """1-based within the campaign."""
    problem_id: Mapped[str] = mapped_column(Text)
    problem_sha: Mapped[str] = mapped_column(ForeignKey("source.sha256"))
    problem: Mapped[str] = mapped_column(Text)
    """``Problem`` as JSON without its source, which is in ``source``."""
    rollout: Mapped[int]
    profile: Mapped[str] = mapped_column(Text)
    state: Mapped[SessionState] = mapped_column(Word)
    reason: Mapped[str] = mapped_column(Text, default="")
    lease_owner: Mapped[str | None] = mapped_column(Text)
    lease_epoch: Mapped[int] = mapped_column(default=0)
    lease_expires_at: Mapped[datetime | None]
    cap_steps: Mapped[int]
    cap_usd: Mapped[float | None] = mapped_column("cap_nanousd", Usd)
    cap_seconds: Mapped[float | None]
    spent_usd: Mapped[float] = mapped_column("spent_nanousd", Usd, default=0.0)
    reserved_usd: Mapped[float] = mapped_column("reserved_nanousd", Usd, default=0.0)
    ran_seconds: Mapped[float] = mapped_column(default=0.0)
    running_since: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class ModelCallRow(Base):
    """The gateway's journal. One row per distinct request; sending it again reuses the row under a new id."""

    __tablename__ = "model_call"
    __table_args__ = (
        UniqueConstraint("session_id", "request_sha"),
        CheckConstraint(_one_of("kind", CallKind), name="kind"),
        CheckConstraint(_one_of("state", CallState), name="state"),
        CheckConstraint("(state = 'answered') = (response_sha IS NOT NULL)", name="answered"),
        CheckConstraint("state = 'started' OR reserved_nanousd = 0", name="settled"),
        CheckConstraint("usd_nanousd >= 0 AND reserved_nanousd >= 0", name="money"),
        CheckConstraint(
            "prompt_tokens >= 0 AND cached_tokens >= 0 AND cache_write_tokens >= 0 AND completion_tokens >= 0",
            name="tokens",
        ),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("session.id"))
    n: Mapped[int]
    """Order in which the session's calls were first sent."""
    request_sha: Mapped[str] = mapped_column(Sha)
    content_sha: Mapped[str] = mapped_column(Sha, default="")
    tools_sha: Mapped[str] = mapped_column(Sha, default="")
    kind: Mapped[CallKind] = mapped_column(Word)
    state: Mapped[CallState] = mapped_column(Word)
    lease_epoch: Mapped[int]
    """The session's epoch when it was last sent."""
    attempts: Mapped[int] = mapped_column(default=1)
    prompt_tokens: Mapped[int] = mapped_column(default=0)
    cached_tokens: Mapped[int] = mapped_column(default=0)
    cache_write_tokens: Mapped[int] = mapped_column(default=0)
    completion_tokens: Mapped[int] = mapped_column(default=0)
    usd: Mapped[float] = mapped_column("usd_nanousd", Usd, default=0.0)
    reserved_usd: Mapped[float] = mapped_column("reserved_nanousd", Usd, default=0.0)
    charged_usd: Mapped[float] = mapped_column("charged_nanousd", Usd, default=0.0)
    """The part of ``usd`` that the latest lost attempt was charged; given back if its answer still arrives."""
    response_sha: Mapped[str | None] = mapped_column(ForeignKey("blob.sha256"))
    note: Mapped[str] = mapped_column(Text, default="")
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]


class StepRow(Base):
    __tablename__ = "step"
    __table_args__ = (UniqueConstraint("call_id"), CheckConstraint("idx >= 0", name="idx"))

    session_id: Mapped[str] = mapped_column(ForeignKey("session.id"), primary_key=True)
    idx: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    call_id: Mapped[str] = mapped_column(ForeignKey("model_call.id"))
    prompt_tokens: Mapped[int]
    cached_tokens: Mapped[int]
    cache_write_tokens: Mapped[int]
    completion_tokens: Mapped[int]
    usd: Mapped[float] = mapped_column("usd_nanousd", Usd)
    at: Mapped[datetime]


class CandidateRow(Base):
    __tablename__ = "candidate"
    __table_args__ = (
        UniqueConstraint("session_id", "step", "tool_call_id"),
        UniqueConstraint("session_id", "n"),
        CheckConstraint("n >= 1 AND step >= 0", name="counts"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("session.id"))
    n: Mapped[int]
    step: Mapped[int]
    tool_call_id: Mapped[str] = mapped_column(Text)
    source_sha: Mapped[str] = mapped_column(ForeignKey("source.sha256"), index=True)
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("candidate.id"))
    hypothesis: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime]


class EvaluationRow(Base):
    """A verdict, whole in ``body``; the columns beside it are what queries ask for. A trigger refuses updates."""

    __tablename__ = "evaluation"
    __table_args__ = (
        UniqueConstraint("candidate_id", "spec_sha", "purpose", "repeat"),
        Index("ix_evaluation_content", "source_sha", "spec_sha", "purpose"),
        CheckConstraint(_one_of("purpose", Purpose), name="purpose"),
        CheckConstraint(_one_of("status", Status), name="status"),
        CheckConstraint(_one_of("target", Target), name="target"),
        CheckConstraint("(status = 'correct') = (speedup IS NOT NULL)", name="speedup_only_when_correct"),
        CheckConstraint(
            "(speedup IS NULL) = (speedup_low IS NULL) AND (speedup IS NULL) = (speedup_high IS NULL)",
            name="interval_with_speedup",
        ),
        CheckConstraint("speedup_low <= speedup AND speedup <= speedup_high", name="interval"),
        CheckConstraint("repeat >= 0", name="repeat"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    n: Mapped[int] = mapped_column(BigInteger)
    """Order within the session."""
    candidate_id: Mapped[str] = mapped_column(ForeignKey("candidate.id"))
    session_id: Mapped[str] = mapped_column(ForeignKey("session.id"), index=True)
    source_sha: Mapped[str] = mapped_column(ForeignKey("source.sha256"))
    spec_sha: Mapped[str] = mapped_column(Sha)
    purpose: Mapped[Purpose] = mapped_column(Word)
    repeat: Mapped[int]
    status: Mapped[Status] = mapped_column(Word)
    target: Mapped[Target] = mapped_column(Word)
    gpu: Mapped[str] = mapped_column(Text)
    gate: Mapped[str] = mapped_column(Word)
    lane: Mapped[str | None] = mapped_column(Word)
    isolation: Mapped[str] = mapped_column(Word)
    protocol_version: Mapped[str] = mapped_column(Word)
    speedup: Mapped[float | None]
    speedup_low: Mapped[float | None]
    speedup_high: Mapped[float | None]
    reference_ms: Mapped[float | None]
    candidate_ms: Mapped[float | None]
    gain_low: Mapped[float | None]
    accepted: Mapped[bool | None]
    body: Mapped[str] = mapped_column(Text)
    """``Evaluation`` as JSON."""
    at: Mapped[datetime]


class GateResultRow(Base):
    __tablename__ = "gate_result"
    __table_args__ = (CheckConstraint(f"lane IN ({', '.join(map(repr, ('', *LANES)))})", name="lane"),)

    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluation.id"), primary_key=True)
    gate: Mapped[str] = mapped_column(Word, primary_key=True)
    lane: Mapped[str] = mapped_column(Word, primary_key=True)
    """Empty for a gate that knows no lanes."""
    passed: Mapped[bool]
    rms: Mapped[float | None]
    rms_bound: Mapped[float | None]
    tail: Mapped[float | None]
    tail_bound: Mapped[float | None]
    pass_share: Mapped[float | None]


class ImprovementRow(Base):
    """Append-only. A session's best is its newest row; a campaign's best is a query."""

    __tablename__ = "improvement"
    __table_args__ = (
        UniqueConstraint("session_id", "n"),
        UniqueConstraint("candidate_id"),
        CheckConstraint("speedup_low <= speedup AND speedup <= speedup_high", name="interval"),
        CheckConstraint("n >= 1", name="n"),
    )

    session_id: Mapped[str] = mapped_column(ForeignKey("session.id"), primary_key=True)
    target: Mapped[str] = mapped_column(Word, primary_key=True)
    gate: Mapped[str] = mapped_column(Word, primary_key=True)
    lane: Mapped[str] = mapped_column(Word, primary_key=True)
    baseline: Mapped[str] = mapped_column(Word, primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    candidate_id: Mapped[str] = mapped_column(ForeignKey("candidate.id"))
    step: Mapped[int]
    attempt: Mapped[int]
    speedup: Mapped[float]
    speedup_low: Mapped[float]
    speedup_high: Mapped[float]
    reference_ms: Mapped[float]
    candidate_ms: Mapped[float]
    at: Mapped[datetime]


class CompactionRow(Base):
    __tablename__ = "compaction"
    __table_args__ = (CheckConstraint("tokens_before >= 0 AND tokens_after >= 0", name="tokens"),)

    session_id: Mapped[str] = mapped_column(ForeignKey("session.id"), primary_key=True)
    from_step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tokens_before: Mapped[int] = mapped_column(BigInteger)
    tokens_after: Mapped[int] = mapped_column(BigInteger)
    strategy: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime]


class EventRow(Base):
    """The outbox. Append-only, numbered without gaps in commit order."""

    __tablename__ = "event"
    __table_args__ = (
        UniqueConstraint("campaign_id", "once_key"),
        CheckConstraint("seq >= 1", name="seq"),
        ForeignKeyConstraint(["session_id"], ["session.id"]),
    )

    campaign_id: Mapped[str] = mapped_column(ForeignKey("campaign.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(Word)
    session_id: Mapped[str | None] = mapped_column(Id)
    once_key: Mapped[str | None] = mapped_column(Text)
    """Set for what may be said only once, such as a budget warning."""
    data: Mapped[dict[str, Any]]
    at: Mapped[datetime]


class DeviceLeaseRow(Base):
    __tablename__ = "device_lease"
    __table_args__ = (
        CheckConstraint("epoch >= 1", name="epoch"),
        CheckConstraint("(owner IS NULL) = (expires_at IS NULL)", name="lease"),
    )

    device_uuid: Mapped[str] = mapped_column(Text, primary_key=True)
    epoch: Mapped[int]
    owner: Mapped[str | None] = mapped_column(Text)
    expires_at: Mapped[datetime | None]


APPEND_ONLY = ("evaluation", "gate_result", "improvement", "event")
"""Tables whose rows a trigger protects from updates."""
