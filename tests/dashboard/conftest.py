"""A real store, and the dashboard on it, served on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from dashboard.server import Dashboard, prepare
from kernel_agent.store.repository import Store

TOKEN = "a-token-for-the-tests"


@contextmanager
def running(dashboard: Dashboard) -> Iterator[Dashboard]:
    """Serves ``dashboard`` in a thread for as long as the block lasts."""
    thread = threading.Thread(target=dashboard.run)
    thread.start()
    try:
        yield dashboard
    finally:
        dashboard.stop()
        thread.join(10)
        assert not thread.is_alive(), "the server did not stop"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'campaigns.db'}")
    yield opened
    opened.close()


@pytest.fixture
def dashboard(store: Store) -> Iterator[Dashboard]:
    with running(prepare(store, port=0, token=TOKEN)) as served:
        yield served


@pytest.fixture
def stranger(dashboard: Dashboard) -> Iterator[httpx.Client]:
    """A client without the token."""
    # The listening socket is open before the server runs: the first request waits in its queue.
    with httpx.Client(base_url=f"http://127.0.0.1:{dashboard.port}", timeout=10) as client:
        yield client


@pytest.fixture
def client(stranger: httpx.Client) -> httpx.Client:
    """A client with the token."""
    stranger.headers["Authorization"] = f"Bearer {TOKEN}"
    return stranger
