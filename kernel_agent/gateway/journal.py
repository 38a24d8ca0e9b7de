"""One call's way through the gateway: ask the store, forward, price, store the answer, and only then tell it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass, field

from kernel_agent.errors import KernelAgentError
from kernel_agent.gateway.chat_request import BadRequestError, ChatRequest, estimated_tokens, parse_request
from kernel_agent.gateway.limits import Limiter, ProviderLimits
from kernel_agent.gateway.prices import cost, worst_cost
from kernel_agent.gateway.replay import RecordingEndedError, ReplayError
from kernel_agent.gateway.upstream import Answer, Upstream, UpstreamTimeoutError, UpstreamUnreachableError
from kernel_agent.gateway.usage import NotAnAnswerError, parse_answer, parse_usage
from kernel_agent.model import CallKind, Price, Usage
from kernel_agent.store.records import CallStart
from kernel_agent.store.repository import Store

RETRY_SECONDS = 2
"""When to come back after a failure of ours that may pass."""
NOTE_BYTES = 2_000
"""How much of an error is kept."""
REPLAY_ERRORS = frozenset({ReplayError.kind, RecordingEndedError.kind})


@dataclass(frozen=True)
class Line:
    """A session's line to its model."""

    session_id: str
    upstream: Upstream
    price: Price
    max_output_tokens: int
    """Reserved for when the request sets no limit."""


@dataclass(frozen=True)
class Refusal:
    """Why a session got no answer."""

    status: int
    """HTTP status it was told."""
    kind: str
    """``budget_exhausted``, ``session_stopped``, ``recording_ended``, ``replay_diverged``, ``upstream_error``,
    ``upstream_timeout``, ``provider_error``, or another type of the error on the wire."""
    message: str
    code: str


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    refusal: Refusal | None = None
    """Set unless ``status`` is 200."""


class Journal:
    """Answers calls of any number of sessions. Belongs to one event loop."""

    def __init__(self, store: Store, limits: ProviderLimits) -> None:
        self._store = store
        self._limits = limits
        self._limiters: dict[str, Limiter] = {}
        self._out: dict[str, asyncio.Task[Reply]] = {}
        self._upstreams: list[Upstream] = []

    async def answer(self, line: Line, body: bytes, kind: CallKind) -> Reply:
        """The reply to a request: the journaled one if there is one, else the provider's."""
        try:
            request = parse_request(body)
        except BadRequestError as error:
            return refusal(400, "invalid_request_error", str(error))
        # The kind belongs to the request: a probe's answer must not be taken for the agent's.
        key = hashlib.sha256(f"{line.session_id}\n{kind}\n".encode() + body).hexdigest()
        task = self._out.get(key)
        if task is None:
            # A task of its own: when the session dies the call goes on, and its answer awaits the session's return.
            task = asyncio.create_task(self._call(line, key, body, request, kind))
            self._out[key] = task
            task.add_done_callback(lambda _: self._out.pop(key))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End the calls that are out, charging their reservations, and close the providers' connections."""
        out = list(self._out.values())
        for task in out:
            task.cancel()
        await asyncio.gather(*out, return_exceptions=True)
        for upstream in self._upstreams:
            await upstream.aclose()

    async def _call(self, line: Line, key: str, body: bytes, request: ChatRequest, kind: CallKind) -> Reply:
        reserve_usd = worst_cost(request.prompt_tokens, request.max_output_tokens or line.max_output_tokens, line.price)
        try:
            start = await asyncio.to_thread(
                self._store.begin_call,
                line.session_id,
                key,
                kind,
                reserve_usd,
                content_sha=request.content_sha,
                tools_sha=request.tools_sha,
            )
        except KernelAgentError as error:
            return refusal(503, "store_error", str(error), retry=True)
        if start.outcome == "journaled":
            assert start.response is not None
            return Reply(200, start.response)
        if start.outcome == "refused":
            return _refused(start)
        try:
            return await self._forward(line, start.call_id, body, request, kind, reserve_usd)
        except asyncio.CancelledError:
            await self._fail(start.call_id, "the gateway stopped while the call was out", reserve_usd)
            raise
        except Exception as error:
            # Whatever it is, the reservation must not stay held and the session must hear of it.
            said = f"{type(error).__name__}: {error}"
            try:
                await self._fail(start.call_id, said, reserve_usd)
            except KernelAgentError as second:
                said = f"{said}; and the call could not be settled: {second}"
            return refusal(502, "gateway_error", said, retry=True)

    async def _forward(
        self, line: Line, call_id: str, body: bytes, request: ChatRequest, kind: CallKind, reserve_usd: float
    ) -> Reply:
        try:
            answer, usage, note = await self._ask(line, body, request, kind)
        except UpstreamTimeoutError as error:
            # It may have been billed: a cap that is hard counts it.
            await self._fail(call_id, str(error), reserve_usd)
            return refusal(504, "upstream_timeout", str(error), retry=True)
        except (UpstreamUnreachableError, NotAnAnswerError) as error:
            await self._fail(call_id, str(error))
            return refusal(502, "upstream_error", str(error), retry=True)
        if usage is None:
            said = answer.body[:NOTE_BYTES].decode("utf-8", "replace")
            await self._fail(call_id, f"HTTP {answer.status}: {said}")
            headers = {} if answer.retry_after is None else {"retry-after": answer.retry_after}
            return Reply(answer.status, answer.body, headers, _providers_refusal(answer))
        usd = cost(usage, line.price)
        await asyncio.to_thread(self._store.finish_call, call_id, answer.body, usage, usd, note=note)
        return Reply(200, answer.body)

    async def _ask(
        self, line: Line, body: bytes, request: ChatRequest, kind: CallKind
    ) -> tuple[Answer, Usage | None, str]:
        """The provider's answer, with its usage when it is a completion, and a note about the usage."""
        if line.upstream not in self._upstreams:
            self._upstreams.append(line.upstream)
        if (limiter := self._limiter(line.upstream.provider)) is None:
            return _read(await line.upstream.complete(body, kind), request)
        async with limiter.slot(request.prompt_tokens) as ticket:
            read = _read(await line.upstream.complete(body, kind), request)
            if read[1] is not None:
                ticket.used(read[1].prompt_tokens + read[1].completion_tokens)
            return read

    def _limiter(self, provider: str | None) -> Limiter | None:
        if provider is None:
            return None
        return self._limiters.setdefault(provider, Limiter(self._limits))

    async def _fail(self, call_id: str, note: str, usd: float = 0.0) -> None:
        await asyncio.to_thread(self._store.fail_call, call_id, note, usd)


