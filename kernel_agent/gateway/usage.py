"""Reading a provider's answer: is it one, and what did it use?"""

from __future__ import annotations

import json
from typing import Any, TypeGuard

from kernel_agent.model import Usage


class NotAnAnswerError(ValueError):
    """The bytes are no chat completion; the message says what they are instead."""


def parse_answer(body: bytes) -> dict[str, Any]:
    """The completion as JSON, with at least one choice that holds a message.

    :raises NotAnAnswerError: it is something else.
    """
    try:
        answer = json.loads(body)
    except ValueError as error:
        raise NotAnAnswerError(f"the provider's answer is no JSON ({error}): {body[:200]!r}") from error
    choices = answer.get("choices") if isinstance(answer, dict) else None
    message = choices[0].get("message") if isinstance(choices, list) and choices and _is_map(choices[0]) else None
    if not _is_map(message):
        raise NotAnAnswerError(f"the provider's answer holds no message: {body[:200]!r}")
    assert isinstance(answer, dict)
    return answer


def parse_usage(answer: dict[str, Any]) -> Usage | None:
    """Tokens as the provider reports them, in any of the spellings in use; None when it reports none."""
    usage = answer.get("usage")
    if not _is_map(usage) or _count(usage, "prompt_tokens", "input_tokens") is None:
        return None
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    details = details if _is_map(details) else {}
    prompt = _count(usage, "prompt_tokens", "input_tokens") or 0
    cached = (
        _count(details, "cached_tokens")
        or _count(usage, "cache_read_input_tokens", "prompt_cache_hit_tokens", "cached_tokens")
        or 0
    )
    written = (
        _count(details, "cache_creation_tokens", "cache_write_tokens")
        or _count(usage, "cache_creation_input_tokens")
        or 0
    )
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=min(cached, prompt),
        cache_write_tokens=min(written, prompt - min(cached, prompt)),
        completion_tokens=_count(usage, "completion_tokens", "output_tokens") or 0,
    )


def _count(of: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = of.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _is_map(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
