"""The outbox: every change that someone may watch is an event, written in the transaction that made the change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session as OrmSession

from kernel_agent.model import Event
from kernel_agent.store.part import StorePart, campaign_row, session_row
from kernel_agent.store.schema import CampaignRow, EventRow


def append(
    tx: OrmSession,
    campaign_id: str,
    kind: str,
    at: datetime,
    session_id: str | None = None,
    data: dict[str, Any] | None = None,
    once_key: str | None = None,
) -> Event | None:
    """Add an event within ``tx``. With ``once_key``: only if that key was never used; otherwise None.

    The number comes from the campaign's row, whose lock lasts until commit: numbers commit in order and without
    gaps, which a database sequence does not promise.
    """
    if once_key is not None:
        said = select(EventRow.seq).where(EventRow.campaign_id == campaign_id, EventRow.once_key == once_key)
        if tx.scalar(said) is not None:
            return None
    taken = (
        update(CampaignRow)
        .where(CampaignRow.id == campaign_id)
        .values(next_seq=CampaignRow.next_seq + 1)
        .returning(CampaignRow.next_seq)
        .execution_options(synchronize_session=False)
    )
    seq = tx.scalars(taken).one() - 1
    row = EventRow(
        campaign_id=campaign_id,
        seq=seq,
        kind=kind,
        session_id=session_id,
        once_key=once_key,
        data=data or {},
        at=at,
    )
    tx.add(row)
    tx.flush()
    return to_event(row)


def to_event(row: EventRow) -> Event:
    return Event(
        campaign_id=row.campaign_id, seq=row.seq, kind=row.kind, session_id=row.session_id, at=row.at, data=row.data
    )


class Outbox(StorePart):
    def add_event(
        self, campaign_id: str, kind: str, session_id: str | None = None, data: dict[str, Any] | None = None
    ) -> Event:
        """Append an event of the caller's own; ``data`` must be JSON."""
        with self._db.write() as tx:
            campaign_row(tx, campaign_id)
            if session_id is not None:
                session_row(tx, session_id)
            event = append(tx, campaign_id, kind, self._now(), session_id, data)
            assert event is not None  # only a once_key can suppress it
            return event

    def events(self, campaign_id: str, after_seq: int = 0, limit: int = 500) -> list[Event]:
        """Events with ``seq > after_seq``, oldest first."""
        with self._db.read() as tx:
            campaign_row(tx, campaign_id)
            rows = tx.scalars(
                select(EventRow)
                .where(EventRow.campaign_id == campaign_id, EventRow.seq > after_seq)
                .order_by(EventRow.seq)
                .limit(limit)
            )
            return [to_event(row) for row in rows]
