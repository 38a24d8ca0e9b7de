"""A real store and the application on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from dashboard.app import create_app
from kernel_agent.store.repository import Store

TOKEN = "a-token-for-the-tests"
HOST = "http://127.0.0.1:8765"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'campaigns.db'}")
    yield opened
    opened.close()


@pytest.fixture
def stranger(store: Store) -> Iterator[TestClient]:
    """A client without the token."""
    with TestClient(create_app(store, token=TOKEN), base_url=HOST, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client(stranger: TestClient) -> TestClient:
    """A client with the token."""
    stranger.headers["Authorization"] = f"Bearer {TOKEN}"
    return stranger
