"""Recordings: the answers a model gave in a session, as JSON lines that can be read, edited and played again."""

from __future__ import annotations

import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from kernel_agent.errors import NotFoundError, StoreError, UsageError
from kernel_agent.gateway.usage import parse_answer
from kernel_agent.store.repository import Store
from problems.model import Problem

PREFIX = "replay:"
KEPT_FIELDS = ("role", "content", "reasoning_content", "tool_calls")
"""Of an assistant message: what a later request can carry. The rest is the provider's."""


class RecordingError(UsageError):
    """A recording cannot be used; the message names file and line."""


class Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Header(Line):
    """The first line: what was recorded, so that it is not played against something else."""

    format: Literal[1] = 1
    name: str
    problem_id: str
    problem_sha: str
    tools_sha: str = ""
    """Hash of the tool schemas (``chat_request.tools_sha``); empty: not checked."""
    strategy: str
    """Compaction, as in ``cliff:128k``."""
    model: str
    provenance: Literal["recorded", "scripted"]


class Turn(Line):
    """The agent's answer ``n``, counted from 0."""

    n: int
    kind: Literal["agent"] = "agent"
    message: dict[str, Any]
    """Assistant message in OpenAI's chat form."""
    finish_reason: str | None = None


class Summary(Line):
    """The answer to a call for a summary, found by its request (``ChatRequest.content_sha``)."""

    kind: Literal["summary"] = "summary"
    request_sha: str
    message: dict[str, Any]


class Recording(BaseModel):
    model_config = ConfigDict(frozen=True)

    header: Header
    turns: tuple[Turn, ...]
    summaries: tuple[Summary, ...] = ()

    def dumps(self) -> str:
        """As JSON lines."""
        lines: list[Line] = [self.header, *self.turns, *self.summaries]
        return "".join(line.model_dump_json() + "\n" for line in lines)

    def save(self, path: Path) -> None:
        """Write the file, and its folder if need be.

        :raises RecordingError: the place cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.dumps(), encoding="utf-8")
        except OSError as error:
            raise RecordingError(f"the recording cannot be written to {path} ({error}); name another place") from error


def load(path: Path) -> Recording:
    """
    :raises RecordingError: the file is missing, or a line of it makes no sense.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"the recording {path} cannot be read: {error}") from error
    return loads(text, str(path))


def loads(text: str, where: str) -> Recording:
    """
    :param where: the file's name, for errors.
    :raises RecordingError: a line makes no sense.
    """
    header: Header | None = None
    turns: list[Turn] = []
    summaries: list[Summary] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            if header is None:
                header = Header.model_validate_json(line)
                continue
            kind = (json.loads(line) or {}).get("kind")
            if kind == "summary":
                summaries.append(Summary.model_validate_json(line))
                continue
            turn = Turn.model_validate_json(line)
        except (ValidationError, ValueError, AttributeError) as error:
            raise RecordingError(f"{where}, line {number}: {_why(error)}") from error
        if turn.n != len(turns):
            raise RecordingError(f"{where}, line {number}: answer {turn.n} is out of order, {len(turns)} is expected")
        if turn.message.get("role") != "assistant":
            raise RecordingError(f"{where}, line {number}: the message's role is not `assistant`")
        turns.append(turn)
    if header is None:
        raise RecordingError(f"{where} is empty: its first line must be a header")
    if not turns:
        raise RecordingError(f"{where} has a header and no answers: there is nothing to play")
    return Recording(header=header, turns=tuple(turns), summaries=tuple(summaries))


