"""A conversation in neutral form: what strategies read and return, whatever the wire it came over.

A *turn* is one response of the model with everything that follows it up to the next response: the results of all
its tool calls, and messages the user put in between. Turns carry absolute step numbers, so that step 12 is the same
turn before and after any compaction. Fields a converter does not know live in ``extra`` and come back unchanged.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Part(Frozen):
    """One piece of a message. ``extra`` holds every field of the wire but the text and, where implied, the type."""

    kind: Literal["text", "image", "other"]
    text: str = ""
    extra: dict[str, Any] = Field(default_factory=dict)


class Content(Frozen):
    """What a message says, with the form it had on the wire (a plain string and a list of one text differ there)."""

    form: Literal["absent", "null", "text", "parts"] = "absent"
    parts: tuple[Part, ...] = ()

    @classmethod
    def of(cls, text: str) -> Content:
        return cls(form="text", parts=(Part(kind="text", text=text),))

    @property
    def text(self) -> str:
        """The text parts, a line break between them; images and unknown parts say nothing."""
        return "\n".join(part.text for part in self.parts if part.kind == "text")


class Message(Frozen):
    """Anything that is neither a response nor a tool result: ``system``, ``developer``, ``user``, …"""

    role: str
    content: Content = Content()
    extra: dict[str, Any] = Field(default_factory=dict)


class ToolCall(Frozen):
    """None in a field: the wire had no such string there, and ``extra`` keeps what it had."""

    id: str | None = None
    name: str | None = None
    arguments: str | None = None
    """As the model wrote them; JSON in the good case."""
    extra: dict[str, Any] = Field(default_factory=dict)


class ToolResult(Frozen):
    call_id: str | None = None
    content: Content = Content()
    extra: dict[str, Any] = Field(default_factory=dict)


class Response(Frozen):
    """One answer of the model."""

    content: Content = Content()
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    extra: dict[str, Any] = Field(default_factory=dict)

    @property
    def thought(self) -> str:
        """What the model said beside its calls; where it said nothing, its visible reasoning."""
        return self.content.text.strip() or (self.reasoning or "").strip()


class Turn(Frozen):
    step: int = Field(ge=0)
    """0-based count of responses since the conversation began; never renumbered."""
    response: Response
    followers: tuple[ToolResult | Message, ...] = ()
    """Results and messages up to the next response, in their order."""
    prompt_tokens: int | None = None
    """Size of the prompt that this response answered, as the provider reported it; None when it did not."""

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(item for item in self.followers if isinstance(item, ToolResult))

    @property
    def user_messages(self) -> tuple[Message, ...]:
        return tuple(item for item in self.followers if isinstance(item, Message))


class History(Frozen):
    """A whole conversation; ``turns[i].step == turns[0].step + i``."""

    head: tuple[Message | ToolResult, ...] = ()
    """Everything before the first response. Never compacted."""
    turns: tuple[Turn, ...] = ()

    @property
    def system(self) -> tuple[Message, ...]:
        """The system (or developer) messages of the head."""
        return tuple(m for m in self.head if isinstance(m, Message) and m.role in ("system", "developer"))

    @property
    def task(self) -> Message | None:
        """The first user message of the head; None when there is none."""
        return next((m for m in self.head if isinstance(m, Message) and m.role == "user"), None)

    @property
    def user_messages(self) -> tuple[Message, ...]:
        """What users said after the first response."""
        return tuple(m for turn in self.turns for m in turn.user_messages if m.role == "user")


class Block(Frozen):
    """Excerpts that stand for the turns ``start`` to ``stop - 1``. Its type marks it, never its text."""

    text: str
    start: int
    stop: int


class Context(Frozen):
    """What is sent: the head word for word, at most one block, then turns."""

    head: tuple[Message | ToolResult, ...] = ()
    block: Block | None = None
    turns: tuple[Turn, ...] = ()
