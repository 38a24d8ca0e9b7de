"""The engine is killed while a call is out: the answered one is not paid again, the other is charged and repeated."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from kernel_agent.gateway.app import Gateway
from kernel_agent.store.repository import Fence, SessionOwnedError, Store
from tests.kernel_agent.gateway.conftest import (
    COST,
    PRICE,
    Provider,
    Request,
    chat,
    completion,
    post,
    settings_of,
    upstream,
)
from tests.kernel_agent.store.conftest import PROBLEM, empty_store, settings

ENGINE = """
import sys, time
from pydantic import SecretStr
from kernel_agent.gateway.app import Gateway
from kernel_agent.gateway.upstream import HttpUpstream
from kernel_agent.model import Price
from kernel_agent.store.repository import Store

url, session_id, provider = sys.argv[1:]
store = Store.open(url)
store.set_session_state(store.acquire_session(session_id, "first engine", 1.0), "running")
gateway = Gateway(store)
gateway.start()
settings = store.campaign(store.session(session_id).campaign_id).settings
print(gateway.register(session_id, HttpUpstream(provider, SecretStr("k")), settings.price, settings), flush=True)
time.sleep(60)
"""


def test_a_killed_engine_pays_for_what_was_out_and_for_nothing_twice(tmp_path: Path, provider: Provider) -> None:
    url = empty_store(tmp_path / "store.db")
    store = Store.open(url)
    campaign = store.create_campaign(settings())
    store.set_campaign_state(campaign.id, "running")
    session_id = store.create_session(campaign.id, PROBLEM, 0, "cpu").id
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, url, session_id, provider.url], stdout=subprocess.PIPE, text=True
    )
    assert engine.stdout is not None
    base_url = engine.stdout.readline().strip()
    answered = post(base_url, chat("answered before"))
    release = threading.Event()

    def hang(request: Request) -> tuple[int, bytes, dict[str, str]]:
        release.wait(10)
        return completion(request)

    provider.respond = hang
    out = threading.Thread(target=_post_in_vain, args=(base_url, chat("out")))
    out.start()
    while len(provider.requests) < 2:
        time.sleep(0.01)
    engine.kill()
    engine.wait()
    out.join()
    release.set()
    engine.stdout.close()
    provider.respond = completion
    reserved = store.campaign(campaign.id).reserved_usd
    assert reserved > 0

    fence = _acquire(store, session_id)
    store.set_session_state(fence, "running")
    gateway = Gateway(store)
    gateway.start()
    base_url = gateway.register(session_id, upstream(provider), PRICE, settings_of(store, session_id))
    assert post(base_url, chat("answered before")).content == answered.content
    assert len(provider.requests) == 2
    assert post(base_url, chat("out")).status_code == 200
    gateway.stop()
    after = store.campaign(campaign.id)
    assert after.reserved_usd == 0.0
    assert after.spent_usd == pytest.approx(reserved + 2 * COST)
    assert [(call.state, call.attempts) for call in store.calls(session_id)] == [("answered", 1), ("answered", 2)]
    assert [step.idx for step in store.steps(session_id)] == [0, 1]
    store.close()


def _post_in_vain(base_url: str, body: bytes) -> None:
    with pytest.raises(httpx.HTTPError):
        post(base_url, body)


def _acquire(store: Store, session_id: str) -> Fence:
    deadline = time.monotonic() + 10
    while True:
        try:
            return store.acquire_session(session_id, "second engine", 60)
        except SessionOwnedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
