"""Event numbers: no gaps, in commit order, whoever writes."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel_agent.errors import NotFoundError, StoreError
from kernel_agent.store.repository import Store
from tests.kernel_agent.store.conftest import settings

EACH = 40


def test_events_are_read_in_pages(store: Store) -> None:
    id_ = store.create_campaign(settings()).id
    for n in range(5):
        store.add_event(id_, "note", data={"n": n})
    assert [e.seq for e in store.events(id_, limit=4)] == [1, 2, 3, 4]
    assert [(e.seq, e.data) for e in store.events(id_, after_seq=4)] == [(5, {"n": 3}), (6, {"n": 4})]
    assert store.events(id_, after_seq=6) == []
    assert store.campaign(id_).last_seq == 6


def test_each_campaign_counts_for_itself(store: Store) -> None:
    first, second = (store.create_campaign(settings(name)).id for name in ("a", "b"))
    assert store.add_event(first, "note").seq == 2
    assert store.add_event(second, "note").seq == 2


def test_an_event_belongs_to_something(store: Store) -> None:
    id_ = store.create_campaign(settings()).id
    with pytest.raises(NotFoundError):
        store.add_event("nope", "note")
    with pytest.raises(NotFoundError):
        store.add_event(id_, "note", session_id="nope")


def test_a_failed_write_leaves_no_gap(store: Store) -> None:
    id_ = store.create_campaign(settings()).id
    with pytest.raises((StoreError, TypeError)):
        store.add_event(id_, "note", data={"not": object()})
    assert store.add_event(id_, "note").seq == 2


def _write(url: str, id_: str, writer: int) -> None:
    store = Store.open(url)
    for n in range(EACH):
        store.add_event(id_, "note", data={"writer": writer, "n": n})
    store.close()


def _check(store: Store, id_: str, writers: int) -> None:
    events = [e for e in store.events(id_, limit=10_000) if e.kind == "note"]
    assert [e.seq for e in events] == list(range(2, 2 + writers * EACH))
    for writer in range(writers):
        assert [e.data["n"] for e in events if e.data["writer"] == writer] == list(range(EACH))


def test_eight_threads_lose_and_reorder_nothing(store: Store) -> None:
    id_ = store.create_campaign(settings()).id

    def write(writer: int) -> None:
        for n in range(EACH):
            store.add_event(id_, "note", data={"writer": writer, "n": n})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    _check(store, id_, 8)


def test_eight_processes_lose_and_reorder_nothing_while_a_reader_follows(url: str) -> None:
    store = Store.open(url)
    id_ = store.create_campaign(settings()).id
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(url, id_, n)) for n in range(8)]
    for writer in writers:
        writer.start()
    followed: list[int] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(followed) < 1 + 8 * EACH:
        followed.extend(e.seq for e in store.events(id_, after_seq=followed[-1] if followed else 0))
        time.sleep(0.005)
    for writer in writers:
        writer.join(30)
    assert [writer.exitcode for writer in writers] == [0] * 8
    # A reader that only ever asks for what comes after its last number misses nothing.
    assert followed == list(range(1, 2 + 8 * EACH))
    _check(store, id_, 8)
    store.close()
