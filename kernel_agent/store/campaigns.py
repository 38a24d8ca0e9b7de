"""Campaigns: created once, found by id, prefix or name, moved from state to state."""

from __future__ import annotations

import secrets

from sqlalchemy import func, select
from sqlalchemy.orm import Session as OrmSession

from kernel_agent.errors import NotFoundError, StoreError, UsageError
from kernel_agent.model import Budget, Campaign, CampaignSettings, CampaignState
from kernel_agent.store import outbox, running_time
from kernel_agent.store.part import StorePart, campaign_row, not_found
from kernel_agent.store.schema import CampaignRow, EventRow, SessionRow

ENDED: frozenset[CampaignState] = frozenset({"stopped", "finished", "failed"})


class Campaigns(StorePart):
    def create_campaign(self, settings: CampaignSettings) -> Campaign:
        """Store a campaign in state ``created``. Event ``campaign.created`` {name, problems, model}."""
        now = self._now()
        with self._db.write() as tx:
            row = CampaignRow(
                id=_new_id(tx),
                name=settings.name,
                settings=settings.model_dump_json(),
                state="created",
                cap_usd=settings.max_cost_usd,
                cap_seconds=settings.max_seconds,
                created_at=now,
            )
            tx.add(row)
            tx.flush()
            data = {"name": settings.name, "problems": list(settings.problem_ids), "model": settings.model}
            outbox.append(tx, row.id, "campaign.created", now, data=data)
            return _fresh(tx, row)

    def campaign(self, id_or_prefix_or_name: str) -> Campaign:
        """By id, by exact name (the newest of that name), or by a prefix of one id only.

        :raises NotFoundError: nothing matches, or the prefix fits several.
        """
        wanted = id_or_prefix_or_name
        with self._db.read() as tx:
            row = tx.get(CampaignRow, wanted)
            if row is None:
                named = select(CampaignRow).where(CampaignRow.name == wanted)
                row = tx.scalars(named.order_by(CampaignRow.created_at.desc(), CampaignRow.id).limit(1)).first()
            if row is None:
                known = tx.execute(select(CampaignRow.id, CampaignRow.name)).all()
                fitting = sorted(id_ for id_, _ in known if wanted and id_.startswith(wanted))
                if len(fitting) > 1:
                    raise NotFoundError(
                        f"{wanted!r} fits several campaigns: {', '.join(fitting)}; write more of the id"
                    )
                if not fitting:
                    raise not_found("campaign", wanted, [word for pair in known for word in pair])
                row = campaign_row(tx, fitting[0])
            return to_campaign(row)

    def campaigns(self) -> list[Campaign]:
        """All of them, newest first."""
        with self._db.read() as tx:
            rows = tx.scalars(select(CampaignRow).order_by(CampaignRow.created_at.desc(), CampaignRow.id))
            return [to_campaign(row) for row in rows]

    def set_campaign_state(self, id: str, state: CampaignState, reason: str = "") -> Campaign:
        """Move a campaign on. Event ``campaign.state`` {state, reason} when it changed.

        ``running`` after an end resumes it; its running time continues where it stopped.

        :raises UsageError: a campaign that has ended was asked to stop.
        """
        now = self._now()
        with self._db.write() as tx:
            row = campaign_row(tx, id)
            if state == "stopping" and row.state in ENDED:
                raise UsageError(
                    f"campaign {id} is not running: it is {row.state}; `kernel-agent resume {id}` restarts it"
                )
            changed = (row.state, row.reason) != (state, reason)
            if state == "running":
                if row.running_since is not None and row.state == "running":
                    # Its engine died: it ran until its last sign of life.
                    seen = select(func.max(EventRow.at)).where(EventRow.campaign_id == id)
                    running_time.stop(row, tx.scalar(seen) or now)
                running_time.start(row, now)
                row.started_at = row.started_at or now
                row.ended_at = None
            elif state in ENDED:
                running_time.stop(row, now)
                row.ended_at = now if row.state not in ENDED or row.ended_at is None else row.ended_at
            row.state, row.reason = state, reason
            tx.flush()
            if changed:
                outbox.append(tx, id, "campaign.state", now, data={"state": state, "reason": reason})
            return _fresh(tx, row)

    def set_budget(
        self, id: str, budget: Budget, max_cost_usd: float | None = None, max_seconds: float | None = None
    ) -> Campaign:
        """Replace a campaign's caps and those of all its sessions, as to resume one whose budget is spent.

        Event ``campaign.budget`` with the new figures. A cap below what is used already stops at the next call.
        """
        now = self._now()
        with self._db.write() as tx:
            row = campaign_row(tx, id)
            changes = {"budget": budget, "max_cost_usd": max_cost_usd, "max_seconds": max_seconds}
            settings = CampaignSettings.model_validate_json(row.settings).model_copy(update=changes)
            row.settings = settings.model_dump_json()
            row.cap_usd, row.cap_seconds = max_cost_usd, max_seconds
            for session in tx.scalars(select(SessionRow).where(SessionRow.campaign_id == id)):
                session.cap_steps, session.cap_usd = budget.steps, budget.max_cost_usd
                session.cap_seconds = budget.max_seconds
            tx.flush()
            data = {**budget.model_dump(), "campaign_cost_usd": max_cost_usd, "campaign_seconds": max_seconds}
            outbox.append(tx, id, "campaign.budget", now, data=data)
            return _fresh(tx, row)


def to_campaign(row: CampaignRow) -> Campaign:
    return Campaign(
        id=row.id,
        settings=CampaignSettings.model_validate_json(row.settings),
        state=row.state,
        reason=row.reason,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        spent_usd=row.spent_usd,
        reserved_usd=row.reserved_usd,
        last_seq=row.next_seq - 1,
    )


def _fresh(tx: OrmSession, row: CampaignRow) -> Campaign:
    tx.refresh(row)
    return to_campaign(row)


def _new_id(tx: OrmSession) -> str:
    """Short enough to type: ``c`` and five hexadecimal digits."""
    for _ in range(100):
        made = "c" + secrets.token_hex(3)[:5]
        if tx.get(CampaignRow, made) is None:
            return made
    raise StoreError("no free campaign id was found in 100 tries; start a new store (KERNEL_AGENT_HOME)")
