from __future__ import annotations

import json

from compaction.clip import clip_text, clip_turn
from compaction.history import Content, Message, Part, Response, ToolCall, ToolResult, Turn
from tests.compaction.histories import turn


def test_a_text_keeps_two_thirds_of_the_limit_at_its_start_and_one_at_its_end() -> None:
    text = "a" * 600 + "b" * 600
    assert clip_text(text, 300) == "a" * 200 + "\n[… 900 characters left out …]\n" + "b" * 100
    assert clip_text(text, 1200) == text


def test_a_turn_within_the_limit_is_unchanged() -> None:
    one = turn(3, calls=2, user="hello " * 500)
    assert clip_turn(one, 250) == one


def test_every_text_of_model_and_tools_is_clipped_and_pairings_stay() -> None:
    one = turn(3, thought="t" * 2000, result="r" * 2000, body='"\n' * 2000, calls=2, user="u" * 2000)
    clipped = clip_turn(one, 250)
    assert len(clipped.response.content.text) < 320
    assert all(len(result.content.text) < 320 for result in clipped.results)
    arguments = [json.loads(call.arguments or "") for call in clipped.response.calls]
    assert [item["path"] for item in arguments] == ["/w/kernel_3_0.py", "/w/kernel_3_1.py"]
    assert all(len(item["content"]) < 320 for item in arguments)
    assert [call.id for call in clipped.response.calls] == [call.id for call in one.response.calls]
    assert [result.call_id for result in clipped.results] == [result.call_id for result in one.results]
    assert clipped.user_messages == one.user_messages


def test_arguments_that_are_no_json_are_clipped_as_text() -> None:
    one = Turn(step=0, response=Response(calls=(ToolCall(id="1", name="run", arguments="{" * 1000),)))
    assert clip_turn(one, 250).response.calls[0].arguments == clip_text("{" * 1000, 250)


def test_images_go_from_results_and_stay_with_users() -> None:
    image = Part(kind="image", extra={"type": "image_url"})
    shown = Content(form="parts", parts=(Part(kind="text", text="plot"), image))
    one = Turn(
        step=0,
        response=Response(),
        followers=(ToolResult(call_id="1", content=shown), Message(role="user", content=shown)),
    )
    clipped = clip_turn(one, 250)
    assert clipped.results[0].content == Content(
        form="parts", parts=(Part(kind="text", text="plot\n[image left out]"),)
    )
    assert clipped.user_messages[0].content == shown
