from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from problems import sizes
from problems.model import ProblemError, SizeOverride
from tests.problems.sources import GOOD


def overrides(**values: int | float | bool) -> list[SizeOverride]:
    return [SizeOverride(name=name, value=value) for name, value in values.items()]


def as_dict(found: tuple[SizeOverride, ...]) -> dict[str, int | float | bool]:
    return {constant.name: constant.value for constant in found}


def test_the_constants_are_the_top_level_numbers() -> None:
    found = as_dict(sizes.constants(GOOD))
    assert found == {"rows": 4, "width": 16, "scale": 0.5, "shift": -3, "fast": True, "a": 1, "b": 2}
    assert type(found["fast"]) is bool


@pytest.mark.parametrize(
    "source",
    [
        "n = 1\nn = 2\n",
        "n = 1\nn += 1\n",
        "n = f(1)\n",
        "n = 'one'\n",
        "n = m = 1\n",
        "n = 1\ndef f():\n    global n\n    n = 2\n",
    ],
)
def test_a_name_that_is_no_plain_constant_is_not_offered(source: str) -> None:
    assert sizes.constants(source) == ()


def test_only_the_literals_change() -> None:
    changed = sizes.override(GOOD, overrides(rows=32, width=64, scale=2, shift=5, fast=False, b=7))
    expected = GOOD.replace("rows = 4 ", "rows = 32 ").replace("8 * 2", "64").replace("0.5", "2.0")
    expected = expected.replace("-3", "5").replace("True", "False").replace("1, 2", "1, 7")
    assert changed == expected


def test_positions_are_right_behind_text_beyond_ascii() -> None:
    assert sizes.override("é = 'ünï'; n = 10  # ñ\n", overrides(n=2)) == "é = 'ünï'; n = 2  # ñ\n"
    assert sizes.override("x = 1\r\n# é\r\nn = 10\r\n", overrides(n=2)) == "x = 1\r\n# é\r\nn = 2\r\n"


def test_the_present_value_changes_nothing() -> None:
    assert sizes.effective(GOOD, overrides(width=16, scale=0.5)) == ()
    assert sizes.override(GOOD, overrides(width=16, scale=0.5)) == GOOD


def test_what_changes_is_told_in_the_order_of_the_source_and_in_its_types() -> None:
    changes = sizes.effective(GOOD, overrides(scale=3, rows=9, a=1))
    assert [(c.name, c.value, type(c.value)) for c in changes] == [("rows", 9, int), ("scale", 3.0, float)]


def test_an_unknown_name_lists_the_constants() -> None:
    with pytest.raises(ProblemError, match=r"mine\.py has no size constant 'row'\. Its constants: rows=4, width=16"):
        sizes.override(GOOD, overrides(row=1), "mine.py")


@pytest.mark.parametrize(
    "wrong", [{"rows": 1.5}, {"rows": True}, {"fast": 1}, {"scale": True}, {"scale": float("inf")}]
)
def test_the_type_is_checked(wrong: dict[str, int | float | bool]) -> None:
    with pytest.raises(ProblemError, match=next(iter(wrong))):
        sizes.override(GOOD, overrides(**wrong))


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(ProblemError, match="rows is overridden twice"):
        sizes.override(GOOD, [*overrides(rows=1), *overrides(rows=2)])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n=4", 4),
        (" n = 1e-3 ", 1e-3),
        ("n=-2", -2),
        ("n=True", True),
        ("n=false", False),
        ("n=2*3", 6),
        ("n=1_000", 1000),
    ],
)
def test_overrides_are_read_as_python_writes_numbers(text: str, value: int | float | bool) -> None:
    read = sizes.parse(text)
    assert (read.name, read.value, type(read.value)) == ("n", value, type(value))


@pytest.mark.parametrize("text", ["n", "=4", "2n=4", "n=", "n=four", "n='4'", "n=4 5", "n=[1]"])
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(ProblemError, match="is not an override"):
        sizes.parse(text)


@given(st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_what_was_put_in_is_read_back(rows: int, scale: float, fast: bool) -> None:
    changed = sizes.override(GOOD, overrides(rows=rows, scale=scale, fast=fast))
    ast.parse(changed)
    found = as_dict(sizes.constants(changed))
    assert (found["rows"], found["scale"], found["fast"]) == (rows, scale, fast)
