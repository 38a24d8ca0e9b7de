"""Shortening the texts inside turns that must stay but do not fit whole."""

from __future__ import annotations

import json
from typing import Any

from compaction.history import Content, Message, Part, ToolCall, Turn


def clip_turn(turn: Turn, limit: int) -> Turn:
    """The turn with every text of the model and its tools at most ``limit`` characters long, plus a marker.

    Arguments that are JSON stay JSON: the strings in them are clipped. Images in results are dropped. What users said
    is left alone.
    """
    response = turn.response.model_copy(
        update={
            "content": _clip_content(turn.response.content, limit, keep_images=True),
            "reasoning": None if turn.response.reasoning is None else clip_text(turn.response.reasoning, limit),
            "calls": tuple(_clip_call(call, limit) for call in turn.response.calls),
        }
    )
    followers = tuple(
        item
        if isinstance(item, Message)
        else item.model_copy(update={"content": _clip_content(item.content, limit, keep_images=False)})
        for item in turn.followers
    )
    return turn.model_copy(update={"response": response, "followers": followers})


def clip_text(text: str, limit: int) -> str:
    """The first two thirds and the last third of ``limit`` characters, with the number left out between them."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]}\n[… {len(text) - limit} characters left out …]\n{text[len(text) - tail :]}"


def _clip_content(content: Content, limit: int, *, keep_images: bool) -> Content:
    dropped = not keep_images and any(part.kind == "image" for part in content.parts)
    if len(content.text) <= limit and not dropped:
        return content
    text = clip_text(content.text, limit)
    if dropped:
        text = f"{text}\n[image left out]" if text else "[image left out]"
    others = tuple(p for p in content.parts if p.kind == "other" or (keep_images and p.kind == "image"))
    if content.form == "text":
        return Content.of(text)
    return Content(form="parts", parts=(Part(kind="text", text=text), *others))


def _clip_call(call: ToolCall, limit: int) -> ToolCall:
    if call.arguments is None or len(call.arguments) <= limit:
        return call
    try:
        value = json.loads(call.arguments, strict=False)
    except (ValueError, RecursionError):
        return call.model_copy(update={"arguments": clip_text(call.arguments, limit)})
    return call.model_copy(update={"arguments": json.dumps(_clip_value(value, limit), ensure_ascii=False)})


def _clip_value(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return clip_text(value, limit)
    if isinstance(value, list):
        return [_clip_value(item, limit) for item in value]
    if isinstance(value, dict):
        return {key: _clip_value(item, limit) for key, item in value.items()}
    return value
