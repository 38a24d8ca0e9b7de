"""Playing recordings over HTTP: the request alone decides, whatever was killed, repeated or forgotten."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from compaction.tokens import TokenCounter
from kernel_agent.gateway.app import Gateway
from kernel_agent.gateway.chat_request import parse_request
from kernel_agent.gateway.recording import Header, Recording, Summary, Turn, record
from kernel_agent.gateway.replay import ReplayUpstream
from kernel_agent.store.repository import Store
from tests.kernel_agent.gateway.conftest import PRICE, line, post, settings_of
from tests.kernel_agent.store.conftest import PROBLEM

Json = dict[str, Any]
TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}]
HEAD: list[Json] = [{"role": "system", "content": "You optimize."}, {"role": "user", "content": "The task."}]


def header(**changes: Any) -> Header:
    return Header(
        name="demo",
        problem_id=PROBLEM.id,
        problem_sha=PROBLEM.sha256,
        strategy="none",
        model="m",
        provenance="scripted",
    ).model_copy(update=changes)


def call(*commands: str, ids: str = "original") -> Json:
    return {
        "role": "assistant",
        "content": "I try it.",
        "tool_calls": [
            {
                "id": f"{ids}_{i}",
                "type": "function",
                "function": {"name": "shell", "arguments": json.dumps({"command": command})},
            }
            for i, command in enumerate(commands)
        ],
    }


def say(text: str) -> Json:
    return {"role": "assistant", "content": text}


def recording(*messages: Json, **changes: Any) -> Recording:
    turns = tuple(Turn(n=n, message=message) for n, message in enumerate(messages))
    return Recording(header=header(**changes), turns=turns)


def results(message: Json, text: str = "done") -> list[Json]:
    return [{"role": "tool", "tool_call_id": c["id"], "content": text} for c in message.get("tool_calls", [])]


class Agent:
    """The least an agent does: sends what was said so far, runs the tools it is told to, goes on."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.messages = list(HEAD)

    def ask(self, messages: list[Json] | None = None, **headers: str) -> httpx.Response:
        body = {"model": "m", "messages": messages or self.messages, "tools": TOOLS}
        return post(self.url, json.dumps(body).encode(), **headers)

    def step(self) -> Json:
        said = self.ask()
        assert said.status_code == 200, said.text
        message: Json = said.json()["choices"][0]["message"]
        self.messages += [message, *results(message)]
        if not message.get("tool_calls"):
            self.messages.append({"role": "user", "content": "Go on."})
        return message


SCRIPT = (call("ls"), call("a", "b"), say("thinking"), call("make"), say("thinking"), call("end"))


@pytest.fixture
def agent(store: Store, gateway: Gateway) -> Agent:
    return Agent(line(store, gateway, ReplayUpstream(recording(*SCRIPT)))[1])


def test_a_recording_plays_in_order_with_numbered_tool_calls(agent: Agent) -> None:
    played = [agent.step() for _ in SCRIPT]
    assert [[c["id"] for c in m.get("tool_calls", [])] for m in played] == [
        ["r_0_0"],
        ["r_1_0", "r_1_1"],
        [],
        ["r_3_0"],
        [],
        ["r_5_0"],
    ]
    for message, original in zip(played, SCRIPT, strict=True):
        assert message["content"] == original["content"]
        functions = [c["function"] for c in original.get("tool_calls", [])]
        assert [c["function"] for c in message.get("tool_calls", [])] == functions


def test_the_end_is_told_apart_from_a_divergence(store: Store, gateway: Gateway, agent: Agent) -> None:
    for _ in SCRIPT:
        agent.step()
    session_id = store.campaigns()[0].id + "-1"
    assert gateway.last_refusal(session_id) is None
    said = agent.ask()
    refusal = gateway.last_refusal(session_id)
    assert refusal is not None
    assert (refusal.status, refusal.kind) == (409, "recording_ended")
    assert (said.status_code, said.json()["error"]["type"]) == (409, "recording_ended")
    assert "6 answers, all played" in said.json()["error"]["message"]
    assert said.json()["error"]["code"] == "recording_ended"


def test_tool_results_retries_and_other_messages_do_not_matter(agent: Agent) -> None:
    agent.step()
    agent.messages[-1] = {**agent.messages[-1], "content": "measured otherwise this time"}
    agent.messages.append({"role": "user", "content": "A hint from the user."})
    first = agent.ask()
    assert agent.ask().content == first.content
    assert agent.step()["tool_calls"][0]["id"] == "r_1_0"


def test_compaction_does_not_matter(agent: Agent) -> None:
    for _ in range(4):
        agent.step()
    newest = agent.messages[-2:]
    assert newest[0]["tool_calls"][0]["id"] == "r_3_0"
    cut = [*HEAD, {"role": "user", "content": "Summary of what was cut."}, *newest]
    said = agent.ask(cut).json()["choices"][0]["message"]
    assert said["content"] == "thinking"
    # The same words occur twice in the recording: they are counted from the turn with ids before them.
    said = agent.ask([*cut, said, {"role": "user", "content": "Go on."}]).json()["choices"][0]["message"]
    assert said["tool_calls"][0]["id"] == "r_5_0"


def test_a_turn_without_calls_is_known_by_its_words_however_they_are_sent(agent: Agent) -> None:
    for _ in range(3):
        agent.step()
    parts = [{"type": "text", "text": "thinking\n"}]
    agent.messages[-2] = {"role": "assistant", "content": parts}
    assert agent.ask().json()["choices"][0]["message"]["tool_calls"][0]["id"] == "r_3_0"


