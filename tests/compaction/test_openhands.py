"""The condenser inside real conversations, against a scripted model over HTTP."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from openhands.sdk import LocalConversation
from openhands.sdk.context.view import View
from openhands.sdk.conversation.exceptions import ConversationRunError
from openhands.sdk.event import ActionEvent, AgentErrorEvent, Condensation, LLMConvertibleEvent
from openhands.sdk.llm import MessageToolCall, TextContent, ThinkingBlock

from compaction import chat
from compaction.errors import CompactionError
from compaction.history import History
from compaction.openhands import CliffCondenser, attach, make_condenser
from compaction.openhands_events import read_branch, read_turn, wire
from tests.compaction.scripted_agent import NUDGE, SYSTEM, TASK, drive, open_conversation
from tests.compaction.scripted_model import ScriptedModel, text_of, tool_call

STEPS = 70
BUDGET = 8_000
SPEC = "cliff:8k"
SCALE = 1.2
"""The provider counts a fifth more than we do, so that a lost calibration would move the cuts."""
Body = dict[str, Any]


def reply(step: int) -> Body:
    """Thoughts, bodies and results of many sizes; every seventh step two calls; step 30 talks to the user."""
    if step in (30, STEPS - 1):
        return {"content": f"Step {step}: shall I go on?"}
    thought = f"Step {step}: " + "this tile may be slow, " * (step % 20)
    calls = [
        tool_call(
            step, i, path=f"/workspace/kernel_{step}_{i}.py", size=(step * 137) % 1500 + 20, body="x = 1\n" * (step % 9)
        )
        for i in range(2 if step % 7 == 3 else 1)
    ]
    return {"content": thought, "tool_calls": calls}


def messages(request: Body) -> list[Body]:
    """The request's messages, without the markers of provider caching."""
    return [{key: value for key, value in message.items() if key != "cache_control"} for message in request["messages"]]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[ScriptedModel, list[tuple[int, int, int]], Path]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    cuts: list[tuple[int, int, int]] = []
    with ScriptedModel(reply, scale=SCALE) as model:
        drive(open_conversation(model.url, folder, SPEC, lambda *cut: cuts.append(cut)), STEPS)
    return model, cuts, folder


def test_compactions_fire_and_no_prompt_exceeds_the_budget(uninterrupted: Any) -> None:
    model, cuts, _ = uninterrupted
    assert len(model.requests) == STEPS
    assert len(cuts) >= 6
    assert max(model.prompt_tokens) <= BUDGET
    for from_step, before, after in cuts:
        assert before > BUDGET
        # What is told is what is sent, within a merged message's border.
        assert model.prompt_tokens[from_step] == pytest.approx(after, abs=20)
        assert after <= 0.6 * BUDGET


def test_prompts_extend_one_another_between_cuts(uninterrupted: Any) -> None:
    model, cuts, _ = uninterrupted
    rebuilt = {from_step for from_step, _, _ in cuts}
    for step, (before, after) in enumerate(pairwise(model.requests), start=1):
        old, new = messages(before), messages(after)
        extends = len(new) > len(old) and new[: len(old)] == old
        assert extends == (step not in rebuilt)


def test_system_and_task_stay_word_for_word_and_blocks_follow_them(uninterrupted: Any) -> None:
    model, cuts, _ = uninterrupted
    first = cuts[0][0]
    for step, request in enumerate(model.requests):
        system, task, *_ = messages(request)
        assert text_of(system) == SYSTEM
        assert task["content"][0]["text"] == TASK
        blocks = [part["text"] for part in task["content"][1:]]
        assert len(blocks) == (step >= first)
        assert all(block.startswith("[Excerpts of step") for block in blocks)


def test_the_newest_three_turns_are_whole_after_a_cut_and_parallel_calls_stay_together(uninterrupted: Any) -> None:
    model, cuts, _ = uninterrupted
    for from_step, _, _ in cuts:
        sent = messages(model.requests[from_step])
        kept = [message for message in sent if message["role"] == "assistant"]
        whole = [message for message in messages(model.requests[from_step - 1]) if message["role"] == "assistant"]
        assert kept[:-1] == whole[1 - len(kept) :]
        steps = [int(re.match(r"Step (\d+)", text_of(message))[1]) for message in kept]  # type: ignore[index]
        assert steps == list(range(from_step - 3, from_step))
        for message in kept:
            ids = [call["id"] for call in message.get("tool_calls", [])]
            answered = [m["tool_call_id"] for m in sent if m["role"] == "tool" and m["tool_call_id"] in ids]
            assert answered == ids


def test_what_the_user_says_in_the_middle_is_sent_until_it_is_cut_away(uninterrupted: Any) -> None:
    model, cuts, _ = uninterrupted
    assert NUDGE in text_of(messages(model.requests[31])[-1])
    cut = next(from_step for from_step, _, _ in cuts if from_step > 31)
    assert any(NUDGE in text_of(message) for message in messages(model.requests[cut]))


