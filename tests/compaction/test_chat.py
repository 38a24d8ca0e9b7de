from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction import chat
from compaction.errors import CompactionError
from compaction.history import Block, Context

CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be quick."},
    {"role": "user", "content": [{"type": "text", "text": "Speed up k.py", "cache_control": {"type": "ephemeral"}}]},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Look first.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path": "k.py"}'}},
            {"id": "b", "type": "function", "index": 1, "function": {"name": "ls", "arguments": "{}", "strict": True}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "name": "read", "content": "def k(): ..."},
    {
        "role": "tool",
        "tool_call_id": "b",
        "content": [{"type": "text", "text": "k.py"}, {"type": "image_url", "image_url": {"url": "data:,"}}],
    },
    {"role": "user", "content": "Use Triton."},
    {"role": "assistant", "content": "Done.", "refusal": None, "tool_calls": []},
]


def test_a_conversation_becomes_head_and_turns() -> None:
    history = chat.to_history(CONVERSATION)
    assert [m.content.text for m in history.system] == ["Be quick."]
    assert history.task is not None
    assert history.task.content.text == "Speed up k.py"
    assert [turn.step for turn in history.turns] == [0, 1]
    first, second = history.turns
    assert [call.name for call in first.response.calls] == ["read", "ls"]
    assert [result.call_id for result in first.results] == ["a", "b"]
    assert first.results[1].content.text == "k.py"
    assert first.response.thought == "Look first."
    assert [m.content.text for m in history.user_messages] == ["Use Triton."]
    assert second.response.thought == "Done."


def test_step_numbers_can_start_anywhere() -> None:
    assert [turn.step for turn in chat.to_history(CONVERSATION, first_step=40).turns] == [40, 41]


def test_unknown_fields_come_back() -> None:
    assert chat.to_messages(chat.to_history(CONVERSATION)) == CONVERSATION


def test_a_history_survives_json() -> None:
    history = chat.to_history(CONVERSATION)
    assert type(history).model_validate_json(history.model_dump_json()) == history


def test_a_block_stands_between_head_and_turns() -> None:
    history = chat.to_history(CONVERSATION)
    context = Context(head=history.head, block=Block(text="excerpts", start=0, stop=1), turns=history.turns[1:])
    assert chat.to_messages(context) == [*CONVERSATION[:2], {"role": "user", "content": "excerpts"}, CONVERSATION[-1]]


@pytest.mark.parametrize(
    ("message", "named"),
    [({"content": "x"}, "message 1"), ("text", "message 1"), ({"role": "user", "content": 7}, "message 1 has content")],
)
def test_what_is_no_message_is_named(message: Any, named: str) -> None:
    with pytest.raises(CompactionError, match=named):
        chat.to_history([{"role": "system", "content": ""}, message])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
parts = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("text"), "text": st.text(max_size=20)}, optional={"cache_control": json_values}
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["image_url", "audio", "text"])}, optional={"image_url": json_values}
    ),
    st.dictionaries(st.text(max_size=6), json_values, max_size=3),
)
contents = st.none() | st.text(max_size=30) | st.lists(parts, max_size=3)
functions = st.fixed_dictionaries({}, optional={"name": json_values, "arguments": json_values, "strict": json_values})
calls = st.fixed_dictionaries(
    {}, optional={"id": json_values, "type": st.just("function"), "function": functions | json_values}
)
messages = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"role": st.just("assistant")},
            optional={
                "content": contents,
                "tool_calls": st.lists(calls, max_size=3) | st.none(),
                "reasoning_content": json_values,
                "refusal": json_values,
            },
        ),
        st.fixed_dictionaries(
            {"role": st.sampled_from(["system", "developer", "user", "tool", "function"])},
            optional={"content": contents, "tool_call_id": json_values, "name": json_values},
        ),
    ),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(messages)
def test_any_conversation_comes_back_as_the_same_json(wire: list[dict[str, Any]]) -> None:
    back = chat.to_messages(chat.to_history(wire))
    assert json.dumps(back, sort_keys=True) == json.dumps(wire, sort_keys=True)
