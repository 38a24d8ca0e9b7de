"""OpenAI chat messages to a ``History`` and back. ``to_messages(to_history(m))`` equals ``m`` as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compaction.errors import CompactionError
from compaction.history import Block, Content, Context, History, Message, Part, Response, ToolCall, ToolResult, Turn

IMAGE_TYPES = frozenset({"image_url", "image", "input_image"})


def to_history(messages: Sequence[Mapping[str, Any]], first_step: int = 0) -> History:
    """Read a whole conversation.

    :raises CompactionError: a message is not an object with a role, or its content is neither text, parts nor null.
    """
    head: list[Message | ToolResult] = []
    responses: list[tuple[Response, list[ToolResult | Message]]] = []
    for index, wire in enumerate(messages):
        role = wire.get("role") if isinstance(wire, Mapping) else None
        if not isinstance(role, str):
            raise CompactionError(
                f"message {index} is no chat message: expected an object with a role, got {wire!r:.80}"
            )
        if role == "assistant":
            responses.append((read_response(wire, index), []))
        else:
            (responses[-1][1] if responses else head).append(read_message(wire, index))
    turns = tuple(
        Turn(step=first_step + i, response=response, followers=tuple(followers))
        for i, (response, followers) in enumerate(responses)
    )
    return History(head=tuple(head), turns=turns)


def to_messages(source: History | Context) -> list[dict[str, Any]]:
    """Write a history or a context; a block becomes one user message between head and turns."""
    messages = [write_message(message) for message in source.head]
    if isinstance(source, Context) and source.block is not None:
        messages.append(write_block(source.block))
    for turn in source.turns:
        messages.extend(write_turn(turn))
    return messages


def write_block(block: Block) -> dict[str, Any]:
    return {"role": "user", "content": block.text}


def write_turn(turn: Turn) -> list[dict[str, Any]]:
    return [write_response(turn.response), *(write_message(item) for item in turn.followers)]


def read_message(wire: Mapping[str, Any], index: int) -> Message | ToolResult:
    """Any message but an assistant's; ``index`` is its place, for errors."""
    rest = dict(wire)
    role = str(rest.pop("role"))
    content = _read_content(rest, index)
    if role != "tool":
        return Message(role=role, content=content, extra=rest)
    call_id = rest.pop("tool_call_id") if isinstance(rest.get("tool_call_id"), str) else None
    return ToolResult(call_id=call_id, content=content, extra=rest)


def write_message(message: Message | ToolResult) -> dict[str, Any]:
    wire = dict(message.extra)
    wire["role"] = message.role if isinstance(message, Message) else "tool"
    if isinstance(message, ToolResult) and message.call_id is not None:
        wire["tool_call_id"] = message.call_id
    _write_content(wire, message.content)
    return wire


def read_response(wire: Mapping[str, Any], index: int) -> Response:
    rest = dict(wire)
    del rest["role"]
    content = _read_content(rest, index)
    reasoning = rest.pop("reasoning_content") if isinstance(rest.get("reasoning_content"), str) else None
    calls: tuple[ToolCall, ...] = ()
    wire_calls = rest.get("tool_calls")
    # An empty or odd list of calls stays in ``extra``, since its mere presence is part of the message.
    if isinstance(wire_calls, list) and wire_calls and all(isinstance(call, Mapping) for call in wire_calls):
        calls = tuple(_read_call(call) for call in rest.pop("tool_calls"))
    return Response(content=content, reasoning=reasoning, calls=calls, extra=rest)


def write_response(response: Response) -> dict[str, Any]:
    wire: dict[str, Any] = {**response.extra, "role": "assistant"}
    if response.reasoning is not None:
        wire["reasoning_content"] = response.reasoning
    if response.calls:
        wire["tool_calls"] = [_write_call(call) for call in response.calls]
    _write_content(wire, response.content)
    return wire


def _read_call(wire: Mapping[str, Any]) -> ToolCall:
    rest = dict(wire)
    call_id = rest.pop("id") if isinstance(rest.get("id"), str) else None
    name = arguments = None
    if isinstance(rest.get("function"), Mapping):
        function = dict(rest.pop("function"))
        name = function.pop("name") if isinstance(function.get("name"), str) else None
        arguments = function.pop("arguments") if isinstance(function.get("arguments"), str) else None
        if function or (name is None and arguments is None):
            rest["function"] = function
    return ToolCall(id=call_id, name=name, arguments=arguments, extra=rest)


def _write_call(call: ToolCall) -> dict[str, Any]:
    wire = dict(call.extra)
    if call.id is not None:
        wire["id"] = call.id
    if call.name is not None or call.arguments is not None:
        function = dict(wire.get("function", {}))
        if call.name is not None:
            function["name"] = call.name
        if call.arguments is not None:
            function["arguments"] = call.arguments
        wire["function"] = function
    return wire


def _read_content(rest: dict[str, Any], index: int) -> Content:
    if "content" not in rest:
        return Content()
    content = rest.pop("content")
    if content is None:
        return Content(form="null")
    if isinstance(content, str):
        return Content.of(content)
    if isinstance(content, list) and all(isinstance(part, Mapping) for part in content):
        return Content(form="parts", parts=tuple(_read_part(part) for part in content))
    raise CompactionError(
        f"message {index} has content of type {type(content).__name__}: expected text, a list of parts, or null"
    )


def _read_part(wire: Mapping[str, Any]) -> Part:
    rest = dict(wire)
    if rest.get("type") == "text" and isinstance(rest.get("text"), str):
        del rest["type"]
        return Part(kind="text", text=rest.pop("text"), extra=rest)
    return Part(kind="image" if rest.get("type") in IMAGE_TYPES else "other", extra=rest)


def _write_content(wire: dict[str, Any], content: Content) -> None:
    match content.form:
        case "absent":
            return
        case "null":
            wire["content"] = None
        case "text":
            wire["content"] = content.text
        case "parts":
            wire["content"] = [
                {**part.extra, "type": "text", "text": part.text} if part.kind == "text" else dict(part.extra)
                for part in content.parts
            ]
