from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from kernel_agent.gateway.app import Gateway
from kernel_agent.gateway.upstream import HttpUpstream, Upstream
from kernel_agent.model import CampaignSettings, Price
from kernel_agent.store.repository import Store
from tests.kernel_agent.store.conftest import empty_store, launch

KEY = "sk-provider-secret"
PRICE = Price(name="test", input_usd=1.0, cached_usd=0.1, output_usd=4.0)


@dataclass
class Request:
    headers: dict[str, str]
    body: bytes


@dataclass
class Provider:
    """A model provider on a loopback port: answers with ``respond``, remembers what it was sent."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    respond: Callable[[Request], tuple[int, bytes, dict[str, str]]] = lambda request: completion(request)
    now: int = 0
    most: int = 0
    """Calls at the same moment, at most."""
    lock: threading.Lock = field(default_factory=threading.Lock)


def completion(request: Request, text: str = "hello") -> tuple[int, bytes, dict[str, str]]:
    """A plain completion, in a spelling that no JSON library would choose by itself."""
    count = len(json.loads(request.body)["messages"])
    message = f'{{"role":"assistant","content":"{text} {count} \\u00e9"}}'
    usage = (
        '{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100,'
        '"prompt_tokens_details":{"cached_tokens":400}}'
    )
    body = f'{{ "id":"x",  "choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}],\n"usage":{usage} }}'
    return 200, body.encode(), {}


COST = (600 * 1.0 + 400 * 0.1 + 100 * 4.0) / 1e6
"""Of one ``completion`` at ``PRICE``."""


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = Request(
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(int(self.headers["content-length"])),
            )
            with made.lock:
                made.requests.append(request)
                made.now += 1
                made.most = max(made.most, made.now)
            try:
                status, body, headers = made.respond(request)
            finally:
                with made.lock:
                    made.now -= 1
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # a client that has gone is part of some tests
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(empty_store(tmp_path / "store.db"))
    yield opened
    opened.close()


@pytest.fixture
def gateway(store: Store) -> Iterator[Gateway]:
    made = Gateway(store)
    made.start()
    yield made
    made.stop(0.1)


def upstream(provider: Provider, **options: Any) -> HttpUpstream:
    return HttpUpstream(provider.url, SecretStr(KEY), **options)


def line(store: Store, gateway: Gateway, to: Upstream, **settings: Any) -> tuple[str, str]:
    """A running session and its base URL."""
    session_id = launch(store, **settings).session_id
    return session_id, gateway.register(session_id, to, PRICE, settings_of(store, session_id))


def settings_of(store: Store, session_id: str) -> CampaignSettings:
    return store.campaign(store.session(session_id).campaign_id).settings


def chat(*texts: str, **more: object) -> bytes:
    messages = [{"role": "user", "content": text} for text in texts]
    return json.dumps({"model": "m", "messages": messages, "max_tokens": 200, **more}).encode()


def post(base_url: str, body: bytes, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"Content-Type": "application/json", "Authorization": "Bearer sk-of-the-session", **named}
    return httpx.post(
        f"{base_url}/chat/completions", content=body, headers=sent, timeout=30, trust_env=False, verify=False
    )
