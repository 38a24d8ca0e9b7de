"""The demo as a newcomer runs it: how long it takes, and whether its best kernels really are faster than eager."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from benchmarks.table import Row

LIMIT_SECONDS = 240


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "kernel_agent.cli", "demo", "--json"]
        env = os.environ | {"KERNEL_AGENT_HOME": home}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    found = json.loads(done.stdout)
    rows = [
        Row(
            "demo, set-up apart",
            f"<= {LIMIT_SECONDS} s",
            f"{found['seconds']:.0f} s",
            found["seconds"] <= LIMIT_SECONDS,
        )
    ]
    for p in found["problems"]:
        low = p["speedup_low"]
        shown = (
            f"{p['speedup']:.2f}x [{low:.2f}, {p['speedup_high']:.2f}], {p['statuses']}" if low else f"{p['statuses']}"
        )
        rows.append(
            Row(f"demo, best of {p['problem']}", "faster than eager beyond its interval", shown, bool(low and low > 1))
        )
    return rows
