from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.model import Evaluation, GateResult
from kernel_agent.cli.verdict_text import verdict_text
from tests.dashboard.written_campaign import verdict
from tests.kernel_agent.cli.conftest import Run, refused
from tests.kernel_agent.cli.tiny import BROKEN


def test_a_verdict_exits_with_0_whatever_it_says(run: Run, tiny: Path, tmp_path: Path) -> None:
    candidate = tmp_path / "kernel.py"
    candidate.write_text(BROKEN)
    result = run("evaluate", candidate, "--problem", tiny, "--json")
    assert result.code == 0
    judged = Evaluation.model_validate(result.document)
    assert (judged.status, judged.purpose) == ("compile_error", "screen")
    text = verdict_text(judged, "file/tiny")
    assert text.startswith("compile_error: ")
    assert judged.evidence.isolation in text


def test_a_measured_verdict_in_words() -> None:
    measured = verdict("0" * 64, "source", "correct", 1.5, gates=(GateResult(gate="honest", lane="fp32", passed=True),))
    text = verdict_text(measured, "file/tiny")
    assert "1.500× (95%: 1.470 to 1.530)" in text
    assert "eager 4 ms, candidate 2.667 ms" in text
    assert "honest fp32 passed" in text
    unknown = (GateResult(gate="honest", lane="tf32", applicable=False, passed=False),)
    assert "honest tf32 not applicable" in verdict_text(measured.model_copy(update={"gates": unknown}), "file/tiny")
    assert "not probed (kernel-agent problems probe file/tiny)" in text
    probed = verdict_text(measured.model_copy(update={"soundness": "repaired"}), "file/tiny")
    assert "soundness repaired" in probed


def test_an_error_is_said_once() -> None:
    failed = verdict("0" * 64, "source", "compile_error", errors=("it is compile_error", "k.cpp:1: no such thing"))
    text = verdict_text(failed, "file/tiny")
    assert text.count("it is compile_error") == 1
    assert text.endswith("k.cpp:1: no such thing")


def test_what_is_no_file_is_refused_at_once(run: Run, tiny: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.py"
    os.mkfifo(fifo)
    link = tmp_path / "link.py"
    link.symlink_to(tmp_path / "nowhere.py")
    wide = tmp_path / "latin.py"
    wide.write_bytes("# caf\u00e9\n".encode("latin-1"))
    large = tmp_path / "large.py"
    large.write_bytes(b"#" * ((1 << 20) + 1))
    for path, said in (
        (fifo, "is a FIFO"),
        (Path("/dev/zero"), "is a device"),
        (link, "no file"),
        (tmp_path / "absent.py", "no file"),
        (tmp_path / ("x" * 300), "cannot be read"),
        (wide, "not UTF-8"),
        (large, "larger than"),
    ):
        refused(run("evaluate", path, "--problem", tiny), said)
        refused(run("evaluate", path, "--problem", tiny, "--json"), said)


@pytest.mark.parametrize("problem", ["bundled/nothing_like_it", "no/such/file.py"])
def test_an_unknown_problem(run: Run, tmp_path: Path, problem: str) -> None:
    candidate = tmp_path / "kernel.py"
    candidate.write_text(BROKEN)
    refused(run("evaluate", candidate, "--problem", problem), problem)


def test_where_user_namespaces_are_refused_it_says_what_to_do(home: Path, tiny: Path, tmp_path: Path) -> None:
    del home
    # Inside this one the kernel refuses any further user namespace, as a hardened host does.
    outer = ["bwrap", "--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--"]
    done = evaluate_outside(outer, tiny, tmp_path, os.environ["PATH"])
    assert (done.returncode, done.stdout) == (2, "")
    for words in ("no jail works", "bubblewrap: ", "unprivileged_userns_clone", "--isolation none"):
        assert words in done.stderr


def test_without_bubblewrap_it_says_what_to_install(home: Path, tiny: Path, tmp_path: Path) -> None:
    del home
    done = evaluate_outside([], tiny, tmp_path, str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "apt-get install bubblewrap" in done.stderr


def evaluate_outside(wrapper: list[str], tiny: Path, folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    """``evaluate`` in a process of its own: what the jail can do is found once a process."""
    candidate = folder / "kernel.py"
    candidate.write_text(BROKEN)
    command = [*wrapper, sys.executable, "-m", "kernel_agent.cli", "evaluate", str(candidate), "--problem", str(tiny)]
    return subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)


def test_a_home_below_a_file(run: Run, tiny: Path, tmp_path: Path) -> None:
    candidate = tmp_path / "kernel.py"
    candidate.write_text(BROKEN)
    refused(run("--home", candidate / "home", "evaluate", candidate, "--problem", tiny), "--home", "kernel.py/home")
