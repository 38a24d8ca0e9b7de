from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx

from tests.kernel_agent.cli.conftest import Run, refused

TOKEN = "a-token-of-the-tests"


def test_a_port_in_use(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(run("serve", "--port", port), f"Port {port}", "in use", "--port")


def test_it_serves_until_ctrl_c(home: Path) -> None:
    command = [sys.executable, "-m", "kernel_agent.cli", "serve", "--port", "0"]
    env = {**os.environ, "KERNEL_AGENT_TOKEN": TOKEN}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        found = re.search(r"http://[^/]+/", process.stdout.readline())
        assert found is not None
        url = found[0]
        assert httpx.get(f"{url}healthz").status_code == 200
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in said
    assert (home / "kernel-agent.db").is_file()