def test_turns_render_as_the_sdk_renders_their_events(uninterrupted: Any) -> None:
    model, _, folder = uninterrupted
    conversation = open_conversation(model.url, folder, SPEC)
    llm = conversation.agent.llm
    branch = read_branch(conversation.state.active_branch())
    assert len(branch.groups) == STEPS
    events = [event for event in conversation.state.active_branch() if isinstance(event, LLMConvertibleEvent)]
    history = History(
        head=chat.to_history(wire(branch.head, llm)).head,
        turns=tuple(read_turn(step, group, llm) for step, group in enumerate(branch.groups)),
    )
    assert chat.to_messages(history) == llm.format_messages_for_llm(LLMConvertibleEvent.events_to_messages(events))


def test_the_log_alone_gives_back_every_cut(uninterrupted: Any) -> None:
    model, cuts, folder = uninterrupted
    conversation = open_conversation(model.url, folder, SPEC)
    read = read_branch(conversation.state.active_branch()).cuts
    assert [(cut.at, cut.tokens_before, cut.tokens_after) for cut in read] == cuts
    assert all(cut.first <= cut.at - 1 for cut in read)


def start_child(url: str, folder: Path, die_at: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.compaction.scripted_agent", url, str(folder), SPEC, str(STEPS), str(die_at)]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, cwd=root, env=dict(os.environ), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_a_killed_and_resumed_conversation_sends_the_same_prompts(uninterrupted: Any, tmp_path: Path) -> None:
    """SIGKILL while the model thinks, just after an answer, and between a cut and its logging."""
    model, cuts, _ = uninterrupted
    thinking, answered = cuts[0][0] + 1, cuts[2][0]
    child: list[subprocess.Popen[bytes]] = []
    killed: set[str] = set()
    lock = threading.Lock()

    def kill(name: str) -> None:
        with lock:
            if name not in killed:
                killed.add(name)
                child[-1].send_signal(signal.SIGKILL)

    def before(step: int) -> None:
        if step == thinking:
            kill("thinking")

    def after(step: int) -> None:
        if step == answered:
            time.sleep(0.01)
            kill("answered")

    with ScriptedModel(reply, scale=SCALE, before_answer=before, after_answer=after) as resumed:
        for _ in range(4):
            child.append(start_child(resumed.url, tmp_path, die_at=cuts[4][0]))
            _, errors = child[-1].communicate(timeout=60)
            if child[-1].returncode == 0:
                break
            assert child[-1].returncode == -signal.SIGKILL, errors.decode()
    assert len(child) == 4
    assert (tmp_path / "died").read_text() == str(cuts[4][0])
    # The only trace of the kills is that a request may have been sent again, as it was.
    sent = [messages(request) for request in resumed.requests]
    distinct = [request for index, request in enumerate(sent) if index == 0 or request != sent[index - 1]]
    assert distinct == [messages(request) for request in model.requests]


def test_a_provider_that_counts_more_is_believed(tmp_path: Path) -> None:
    with ScriptedModel(reply, scale=1.4) as model:
        drive(open_conversation(model.url, tmp_path, SPEC), STEPS)
    assert max(model.prompt_tokens) <= BUDGET
    assert max(model.prompt_tokens) > 0.8 * BUDGET


def test_giant_results_and_bodies_are_clipped_in_the_view_and_whole_in_the_log(tmp_path: Path) -> None:
    def giant(step: int) -> Body:
        if step == 11:
            return {"content": "Step 11: stop here."}
        size = 40_000 if step in (0, 3, 6) else 200
        body = "y = 2\n" * 4_000 if step in (6, 9) else ""
        return {
            "content": f"Step {step}: look",
            "tool_calls": [tool_call(step, 0, path=f"/w/{step}.py", size=size, body=body)],
        }

    with ScriptedModel(giant) as model:
        conversation = open_conversation(model.url, tmp_path, SPEC)
        drive(conversation, 12)
    assert max(model.prompt_tokens) <= BUDGET
    # With one turn there is nothing to cut away: it is clipped, and no block is made.
    assert "characters left out" in text_of(messages(model.requests[1])[-1])
    assert [message["role"] for message in messages(model.requests[1])] == ["system", "user", "assistant", "tool"]
    assert len(messages(model.requests[1])[1]["content"]) == 1
    shown = messages(model.requests[4])[-1]
    assert "characters left out" in text_of(shown)
    assert shown["tool_call_id"] == "call_3_0"
    assert messages(model.requests[5])[:-2] == messages(model.requests[4])
    logged = read_turn(3, read_branch(conversation.state.active_branch()).groups[3], conversation.agent.llm)
    assert len(logged.results[0].content.text) == 40_000


def test_a_refused_prompt_is_compacted_and_sent_once_more(tmp_path: Path) -> None:
    refused: list[int] = []

    def refuse(step: int, number: int) -> str | None:
        if step != 8 or refused:
            return None
        refused.append(number)
        return "maximum context length exceeded"

    with ScriptedModel(reply, refuse=refuse) as model:
        conversation = open_conversation(model.url, tmp_path, "cliff:100k")
        drive(conversation, 31)
    assert refused == [8]
    assert len(model.requests) == 32
    assert model.prompt_tokens[9] <= 0.6 * model.prompt_tokens[8]
    assert sum(isinstance(event, Condensation) for event in conversation.state.active_branch()) == 1


def test_a_model_that_refuses_everything_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    def refuse(step: int, _number: int) -> str | None:
        return "maximum context length exceeded" if step >= 8 else None

    with ScriptedModel(reply, refuse=refuse) as model:
        conversation = open_conversation(model.url, tmp_path, "cliff:100k")
        with pytest.raises(ConversationRunError, match="cannot be brought down") as raised:
            drive(conversation, 31)
    assert isinstance(raised.value.__cause__, CompactionError)
    assert len(model.requests) < 40


def test_a_conversation_opened_from_its_log_alone_has_its_condenser(uninterrupted: Any, tmp_path: Path) -> None:
    model, _, folder = uninterrupted
    shutil.copytree(folder / "log", tmp_path / "log")
    conversation = LocalConversation(
        agent=None,
        workspace=tmp_path / "workspace",
        persistence_dir=tmp_path / "log",
        conversation_id=uuid.UUID(int=7),
        stuck_detection=False,
        visualizer=None,
        delete_on_close=False,
    )
    condenser = conversation.agent.condenser
    assert isinstance(condenser, CliffCondenser)
    assert condenser.spec == "cliff:8k,k=3"
    with pytest.raises(CompactionError, match=r"attach\(conversation\)"):
        condenser.condense(conversation.state.view, conversation.agent.llm)
    attach(conversation)
    conversation.send_message("Go on.")  # type: ignore[arg-type]
    shown = condenser.condense(conversation.state.view, conversation.agent.llm)
    assert isinstance(shown, View)
    assert messages(model.requests[-1]) == wire(shown.events, conversation.agent.llm)[:-2]


@pytest.mark.parametrize(
    ("spec", "window", "named"),
    [("cliff:64k", 32_000, "exceeds the model's window of 32000"), ("cliff:x", 32_000, "budget 'x'")],
)
def test_a_strategy_that_cannot_work_is_refused_at_once(spec: str, window: int, named: str) -> None:
    with pytest.raises(CompactionError, match=named):
        make_condenser(spec, context_tokens=window, on_compaction=None)


def test_none_needs_no_condenser() -> None:
    assert make_condenser("none", context_tokens=32_000, on_compaction=None) is None
    with pytest.raises(CompactionError, match="needs no condenser"):
        CliffCondenser(spec="none")


def test_cuts_keep_to_the_places_the_sdk_allows(tmp_path: Path) -> None:
    """Calls after signed thinking stay with it, so a cut keeps at least K turns, not just K."""
    conversation = open_conversation("http://127.0.0.1:9/v1", tmp_path, SPEC)
    conversation.send_message(TASK)  # type: ignore[arg-type]
    state, condenser = conversation.state, conversation.agent.condenser
    assert condenser is not None
    cut: Condensation | None = None
    for step in range(60):
        call = MessageToolCall(
            id=f"call_{step}", name="inspect", arguments=f'{{"path": "/w/{step}.py"}}', origin="completion"
        )
        thinking = [ThinkingBlock(thinking=f"Plan {step}.", signature="s")] if step % 5 == 0 else []
        action = ActionEvent(
            thought=[TextContent(text=f"Step {step}")], thinking_blocks=thinking, tool_name="inspect",
            tool_call_id=call.id, tool_call=call, llm_response_id=f"response-{step}",
        )  # fmt: skip
        error = AgentErrorEvent(
            error=f"Line {step}. " + "No such file. " * 60, tool_name="inspect", tool_call_id=call.id
        )
        state.append_event(action)
        state.append_event(error)
        answer = condenser.condense(state.view, conversation.agent.llm)
        if isinstance(answer, Condensation):
            cut = answer
            state.append_event(cut)
            branch = read_branch(state.active_branch())
            assert branch.cuts[-1].first % 5 == 0
            assert branch.cuts[-1].at - branch.cuts[-1].first >= 3
            # What the SDK would rebuild from the log after a crash is what it shows now.
            assert [e.id for e in View.from_events(state.active_branch()).events] == [e.id for e in state.view.events]
            assert condenser.condense(state.view, conversation.agent.llm) is state.view
    assert cut is not None
    assert len(read_branch(state.active_branch()).cuts) >= 2
