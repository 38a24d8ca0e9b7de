"""The journal of model calls: nothing is sent without a reservation, nothing is answered before it is stored."""

from __future__ import annotations

import hashlib
import secrets
import zlib
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session as OrmSession

from kernel_agent.errors import StoreError
from kernel_agent.model import CallKind, Step, Usage
from kernel_agent.store import caps, money, outbox
from kernel_agent.store.errors import StaleLeaseError
from kernel_agent.store.part import StorePart, campaign_row, insert_if_absent, not_found, session_row
from kernel_agent.store.records import CallRecord, CallStart, RefusalCode
from kernel_agent.store.schema import BlobRow, CampaignRow, ModelCallRow, SessionRow, StepRow


class Calls(StorePart):
    def begin_call(
        self,
        session_id: str,
        request_sha: str,
        kind: CallKind,
        reserve_usd: float,
        *,
        content_sha: str = "",
        tools_sha: str = "",
    ) -> CallStart:
        """Decide about a call: answer it from the journal, let it go out with ``reserve_usd`` held, or refuse it.

        Refused when a cap of the campaign or the session leaves no room, when either is not running, or while the
        very same call is out already (``code`` says which). A refusal by a cap is announced once.
        """
        now = self._now()
        with self._db.write() as tx:
            session = tx.get(SessionRow, session_id, with_for_update=True) or session_row(tx, session_id)
            campaign = campaign_row(tx, session.campaign_id)
            same = select(ModelCallRow).where(
                ModelCallRow.session_id == session_id, ModelCallRow.request_sha == request_sha
            )
            call = tx.scalar(same)
            if call is not None and call.state == "answered":
                return CallStart(outcome="journaled", call_id=call.id, response=_blob(tx, call))
            if call is not None and call.state == "started":
                # An earlier owner's calls were settled when the session was acquired: this one is out now.
                return _refused("in_flight", f"session {session_id} has this very call out already; wait for it")
            refusal = self._refusal(tx, campaign, session, kind, reserve_usd, now)
            if refusal is not None:
                return refusal
            if call is None:
                newest = tx.scalar(select(func.max(ModelCallRow.n)).where(ModelCallRow.session_id == session_id))
                call = ModelCallRow(
                    session_id=session_id, n=(newest or 0) + 1, request_sha=request_sha, attempts=0, usd=0.0, note=""
                )
                tx.add(call)
            # A new id for each sending: whoever still holds the former one cannot settle this one.
            call.id = "m" + secrets.token_hex(8)
            call.kind, call.content_sha, call.tools_sha = kind, content_sha, tools_sha
            call.state, call.lease_epoch, call.attempts = "started", session.lease_epoch, call.attempts + 1
            call.reserved_usd, call.charged_usd = reserve_usd, 0.0
            call.started_at, call.ended_at = now, None
            return CallStart(outcome="started", call_id=call.id)

    def _refusal(
        self,
        tx: OrmSession,
        campaign: CampaignRow,
        session: SessionRow,
        kind: CallKind,
        reserve_usd: float,
        now: datetime,
    ) -> CallStart | None:
        """Why the call may not go out; None when it may, and then ``reserve_usd`` is held."""
        for noun, row in (("campaign", campaign), ("session", session)):
            if row.state != "running":
                why = f" ({row.reason})" if row.reason else ""
                return _refused("not_running", f"{noun} {row.id} is {row.state}{why}; no further model calls")
        found = caps.caps(tx, campaign, session, now)
        caps.announce(tx, campaign.id, found, now)
        timed = found if kind == "agent" else [cap for cap in found if cap.unit != "steps"]
        if (cap := caps.reached(tx, session, timed)) is not None:
            message = f"{cap.said}; raise the limit and resume to go on"
            caps.exhausted(tx, campaign.id, cap, message, now)
            return _refused(cap.code, message)
        by_code = {cap.code: cap for cap in found}
        if not money.reserve(tx, session, reserve_usd):
            return _out_of_money(tx, campaign.id, by_code["session_cost"], session.reserved_usd, reserve_usd, now)
        if not money.reserve(tx, campaign, reserve_usd):
            session.reserved_usd -= reserve_usd
            tx.flush()
            return _out_of_money(tx, campaign.id, by_code["campaign_cost"], campaign.reserved_usd, reserve_usd, now)
        return None

    def finish_call(self, call_id: str, response: bytes, usage: Usage, usd: float, *, note: str = "") -> Step | None:
        """Journal an answer and settle its reservation; an agent's call becomes a step. One transaction.

        Event ``step`` {idx, usage, usd, cumulative_usd}. Repeating it with the same answer changes nothing.
        An answer that arrives after its call was given up as lost replaces the charge.

        :raises StaleLeaseError: the call was sent again in the meantime; the newer sending counts.
        :raises StoreError: the call was failed, or answered otherwise, before.
        """
        now = self._now()
        sha = hashlib.sha256(response).hexdigest()
        with self._db.write() as tx:
            call = _open_call(tx, call_id)
            if call.state == "answered":
                if call.response_sha != sha:
                    raise StoreError(f"call {call_id} has another answer already; the first one stays")
                step = tx.scalar(select(StepRow).where(StepRow.call_id == call_id))
                return None if step is None else to_step(step)
            if call.state == "failed":
                raise StoreError(f"call {call_id} failed before ({call.note}); send the request again")
            session = session_row(tx, call.session_id)
            packed = zlib.compress(response, 6)
            insert_if_absent(tx, BlobRow, {"sha256": sha, "size_bytes": len(response), "data": packed})
            money.settle(tx, session, call.reserved_usd, usd - call.charged_usd)
            call.usd += usd - call.charged_usd
            call.reserved_usd = call.charged_usd = 0.0
            call.prompt_tokens, call.cached_tokens = usage.prompt_tokens, usage.cached_tokens
            call.cache_write_tokens, call.completion_tokens = usage.cache_write_tokens, usage.completion_tokens
            call.state, call.response_sha, call.note, call.ended_at = "answered", sha, note, now
            tx.flush()
            made = _add_step(tx, session, call, usage, usd, now) if call.kind == "agent" else None
            campaign = campaign_row(tx, session.campaign_id)
            caps.announce(tx, campaign.id, caps.caps(tx, campaign, session, now), now)
            return made

    def fail_call(self, call_id: str, error: str, usd: float = 0.0) -> None:
        """Release a call's reservation, booking ``usd`` that the provider may charge all the same.

        The request may be sent again. Failing a failed call again changes nothing.

        :raises StaleLeaseError: the call was sent again in the meantime.
        :raises StoreError: the call was answered.
        """
        now = self._now()
        with self._db.write() as tx:
            call = _open_call(tx, call_id)
            if call.state == "answered":
                raise StoreError(f"call {call_id} was answered; it cannot fail any more")
            if call.state != "started":
                return
            money.settle(tx, session_row(tx, call.session_id), call.reserved_usd, usd)
            call.state, call.note, call.ended_at = "failed", error, now
            call.usd += usd
            call.reserved_usd = 0.0

    def calls(self, session_id: str) -> list[CallRecord]:
        """A session's journal in the order its calls were first sent."""
        with self._db.read() as tx:
            session_row(tx, session_id)
            rows = tx.scalars(
                select(ModelCallRow).where(ModelCallRow.session_id == session_id).order_by(ModelCallRow.n)
            )
            return [to_record(row) for row in rows]

    def response(self, call_id: str) -> bytes:
        """The journaled answer, byte for byte."""
        with self._db.read() as tx:
            call = tx.get(ModelCallRow, call_id)
            if call is None or call.response_sha is None:
                raise not_found("answered call", call_id, ())
            return _blob(tx, call)

    def steps(self, session_id: str, after: int = -1, limit: int | None = None) -> list[Step]:
        """Steps with ``idx > after``, oldest first, ``limit`` at most."""
        with self._db.read() as tx:
            session_row(tx, session_id)
            rows = tx.scalars(
                select(StepRow)
                .where(StepRow.session_id == session_id, StepRow.idx > after)
                .order_by(StepRow.idx)
                .limit(limit)
            )
            return [to_step(row) for row in rows]

    def last_step(self, session_id: str) -> Step | None:
        with self._db.read() as tx:
            session_row(tx, session_id)
            newest = select(StepRow).where(StepRow.session_id == session_id).order_by(StepRow.idx.desc()).limit(1)
            row = tx.scalar(newest)
            return None if row is None else to_step(row)


