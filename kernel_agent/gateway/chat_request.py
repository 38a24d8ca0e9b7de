"""A chat request as the gateway reads it. What is forwarded are the session's own bytes, not this."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BYTES_PER_TOKEN = 3.5
"""Low for prose and code, so that an estimate errs on the dear side."""


class BadRequestError(ValueError):
    """The session sent what cannot be forwarded; the message is for whoever wrote it."""


@dataclass(frozen=True)
class ChatRequest:
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    max_output_tokens: int | None
    """Of all choices together, if the request limits them."""
    prompt_tokens: int
    """Estimated from the size of the body."""

    @property
    def content_sha(self) -> str:
        """Hash of the messages alone, with tool-call ids by order of appearance.

        Two sessions that say the same have the same hash, whatever their models and ids.
        """
        return _sha(_with_plain_ids(self.messages))

    @property
    def tools_sha(self) -> str:
        """Hash of the tool schemas; empty without tools."""
        return tools_sha(self.tools)


def parse_request(body: bytes) -> ChatRequest:
    """
    :raises BadRequestError: it is no chat request, or asks for a stream.
    """
    try:
        wire = json.loads(body)
    except ValueError as error:
        raise BadRequestError(f"the request's body is no JSON: {error}") from error
    if not isinstance(wire, dict):
        raise BadRequestError("the request's body is no JSON object")
    if wire.get("stream"):
        raise BadRequestError("the gateway answers whole responses only: send the request with stream set to false")
    messages = wire.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise BadRequestError("the request's `messages` is no list of objects")
    tools = wire.get("tools") or []
    if not isinstance(tools, list):
        raise BadRequestError("the request's `tools` is no list")
    limits = [wire[key] for key in ("max_completion_tokens", "max_tokens") if _is_count(wire.get(key))]
    choices = wire["n"] if _is_count(wire.get("n")) else 1
    return ChatRequest(
        messages=messages,
        tools=tools,
        max_output_tokens=max(limits) * choices if limits else None,
        prompt_tokens=estimated_tokens(len(body)),
    )


def estimated_tokens(size_bytes: int) -> int:
    """Tokens of so many bytes of JSON, rather too many than too few."""
    return math.ceil(size_bytes / BYTES_PER_TOKEN)


def tools_sha(tools: Sequence[Mapping[str, Any]]) -> str:
    """Hash of tool schemas as a request carries them; empty without tools."""
    return _sha(list(tools)) if tools else ""


def message_text(message: Mapping[str, Any]) -> str:
    """A message's text, whether sent as a string or in parts, without the white space around it."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    return content.strip() if isinstance(content, str) else ""


def call_ids(message: Mapping[str, Any]) -> list[str]:
    """Ids of an assistant message's tool calls."""
    calls = message.get("tool_calls")
    return [str(call.get("id")) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _with_plain_ids(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    names: dict[str, str] = {}
    plain = []
    for message in messages:
        copy = dict(message)
        if isinstance(copy.get("tool_calls"), list):
            copy["tool_calls"] = [
                {**call, "id": names.setdefault(str(call.get("id")), f"t{len(names)}")}
                if isinstance(call, dict)
                else call
                for call in copy["tool_calls"]
            ]
        if "tool_call_id" in copy:
            copy["tool_call_id"] = names.setdefault(str(copy["tool_call_id"]), f"t{len(names)}")
        plain.append(copy)
    return plain


def _sha(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