def test_repeated_words_that_cannot_be_placed_are_no_guess(agent: Agent) -> None:
    said = agent.ask([*HEAD, say("thinking"), {"role": "user", "content": "Go on."}])
    assert (said.status_code, said.json()["error"]["type"]) == (409, "replay_diverged")


@pytest.mark.parametrize(
    "turn",
    [say("something else"), call("ls", ids="call"), call("x", ids="r_99"), call("x", ids="r_2"), say("")],
)
def test_an_unknown_turn_is_a_409(agent: Agent, turn: Json) -> None:
    said = agent.ask([*HEAD, turn, *results(turn)])
    assert (said.status_code, said.json()["error"]["type"]) == (409, "replay_diverged")
    assert "replay diverged at" in said.json()["error"]["message"]
    assert said.headers["content-type"] == "application/json"


def test_a_resumed_session_goes_on_where_it_was(store: Store, gateway: Gateway) -> None:
    """Killed after its third answer; gateway and upstream are new, only the store and the conversation remain."""
    session_id, url = line(store, gateway, ReplayUpstream(recording(*SCRIPT)))
    agent = Agent(url)
    agent.step()
    agent.step()
    third = agent.ask().content
    gateway.stop()
    second = Gateway(store)
    second.start()
    agent.url = second.register(session_id, ReplayUpstream(recording(*SCRIPT)), PRICE, settings_of(store, session_id))
    assert agent.ask().content == third
    rest = [agent.step() for _ in range(4)]
    assert rest[-1]["tool_calls"][0]["id"] == "r_5_0"
    assert store.session(session_id).steps == 6
    second.stop()


def test_usage_is_counted_from_what_is_sent(store: Store, gateway: Gateway) -> None:
    session_id, url = line(store, gateway, ReplayUpstream(recording(*SCRIPT)))
    agent = Agent(url)
    counter = TokenCounter()
    agent.step()
    before = list(agent.messages)
    message = agent.step()
    # A cut: the first message that differs ends the common prefix.
    cut = [*before[:2], {"role": "user", "content": "block"}, *agent.messages[-3:]]
    third = agent.ask(cut).json()["choices"][0]["message"]
    first_step, second_step, third_step = store.steps(session_id)
    assert first_step.usage.prompt_tokens == counter.prompt(HEAD, TOOLS)
    assert first_step.usage.cached_tokens == 0
    assert second_step.usage.prompt_tokens == counter.prompt(before, TOOLS)
    assert second_step.usage.cached_tokens == counter.prompt(HEAD, TOOLS)
    assert second_step.usage.completion_tokens == counter.message(message)
    assert third_step.usage.prompt_tokens == counter.prompt(cut, TOOLS)
    assert third_step.usage.cached_tokens == counter.prompt(HEAD, TOOLS)
    assert third_step.usage.completion_tokens == counter.message(third)
    assert second_step.usd > 0


def test_a_summary_is_found_by_its_request(store: Store, gateway: Gateway) -> None:
    asked = [{"role": "user", "content": "Summarize."}, call("ls", ids="original")]
    sha = parse_request(json.dumps({"messages": asked}).encode()).content_sha
    made = recording(*SCRIPT).model_copy(update={"summaries": (Summary(request_sha=sha, message=say("In short.")),)})
    session_id, url = line(store, gateway, ReplayUpstream(made))
    agent = Agent(url)
    renamed = [asked[0], call("ls", ids="r_0")]  # the same request, with the ids that replaying gives
    said = agent.ask(renamed, x_kernel_agent_call="summary")
    assert said.json()["choices"][0]["message"] == say("In short.")
    said = agent.ask([{"role": "user", "content": "Summarize more."}], x_kernel_agent_call="summary")
    assert (said.status_code, said.json()["error"]["type"]) == (409, "replay_diverged")
    assert store.session(session_id).steps == 0


def test_a_probe_is_answered_without_moving_on(store: Store, gateway: Gateway) -> None:
    session_id, url = line(store, gateway, ReplayUpstream(recording(*SCRIPT)))
    agent = Agent(url)
    assert agent.ask(x_kernel_agent_call="probe").json()["choices"][0]["message"]["content"] == "replay:demo"
    assert agent.step()["tool_calls"][0]["id"] == "r_0_0"
    assert store.session(session_id).steps == 1


def test_other_tools_than_recorded_are_a_divergence(store: Store, gateway: Gateway) -> None:
    sha = parse_request(json.dumps({"messages": [], "tools": TOOLS}).encode()).tools_sha
    agent = Agent(line(store, gateway, ReplayUpstream(recording(*SCRIPT, tools_sha=sha)))[1])
    assert agent.step()["tool_calls"]
    agent = Agent(line(store, gateway, ReplayUpstream(recording(*SCRIPT, tools_sha="0" * 64)))[1])
    said = agent.ask()
    assert said.status_code == 409
    assert "other tool schemas" in said.json()["error"]["message"]


def test_a_played_session_can_be_recorded_and_played_again(store: Store, gateway: Gateway) -> None:
    session_id, url = line(store, gateway, ReplayUpstream(recording(*SCRIPT)), provenance="scripted")
    agent = Agent(url)
    played = [agent.step() for _ in SCRIPT]
    made = record(store, session_id)
    assert (made.header.problem_sha, made.header.provenance, made.header.name) == (
        PROBLEM.sha256,
        "scripted",
        session_id,
    )
    assert made.header.tools_sha == parse_request(json.dumps({"messages": [], "tools": TOOLS}).encode()).tools_sha
    again = Agent(line(store, gateway, ReplayUpstream(made))[1])
    assert [again.step() for _ in SCRIPT] == played
