from __future__ import annotations

from pathlib import Path

import pytest

from problems.catalog import Catalog
from tests.kernel_agent.cli.conftest import Run, refused


def test_the_bundled_problems_are_listed(run: Run) -> None:
    result = run("problems", "list")
    assert result.code == 0
    for problem in Catalog().list():
        assert problem.id in result.out
        assert problem.title in result.out


def test_a_pattern_narrows_the_list(run: Run) -> None:
    document = run("problems", "list", "bundled/*norm*", "--json").document
    assert [problem["id"] for problem in document["problems"]] == ["bundled/layernorm_mlp"]


def test_a_kernelbench_checkout_is_listed_too(run: Run, tmp_path: Path, tiny: Path) -> None:
    level = tmp_path / "checkout" / "KernelBench" / "level3"
    level.mkdir(parents=True)
    (level / "1_Tiny.py").write_text(tiny.read_text())
    result = run("--kernelbench", tmp_path / "checkout", "problems", "list", "kernelbench/level3", "--json")
    assert [problem["id"] for problem in result.document["problems"]] == ["kernelbench/level3/1_Tiny"]


def test_showing_a_problem(run: Run) -> None:
    problem = Catalog().get("bundled/gated_recurrence")
    result = run("problems", "show", problem.id)
    assert result.code == 0
    assert problem.sha256 in result.out
    assert "def get_inputs" in result.out
    document = run("problems", "show", problem.id, "--json").document
    assert document["source"] == problem.source
    assert document["problem"]["sha256"] == problem.sha256


def test_another_size_makes_another_problem(run: Run, tiny: Path) -> None:
    document = run("problems", "show", tiny, "--set", "rows=3", "--json").document
    assert "rows = 3\n" in document["source"]
    assert document["problem"]["constants"] == [{"name": "rows", "value": 3}]
    assert "rows=3 (set)" in run("problems", "show", tiny, "--set", "rows=3").out


def test_an_unknown_id_suggests_near_ones(run: Run) -> None:
    refused(run("problems", "show", "bundled/gated_recurence"), "bundled/gated_recurrence", "problems list")
    refused(run("problems", "show", "bundled/gated_recurence", "--json"), "Did you mean")


def test_a_file_without_get_inputs(run: Run, tiny: Path) -> None:
    tiny.write_text(tiny.read_text().replace("def get_inputs", "def inputs"))
    refused(run("problems", "show", tiny), "get_inputs() is missing", "tiny.py")


@pytest.mark.parametrize(("override", "said"), [("rows", "NAME=VALUE"), ("rows=x", "no int"), ("cols=2", "rows=16")])
def test_a_bad_override(run: Run, tiny: Path, override: str, said: str) -> None:
    refused(run("problems", "show", tiny, "--set", override), said)


def test_a_folder_that_is_no_checkout(run: Run, tmp_path: Path) -> None:
    refused(run("--kernelbench", tmp_path, "problems", "list"), "not a KernelBench checkout")


def test_probing_a_file(run: Run, tiny: Path) -> None:
    result = run("problems", "probe", tiny)
    assert result.code == 0
    assert result.out.startswith("sound: file/tiny\n")
    assert "sizes          rows=16\n" in result.out
    assert "replay" in result.out


def test_a_probe_is_kept_and_done_again_when_asked(run: Run, tiny: Path, home: Path) -> None:
    first = run("problems", "probe", tiny, "--json").document
    (kept,) = (home / "cache" / "soundness").iterdir()
    assert run("problems", "probe", tiny, "--json").document == first
    again = run("problems", "probe", tiny, "--json", "--again").document
    assert again["reports"][0]["seconds"] != first["reports"][0]["seconds"]
    (report,) = first["reports"]
    assert (report["verdict"], report["repair"], report["lane"]) == ("sound", None, "fp32")
    assert kept.exists()


def test_probing_several_at_another_size(run: Run, tiny: Path, tmp_path: Path) -> None:
    level = tmp_path / "checkout" / "KernelBench" / "level3"
    level.mkdir(parents=True)
    (level / "1_Tiny.py").write_text(tiny.read_text())
    (level / "2_Constant.py").write_text(tiny.read_text().replace("x * 2.0", "x * 0.0 + 1"))
    result = run("--kernelbench", tmp_path / "checkout", "problems", "probe", "kernelbench/level3", "--set", "rows=8")
    assert result.code == 0
    sound, unsound = result.out.splitlines()
    assert sound.split()[:2] == ["sound", "kernelbench/level3/1_Tiny"]
    assert unsound.split()[:2] == ["unsound", "kernelbench/level3/2_Constant:"]
    assert "does not depend on the input" in unsound


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bundled/gated_recurence",), "Did you mean bundled/gated_recurrence"),
        (("absent.py",), "no such file"),
        (("bundled/*", "--set", "rows=2"), "no size constant"),
        (("bundled/layernorm_mlp", "--lane", "int4"), "int4"),
    ],
)
def test_what_cannot_be_probed(run: Run, arguments: tuple[str, ...], said: str) -> None:
    refused(run("problems", "probe", *arguments), said)
