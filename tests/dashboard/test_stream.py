"""The event stream over real HTTP: resumable, live, and gone when the client or the server goes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise

import anyio
import httpx
from starlette.requests import Request

from dashboard.server import Dashboard
from dashboard.stream import event_stream
from kernel_agent.store.repository import Store
from tests.dashboard.written_campaign import CampaignWriter

ACCEPT = {"Accept": "text/event-stream"}


def events_of(lines: Iterator[str], count: int) -> list[tuple[int, dict[str, object]]]:
    """The next ``count`` events: their id field and their data."""
    found: list[tuple[int, dict[str, object]]] = []
    id_ = -1
    for line in lines:
        if line.startswith("id: "):
            id_ = int(line.removeprefix("id: "))
        elif line.startswith("data: "):
            found.append((id_, json.loads(line.removeprefix("data: "))))
            if len(found) == count:
                break
    return found


def test_a_stream_starts_after_the_id_and_misses_nothing(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store)
    session = writer.session("p")
    path = f"/api/v1/campaigns/{writer.id}/events"
    for _ in range(3):
        session.step()
    before = store.campaign(writer.id).last_seq
    with client.stream("GET", path, headers=ACCEPT) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        seen = events_of(answer.iter_lines(), before)
    assert [id_ for id_, _ in seen] == list(range(1, before + 1))
    assert seen[-1][1]["kind"] == "step"

    def go_on() -> None:
        for n in range(5):
            session.improve(f"x = {n}", 2.0 + n)

    late = threading.Thread(target=go_on)
    with client.stream("GET", f"{path}?after=1", headers={**ACCEPT, "Last-Event-ID": str(before)}) as answer:
        late.start()
        rest = events_of(answer.iter_lines(), 5 * 5)
    late.join()
    ids = [id_ for id_, _ in rest]
    assert ids[0] == before + 1
    assert all(later == earlier + 1 for earlier, later in pairwise(ids))
    assert rest[-1][1]["kind"] == "improvement"


def test_data_with_line_feeds_stay_one_event(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store)
    last = store.add_event(writer.id, "note", None, {"text": "one\n\nid: 99\ndata: forged\r\nthree"}).seq
    with client.stream("GET", f"/api/v1/campaigns/{writer.id}/events?after={last - 1}", headers=ACCEPT) as answer:
        ((id_, data),) = events_of(answer.iter_lines(), 1)
    assert id_ == last
    assert data["data"] == {"text": "one\n\nid: 99\ndata: forged\r\nthree"}


def test_a_stream_of_nothing_is_an_error_not_a_stream(client: httpx.Client) -> None:
    answer = client.get("/api/v1/campaigns/none/events", headers=ACCEPT)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_stopping_the_server_ends_open_streams(client: httpx.Client, dashboard: Dashboard, store: Store) -> None:
    writer = CampaignWriter(store)
    with client.stream("GET", f"/api/v1/campaigns/{writer.id}/events", headers=ACCEPT) as answer:
        lines = answer.iter_lines()
        events_of(lines, 1)
        start = time.monotonic()
        dashboard.stop()
        list(lines)
    assert time.monotonic() - start < 3


def test_a_client_that_leaves_is_noticed(client: httpx.Client, dashboard: Dashboard, store: Store) -> None:
    writer = CampaignWriter(store)
    with client.stream("GET", f"/api/v1/campaigns/{writer.id}/events", headers=ACCEPT) as answer:
        lines = answer.iter_lines()  # httpx closes the connection as soon as nobody holds its iterator
        events_of(lines, 1)
        assert dashboard.server.server_state.tasks
    deadline = time.monotonic() + 5
    while dashboard.server.server_state.tasks and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not dashboard.server.server_state.tasks


class Client:
    """A request whose client leaves after ``calls`` looks."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    async def receive(self) -> dict[str, object]:
        self.calls -= 1
        if self.calls < 0:
            return {"type": "http.disconnect"}
        await anyio.sleep_forever()
        raise AssertionError("unreachable")


def test_a_silent_stream_is_kept_alive_and_ends_with_its_client(store: Store) -> None:
    writer = CampaignWriter(store)
    last = store.campaign(writer.id).last_seq

    async def collect() -> list[str]:
        request = Request({"type": "http", "headers": []}, Client(3).receive)
        stream: AsyncIterator[str] = event_stream(store, writer.id, last, request, lambda: False, heartbeat_seconds=0.1)
        return [chunk async for chunk in stream]

    chunks = anyio.run(collect)
    assert chunks[0] == "retry: 2000\n\n"
    assert chunks[1:]
    assert set(chunks[1:]) == {": still here\n\n"}
