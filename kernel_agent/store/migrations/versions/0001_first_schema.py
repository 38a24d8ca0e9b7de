"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATUSES = (
    "correct",
    "incorrect",
    "wrong_shape",
    "wrong_dtype",
    "non_finite",
    "weights_not_transferable",
    "mutated_input",
    "background_work",
    "below_floor",
    "unstable",
    "compile_error",
    "build_timeout",
    "load_error",
    "runtime_error",
    "timeout",
    "out_of_memory",
    "crashed",
    "compiled",
    "interpreted",
    "reference_error",
    "reference_unsupported_in_precision",
    "skipped_oom_reference",
    "problem_unsound",
)
APPEND_ONLY = ("evaluation", "gate_result", "improvement", "event")


def upgrade() -> None:
    op.create_table(
        "blob",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_blob_sha256")),
        sa.CheckConstraint("size_bytes >= 0", name=op.f("ck_blob_size")),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_blob")),
    )
    op.create_table(
        "campaign",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=40), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("cap_nanousd", sa.BigInteger(), nullable=True),
        sa.Column("spent_nanousd", sa.BigInteger(), nullable=False),
        sa.Column("reserved_nanousd", sa.BigInteger(), nullable=False),
        sa.Column("cap_seconds", sa.Double(), nullable=True),
        sa.Column("ran_seconds", sa.Double(), nullable=False),
        sa.Column("running_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_seq", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('created', 'running', 'stopping', 'stopped', 'finished', 'failed')",
            name=op.f("ck_campaign_state"),
        ),
        sa.CheckConstraint("cap_nanousd IS NULL OR cap_nanousd >= 0", name=op.f("ck_campaign_cap")),
        sa.CheckConstraint("next_seq >= 1", name=op.f("ck_campaign_next_seq")),
        sa.CheckConstraint("spent_nanousd >= 0 AND reserved_nanousd >= 0", name=op.f("ck_campaign_money")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaign")),
    )
    op.create_index(op.f("ix_campaign_name"), "campaign", ["name"], unique=False)
    op.create_table(
        "device_lease",
        sa.Column("device_uuid", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(owner IS NULL) = (expires_at IS NULL)", name=op.f("ck_device_lease_lease")),
        sa.CheckConstraint("epoch >= 1", name=op.f("ck_device_lease_epoch")),
        sa.PrimaryKeyConstraint("device_uuid", name=op.f("pk_device_lease")),
    )
    op.create_table(
        "source",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_source_sha256")),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_source")),
    )
    op.create_table(
        "session",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("campaign_id", sa.String(length=40), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Text(), nullable=False),
        sa.Column("problem_sha", sa.String(length=64), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("rollout", sa.Integer(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=40), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_epoch", sa.Integer(), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cap_steps", sa.Integer(), nullable=False),
        sa.Column("cap_nanousd", sa.BigInteger(), nullable=True),
        sa.Column("cap_seconds", sa.Double(), nullable=True),
        sa.Column("spent_nanousd", sa.BigInteger(), nullable=False),
        sa.Column("reserved_nanousd", sa.BigInteger(), nullable=False),
        sa.Column("ran_seconds", sa.Double(), nullable=False),
        sa.Column("running_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'stopped', 'finished', 'stalled', 'failed')", name=op.f("ck_session_state")
        ),
        sa.CheckConstraint("(lease_owner IS NULL) = (lease_expires_at IS NULL)", name=op.f("ck_session_lease")),
        sa.CheckConstraint("lease_epoch >= 0", name=op.f("ck_session_lease_epoch")),
        sa.CheckConstraint("spent_nanousd >= 0 AND reserved_nanousd >= 0", name=op.f("ck_session_money")),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_session_campaign_id")),
        sa.ForeignKeyConstraint(["problem_sha"], ["source.sha256"], name=op.f("fk_session_problem_sha")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session")),
        sa.UniqueConstraint("campaign_id", "n", name=op.f("uq_session_campaign_id_n")),
        sa.UniqueConstraint(
            "campaign_id",
            "problem_sha",
            "rollout",
            "profile",
            name=op.f("uq_session_campaign_id_problem_sha_rollout_profile"),
        ),
    )
    op.create_table(
        "candidate",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("session_id", sa.String(length=40), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("tool_call_id", sa.Text(), nullable=False),
        sa.Column("source_sha", sa.String(length=64), nullable=False),
        sa.Column("parent_id", sa.String(length=40), nullable=True),
        sa.Column("hypothesis", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("n >= 1 AND step >= 0", name=op.f("ck_candidate_counts")),
        sa.ForeignKeyConstraint(["parent_id"], ["candidate.id"], name=op.f("fk_candidate_parent_id")),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_candidate_session_id")),
        sa.ForeignKeyConstraint(["source_sha"], ["source.sha256"], name=op.f("fk_candidate_source_sha")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_candidate")),
        sa.UniqueConstraint("session_id", "n", name=op.f("uq_candidate_session_id_n")),
        sa.UniqueConstraint(
            "session_id", "step", "tool_call_id", name=op.f("uq_candidate_session_id_step_tool_call_id")
        ),
    )
    op.create_index(op.f("ix_candidate_source_sha"), "candidate", ["source_sha"], unique=False)
    op.create_table(
        "compaction",
        sa.Column("session_id", sa.String(length=40), nullable=False),
        sa.Column("from_step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("tokens_before", sa.BigInteger(), nullable=False),
        sa.Column("tokens_after", sa.BigInteger(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("tokens_before >= 0 AND tokens_after >= 0", name=op.f("ck_compaction_tokens")),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_compaction_session_id")),
        sa.PrimaryKeyConstraint("session_id", "from_step", name=op.f("pk_compaction")),
    )
    op.create_table(
        "event",
        sa.Column("campaign_id", sa.String(length=40), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("session_id", sa.String(length=40), nullable=True),
        sa.Column("once_key", sa.Text(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("seq >= 1", name=op.f("ck_event_seq")),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_event_campaign_id")),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_event_session_id")),
        sa.PrimaryKeyConstraint("campaign_id", "seq", name=op.f("pk_event")),
        sa.UniqueConstraint("campaign_id", "once_key", name=op.f("uq_event_campaign_id_once_key")),
    )
    op.create_table(
        "model_call",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("session_id", sa.String(length=40), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("request_sha", sa.String(length=64), nullable=False),
        sa.Column("content_sha", sa.String(length=64), nullable=False),
        sa.Column("tools_sha", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=40), nullable=False),
        sa.Column("lease_epoch", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), nullable=False),
        sa.Column("cache_write_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("usd_nanousd", sa.BigInteger(), nullable=False),
        sa.Column("reserved_nanousd", sa.BigInteger(), nullable=False),
        sa.Column("charged_nanousd", sa.BigInteger(), nullable=False),
        sa.Column("response_sha", sa.String(length=64), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(state = 'answered') = (response_sha IS NOT NULL)", name=op.f("ck_model_call_answered")),
        sa.CheckConstraint("kind IN ('agent', 'summary', 'probe')", name=op.f("ck_model_call_kind")),
        sa.CheckConstraint("state = 'started' OR reserved_nanousd = 0", name=op.f("ck_model_call_settled")),
        sa.CheckConstraint("state IN ('started', 'answered', 'failed', 'lost')", name=op.f("ck_model_call_state")),
        sa.CheckConstraint(
            "prompt_tokens >= 0 AND cached_tokens >= 0 AND cache_write_tokens >= 0 AND completion_tokens >= 0",
            name=op.f("ck_model_call_tokens"),
        ),
        sa.CheckConstraint("usd_nanousd >= 0 AND reserved_nanousd >= 0", name=op.f("ck_model_call_money")),
        sa.ForeignKeyConstraint(["response_sha"], ["blob.sha256"], name=op.f("fk_model_call_response_sha")),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_model_call_session_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_call")),
        sa.UniqueConstraint("session_id", "request_sha", name=op.f("uq_model_call_session_id_request_sha")),
    )
    op.create_table(
        "evaluation",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("candidate_id", sa.String(length=40), nullable=False),
        sa.Column("session_id", sa.String(length=40), nullable=False),
        sa.Column("source_sha", sa.String(length=64), nullable=False),
        sa.Column("spec_sha", sa.String(length=64), nullable=False),
        sa.Column("purpose", sa.String(length=40), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=40), nullable=False),
        sa.Column("target", sa.String(length=40), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("gate", sa.String(length=40), nullable=False),
        sa.Column("lane", sa.String(length=40), nullable=True),
        sa.Column("isolation", sa.String(length=40), nullable=False),
        sa.Column("protocol_version", sa.String(length=40), nullable=False),
        sa.Column("speedup", sa.Double(), nullable=True),
        sa.Column("speedup_low", sa.Double(), nullable=True),
        sa.Column("speedup_high", sa.Double(), nullable=True),
        sa.Column("reference_ms", sa.Double(), nullable=True),
        sa.Column("candidate_ms", sa.Double(), nullable=True),
        sa.Column("gain_low", sa.Double(), nullable=True),
        sa.Column("accepted", sa.Boolean(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "(status = 'correct') = (speedup IS NOT NULL)", name=op.f("ck_evaluation_speedup_only_when_correct")
        ),
        sa.CheckConstraint("purpose IN ('screen', 'promote', 'final')", name=op.f("ck_evaluation_purpose")),
        sa.CheckConstraint(
            _one_of("status", STATUSES),
            name=op.f("ck_evaluation_status"),
        ),
        sa.CheckConstraint("target IN ('cpu', 'cuda')", name=op.f("ck_evaluation_target")),
        sa.CheckConstraint(
            "(speedup IS NULL) = (speedup_low IS NULL) AND (speedup IS NULL) = (speedup_high IS NULL)",
            name=op.f("ck_evaluation_interval_with_speedup"),
        ),
        sa.CheckConstraint("repeat >= 0", name=op.f("ck_evaluation_repeat")),
        sa.CheckConstraint("speedup_low <= speedup AND speedup <= speedup_high", name=op.f("ck_evaluation_interval")),
        sa.ForeignKeyConstraint(["candidate_id"], ["candidate.id"], name=op.f("fk_evaluation_candidate_id")),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_evaluation_session_id")),
        sa.ForeignKeyConstraint(["source_sha"], ["source.sha256"], name=op.f("fk_evaluation_source_sha")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluation")),
        sa.UniqueConstraint(
            "candidate_id",
            "spec_sha",
            "purpose",
            "repeat",
            name=op.f("uq_evaluation_candidate_id_spec_sha_purpose_repeat"),
        ),
    )
    op.create_index("ix_evaluation_content", "evaluation", ["source_sha", "spec_sha", "purpose"], unique=False)
    op.create_index(op.f("ix_evaluation_session_id"), "evaluation", ["session_id"], unique=False)
    op.create_table(
        "improvement",
        sa.Column("session_id", sa.String(length=40), nullable=False),
        sa.Column("target", sa.String(length=40), nullable=False),
        sa.Column("gate", sa.String(length=40), nullable=False),
        sa.Column("lane", sa.String(length=40), nullable=False),
        sa.Column("baseline", sa.String(length=40), nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("candidate_id", sa.String(length=40), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("speedup", sa.Double(), nullable=False),
        sa.Column("speedup_low", sa.Double(), nullable=False),
        sa.Column("speedup_high", sa.Double(), nullable=False),
        sa.Column("reference_ms", sa.Double(), nullable=False),
        sa.Column("candidate_ms", sa.Double(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("n >= 1", name=op.f("ck_improvement_n")),
        sa.CheckConstraint("speedup_low <= speedup AND speedup <= speedup_high", name=op.f("ck_improvement_interval")),
        sa.ForeignKeyConstraint(["candidate_id"], ["candidate.id"], name=op.f("fk_improvement_candidate_id")),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_improvement_session_id")),
        sa.PrimaryKeyConstraint("session_id", "target", "gate", "lane", "baseline", "n", name=op.f("pk_improvement")),
        sa.UniqueConstraint("candidate_id", name=op.f("uq_improvement_candidate_id")),
        sa.UniqueConstraint("session_id", "n", name=op.f("uq_improvement_session_id_n")),
    )
    op.create_table(
        "step",
        sa.Column("session_id", sa.String(length=40), nullable=False),
        sa.Column("idx", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("call_id", sa.String(length=40), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), nullable=False),
        sa.Column("cache_write_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("usd_nanousd", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("idx >= 0", name=op.f("ck_step_idx")),
        sa.ForeignKeyConstraint(["call_id"], ["model_call.id"], name=op.f("fk_step_call_id")),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_step_session_id")),
        sa.PrimaryKeyConstraint("session_id", "idx", name=op.f("pk_step")),
        sa.UniqueConstraint("call_id", name=op.f("uq_step_call_id")),
    )
    op.create_table(
        "gate_result",
        sa.Column("evaluation_id", sa.String(length=40), nullable=False),
        sa.Column("gate", sa.String(length=40), nullable=False),
        sa.Column("lane", sa.String(length=40), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("rms", sa.Double(), nullable=True),
        sa.Column("rms_bound", sa.Double(), nullable=True),
        sa.Column("tail", sa.Double(), nullable=True),
        sa.Column("tail_bound", sa.Double(), nullable=True),
        sa.Column("pass_share", sa.Double(), nullable=True),
        sa.CheckConstraint("lane IN ('', 'fp32', 'tf32', 'fp16', 'bf16')", name=op.f("ck_gate_result_lane")),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluation.id"], name=op.f("fk_gate_result_evaluation_id")),
        sa.PrimaryKeyConstraint("evaluation_id", "gate", "lane", name=op.f("pk_gate_result")),
    )

    for table in APPEND_ONLY:
        _refuse_updates(table)


def _one_of(column: str, words: tuple[str, ...]) -> str:
    return f"{column} IN ({', '.join(map(repr, words))})"


def _refuse_updates(table: str) -> None:
    """History is appended to, never rewritten. Triggers have no portable form: one spelling per database."""
    name = f"tr_{table}_append_only"
    said = f"{table} rows are never changed"
    if op.get_context().dialect.name == "sqlite":
        op.execute(f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} BEGIN SELECT RAISE(ABORT, '{said}'); END")
        return
    op.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{said}'; END $$"
    )
    op.execute(f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")


def downgrade() -> None:
    op.drop_table("gate_result")
    op.drop_table("step")
    op.drop_table("improvement")
    op.drop_index(op.f("ix_evaluation_session_id"), table_name="evaluation")
    op.drop_index("ix_evaluation_content", table_name="evaluation")
    op.drop_table("evaluation")
    op.drop_table("model_call")
    op.drop_table("event")
    op.drop_table("compaction")
    op.drop_index(op.f("ix_candidate_source_sha"), table_name="candidate")
    op.drop_table("candidate")
    op.drop_table("session")
    op.drop_table("source")
    op.drop_table("device_lease")
    op.drop_index(op.f("ix_campaign_name"), table_name="campaign")
    op.drop_table("campaign")
    op.drop_table("blob")
    if op.get_context().dialect.name != "sqlite":
        for table in APPEND_ONLY:
            op.execute(f"DROP FUNCTION IF EXISTS tr_{table}_append_only() CASCADE")
