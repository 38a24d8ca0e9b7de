from __future__ import annotations

import json
from typing import Any

import pytest

from compaction.excerpt import build_block, signature, turn_entries
from compaction.history import Content, Message, Part, Response, ToolCall, ToolResult, Turn
from tests.compaction.histories import turn


def call(arguments: Any, name: str = "edit") -> ToolCall:
    return ToolCall(id="1", name=name, arguments=arguments if isinstance(arguments, str) else json.dumps(arguments))


def texts(one: Turn, thought: int = 300, result: int = 500) -> list[str]:
    return [entry.text for entry in turn_entries(one, thought, result)]


def test_a_long_body_never_pushes_the_path_out() -> None:
    line = signature(call({"content": "x = 1\n" * 500, "command": "create", "path": "/workspace/deep/kernel.py"}))
    assert line.startswith("edit(path=/workspace/deep/kernel.py, command=create, content=x = 1 x = 1")
    assert len(line) <= 150
    assert line.endswith("…)")
    assert "\n" not in line


@pytest.mark.parametrize("key", ["path", "file_path", "Filename", "cwd", "output_dir"])
def test_path_like_keys_come_first(key: str) -> None:
    assert signature(call({"a": "1", key: "/x"})) == f"edit({key}=/x, a=1)"


def test_a_very_long_path_keeps_its_end() -> None:
    line = signature(call({"path": "/a" * 200 + "/kernel.cu", "mode": "w"}))
    assert "/kernel.cu" in line
    assert "mode=w" in line
    assert len(line) <= 150


@pytest.mark.parametrize("arguments", ["not json " * 60, "[1, 2]", "", "\x00", '{"a": ' + "[" * 500 + "]" * 500 + "}"])
def test_odd_arguments_still_make_one_short_line(arguments: str) -> None:
    line = signature(call(arguments))
    assert line.startswith("edit(")
    assert line.endswith(")")
    assert len(line) <= 150
    assert "\n" not in line


def test_the_frameworks_own_risk_argument_is_left_out() -> None:
    assert signature(call({"security_risk": "LOW", "command": "ls"}, "terminal")) == "terminal(command=ls)"


def test_a_thought_is_cut_at_its_limit() -> None:
    assert texts(turn(4, thought="a" * 300))[0] == "[step 4] " + "a" * 300
    assert texts(turn(4, thought="a" * 301))[0] == "[step 4] " + "a" * 299 + "…"


def test_a_result_is_kept_whole_or_not_at_all() -> None:
    suffix = len(" [call_1_0]")
    assert texts(turn(1, result="r" * (500 - suffix)))[2] == "[step 1] = " + "r" * (500 - suffix) + " [call_1_0]"
    assert texts(turn(1, result="r" * (501 - suffix))) == texts(turn(1))[:2]


def test_parallel_calls_stand_with_their_own_results() -> None:
    labels = [text.removeprefix("[step 2] ") for text in texts(turn(2, calls=2))]
    assert labels[1:] == [
        "> edit(path=/w/kernel_2_0.py, content=)",
        "= ok [call_2_0]",
        "> edit(path=/w/kernel_2_1.py, content=)",
        "= ok [call_2_1]",
    ]


def test_users_are_kept_whole_and_images_dropped() -> None:
    image = Part(kind="image", extra={"type": "image_url", "image_url": {"url": "data:,secret"}})
    said = Message(role="user", content=Content(form="parts", parts=(Part(kind="text", text="u" * 2000), image)))
    shot = ToolResult(call_id="9", content=Content(form="parts", parts=(image,)))
    entries = turn_entries(Turn(step=0, response=Response(), followers=(shot, said)), 300, 500)
    assert [(entry.text, entry.from_user) for entry in entries] == [("[step 0] user: " + "u" * 2000, True)]


def test_a_turn_of_calls_only_says_what_its_first_call_is_for() -> None:
    silent = Turn(step=3, response=Response(calls=(call({"summary": "list the\nfiles", "command": "ls"}, "terminal"),)))
    assert texts(silent)[0] == "[step 3] list the files"


def test_the_oldest_lines_go_first_and_what_users_said_last() -> None:
    turns = [turn(0, user="use triton"), turn(1)]
    entries = [entry for one in turns for entry in turn_entries(one, 300, 500)]
    whole = build_block(turns, entries, 0)
    assert (whole.start, whole.stop) == (0, 2)
    assert all(entry.text in whole.text for entry in entries)
    three = build_block(turns, entries, 3).text
    assert "[3 older lines of these steps left out]" in three
    assert "[step 0] user: use triton" in three
    assert "[step 0] Thought" not in three
    assert "[step 1] Thought 1." in three
    assert "use triton" not in build_block(turns, entries, len(entries)).text
