"""The service's nouns, as every part of it reads them: frozen, complete, free of the database and of torch."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from evaluator.model import Evaluation, Lane, Purpose, Target

CampaignState = Literal["created", "running", "stopping", "stopped", "finished", "failed"]
SessionState = Literal["queued", "running", "stopped", "finished", "stalled", "failed"]
CallKind = Literal["agent", "summary", "probe"]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Price(Frozen):
    """US dollars per million tokens."""

    name: str
    """Whose price it is, as printed beside every cost."""
    input_usd: float
    cached_usd: float
    output_usd: float
    cache_write_usd: float | None = None
    """None: a cache write costs what input costs."""


class Usage(Frozen):
    """Tokens of one model call as the provider reports them. ``prompt_tokens`` includes the cached ones."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    completion_tokens: int = 0


class Budget(Frozen):
    """Caps of one session. None: no cap."""

    steps: int = Field(400, ge=1)
    max_cost_usd: float | None = Field(None, ge=0)
    max_seconds: float | None = Field(None, gt=0)
    target_speedup: float | None = Field(None, gt=0)


class CampaignSettings(Frozen):
    """Everything that shapes a campaign, resolved once at launch and stored with it."""

    name: str
    problem_ids: tuple[str, ...]
    model: str
    """LiteLLM model name, or ``replay:NAME``."""
    base_url: str | None = None
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; the key itself is never stored."""
    price: Price
    compaction: str = "cliff:128k"
    rollouts: int = 1
    target: Target = "cpu"
    profile: str = "cpu"
    lane: Lane = "fp32"
    isolation: Literal["jail", "none"] = "jail"
    budget: Budget = Budget()
    max_cost_usd: float | None = None
    """Cap of the whole campaign."""
    max_seconds: float | None = None
    """Wall seconds of the whole campaign."""
    context_tokens: int = 256_000
    """The model's window."""
    max_output_tokens: int = 16_000
    provenance: Literal["live", "recorded", "scripted"] = "live"


class Campaign(Frozen):
    id: str
    settings: CampaignSettings
    state: CampaignState
    reason: str = ""
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    spent_usd: float = 0.0
    reserved_usd: float = 0.0
    last_seq: int = 0
    """Sequence number of its newest event; 0 when there is none."""


class Session(Frozen):
    """One agent at work on one problem, with its totals so far."""

    id: str
    campaign_id: str
    problem_id: str
    problem_sha: str
    rollout: int
    profile: str
    state: SessionState
    reason: str = ""
    lease_epoch: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    steps: int = 0
    candidates: int = 0
    statuses: dict[str, int] = Field(default_factory=dict)
    """Screening verdicts by status."""
    best: Improvement | None = None
    compactions: int = 0
    usage: Usage = Usage()
    spent_usd: float = 0.0


class Step(Frozen):
    """One answered model call of the agent."""

    session_id: str
    idx: int
    call_id: str
    usage: Usage
    usd: float
    at: datetime


class Candidate(Frozen):
    """One submitted source."""

    id: str
    session_id: str
    step: int
    n: int
    """1-based count within the session: the attempt's number as the agent sees it."""
    tool_call_id: str
    source_sha: str
    parent_id: str | None
    hypothesis: str
    at: datetime
    screen: Evaluation | None = None
    """Its screening verdict, once there is one."""
    promotion: Evaluation | None = None


class EvaluationRecord(Frozen):
    id: str
    candidate_id: str
    purpose: Purpose
    repeat: int
    spec_sha: str
    at: datetime
    evaluation: Evaluation


class Improvement(Frozen):
    """A confirmed new best of a session: the promotion's own number, never the screening's."""

    session_id: str
    n: int
    candidate_id: str
    step: int
    attempt: int
    """The candidate's ``n``."""
    speedup: float
    speedup_low: float
    speedup_high: float
    reference_ms: float
    candidate_ms: float
    at: datetime


class Compaction(Frozen):
    session_id: str
    from_step: int
    tokens_before: int
    tokens_after: int
    strategy: str
    at: datetime


class Event(Frozen):
    """One line of a campaign's outbox; ``seq`` has no gaps and commits in order."""

    campaign_id: str
    seq: int
    kind: str
    session_id: str | None
    at: datetime
    data: dict[str, Any] = Field(default_factory=dict)


class CurvePoint(Frozen):
    """Best-so-far from ``step`` on."""

    step: int
    attempt: int
    usd: float
    seconds: float
    """Since the session started."""
    speedup: float
    speedup_low: float
    speedup_high: float


Session.model_rebuild()
