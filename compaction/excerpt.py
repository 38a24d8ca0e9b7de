"""What stands for a turn once it is cut away: its own words, shortened by rule. Nothing is rephrased."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from compaction.history import Block, Frozen, Message, ToolCall, ToolResult, Turn

SIGNATURE_CHARS = 150
SHORT_VALUE_CHARS = 60
PATH_CHARS = 100

_PATH_KEYS = frozenset(
    {"path", "paths", "file", "files", "filename", "dir", "directory", "folder", "cwd", "uri", "url"}
)
_PATH_ENDINGS = ("_path", "_file", "_dir", "filepath", "filename", "directory")
# Added to every tool by the agent's framework: one says nothing about the call, the other repeats it.
_IDLE_KEYS = frozenset({"security_risk"})
_LAST_KEYS = frozenset({"summary"})


class Entry(Frozen):
    """One line of a block, in the block's sense: it may hold line breaks, but is kept or left out as a whole."""

    text: str
    from_user: bool = False


def turn_entries(turn: Turn, thought_chars: int, result_chars: int) -> tuple[Entry, ...]:
    """A turn's lines in order: what was said, each call with its result, then messages in between.

    A result over ``result_chars`` characters is dropped, one of at most that many is kept word for word; a thought is
    cut to ``thought_chars``. Images are dropped. User messages are kept whole.
    """
    label = f"[step {turn.step}]"
    entries: list[Entry] = []
    thought = cut(turn.response.thought or _stated_purpose(turn), thought_chars)
    if thought:
        entries.append(Entry(text=f"{label} {thought}"))
    waiting = list(turn.followers)
    for call in turn.response.calls:
        entries.append(Entry(text=f"{label} > {signature(call)}"))
        answer = next((f for f in waiting if isinstance(f, ToolResult) and f.call_id == call.id), None)
        if answer is not None:
            waiting.remove(answer)
            entries.extend(_result_entries(label, answer, result_chars))
    for follower in waiting:
        if isinstance(follower, ToolResult):
            entries.extend(_result_entries(label, follower, result_chars))
        else:
            entries.extend(_message_entries(label, follower))
    return tuple(entries)


def signature(call: ToolCall, limit: int = SIGNATURE_CHARS) -> str:
    """``name(path=…, short=…, long=…)`` on one line of at most ``limit`` characters.

    Path-like arguments come first, then short ones, so that a long body never pushes a path out.
    """
    name = _one_line(call.name or "tool")[: limit // 2]
    room = limit - len(name) - 2
    arguments = _arguments(call.arguments or "")
    if arguments is None:
        return f"{name}({cut(_one_line(call.arguments or ''), room)})"
    shown: list[str] = []
    for key, value in sorted(arguments.items(), key=_rank):
        text = _one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        if _is_path(key) and len(text) > PATH_CHARS:
            text = "…" + text[1 - PATH_CHARS :]
        piece = (", " if shown else "") + f"{_one_line(key)}={text}"
        if len(piece) > room:
            # A sliver of a value helps nobody.
            if room >= len(key) + 10:
                shown.append(cut(piece, room))
            break
        shown.append(piece)
        room -= len(piece)
    return f"{name}({''.join(shown)})"


def build_block(turns: Sequence[Turn], entries: Sequence[Entry], left_out: int) -> Block:
    """The block for consecutive turns (at least one) whose entries are given, without ``left_out`` of them.

    The oldest go first; what users said goes last.
    """
    order = [i for i, e in enumerate(entries) if not e.from_user] + [i for i, e in enumerate(entries) if e.from_user]
    gone = set(order[:left_out])
    start, stop = turns[0].step, turns[-1].step + 1
    steps = f"step {start}" if stop == start + 1 else f"steps {start} to {stop - 1}"
    earlier = " Earlier steps are no longer shown." if start else ""
    lines = [
        f"[Excerpts of {steps}, word for word. Long texts are cut with … and long tool results left out.{earlier}]"
    ]
    if gone:
        lines.append(f"[{len(gone)} older {'line' if len(gone) == 1 else 'lines'} of these steps left out]")
    lines.extend(entry.text for i, entry in enumerate(entries) if i not in gone)
    return Block(text="\n".join(lines), start=start, stop=stop)


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters, the last of them ``…`` where something was cut."""
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…" if limit > 0 else ""


def _stated_purpose(turn: Turn) -> str:
    """For models that answer with calls only: the summary argument in which the first of them says what it is for."""
    for call in turn.response.calls:
        purpose = (_arguments(call.arguments or "") or {}).get("summary")
        if isinstance(purpose, str) and purpose.strip():
            return _one_line(purpose)
    return ""


def _result_entries(label: str, result: ToolResult, limit: int) -> list[Entry]:
    text = result.content.text
    return [Entry(text=f"{label} = {text}")] if text.strip() and len(text) <= limit else []


def _message_entries(label: str, message: Message) -> list[Entry]:
    text = message.content.text
    return [Entry(text=f"{label} {message.role}: {text}", from_user=True)] if text.strip() else []


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return {key: item for key, item in value.items() if key not in _IDLE_KEYS}


def _is_path(key: str) -> bool:
    return key.lower() in _PATH_KEYS or key.lower().endswith(_PATH_ENDINGS)


def _rank(argument: tuple[str, Any]) -> int:
    """Paths, short values, long values, and the call's own summary; the order of the call within each."""
    key, value = argument
    if _is_path(key):
        return 0
    if key in _LAST_KEYS:
        return 3
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return 1 if len(text) <= SHORT_VALUE_CHARS else 2


def _one_line(text: str) -> str:
    return " ".join(text.split())
