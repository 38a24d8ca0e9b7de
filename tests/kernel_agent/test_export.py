"""Exported folders, and their check.py run for real on a small module."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_agent.errors import NotFoundError, UsageError
from kernel_agent.export import MANIFEST, Evidence, Exported, export_campaign, folder_name
from kernel_agent.store.repository import Store
from tests.dashboard.written_campaign import CampaignWriter, problem

REFERENCE = '''"""Scaled linear."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = self.norm(self.linear(x))
        total = torch.zeros_like(y)
        for _ in range(40):
            total = total + y / 40
        return total + x


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return [64]
'''
# Right, and several times faster: the loop adds up to y.
RIGHT = """import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(self.linear(x)) + x
"""
WRONG = RIGHT.replace(" + x", "")
STALE = RIGHT.replace(
    "        self.norm = nn.LayerNorm(width)\n",
    "        self.norm = nn.LayerNorm(width)\n        self.cached = None\n",
).replace(
    "        return self.norm(self.linear(x)) + x",
    "        if self.cached is None:\n            self.cached = self.linear.weight.t().clone()\n"
    "        return self.norm(x @ self.cached + self.linear.bias) + x",
)
CRASHES = "import os\nos.kill(os.getpid(), 11)\n"
MISSHAPEN = RIGHT.replace("+ x", "+ x[:, :1].expand_as(x).double()")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'campaigns.db'}")
    yield opened
    opened.close()


def exported(store: Store, directory: Path, kernel: str, speedup: float = 1.5) -> Path:
    """One problem, one confirmed kernel; its folder."""
    writer = CampaignWriter(store)
    writer.session(problem("bundled/scaled linear", REFERENCE)).improve(kernel, speedup)
    return export_campaign(store, writer.id, directory).kernels[0].folder


def check(folder: Path, *arguments: str, isolated: bool = False) -> subprocess.CompletedProcess[str]:
    flags = ["-S"] if isolated else []
    command = [sys.executable, *flags, str(folder / "check.py"), *arguments]
    # No GPU is visible, so that the answer about a CUDA record is the same on every machine.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def test_a_folder_holds_everything_and_says_where_it_comes_from(store: Store, tmp_path: Path) -> None:
    writer = CampaignWriter(store, provenance="scripted")
    session = writer.session(problem("bundled/one", REFERENCE))
    session.improve("first = 1\n", 1.5)
    best = session.improve(RIGHT, 2.5, hypothesis="the loop adds up to y")
    session.attempt("not promoted", "correct", 9.0)
    writer.session("bundled/never tried")
    writer.session("bundled/unsolved").attempt("wrong", "incorrect")
    writer.session("bundled/unconfirmed").attempt("lucky", "correct", 1.01)

    found = export_campaign(store, writer.id, tmp_path / "out" / "deep")

    (kernel,) = found.kernels
    assert kernel.problem == "bundled/one"
    assert kernel.folder == tmp_path / "out" / "deep" / "bundled_one"
    assert sorted(f.name for f in kernel.folder.iterdir()) == ["check.py", "evidence.json", "kernel.py", "reference.py"]
    assert (kernel.folder / "kernel.py").read_text() == RIGHT
    assert (kernel.folder / "reference.py").read_text() == REFERENCE
    evidence = Evidence.model_validate_json((kernel.folder / "evidence.json").read_text())
    assert evidence.evaluation == store.candidate(best.candidate_id).promotion
    assert (evidence.step, evidence.provenance) == (best.step, "scripted")
    assert evidence.kernel_sha256 == hashlib.sha256((kernel.folder / "kernel.py").read_bytes()).hexdigest()
    assert {n.problem: n.reason for n in found.not_exported} == {
        "bundled/never tried": "no candidate was submitted",
        "bundled/unsolved": "none of 1 candidates was correct",
        "bundled/unconfirmed": "1 of 1 candidates passed the screening, none was confirmed",
    }


def test_the_best_rollout_is_exported(store: Store, tmp_path: Path) -> None:
    writer = CampaignWriter(store, rollouts=2)
    writer.session(problem("p", REFERENCE), rollout=0).improve("slower = 1", 1.4)
    writer.session(problem("p", REFERENCE), rollout=1).improve("faster = 1", 1.9)
    (kernel,) = export_campaign(store, writer.id, tmp_path / "out").kernels
    assert (kernel.folder / "kernel.py").read_text() == "faster = 1"


def test_exporting_again_replaces_only_its_own(store: Store, tmp_path: Path) -> None:
    writer = CampaignWriter(store)
    session = writer.session(problem("p", REFERENCE))
    session.improve("a = 1", 1.4)
    out = tmp_path / "out"
    export_campaign(store, writer.id, out)
    session.improve("b = 1", 1.9)
    again: Exported = export_campaign(store, writer.id, out)
    assert (again.kernels[0].folder / "kernel.py").read_text() == "b = 1"
    assert sorted(entry.name for entry in out.iterdir()) == [MANIFEST, "p"]

    other = CampaignWriter(store, "second")
    with pytest.raises(UsageError, match=f"holds an export of campaign {writer.id}.*new folder"):
        export_campaign(store, other.id, out)


def test_a_foreign_folder_stays_untouched(store: Store, tmp_path: Path) -> None:
    writer = CampaignWriter(store)
    writer.session(problem("p", REFERENCE)).improve("a = 1", 1.4)
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"not empty.*thesis\.tex"):
        export_campaign(store, writer.id, home)
    assert [entry.name for entry in home.iterdir()] == ["thesis.tex"]
    with pytest.raises(UsageError, match="Cannot export"):
        export_campaign(store, writer.id, home / "thesis.tex")


def test_a_link_in_the_folder_is_not_followed(store: Store, tmp_path: Path) -> None:
    writer = CampaignWriter(store)
    writer.session(problem("p", REFERENCE)).improve("a = 1", 1.4)
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    folder = export_campaign(store, writer.id, out).kernels[0].folder
    elsewhere.mkdir()
    (elsewhere / "kernel.py").write_text("precious")
    (folder / "kernel.py").unlink()
    (folder / "kernel.py").symlink_to(elsewhere / "kernel.py")
    export_campaign(store, writer.id, out)
    assert (elsewhere / "kernel.py").read_text() == "precious"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.symlink_to(elsewhere)
    with pytest.raises(UsageError, match="in the way"):
        export_campaign(store, writer.id, out)
    assert [entry.name for entry in elsewhere.iterdir()] == ["kernel.py"]


def test_an_unknown_campaign_is_named(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        export_campaign(store, "nothing", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("problem_id", "name"),
    [
        ("kernelbench/level3/1_MLP", "kernelbench_level3_1_MLP"),
        ("../../etc/passwd", "etc_passwd"),
        ("..", "problem"),
        (".hidden", "hidden"),
        ("a\x00b\n<c>", "a_b_c"),
        ("taken", "taken-abcdef12"),
        ("Taken", "Taken-abcdef12"),
        (MANIFEST, f"{MANIFEST}-abcdef12"),
        ("x" * 300, "x" * 80),
    ],
)
def test_names_are_safe_and_distinct(problem_id: str, name: str) -> None:
    assert folder_name(problem_id, "abcdef123456", {"taken": "taken"}) == name


def test_check_confirms_a_right_kernel(store: Store, tmp_path: Path) -> None:
    folder = exported(store, tmp_path / "out", RIGHT)
    done = check(folder, "--json", "--rounds", "4")
    answer = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert answer["holds"]
    assert answer["correct"]
    assert answer["speedup_low"] <= answer["speedup"] <= answer["speedup_high"]
    assert answer["speedup"] > 1.5
    assert answer["rounds"] == 4
    assert answer["recorded"]["changed"] == []
    assert "generated code" in done.stderr
    assert sorted(f.name for f in folder.iterdir()) == ["check.py", "evidence.json", "kernel.py", "reference.py"]


def test_check_refutes_a_claim_that_is_too_high(store: Store, tmp_path: Path) -> None:
    done = check(exported(store, tmp_path / "out", RIGHT, speedup=1000.0), "--rounds", "4")
    assert done.returncode == 1
    assert "correct:  yes" in done.stdout
    assert "the record DOES NOT HOLD" in done.stdout
    assert "generated code" in done.stdout


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (WRONG, "wrong on fresh inputs"),
        (STALE, "wrong on fresh inputs"),
        (CRASHES, "ended with signal SIGSEGV"),
        (MISSHAPEN, "torch.float64, the reference (32, 64) torch.float32"),
        ("import no_such_module\n", "does not load"),
    ],
)
def test_check_refutes_a_wrong_kernel(store: Store, tmp_path: Path, kernel: str, said: str) -> None:
    done = check(exported(store, tmp_path / "out", kernel), "--json", "--rounds", "4")
    answer = json.loads(done.stdout)
    assert done.returncode == 1
    assert not answer["correct"]
    assert said in answer["reason"]


def test_a_replaced_clock_is_not_the_one_that_is_read(store: Store, tmp_path: Path) -> None:
    frozen = "import time\ntime.perf_counter = time.monotonic = lambda: 0.0\n" + RIGHT
    done = check(exported(store, tmp_path / "out", frozen), "--json", "--rounds", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert 1.5 < json.loads(done.stdout)["speedup"] < 1000


def test_check_kills_a_kernel_that_hangs(store: Store, tmp_path: Path) -> None:
    done = check(exported(store, tmp_path / "out", "while True: pass\n"), "--json", "--timeout", "4")
    assert done.returncode == 1
    assert "did not finish within 4 s" in json.loads(done.stdout)["reason"]


def test_check_says_what_is_missing(store: Store, tmp_path: Path) -> None:
    folder = exported(store, tmp_path / "out", RIGHT)
    assert check(folder, "--rounds", "2").returncode == 2
    without_torch = check(folder, isolated=True)
    assert without_torch.returncode == 2
    assert "pip install torch" in without_torch.stderr
    evidence = (folder / "evidence.json").read_text()
    (folder / "evidence.json").write_text(evidence.replace('"target": "cpu"', '"target": "cuda"'))
    elsewhere = check(folder)
    assert elsewhere.returncode == 2
    assert "CUDA" in elsewhere.stderr
    (folder / "evidence.json").write_text("{}")
    assert check(folder).returncode == 2
    (folder / "kernel.py").unlink()
    missing = check(folder)
    assert missing.returncode == 2
    assert "kernel.py is missing" in missing.stderr


def test_check_notices_a_changed_file(store: Store, tmp_path: Path) -> None:
    folder = exported(store, tmp_path / "out", RIGHT)
    (folder / "kernel.py").write_text(RIGHT + "# edited\n")
    done = check(folder, "--rounds", "4")
    assert done.returncode == 0
    assert "kernel.py was changed since the export" in done.stdout
