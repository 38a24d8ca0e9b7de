"""What a session and its engine say to each other: one JSON object a line, over one socket.

The session asks, the engine answers, one at a time. The engine alone writes the store; a verdict is stored before the
session hears it. End of file on the socket ends the session.
"""

from __future__ import annotations

import socket
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter

from kernel_agent.errors import KernelAgentError
from kernel_agent.model import Frozen


class Hello(Frozen):
    kind: Literal["hello"] = "hello"


class Evaluate(Frozen):
    kind: Literal["evaluate"] = "evaluate"
    tool_call_id: str
    source: str
    hypothesis: str


class History(Frozen):
    kind: Literal["history"] = "history"
    query: str


class Compacted(Frozen):
    kind: Literal["compacted"] = "compacted"
    from_step: int
    tokens_before: int
    tokens_after: int


class Ended(Frozen):
    """The session is about to exit. ``no_answer``: a model call got none; the gateway knows why."""

    kind: Literal["ended"] = "ended"
    why: Literal["no_answer", "stalled", "error"]
    detail: str = ""


Request = Annotated[Hello | Evaluate | History | Compacted | Ended, Field(discriminator="kind")]


class SessionConfig(Frozen):
    """Everything a session process needs. It holds no key: ``base_url`` is the gateway's, for this session alone."""

    session_id: str
    model: str
    base_url: str
    compaction: str
    context_tokens: int
    max_output_tokens: int
    call_attempts: int
    """How often the SDK sends a call that fails for a passing reason."""
    system_prompt: str
    task: str
    workspace: str
    """The workspace as this process sees it."""
    state_dir: str
    jail_level: str
    threads: int


class Answer(Frozen):
    """``text`` is what the model sees, at most 500 characters for a verdict."""

    text: str = ""
    is_error: bool = False
    config: SessionConfig | None = None


REQUESTS: TypeAdapter[Request] = TypeAdapter(Request)


class ChannelClosed(KernelAgentError):
    """The other side is gone."""


class Line:
    """Models as lines over a connected socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = connection.makefile("r", encoding="utf-8")

    def send(self, message: BaseModel) -> None:
        try:
            self._socket.sendall(message.model_dump_json().encode() + b"\n")
        except OSError as error:
            raise ChannelClosed("the channel between session and engine is closed") from error

    def receive(self) -> str | None:
        """The next line, or None at the end."""
        try:
            line = self._reader.readline()
        except (OSError, ValueError):
            return None
        return line if line.endswith("\n") else None

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


class EngineClient:
    """The session's side: ask and wait."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def ask(self, request: Request) -> Answer:
        self._line.send(request)
        line = self._line.receive()
        if line is None:
            raise ChannelClosed("the engine is gone")
        return Answer.model_validate_json(line)
