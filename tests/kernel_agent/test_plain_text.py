"""Text from outside loses what a terminal or a page would obey."""

from __future__ import annotations

import pytest

from kernel_agent.plain_text import plain, plain_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07rest", "rest"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x00b\x9bc\x7f", "abc"),
        ("safe\u202eexe", "safeexe"),
        ("lone \ud800 surrogate", "lone  surrogate"),
        ("two\nlines\tkept", "two\nlines\tkept"),
        ("größer 1.2× 核", "größer 1.2× 核"),
    ],
)
def test_controls_go_and_text_stays(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_line_is_one_line() -> None:
    assert plain_line(" two\n lines\r\n\tand a tab ") == "two lines and a tab"
