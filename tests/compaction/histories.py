"""Small histories for the strategy tests."""

from __future__ import annotations

import json
from collections.abc import Sequence

from compaction.history import Content, History, Message, Response, ToolCall, ToolResult, Turn

HEAD = (
    Message(role="system", content=Content.of("You make kernels fast.")),
    Message(role="user", content=Content.of("Make the attention kernel faster.")),
)


def turn(
    step: int,
    *,
    thought: str = "",
    result: str = "ok",
    user: str | None = None,
    calls: int = 1,
    body: str = "",
    prompt_tokens: int | None = None,
) -> Turn:
    tool_calls = tuple(
        ToolCall(
            id=f"call_{step}_{i}",
            name="edit",
            arguments=json.dumps({"content": body, "path": f"/w/kernel_{step}_{i}.py"}),
            extra={"type": "function"},
        )
        for i in range(calls)
    )
    results = [ToolResult(call_id=call.id, content=Content.of(f"{result} [{call.id}]")) for call in tool_calls]
    said = [Message(role="user", content=Content.of(user))] if user is not None else []
    return Turn(
        step=step,
        response=Response(content=Content.of(thought or f"Thought {step}."), calls=tool_calls),
        followers=(*results, *said),
        prompt_tokens=prompt_tokens,
    )


def history(turns: Sequence[Turn], head: tuple[Message, ...] = HEAD) -> History:
    return History(head=head, turns=tuple(turns))


def words(count: int, seed: int = 0) -> str:
    """``count`` different short words: about two tokens each."""
    return " ".join(f"w{(seed * 7919 + i * 31) % 9973}" for i in range(count))