def refusal(status: int, kind: str, message: str, *, code: str | None = None, retry: bool = False) -> Reply:
    """An error in OpenAI's form. Without ``retry`` its clients are told not to try again."""
    body = json.dumps({"error": {"type": kind, "message": message, "code": code or kind}}).encode()
    headers = {"retry-after": str(RETRY_SECONDS)} if retry else {"x-should-retry": "false"}
    return Reply(status, body, headers, Refusal(status, kind, message, code or kind))


def _providers_refusal(answer: Answer) -> Refusal:
    """A provider's own error. A recording's says what kind it is; others' words are for people."""
    try:
        error = json.loads(answer.body)["error"]
        kind = error["type"] if error["type"] in REPLAY_ERRORS else "provider_error"
        return Refusal(answer.status, kind, str(error["message"]), str(error.get("code") or kind))
    except (ValueError, KeyError, TypeError, AttributeError):
        said = answer.body[:NOTE_BYTES].decode("utf-8", "replace")
        return Refusal(answer.status, "provider_error", said, "provider_error")


def _refused(start: CallStart) -> Reply:
    if start.code == "in_flight":
        return refusal(503, "in_flight", start.refusal, retry=True)
    kind = "session_stopped" if start.code == "not_running" else "budget_exhausted"
    return refusal(402, kind, start.refusal, code=start.code)


def _read(answer: Answer, request: ChatRequest) -> tuple[Answer, Usage | None, str]:
    if answer.status != 200:
        return answer, None, ""
    completion = parse_answer(answer.body)
    usage = parse_usage(completion)
    if usage is not None:
        return answer, usage, ""
    estimated = Usage(prompt_tokens=request.prompt_tokens, completion_tokens=estimated_tokens(len(answer.body)))
    return answer, estimated, "the provider reported no usage; it was estimated from the sizes of request and answer"
