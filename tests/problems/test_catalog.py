from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from problems import sizes
from problems.catalog import Catalog
from problems.model import ProblemError
from tests.problems.sources import GOOD


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in KernelBench's layout, with files to be ignored and numbers whose order is not that of text."""
    for level, names in {1: ["1_Square_matrix_multiplication_"], 3: ["10_ResNet", "2_Wide_MLP", "1_MLP"]}.items():
        folder = tmp_path / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.py").write_text(GOOD.split('"""', 2)[2].lstrip())
    (tmp_path / "KernelBench" / "level3" / "helpers.py").write_text("x = 1\n")
    (tmp_path / "KernelBench" / "changelog").mkdir()
    return tmp_path


def test_the_bundled_problems_are_there_with_titles_and_sizes() -> None:
    problems = Catalog().list("bundled/*")
    assert [p.id for p in problems] == [
        "bundled/bias_gelu_residual",
        "bundled/causal_attention",
        "bundled/gated_recurrence",
        "bundled/layernorm_mlp",
    ]
    assert all(p.origin == "bundled" and sizes.constants(p.source) and p.overrides == () for p in problems)
    assert problems[0].title == "Bias, GELU and residual around a linear layer"


def test_a_checkout_is_listed_in_numeric_order_from_either_folder(checkout: Path) -> None:
    for folder in (checkout, checkout / "KernelBench"):
        listed = Catalog(kernelbench=folder).list("kernelbench")
        assert [p.id for p in listed] == [
            "kernelbench/level1/1_Square_matrix_multiplication_",
            "kernelbench/level3/1_MLP",
            "kernelbench/level3/2_Wide_MLP",
            "kernelbench/level3/10_ResNet",
        ]
    assert {p.origin for p in listed} == {"kernelbench"}
    assert [p.title for p in listed] == ["Square matrix multiplication", "MLP", "Wide MLP", "ResNet"]


def test_a_number_stands_for_the_name(checkout: Path) -> None:
    catalog = Catalog(kernelbench=checkout)
    assert catalog.get("kernelbench/level3/2").id == "kernelbench/level3/2_Wide_MLP"
    assert catalog.get("kernelbench/level3/2") == catalog.get("kernelbench/level3/2_Wide_MLP")


def test_overrides_make_another_problem_under_the_same_id() -> None:
    catalog = Catalog()
    plain = catalog.get("bundled/causal_attention")
    other = catalog.get("bundled/causal_attention", [sizes.parse("heads=8"), sizes.parse("batch=2")])
    assert [(o.name, o.value) for o in other.overrides] == [("heads", 8)]
    assert other.id == plain.id
    assert other.sha256 != plain.sha256
    assert "heads = 8" in other.source


def test_an_unknown_id_suggests_near_ones_and_says_where_ids_are_listed() -> None:
    with pytest.raises(ProblemError, match=r"Did you mean bundled/layernorm_mlp.*problems list") as caught:
        Catalog().get("bundled/layer_norm_mlp")
    assert "'bundled/layer_norm_mlp'" in str(caught.value)


@pytest.mark.parametrize("pattern", ["bundled", "bundled/*", "bundled/causal_*", "nothing"])
def test_get_takes_one_problem_and_no_pattern(pattern: str) -> None:
    with pytest.raises(ProblemError, match="no problem"):
        Catalog().get(pattern)


def test_a_pattern_that_means_nothing_is_an_error() -> None:
    with pytest.raises(ProblemError, match="no problem 'bundled/zzz"):
        Catalog().list("bundled/zzz*")


def test_kernelbench_errors_say_what_to_do(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="needs a KernelBench checkout, and none is set"):
        Catalog().get("kernelbench/level3/1")
    with pytest.raises(ProblemError, match="no 'level2'; it has level1, level3"):
        Catalog(kernelbench=checkout).list("kernelbench/level2/1-10")
    with pytest.raises(ProblemError, match="Did you mean kernelbench/level3/2_Wide_MLP"):
        Catalog(kernelbench=checkout).get("kernelbench/level3/2_WideMLP")
    with pytest.raises(ProblemError, match="is not a KernelBench checkout: it is no folder"):
        Catalog(kernelbench=tmp_path / "nowhere").list()
    with pytest.raises(ProblemError, match="is not a KernelBench checkout: it has no"):
        Catalog(kernelbench=checkout / "KernelBench" / "level3").list()


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "my_model.py"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    problem = Catalog().resolve(str(path), [sizes.parse("rows=6")])
    assert (problem.id, problem.origin, problem.title) == ("file/my_model", "file", "A small problem")
    assert problem.source == GOOD.replace("rows = 4", "rows = 6")


def test_an_id_comes_before_a_path_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bundled").mkdir()
    (tmp_path / "bundled" / "causal_attention").write_text("not a problem")
    assert Catalog().resolve("bundled/causal_attention").origin == "bundled"


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes("x = 'é'".encode("latin-1"))
    (tmp_path / "huge.py").write_bytes(b"#" * ((1 << 20) + 1))
    for name, said in {
        "latin.py": "not UTF-8",
        "huge.py": "larger than",
        "none.py": "no such file",
        ".": "is a folder",
    }.items():
        with pytest.raises(ProblemError, match=said):
            Catalog().from_file(tmp_path / name)


def test_listing_imports_no_torch() -> None:
    script = "import sys; from problems.catalog import Catalog; Catalog().list(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
