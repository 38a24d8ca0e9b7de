from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.claim import Claim
from kernel_agent.errors import UsageError
from kernel_agent.rescore import Means, Rescored, RunName, Summary, find
from problems.catalog import Catalog
from problems.model import ProblemError
from tests.dashboard.written_campaign import verdict
from tests.kernel_agent.cli.tiny import PROBLEM

SOURCE = "class ModelNew: pass\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for level, names in ((1, ("2_Scale", "10_Other")), (3, ("2_Deep",))):
        folder = root / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.py").write_text(PROBLEM)
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "runs"
    made.mkdir()
    return made


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text(SOURCE)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("level_3_problem_50_sample_0_kernel.py", (3, 50, 0)),
        ("level_1_problem_2_sample_17_kernel.py", (1, 2, 17)),
        ("level_1_problem_2_sample_17_kernel.py.bak", None),
        ("level_1_problem_2_kernel.py", None),
        ("level_a_problem_2_sample_0_kernel.py", None),
        ("my_level_1_problem_2_sample_0_kernel.py", None),
    ],
)
def test_names(name: str, expected: tuple[int, int, int] | None) -> None:
    found = RunName.of(name)
    assert (found and (found.level, found.problem, found.sample)) == expected


def test_a_run_is_matched_by_number_and_ordered_by_it(folder: Path, checkout: Path) -> None:
    write(
        folder,
        "level_1_problem_10_sample_0_kernel.py",
        "level_1_problem_2_sample_10_kernel.py",
        "level_1_problem_2_sample_9_kernel.py",
        "level_3_problem_2_sample_0_kernel.py",
    )
    found = find(folder, Catalog(kernelbench=checkout), None, ())
    assert [c.file for c in found.candidates] == [
        "level_1_problem_2_sample_9_kernel.py",
        "level_1_problem_2_sample_10_kernel.py",
        "level_1_problem_10_sample_0_kernel.py",
        "level_3_problem_2_sample_0_kernel.py",
    ]
    assert [c.problem.id for c in found.candidates] == [
        "kernelbench/level1/2_Scale",
        "kernelbench/level1/2_Scale",
        "kernelbench/level1/10_Other",
        "kernelbench/level3/2_Deep",
    ]
    assert not found.left_out


def test_what_does_not_fit_is_left_out_with_the_reason(folder: Path, checkout: Path) -> None:
    write(folder, "level_1_problem_2_sample_0_kernel.py", "level_1_problem_77_sample_0_kernel.py", "notes.py")
    (folder / "level_1_problem_2_sample_1_kernel.py").write_bytes(b"\xff\xfe")
    (folder / "README.md").write_text("not a candidate")
    found = find(folder, Catalog(kernelbench=checkout), None, ())
    assert [c.file for c in found.candidates] == ["level_1_problem_2_sample_0_kernel.py"]
    reasons = {left.file: left.reason for left in found.left_out}
    assert set(reasons) == {
        "level_1_problem_77_sample_0_kernel.py",
        "level_1_problem_2_sample_1_kernel.py",
        "notes.py",
    }
    assert "no problem 'kernelbench/level1/77'" in reasons["level_1_problem_77_sample_0_kernel.py"]
    assert "not UTF-8" in reasons["level_1_problem_2_sample_1_kernel.py"]
    assert "level_L_problem_P_sample_S_kernel.py" in reasons["notes.py"]


def test_one_problem_takes_every_file(folder: Path) -> None:
    write(folder, "b.py", "a.py", "level_1_problem_2_sample_0_kernel.py")
    found = find(folder, Catalog(), "bundled/layernorm_mlp", ())
    assert {c.problem.id for c in found.candidates} == {"bundled/layernorm_mlp"}
    assert [c.file for c in found.candidates] == ["level_1_problem_2_sample_0_kernel.py", "a.py", "b.py"]


def test_a_pattern_chooses_part_of_a_run(folder: Path, checkout: Path) -> None:
    write(folder, "level_1_problem_2_sample_0_kernel.py", "level_3_problem_2_sample_0_kernel.py", "x.py")
    found = find(folder, Catalog(kernelbench=checkout), "kernelbench/level1", ())
    assert [c.problem.id for c in found.candidates] == ["kernelbench/level1/2_Scale"]
    assert "not among the problems" in found.left_out[0].reason


def test_one_problem_of_a_run_leaves_the_others_out(folder: Path, checkout: Path) -> None:
    write(folder, "level_1_problem_2_sample_0_kernel.py", "level_3_problem_2_sample_0_kernel.py", "mine.py")
    found = find(folder, Catalog(kernelbench=checkout), "kernelbench/level1/2", ())
    assert [c.file for c in found.candidates] == ["level_1_problem_2_sample_0_kernel.py", "mine.py"]
    assert [left.file for left in found.left_out] == ["level_3_problem_2_sample_0_kernel.py"]


def test_nothing_to_judge(folder: Path, checkout: Path) -> None:
    with pytest.raises(UsageError, match=r"no file in it is named \*\.py"):
        find(folder, Catalog(), None, ())
    write(folder, "level_1_problem_2_sample_0_kernel.py", "x.py")
    with pytest.raises(UsageError, match=r"needs a KernelBench checkout.*1 more"):
        find(folder, Catalog(), None, ())
    with pytest.raises(ProblemError, match="nothing_like_it"):
        find(folder, Catalog(kernelbench=checkout), "bundled/nothing_like_it", ())


def test_the_summary_counts_each_opinion() -> None:
    def claim(status: str, speedup: float | None, *passed: float) -> Claim:
        return Claim.model_validate(
            {"status": status, "reason": "", "tolerance": 1e-4, "passed": passed, "speedup": speedup}
        )

    def row(file: str, status: str, speedup: float | None, said: Claim | None) -> Rescored:
        return Rescored(file=file, problem="p", evaluation=verdict("0" * 64, file, status, speedup), claim=said)

    rows = (
        row("both.py", "correct", 2.0, claim("correct", 8.0, 1e-4, 1e-2)),
        row("cheat.py", "incorrect", None, claim("correct", 50.0, 1e-4, 1e-2)),
        row("ours.py", "correct", 0.5, claim("incorrect", 3.0, 1e-2)),
        row("noisy.py", "unstable", None, claim("correct", 2.0, 1e-4, 1e-2)),
        row("still.py", "correct", 1.0, claim("correct", None, 1e-4, 1e-2)),
        row("interrupted.py", "correct", 1.0, None),
    )
    made = Summary.of(rows)
    assert (made.judged, made.correct, made.claimed, made.claimed_loosely) == (6, 4, 4, 5)
    assert made.differ == ("cheat.py", "ours.py")
    means = (made.speedup, made.claimed_speedup, made.agreed_speedup, made.agreed_claimed_speedup)
    assert [m.candidates for m in means] == [4, 3, 1, 1]
    assert [m.speedup for m in means] == pytest.approx([1.0, 800 ** (1 / 3), 2.0, 8.0])
    assert Summary.of(()).speedup == Means(candidates=0, speedup=None)
