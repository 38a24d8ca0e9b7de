from __future__ import annotations

import pytest

from problems.model import ProblemError
from problems.validate import validate
from tests.problems.sources import GOOD


def test_a_problem_in_the_usual_form_is_accepted() -> None:
    assert validate(GOOD, "good.py").body


@pytest.mark.parametrize(
    "source",
    [
        GOOD.replace("def get_init_inputs():\n    return [width]", "get_init_inputs = lambda: [width]"),
        GOOD.replace("def get_inputs():", "from helpers import get_inputs\ndef unused():"),
        GOOD.replace("class Model(nn.Module):", "class Base(nn.Module):") + "\nclass Model(Base):\n    pass\n",
        "if True:\n" + "".join(f"    {line}\n" for line in GOOD.splitlines()),
    ],
)
def test_other_ways_to_write_the_same_are_accepted(source: str) -> None:
    assert validate(source, "good.py").body


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("class Model(", "class Net(", "class Model is missing"),
        ("class Model(", "class ModelNew(", "looks like a candidate"),
        ("def forward(", "def forwards(", "class Model has no method forward"),
        ("def get_inputs(", "def inputs(", "get_inputs() is missing"),
        ("def get_init_inputs(", "def init_inputs(", "get_init_inputs() is missing"),
        ("def get_inputs()", "def get_inputs(seed)", "must take no arguments, but needs seed"),
        ("def get_inputs()", "async def get_inputs()", "async function"),
    ],
)
def test_what_is_missing_is_said_and_the_form_is_shown(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(ProblemError) as caught:
        validate(GOOD.replace(old, new), "mine.py")
    assert said in str(caught.value)
    assert str(caught.value).startswith("mine.py is not a problem")
    assert "class Model(nn.Module):" in str(caught.value)


def test_everything_amiss_is_listed_at_once() -> None:
    with pytest.raises(
        ProblemError, match=r"class Model is missing; get_inputs\(\) is missing; get_init_inputs\(\) is missing"
    ):
        validate("x = 1\n", "mine.py")


def test_a_syntax_error_names_the_line_and_its_text() -> None:
    with pytest.raises(ProblemError, match=r"mine\.py is not valid Python: line 2 .*: def forward\(self x\):"):
        validate("class Model:\n    def forward(self x):\n        pass\n", "mine.py")


@pytest.mark.parametrize("source", ["a = 1\0", "(" * 5000 + ")" * 5000, "-" * 100_000 + "1"])
def test_hostile_text_is_an_error_and_no_crash(source: str) -> None:
    with pytest.raises(ProblemError, match=r"mine\.py"):
        validate(source, "mine.py")


def test_nothing_is_executed() -> None:
    with pytest.raises(ProblemError):
        validate("raise SystemExit('executed')\n", "mine.py")
    assert validate(GOOD + "\nraise SystemExit('executed')\n", "mine.py").body
