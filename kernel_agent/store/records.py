"""Frozen values that only the store's callers in the engine need: leases and the journal of model calls."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from kernel_agent.model import CallKind, Usage

CallState = Literal["started", "answered", "failed", "lost"]
"""``lost``: its owner died while it was out; its reservation was charged, since the provider may have billed it."""

RefusalCode = Literal[
    "campaign_cost", "campaign_seconds", "session_cost", "session_steps", "session_seconds", "not_running", "in_flight"
]


@dataclass(frozen=True)
class Fence:
    """Proof of a lease. Every write of a session carries it; a newer epoch makes it stale."""

    session_id: str
    owner: str
    epoch: int


class CallStart(BaseModel):
    """What ``begin_call`` decided."""

    model_config = ConfigDict(frozen=True)

    outcome: Literal["journaled", "started", "refused"]
    call_id: str = ""
    """Empty when refused."""
    response: bytes | None = None
    """The stored answer, byte for byte, when journaled."""
    refusal: str = ""
    """Which cap, with its figures, when refused."""
    code: RefusalCode | None = None


class CallRecord(BaseModel):
    """One line of a session's journal."""

    model_config = ConfigDict(frozen=True)

    id: str
    session_id: str
    request_sha: str
    content_sha: str
    """Hash of the request without the session: equal requests of two sessions share it. Empty when not given."""
    tools_sha: str
    """Hash of the request's tool schemas. Empty when not given."""
    kind: CallKind
    state: CallState
    attempts: int
    """Times it was sent, lost and failed ones included."""
    usage: Usage
    usd: float
    """All it cost, lost attempts included."""
    reserved_usd: float
    """Held while it is out; 0 afterwards."""
    note: str
    """Why it failed, or what is uncommon about its figures."""
    started_at: datetime
    ended_at: datetime | None