def to_step(row: StepRow) -> Step:
    usage = Usage(
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        cache_write_tokens=row.cache_write_tokens,
        completion_tokens=row.completion_tokens,
    )
    return Step(session_id=row.session_id, idx=row.idx, call_id=row.call_id, usage=usage, usd=row.usd, at=row.at)


def to_record(row: ModelCallRow) -> CallRecord:
    usage = Usage(
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        cache_write_tokens=row.cache_write_tokens,
        completion_tokens=row.completion_tokens,
    )
    return CallRecord(
        id=row.id,
        session_id=row.session_id,
        request_sha=row.request_sha,
        content_sha=row.content_sha,
        tools_sha=row.tools_sha,
        kind=row.kind,
        state=row.state,
        attempts=row.attempts,
        usage=usage,
        usd=row.usd,
        reserved_usd=row.reserved_usd,
        note=row.note,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _add_step(tx: OrmSession, session: SessionRow, call: ModelCallRow, usage: Usage, usd: float, now: datetime) -> Step:
    newest = tx.scalar(select(func.max(StepRow.idx)).where(StepRow.session_id == session.id))
    idx = 0 if newest is None else newest + 1
    row = StepRow(session_id=session.id, idx=idx, call_id=call.id, usd=usd, at=now, **usage.model_dump())
    tx.add(row)
    tx.flush()
    data = {"idx": idx, "usage": usage.model_dump(), "usd": usd, "cumulative_usd": session.spent_usd}
    outbox.append(tx, session.campaign_id, "step", now, session.id, data)
    return to_step(row)


def _open_call(tx: OrmSession, call_id: str) -> ModelCallRow:
    call = tx.get(ModelCallRow, call_id, with_for_update=True)
    if call is None:
        raise StaleLeaseError(f"call {call_id} is not known, or was sent again under another id; the newer one counts")
    return call


def _blob(tx: OrmSession, call: ModelCallRow) -> bytes:
    return zlib.decompress(tx.get_one(BlobRow, call.response_sha).data)


def _refused(code: RefusalCode, message: str) -> CallStart:
    return CallStart(outcome="refused", refusal=message, code=code)


def _out_of_money(
    tx: OrmSession, campaign_id: str, cap: caps.Cap, held_usd: float, reserve_usd: float, now: datetime
) -> CallStart:
    message = (
        f"{cap.said}, holds ${held_usd:.4f} for calls that are out, and this call may need ${reserve_usd:.4f}; "
        "raise the limit and resume to go on"
    )
    caps.exhausted(tx, campaign_id, cap, message, now)
    return _refused(cap.code, message)
