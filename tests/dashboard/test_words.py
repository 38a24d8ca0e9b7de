"""Numbers as the pages write them."""

from __future__ import annotations

import pytest

from dashboard.words import breakable, by_count, cached_share, short_count, speedup, usd
from kernel_agent.model import Usage


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (12_345, "12.3k"),
        (999_499, "999k"),
        (999_500, "1M"),
        (1_254_000, "1.25M"),
        (7_000_000_000, "7G"),
        (1_500_000_000_000, "1,500G"),
    ],
)
def test_tokens_to_three_digits(number: int, text: str) -> None:
    assert short_count(number) == text


@pytest.mark.parametrize(
    ("amount", "text"), [(0.0, "$0.00"), (0.004321, "$0.0043"), (0.25, "$0.25"), (1234.5, "$1,234.50")]
)
def test_small_amounts_still_say_something(amount: float, text: str) -> None:
    assert usd(amount) == text


def test_speedups_and_shares() -> None:
    assert speedup(1.849) == "1.85×"
    assert speedup(123.4) == "123×"
    assert cached_share(Usage()) == "0%"
    assert cached_share(Usage(prompt_tokens=8, cached_tokens=6)) == "75%"


def test_verdicts_put_correct_first() -> None:
    counts = {"timeout": 1, "incorrect": 5, "correct": 2}
    assert by_count(counts) == [("correct", 2), ("incorrect", 5), ("timeout", 1)]


def test_a_breakable_name_is_still_escaped() -> None:
    assert breakable("a/<b>_c") == "a/<wbr>&lt;b&gt;_<wbr>c"
