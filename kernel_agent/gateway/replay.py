"""Playing a recording: the request itself says where the session is, so that kills, retries and cuts do not matter."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from compaction.tokens import TokenCounter
from kernel_agent.gateway.chat_request import ChatRequest, call_ids, message_text, parse_request
from kernel_agent.gateway.recording import Recording
from kernel_agent.gateway.upstream import Answer
from kernel_agent.model import CallKind

CALL_ID = re.compile(r"r_(\d+)_(\d+)")
Json = dict[str, Any]


class ReplayError(Exception):
    """The recording has no answer. ``kind`` is the error's type on the wire."""

    kind = "replay_diverged"


class RecordingEndedError(ReplayError):
    """The session asked for an answer beyond the last one."""

    kind = "recording_ended"


class Script:
    """A recording's answers, with tool-call ids that say whose they are: ``r_<n>_<i>``."""

    def __init__(self, recording: Recording) -> None:
        self._name = recording.header.name
        self._tools_sha = recording.header.tools_sha
        self._turns = [(_numbered(turn.message, turn.n), turn.finish_reason) for turn in recording.turns]
        self._summaries = {summary.request_sha: summary.message for summary in recording.summaries}
        self._by_text: dict[str, list[int]] = {}
        for n, (message, _) in enumerate(self._turns):
            if not call_ids(message):
                self._by_text.setdefault(_text_sha(message), []).append(n)

    def agent(self, request: ChatRequest) -> tuple[int, Json, str]:
        """Number, message and finish reason of the answer that follows the request's newest assistant turn.

        :raises ReplayError: that turn is not in the recording.
        :raises RecordingEndedError: it is the recording's last.
        """
        if self._tools_sha and request.tools_sha != self._tools_sha:
            raise ReplayError(
                f"replay diverged at the tools: recording {self._name} was made with other tool schemas "
                f"({self._tools_sha[:12]}…, now {request.tools_sha[:12] or 'none'}…); record it again"
            )
        spoken = [message for message in request.messages if message.get("role") == "assistant"]
        n = self._number(spoken) + 1 if spoken else 0
        if n >= len(self._turns):
            raise RecordingEndedError(f"recording ended: {self._name} has {len(self._turns)} answers, all played")
        message, finish_reason = self._turns[n]
        return n, message, finish_reason or ("tool_calls" if call_ids(message) else "stop")

    def summary(self, request: ChatRequest) -> Json:
        """
        :raises ReplayError: this request was not recorded.
        """
        message = self._summaries.get(request.content_sha)
        if message is None:
            raise ReplayError(
                f"replay diverged at a summary: recording {self._name} has no answer to request "
                f"{request.content_sha[:12]}…"
            )
        return message

    def _number(self, spoken: Sequence[Mapping[str, Any]]) -> int:
        newest = spoken[-1]
        if ids := call_ids(newest):
            return self._by_ids(ids)
        fitting = self._by_text.get(_text_sha(newest), [])
        if len(fitting) > 1:
            # The same words more than once: count from the nearest turn before them that has ids.
            fitting = [n for n in fitting if n == self._counted(spoken)]
        if not fitting:
            raise ReplayError(
                f"replay diverged at the turn {message_text(newest)[:80]!r}: recording {self._name} has no such answer"
            )
        return fitting[0]

    def _counted(self, spoken: Sequence[Mapping[str, Any]]) -> int:
        for back, message in enumerate(reversed(spoken)):
            if ids := call_ids(message):
                return self._by_ids(ids) + back
        return len(spoken) - 1

    def _by_ids(self, ids: Sequence[str]) -> int:
        found = CALL_ID.fullmatch(ids[0])
        if found is None or int(found[1]) >= len(self._turns) or ids[0] not in call_ids(self._turns[int(found[1])][0]):
            raise ReplayError(
                f"replay diverged at the turn with tool call {ids[0]!r}: it is none of recording {self._name}"
            )
        return int(found[1])


class ReplayUpstream:
    """A recording in a provider's place, for one session. Usage is counted from what the session really sends."""

    def __init__(self, recording: Recording) -> None:
        self._script = Script(recording)
        self._model = f"replay:{recording.header.name}"
        self._counter = TokenCounter()
        self._counting = asyncio.Lock()
        self._previous: dict[CallKind, ChatRequest] = {}

    @property
    def provider(self) -> str | None:
        return None

    async def complete(self, body: bytes, kind: CallKind) -> Answer:
        request = parse_request(body)
        try:
            if kind == "agent":
                n, message, finish_reason = self._script.agent(request)
                id_ = f"replay-{n}"
            elif kind == "summary":
                message, finish_reason, id_ = self._script.summary(request), "stop", "replay-summary"
            else:
                message, finish_reason, id_ = {"role": "assistant", "content": self._model}, "stop", "replay-probe"
        except ReplayError as error:
            said = {"error": {"type": error.kind, "message": str(error), "code": error.kind}}
            return Answer(409, json.dumps(said).encode())
        async with self._counting:  # the counter is one thread's at a time
            usage = await asyncio.to_thread(self._usage, request, kind, message)
        answer = {
            "id": id_,
            "object": "chat.completion",
            "created": 0,
            "model": self._model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": usage,
        }
        return Answer(200, json.dumps(answer).encode())

    async def aclose(self) -> None:
        """Nothing is open."""

    def _usage(self, request: ChatRequest, kind: CallKind, message: Json) -> Json:
        """As a provider that caches prefixes would report it: what the last request of this kind began with, too."""
        count = self._counter
        previous = self._previous.get(kind)
        self._previous[kind] = request
        prompt = count.prompt(request.messages, request.tools)
        cached = 0
        # Tools stand before the messages: once they differ, nothing behind them is a prefix.
        if previous is not None and previous.tools == request.tools:
            common = 0
            for before, now in zip(previous.messages, request.messages, strict=False):
                if before != now:
                    break
                common += 1
            cached = count.prompt(request.messages[:common], request.tools)
        completion = count.message(message)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        }


def _numbered(message: Json, n: int) -> Json:
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return {name: value for name, value in message.items() if name != "tool_calls"}
    return {**message, "tool_calls": [{**call, "id": f"r_{n}_{i}"} for i, call in enumerate(calls)]}


def _text_sha(message: Mapping[str, Any]) -> str:
    return hashlib.sha256(message_text(message).encode("utf-8", "surrogatepass")).hexdigest()