def find_recordings(name: str) -> dict[str, Recording]:
    """The recordings behind ``replay:NAME``, by problem id: packaged under that name, or a file or folder of yours.

    :raises NotFoundError: neither is there.
    :raises RecordingError: one of them cannot be read, or two are of the same problem.
    """
    name = name.removeprefix(PREFIX)
    own = Path(name).expanduser()
    if own.is_file():
        loaded = [load(own)]
    elif own.is_dir():
        loaded = [load(path) for path in sorted(own.glob("*.jsonl"))]
    else:
        loaded = packaged(name, files("kernel_agent") / "recordings")
    if not loaded:
        known = ", ".join(packaged_names(files("kernel_agent") / "recordings")) or "none"
        raise NotFoundError(
            f"there are no recordings {name!r}: packaged ones are {known}; "
            "otherwise name a recording (.jsonl) or a folder that holds some"
        )
    found: dict[str, Recording] = {}
    for recording in loaded:
        problem_id = recording.header.problem_id
        if problem_id in found:
            raise RecordingError(f"{name!r} has two recordings of problem {problem_id}; keep one of them")
        found[problem_id] = recording
    return found


def for_problem(recordings: dict[str, Recording], problem: Problem) -> Recording:
    """The recording to play on a problem.

    :raises RecordingError: there is none, or it is of another version of the problem.
    """
    recording = recordings.get(problem.id)
    if recording is None:
        known = ", ".join(sorted(recordings))
        raise RecordingError(f"no recording is of problem {problem.id}; these are: {known}")
    if recording.header.problem_sha != problem.sha256:
        raise RecordingError(
            f"recording {recording.header.name} is of another version of {problem.id} "
            f"({recording.header.problem_sha[:12]}…, this one is {problem.sha256[:12]}…); play it on the sizes and the "
            "source it was made with"
        )
    return recording


def record(store: Store, session_id: str) -> Recording:
    """A session's journal as a recording.

    :raises NotFoundError: there is no such session.
    :raises StoreError: it has no answered step yet.
    """
    session = store.session(session_id)
    settings = store.campaign(session.campaign_id).settings
    calls = {call.id: call for call in store.calls(session_id)}
    turns = []
    for step in store.steps(session_id):
        choice = parse_answer(store.response(step.call_id))["choices"][0]
        turns.append(Turn(n=step.idx, message=_kept(choice["message"]), finish_reason=choice.get("finish_reason")))
    if not turns:
        raise StoreError(f"session {session_id} has no answered step yet; there is nothing to record")
    summaries = tuple(
        Summary(
            request_sha=call.content_sha,
            message=_kept(parse_answer(store.response(call.id))["choices"][0]["message"]),
        )
        for call in calls.values()
        if call.kind == "summary" and call.state == "answered"
    )
    first = store.steps(session_id, limit=1)[0]
    header = Header(
        name=session_id,
        problem_id=session.problem_id,
        problem_sha=session.problem_sha,
        tools_sha=calls[first.call_id].tools_sha,
        strategy=settings.compaction,
        model=settings.model,
        # A played script stays one, however often it is recorded.
        provenance="scripted" if settings.provenance == "scripted" else "recorded",
    )
    return Recording(header=header, turns=tuple(turns), summaries=summaries)


def _kept(message: dict[str, Any]) -> dict[str, Any]:
    kept = {name: message[name] for name in KEPT_FIELDS if message.get(name) is not None}
    return {"role": "assistant", "content": None, **kept}


def packaged(name: str, root: Traversable) -> list[Recording]:
    """The recordings in the folder ``name`` of ``root``, if there is one."""
    # A name is one folder's name: nothing that leads elsewhere.
    if not name or Path(name).name != name or name.startswith(".") or not (root / name).is_dir():
        return []
    entries = sorted((root / name).iterdir(), key=lambda entry: entry.name)
    return [
        loads(entry.read_text(encoding="utf-8"), f"{name}/{entry.name}")
        for entry in entries
        if entry.name.endswith(".jsonl")
    ]


def packaged_names(root: Traversable) -> list[str]:
    """Folders of ``root`` that hold recordings."""
    if not root.is_dir():
        return []
    folders = [entry for entry in root.iterdir() if entry.is_dir()]
    return sorted(f.name for f in folders if any(entry.name.endswith(".jsonl") for entry in f.iterdir()))


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place}: {first['msg']}" if place else str(first["msg"])
    return str(error)
