"""``evaluate DIR``: a folder of candidates, both opinions on each, in one table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_agent.rescore import Rescoring
from tests.evaluator.sources import ANSWER, EAGER, PROBLEM, candidate
from tests.kernel_agent.cli.conftest import Run, refused
from tests.kernel_agent.cli.tiny import BROKEN

KEPT = candidate(
    f"""
    if self.kept is None or self.kept[0] is not x:
        self.kept = x, {ANSWER}
    return self.kept[1]
    """,
    init="self.kept = None",
)
WRONG = candidate("return torch.zeros_like(x)")


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    path = tmp_path / "linear.py"
    path.write_text(PROBLEM)
    return path


def folder_of(tmp_path: Path, **sources: str) -> Path:
    folder = tmp_path / "candidates"
    folder.mkdir()
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    return folder


def test_both_opinions_of_a_right_a_wrong_and_a_hostile_candidate(run: Run, linear: Path, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, right=EAGER, wrong=WRONG, hostile=KEPT)
    (folder / "pipe.py").symlink_to("/dev/zero")
    result = run("evaluate", folder, "--problem", linear, "--json")
    assert result.code == 0
    made = Rescoring.model_validate(result.document)
    said = {row.file: (row.evaluation.status, row.claim and row.claim.status) for row in made.rows}
    assert said["wrong.py"] == ("incorrect", "incorrect")
    assert said["hostile.py"] == ("incorrect", "correct")
    assert said["right.py"][0] in ("correct", "unstable")
    assert said["right.py"][1] == "correct"
    assert made.summary.differ == ("hostile.py",)
    assert made.summary.claimed == 2
    assert [(left.file, "is a device" in left.reason) for left in made.left_out] == [("pipe.py", True)]
    assert made.not_reached == ()


def test_the_table(run: Run, linear: Path, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, broken=BROKEN, hostile=KEPT)
    result = run("evaluate", folder, "--problem", linear)
    assert result.code == 0
    header, *lines = result.out.splitlines()
    assert header.split() == [
        "file",
        "problem",
        "status",
        "speedup",
        "soundness",
        "in-process",
        "its",
        "speedup",
        "reason",
    ]
    rows = {line.split()[0]: line for line in lines if line}
    for words in ("file/linear", "compile_error", "error"):
        assert words in rows["broken.py"]
    for words in ("incorrect", "correct", "×", "not probed"):
        assert words in rows["hostile.py"]
    assert "2 judged. Correct: 0 by the judge, 1 by the in-process loop" in result.out
    assert "differs: hostile.py: correct at " in result.out
    assert "2 of 2: hostile.py" in result.err


def test_a_kernelbench_run(run: Run, tmp_path: Path) -> None:
    level = tmp_path / "checkout" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "7_Linear.py").write_text(PROBLEM)
    folder = folder_of(tmp_path, level_1_problem_7_sample_0_kernel=WRONG, level_1_problem_8_sample_0_kernel=WRONG)
    result = run("--kernelbench", tmp_path / "checkout", "evaluate", folder, "--json")
    made = Rescoring.model_validate(result.document)
    assert [(row.problem, row.evaluation.status) for row in made.rows] == [("kernelbench/level1/7_Linear", "incorrect")]
    assert [left.file for left in made.left_out] == ["level_1_problem_8_sample_0_kernel.py"]


@pytest.mark.soak
def test_a_contract_for_kernels_with_names_of_their_own(run: Run, linear: Path, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, renamed=EAGER.replace("self.linear", "self.other"))
    by_name = run("evaluate", folder, "--problem", linear)
    assert "weights_not_transferable" in by_name.out
    assert "--contract kernelbench" in by_name.out
    by_seed = run("evaluate", folder, "--problem", linear, "--contract", "kernelbench", "--json")
    (row,) = Rescoring.model_validate(by_seed.document).rows
    assert row.evaluation.status in ("correct", "unstable")
    assert row.claim is not None
    assert row.claim.status == "correct"


def test_bad_input_is_refused(run: Run, linear: Path, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    refused(run("evaluate", folder, "--problem", linear), "no file in it is named *.py")
    (folder / "kernel.py").write_text(BROKEN)
    refused(run("evaluate", folder), "level_L_problem_P_sample_S_kernel.py", "--problem")
    refused(run("evaluate", folder, "--problem", "bundled/nothing_like_it"), "nothing_like_it")
    refused(run("evaluate", folder / "kernel.py"), "--problem")
    (folder / "kernel.py").rename(folder / "level_1_problem_1_sample_0_kernel.py")
    refused(run("evaluate", folder), "needs a KernelBench checkout")


@pytest.mark.soak
def test_an_interrupt_keeps_what_is_done(home: Path, linear: Path, tmp_path: Path) -> None:
    del home
    folder = folder_of(tmp_path, a_broken=BROKEN, b_hangs=candidate("while True: pass"), c_right=EAGER)
    command = [sys.executable, "-m", "kernel_agent.cli", "evaluate", str(folder), "--problem", str(linear)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "2 of 3" in line:
                process.send_signal(signal.SIGINT)
                break
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "a_broken.py" in out
    assert "compile_error" in out
    assert "1 judged." in out
    assert "interrupted; not judged: b_hangs.py, c_right.py" in out


def test_the_document_is_one_json_object(run: Run, linear: Path, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, broken=BROKEN)
    result = run("evaluate", folder, "--problem", linear, "--json")
    assert sorted(json.loads(result.out)) == ["folder", "left_out", "not_reached", "rows", "summary"]
    assert "of 1" not in result.err
