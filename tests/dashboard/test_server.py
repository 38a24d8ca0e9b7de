"""Starting the server: the port, the token, the one-time URL, the names it answers to."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from dashboard.server import TOKEN_VARIABLE, allowed_hosts, in_url, listen, prepare
from kernel_agent.errors import UsageError
from kernel_agent.store.repository import Store
from tests.dashboard.conftest import running

SERVE = """
import sys
from dashboard.server import serve
from kernel_agent.store.repository import Store
serve(Store.open(sys.argv[1]), port=0, say=lambda text: print(text, flush=True))
"""


def test_a_port_in_use_names_the_way_out(store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"Port {port} on 127\.0\.0\.1 is in use.*--port"):
            prepare(store, port=port)


def test_two_dashboards_do_not_share_a_port(store: Store) -> None:
    with running(prepare(store, port=0)) as first, pytest.raises(UsageError, match="in use"):
        prepare(store, port=first.port)


@pytest.mark.parametrize(
    ("host", "port", "said"),
    [
        ("127.0.0.1", 70000, "0 to 65535"),
        ("203.0.113.7", 0, "--host"),
        ("no such host", 0, "--host"),
    ],
)
def test_an_impossible_address_names_the_way_out(host: str, port: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        listen(host, port)


def test_the_environment_s_token_is_accepted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "from-the-environment")
    with running(prepare(store, port=0)) as served:
        url = f"http://127.0.0.1:{served.port}/"
        assert httpx.get(url, headers={"Authorization": "Bearer from-the-environment"}).status_code == 200
        assert httpx.get(url).status_code == 401
    monkeypatch.setenv(TOKEN_VARIABLE, "short")
    with pytest.raises(UsageError, match=TOKEN_VARIABLE):
        prepare(store, port=0)


def test_without_one_the_token_is_random(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    urls = set()
    for _ in range(2):
        made = prepare(store, port=0)
        made.listener.close()
        urls.add(made.url.split("once=")[1])
    assert len(urls) == 2
    assert all(len(secret) >= 32 for secret in urls)


def test_names_by_address() -> None:
    assert "localhost" in allowed_hosts("127.0.0.1")
    assert allowed_hosts("192.0.2.1") == ("192.0.2.1",)
    assert socket.gethostname() in allowed_hosts("0.0.0.0")
    assert "127.0.0.1" in allowed_hosts("0.0.0.0")
    assert in_url("::1") == "[::1]"


def test_serving_prints_the_url_and_ends_quietly(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, f"sqlite:///{tmp_path / 'c.db'}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    printed = process.stdout.readline()
    found = re.search(r"(http://127\.0\.0\.1:\d+)/login\?once=\S+", printed)
    assert found, printed
    with httpx.Client() as client:
        assert client.get(found[0]).status_code == 200
        assert client.get(found[1] + "/").status_code == 200
        assert httpx.get(found[0]).status_code == 410
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in out + err
    assert found[0].split("once=")[1] not in out + err
