"""What every part of the store shares: the database, the clock, and the fence around a session's writes."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session as OrmSession

from kernel_agent.errors import NotFoundError
from kernel_agent.store.database import Database
from kernel_agent.store.errors import StaleLeaseError
from kernel_agent.store.records import Fence
from kernel_agent.store.schema import Base, CampaignRow, SessionRow, SourceRow

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


class StorePart:
    """One concern of the store. Parts are composed by inheritance into ``repository.Store``."""

    def __init__(self, database: Database, clock: Clock = utc_now) -> None:
        self._db = database
        self._now = clock


def not_found(kind: str, wanted: str, known: Iterable[str]) -> NotFoundError:
    near = difflib.get_close_matches(wanted, list(known), n=3, cutoff=0.5)
    hint = f"; near ones: {', '.join(near)}" if near else ""
    return NotFoundError(f"there is no {kind} {wanted!r} in this store{hint}")


def campaign_row(tx: OrmSession, campaign_id: str) -> CampaignRow:
    row = tx.get(CampaignRow, campaign_id)
    if row is None:
        raise not_found("campaign", campaign_id, tx.scalars(select(CampaignRow.id)))
    return row


def session_row(tx: OrmSession, session_id: str) -> SessionRow:
    row = tx.get(SessionRow, session_id)
    if row is None:
        raise not_found("session", session_id, tx.scalars(select(SessionRow.id)))
    return row


def fenced(tx: OrmSession, fence: Fence) -> SessionRow:
    """The session's row, locked for this transaction.

    :raises StaleLeaseError: the fence is not the session's newest lease.
    """
    # FOR UPDATE matters where writers run side by side (PostgreSQL); under BEGIN IMMEDIATE it is left out.
    row = tx.get(SessionRow, fence.session_id, with_for_update=True)
    if row is None:
        raise not_found("session", fence.session_id, tx.scalars(select(SessionRow.id)))
    if row.lease_epoch != fence.epoch or row.lease_owner != fence.owner:
        holder = f"{row.lease_owner} holds it at epoch {row.lease_epoch}" if row.lease_owner else "nobody holds it now"
        raise StaleLeaseError(
            f"session {fence.session_id}: the lease of {fence.owner} (epoch {fence.epoch}) is over, {holder}; "
            "nothing was written, and this process should let go of the session"
        )
    return row


def insert_if_absent(tx: OrmSession, table: type[Base], values: Mapping[str, Any]) -> None:
    """Insert a row unless its key is there already."""
    dialect = postgresql if tx.get_bind().dialect.name == "postgresql" else sqlite
    tx.execute(dialect.insert(table).values(**values).on_conflict_do_nothing())


def put_source(tx: OrmSession, text: str) -> str:
    """Store ``text`` by content; returns its SHA-256."""
    sha = hashlib.sha256(text.encode()).hexdigest()
    insert_if_absent(tx, SourceRow, {"sha256": sha, "text": text})
    return sha
