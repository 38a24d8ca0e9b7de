"""Whole campaigns through the command line: a recording is played, sessions, jail, gateway and judge are real."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kernel_agent.gateway.recording import load
from tests.kernel_agent.cli.conftest import Run, refused
from tests.kernel_agent.cli.tiny import write_recording

PATIENCE_SECONDS = 240.0
"""For an event of a running campaign: its evaluations queue behind those of other processes on this host."""


def until(true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert process.poll() is None, f"ended with {process.returncode}"
        assert time.monotonic() < deadline
        time.sleep(0.1)


def living(home: Path) -> list[str]:
    """Command lines of the processes that work for this home."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if str(home) in line and process.status() != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found


@contextmanager
def launched(recording: Path, problem: Path, said: Path) -> Iterator[subprocess.Popen[str]]:
    """``launch`` in a process of its own, writing to ``said``; killed if the test fails."""
    command = [sys.executable, "-m", "kernel_agent.cli", "launch", "--problems", str(problem)]
    command += ["--model", f"replay:{recording}", "--compaction", "cliff:16k"]
    with said.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_a_campaign_from_launch_to_more_steps(run: Run, home: Path, tiny: Path, tmp_path: Path) -> None:
    recording = write_recording(tmp_path, tiny)
    kept = tmp_path / "kept"
    common = ("--problems", tiny, "--model", f"replay:{recording.parent}", "--compaction", "cliff:16k")
    result = run("launch", *common, "--steps", "3", "--max-hours", "1", "--record", kept, "--json")
    assert result.code == 0, result.err
    report = result.document
    assert (report["state"], report["totals"]["steps"]) == ("finished", 3)
    assert report["totals"]["statuses"] == {"compile_error": 1}
    assert "at most $" in result.err
    assert "compile_error" in result.err
    assert [turn.n for turn in load(kept / "file_tiny.jsonl").turns] == [0, 1, 2]
    assert living(home) == []

    # The same session goes on: its first steps are neither asked nor judged again.
    result = run("resume", report["campaign_id"], "--steps", "4")
    assert result.code == 0, result.err
    assert "all 4 steps taken" in result.out
    assert "candidate #" not in result.out
    assert "kernel-agent report" in result.out
    assert run("status", report["campaign_id"], "--json").document["sessions"][0]["steps"] == 4
    assert living(home) == []


@pytest.mark.parametrize(
    ("ending", "times", "moment", "candidates"),
    [(signal.SIGINT, 2, "candidate #1: a first try", 1), (signal.SIGTERM, 1, "session running", 0)],
)
def test_a_signal_keeps_everything_and_leaves_no_process(
    run: Run, home: Path, tiny: Path, tmp_path: Path, ending: signal.Signals, times: int, moment: str, candidates: int
) -> None:
    recording = write_recording(tmp_path, tiny, waits=3)
    said = tmp_path / "said.txt"
    with launched(recording, tiny, said) as process:
        until(lambda: moment in said.read_text(), process)
        for _ in range(times):
            process.send_signal(ending)
            time.sleep(0.6)
        process.wait(60)
    text = said.read_text()
    assert process.returncode == 130, text
    assert "Traceback" not in text
    assert "Stopping" in text
    assert living(home) == []
    [campaign] = run("status", "--json").document["campaigns"]
    assert (campaign["state"], campaign["reason"]) == ("stopped", "interrupted")
    assert f"resume {campaign['id']}" in text
    [session] = run("status", campaign["id"], "--json").document["sessions"]
    assert session["candidates"] == candidates


def test_stop_from_another_process_ends_it_in_order(run: Run, home: Path, tiny: Path, tmp_path: Path) -> None:
    recording = write_recording(tmp_path, tiny)
    with launched(recording, tiny, tmp_path / "said.txt") as process:
        until(lambda: "session running" in (tmp_path / "said.txt").read_text(), process)
        [campaign] = run("status", "--json").document["campaigns"]
        result = run("stop", campaign["id"])
        assert (result.code, "is stopping" in result.out) == (0, True)
        process.wait(PATIENCE_SECONDS)
    assert process.returncode == 0
    document = run("status", campaign["id"], "--json").document
    assert (document["campaign"]["state"], document["campaign"]["reason"]) == ("stopped", "stopped on request")
    assert [(s["state"], s["steps"]) for s in document["sessions"]] == [("stopped", 0)]
    assert living(home) == []


def test_bad_input_ends_before_anything_is_stored(run: Run, tiny: Path, tmp_path: Path) -> None:
    recording = write_recording(tmp_path, tiny)
    replay = ("--model", f"replay:{recording}")
    right = ("launch", "--problems", tiny, *replay)
    refused(run(*right, "--compaction", "clif:16k"), "--compaction", "cliff")
    refused(run(*right, "--compaction", "cliff:9"), "cliff:9")
    refused(run(*right, "--set", "rows"), "NAME=VALUE")
    refused(run(*right, "--set", "rows=8"), "another version")
    refused(run(*right, "--record", tiny), "--record")
    refused(run("launch", "--problems", "bundled/*", *replay), "no recording")
    refused(run("launch", "--problems", "bundled/atention", *replay), "bundled/")
    refused(run("launch", "--problems", tiny, "--model", "nobody/knows"), "--price")
    refused(run("launch", "--problems", tiny, "--model", "m", "--price", "free"), "IN,CACHED,OUT")
    refused(run("launch", "--problems", tiny, "--model", "openai/gpt-5"), "OPENAI_API_KEY")
    tiny.write_text("x = 1\n")
    refused(run(*right, "--json"), "get_inputs() is missing")
    assert json.loads(run("status", "--json").out) == {"campaigns": []}
