"""Reserving and settling money, on a campaign and its session at once, inside the caller's transaction."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import literal, or_, select, update
from sqlalchemy.orm import Session as OrmSession

from kernel_agent.errors import StoreError
from kernel_agent.store.column_types import Usd
from kernel_agent.store.schema import CampaignRow, ModelCallRow, SessionRow


def reserve(tx: OrmSession, owner: CampaignRow | SessionRow, usd: float) -> bool:
    """Hold ``usd`` under the owner's cap; False (and nothing held) when spent + reserved + usd would pass it.

    The comparison is the UPDATE's own condition, so that no other writer can come between check and hold.
    """
    if usd < 0:
        raise StoreError(f"a reservation of {usd} USD makes no sense; it must not be negative")
    table = type(owner)
    amount = literal(usd, Usd)  # typed here: a sum of columns no longer knows that it counts nano-dollars
    total = table.spent_usd + table.reserved_usd + amount
    held = tx.execute(
        update(table)
        .where(table.id == owner.id, or_(table.cap_usd.is_(None), total <= table.cap_usd))
        .values(reserved_usd=table.reserved_usd + amount)
        .returning(table.id)
        .execution_options(synchronize_session=False)
    ).all()
    tx.refresh(owner)
    return bool(held)


def settle(tx: OrmSession, session: SessionRow, held_usd: float, spent_usd: float) -> None:
    """Let go of ``held_usd`` and book ``spent_usd`` (negative: a charge is given back)."""
    held, spent = literal(held_usd, Usd), literal(spent_usd, Usd)
    for table, key in ((SessionRow, session.id), (CampaignRow, session.campaign_id)):
        tx.execute(
            update(table)
            .where(table.id == key)
            .values(reserved_usd=table.reserved_usd - held, spent_usd=table.spent_usd + spent)
            .execution_options(synchronize_session=False)
        )
    tx.refresh(session)


def charge_abandoned(tx: OrmSession, session: SessionRow, now: datetime) -> None:
    """Charge every call that is still out of this session its reservation: the provider may have billed it."""
    out = select(ModelCallRow).where(ModelCallRow.session_id == session.id, ModelCallRow.state == "started")
    for call in tx.scalars(out).all():
        held = call.reserved_usd
        call.state = "lost"
        call.note = "its owner died while it was out; its reservation was charged"
        call.usd += held
        call.charged_usd = held
        call.reserved_usd = 0.0
        call.ended_at = now
        tx.flush()
        settle(tx, session, held, held)
