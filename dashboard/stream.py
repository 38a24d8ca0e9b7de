"""A campaign's outbox as server-sent events: each carries its sequence number as id, so that a reader that comes back
with Last-Event-ID misses nothing and sees nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from kernel_agent.model import Event
from kernel_agent.store.repository import Store

POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
"""Proxies close a silent connection after a minute or less."""
RETRY_MS = 2000
BATCH = 200


async def event_stream(
    store: Store,
    campaign_id: str,
    after_seq: int,
    request: Request,
    stopping: Callable[[], bool],
    *,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
) -> AsyncIterator[str]:
    """Events after ``after_seq`` as they are committed, until the client goes or the server stops."""
    loop = asyncio.get_running_loop()
    yield f"retry: {RETRY_MS}\n\n"
    quiet_since = loop.time()
    while not stopping() and not await request.is_disconnected():
        events = await run_in_threadpool(store.events, campaign_id, after_seq, BATCH)
        for event in events:
            after_seq = event.seq
            yield frame(event)
        if events:
            quiet_since = loop.time()
        elif loop.time() - quiet_since >= heartbeat_seconds:
            quiet_since = loop.time()
            yield ": still here\n\n"
        if len(events) < BATCH:
            await asyncio.sleep(POLL_SECONDS)


def frame(event: Event) -> str:
    """One event of the stream. Its data are JSON on one line, as the format demands."""
    return f"id: {event.seq}\ndata: {event.model_dump_json()}\n\n"
