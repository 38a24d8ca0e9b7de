"""Caps: may a session go on, and who is told when one is near or reached."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session as OrmSession

from kernel_agent.store import outbox, running_time
from kernel_agent.store.records import RefusalCode
from kernel_agent.store.schema import CampaignRow, ModelCallRow, SessionRow, StepRow

WARN_AT = 0.8


@dataclass(frozen=True)
class Cap:
    """One limit with what was used of it."""

    code: RefusalCode
    session_id: str | None
    used: float
    limit: float
    unit: str

    @property
    def said(self) -> str:
        whose = f"session {self.session_id}" if self.session_id else "the campaign"
        amount = {
            "USD": f"${self.used:.4f} of ${self.limit:.4f}",
            "s": f"{self.used:.0f} s of {self.limit:.0f} s",
            "steps": f"{self.used:.0f} of {self.limit:.0f} steps",
        }[self.unit]
        return f"{whose} has used {amount}"


def caps(tx: OrmSession, campaign: CampaignRow, session: SessionRow, now: datetime) -> list[Cap]:
    """Every cap that is set, with its use at ``now``. Money is what was spent, reservations left out."""
    steps = tx.scalar(select(func.count()).where(StepRow.session_id == session.id)) or 0
    found = [Cap("session_steps", session.id, steps, session.cap_steps, "steps")]
    for owner, id_ in ((campaign, None), (session, session.id)):
        whose = "session" if id_ else "campaign"
        if owner.cap_seconds is not None:
            used = running_time.seconds(owner, now)
            found.append(Cap(_code(whose, "seconds"), id_, used, owner.cap_seconds, "s"))
        if owner.cap_usd is not None:
            found.append(Cap(_code(whose, "cost"), id_, owner.spent_usd, owner.cap_usd, "USD"))
    return found


def reached(tx: OrmSession, session: SessionRow, found: list[Cap]) -> Cap | None:
    """The first cap on time or steps that leaves no room for another agent call. Calls still out count as steps."""
    out = tx.scalar(
        select(func.count()).where(
            ModelCallRow.session_id == session.id, ModelCallRow.kind == "agent", ModelCallRow.state == "started"
        )
    )
    for cap in found:
        pending = (out or 0) if cap.unit == "steps" else 0
        if cap.unit != "USD" and cap.used + pending >= cap.limit:
            return cap
    return None


def announce(tx: OrmSession, campaign_id: str, found: list[Cap], now: datetime) -> None:
    """Events ``budget.warning`` and ``budget.exhausted`` {cap, used, limit, unit, message}, each once per cap."""
    for cap in found:
        if cap.used >= WARN_AT * cap.limit:
            _say(tx, campaign_id, "budget.warning", cap, cap.said, now)
        if cap.used >= cap.limit:
            exhausted(tx, campaign_id, cap, cap.said, now)


def exhausted(tx: OrmSession, campaign_id: str, cap: Cap, message: str, now: datetime) -> None:
    _say(tx, campaign_id, "budget.exhausted", cap, message, now)


def _say(tx: OrmSession, campaign_id: str, kind: str, cap: Cap, message: str, now: datetime) -> None:
    # The limit is part of the key: a raised cap may be reached, and said, again.
    key = f"{kind}:{cap.code}:{cap.session_id or ''}:{cap.limit:g}"
    data = {"cap": cap.code, "used": cap.used, "limit": cap.limit, "unit": cap.unit, "message": message}
    outbox.append(tx, campaign_id, kind, now, cap.session_id, data, once_key=key)


def _code(whose: str, what: str) -> RefusalCode:
    codes: dict[tuple[str, str], RefusalCode] = {
        ("campaign", "seconds"): "campaign_seconds",
        ("campaign", "cost"): "campaign_cost",
        ("session", "seconds"): "session_seconds",
        ("session", "cost"): "session_cost",
    }
    return codes[whose, what]
