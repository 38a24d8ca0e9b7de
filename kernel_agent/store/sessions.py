"""Sessions: creation, their lease, their state, and the sources of their problems."""

from __future__ import annotations

import json
from datetime import timedelta

from sqlalchemy import func, select

from kernel_agent.errors import StoreError
from kernel_agent.model import CampaignSettings, Session, SessionState
from kernel_agent.store import money, outbox, running_time
from kernel_agent.store.errors import SessionOwnedError
from kernel_agent.store.part import StorePart, campaign_row, fenced, not_found, put_source, session_row
from kernel_agent.store.records import Fence
from kernel_agent.store.schema import SessionRow, SourceRow
from kernel_agent.store.totals import filled
from problems.model import Problem

ENDED: frozenset[SessionState] = frozenset({"stopped", "finished", "stalled", "failed"})


class Sessions(StorePart):
    def create_session(self, campaign_id: str, problem: Problem, rollout: int, profile: str) -> Session:
        """Store a session in state ``queued``, with its problem's source and its campaign's caps.

        Event ``session.created`` {problem_id, problem_sha, rollout, profile}.

        :raises StoreError: the campaign has a session of this problem, rollout and profile already.
        """
        now = self._now()
        with self._db.write() as tx:
            campaign = campaign_row(tx, campaign_id)
            budget = CampaignSettings.model_validate_json(campaign.settings).budget
            problem_sha = put_source(tx, problem.source)
            twin = select(SessionRow.id).where(
                SessionRow.campaign_id == campaign_id,
                SessionRow.problem_sha == problem_sha,
                SessionRow.rollout == rollout,
                SessionRow.profile == profile,
            )
            if (taken := tx.scalar(twin)) is not None:
                raise StoreError(
                    f"campaign {campaign_id} has session {taken} for problem {problem.id}, rollout {rollout}, "
                    f"profile {profile} already; use that one or another rollout number"
                )
            newest = tx.scalar(select(func.max(SessionRow.n)).where(SessionRow.campaign_id == campaign_id))
            n = (newest or 0) + 1
            row = SessionRow(
                id=f"{campaign_id}-{n}",
                campaign_id=campaign_id,
                n=n,
                problem_id=problem.id,
                problem_sha=problem_sha,
                problem=problem.model_dump_json(exclude={"source"}),
                rollout=rollout,
                profile=profile,
                state="queued",
                cap_steps=budget.steps,
                cap_usd=budget.max_cost_usd,
                cap_seconds=budget.max_seconds,
            )
            tx.add(row)
            tx.flush()
            data = {"problem_id": problem.id, "problem_sha": problem_sha, "rollout": rollout, "profile": profile}
            outbox.append(tx, campaign_id, "session.created", now, row.id, data)
            return filled(tx, [row])[0]

    def session(self, id: str) -> Session:
        """One session with its totals so far."""
        with self._db.read() as tx:
            return filled(tx, [session_row(tx, id)])[0]

    def sessions(self, campaign_id: str) -> list[Session]:
        """A campaign's sessions in the order they were created, with their totals so far."""
        with self._db.read() as tx:
            campaign_row(tx, campaign_id)
            rows = tx.scalars(select(SessionRow).where(SessionRow.campaign_id == campaign_id).order_by(SessionRow.n))
            return filled(tx, list(rows))

    def problem(self, session_id: str) -> Problem:
        """The problem a session works on, whole."""
        with self._db.read() as tx:
            row = session_row(tx, session_id)
            text = tx.get_one(SourceRow, row.problem_sha).text
            return Problem.model_validate({**json.loads(row.problem), "source": text})

    def source(self, sha: str) -> str:
        """The text with this SHA-256: a candidate's or a problem's."""
        with self._db.read() as tx:
            row = tx.get(SourceRow, sha)
            if row is None:
                raise not_found("source", sha, ())
            return row.text

    def problem_source(self, problem_sha: str) -> str:
        """The text of a problem, by its SHA-256."""
        return self.source(problem_sha)

    def acquire_session(self, session_id: str, owner: str, ttl_seconds: float) -> Fence:
        """Take a free or expired lease; every older fence is stale from here on.

        Calls that the previous owner left out are charged their reservations, and its running time ends where
        its lease did.

        :raises SessionOwnedError: the lease is alive, whoever asks.
        """
        now = self._now()
        with self._db.write() as tx:
            row = tx.get(SessionRow, session_id, with_for_update=True) or session_row(tx, session_id)
            if row.lease_owner is not None and row.lease_expires_at is not None:
                if row.lease_expires_at > now:
                    raise SessionOwnedError(
                        f"session {session_id} belongs to {row.lease_owner} until "
                        f"{row.lease_expires_at.isoformat(timespec='seconds')}; stop that process, or wait until its "
                        "lease has expired"
                    )
                running_time.stop(row, row.lease_expires_at)
            money.charge_abandoned(tx, row, now)
            row.lease_owner = owner
            row.lease_epoch += 1
            row.lease_expires_at = now + timedelta(seconds=ttl_seconds)
            if row.state == "running":
                running_time.start(row, now)
            return Fence(session_id, owner, row.lease_epoch)

    def heartbeat(self, fence: Fence, ttl_seconds: float) -> None:
        """Extend the lease to ``ttl_seconds`` from now. An expired lease that nobody took is revived."""
        with self._db.write() as tx:
            fenced(tx, fence).lease_expires_at = self._now() + timedelta(seconds=ttl_seconds)

    def release_session(self, fence: Fence) -> None:
        """Give the lease back; the fence is stale afterwards."""
        now = self._now()
        with self._db.write() as tx:
            row = fenced(tx, fence)
            running_time.stop(row, now)
            row.lease_owner = row.lease_expires_at = None

    def set_session_state(self, fence: Fence, state: SessionState, reason: str = "") -> None:
        """Move a session on. Event ``session.state`` {state, reason} when it changed."""
        now = self._now()
        with self._db.write() as tx:
            row = fenced(tx, fence)
            changed = (row.state, row.reason) != (state, reason)
            if state == "running":
                running_time.start(row, now)
                row.started_at = row.started_at or now
                row.ended_at = None
            else:
                running_time.stop(row, now)
                if state in ENDED and (row.ended_at is None or changed):
                    row.ended_at = now
            row.state, row.reason = state, reason
            tx.flush()
            if changed:
                outbox.append(tx, row.campaign_id, "session.state", now, row.id, {"state": state, "reason": reason})
