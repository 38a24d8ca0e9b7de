"""Writing a session by hand: each method is one answer of the agent, checked against the files it would find."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from kernel_agent.errors import KernelAgentError
from kernel_agent.gateway.recording import Turn

WORKSPACE = "/workspace/"
CONTEXT = 1
"""Lines on both sides of an edit that its ``old_str`` takes in, more where it would not be the only such place."""


class ScriptError(KernelAgentError):
    """The script asks for what its session could not do; the message names the answer and the file."""


class Script:
    """The answers written so far, and the workspace as they leave it.

    Every method takes the agent's words first and adds one answer. Paths are relative to the workspace.
    """

    def __init__(self, reference: str, kernels: Mapping[str, str]) -> None:
        """
        :param reference: text of the problem, which a session finds as ``reference.py``.
        :param kernels: sources of the kernels that may be written, by file name without its end.
        """
        self._kernels = kernels
        self._files = {"reference.py": reference}
        self.turns: list[Turn] = []
        self.submitted: list[str] = []
        """Names of the kernels given to the judge, in order."""

    def shell(self, words: str, command: str) -> None:
        """Run a command that changes no file of the workspace."""
        self._add(words, ("terminal", {"command": command}))

    def copy(self, words: str, source: str, target: str) -> None:
        self._files[target] = self._text(source)
        self.shell(words, f"cp {source} {target}")

    def create(self, words: str, path: str, text: str) -> None:
        """Write a new file."""
        if path in self._files:
            raise self._error(f"{path} exists, and the editor does not overwrite")
        self._files[path] = text
        self._add(words, ("file_editor", {"command": "create", "path": WORKSPACE + path, "file_text": text}))

    def write(self, words: str, path: str, kernel: str) -> None:
        """Write a kernel into a new file."""
        self.create(words, path, self._kernel(kernel))

    def note(self, words: str, path: str, line: str) -> None:
        """Add a line at the end of a file."""
        text = self._text(path)
        self._files[path] = f"{text}{line}\n"
        at = len(text.splitlines())
        arguments = {"command": "insert", "path": WORKSPACE + path, "insert_line": at, "new_str": line}
        self._add(words, ("file_editor", arguments))

    def edit_into(self, words: str, path: str, kernel: str) -> None:
        """Edit a file into a kernel: one answer with an editor call for each place that differs."""
        wanted = self._kernel(kernel)
        calls = [self._replacement(path, old, new) for old, new in _places(self._text(path), wanted)]
        if self._text(path) != wanted:
            raise self._error(f"the edits do not turn {path} into {kernel}")
        self._add(words, *calls)

    def view(self, words: str, path: str, first: int | None = None, last: int | None = None) -> None:
        """Look at a file, or at its lines ``first`` to ``last``, from 1."""
        count = len(self._text(path).splitlines())
        arguments: dict[str, Any] = {"command": "view", "path": WORKSPACE + path}
        if first is not None and last is not None:
            if not 1 <= first < last <= count:
                raise self._error(f"{path} has {count} lines, not {first} to {last}")
            arguments["view_range"] = [first, last]
        self._add(words, ("file_editor", arguments))

    def evaluate(self, words: str, path: str, kernel: str, hypothesis: str) -> None:
        """Submit a file, which by now must be that kernel word for word."""
        if self._text(path) != self._kernel(kernel):
            raise self._error(f"{path} is not {kernel} when it is submitted")
        self.submitted.append(kernel)
        self._add(words, ("evaluate_kernel", {"path": WORKSPACE + path, "hypothesis": hypothesis}))

    def history(self, words: str, query: str) -> None:
        """Ask for earlier attempts; numbers in the query are of attempts already made."""
        late = [word for word in query.split() if word.isdigit() and int(word) > len(self.submitted)]
        if late and query.split()[0] in ("show", "diff"):
            raise self._error(f"history {query!r} names an attempt not made yet")
        self._add(words, ("history", {"query": query}))

    # -- what the methods share -----------------------------------------------------------------------------------

    def _add(self, words: str, *calls: tuple[str, dict[str, Any]]) -> None:
        tool_calls = [
            {
                "id": f"call_{len(self.turns)}_{i}",
                "type": "function",
                "function": {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)},
            }
            for i, (tool, arguments) in enumerate(calls)
        ]
        message = {"role": "assistant", "content": words, "tool_calls": tool_calls}
        self.turns.append(Turn(n=len(self.turns), message=message, finish_reason="tool_calls"))

    def _replacement(self, path: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
        text = self._text(path)
        if text.count(old) != 1:
            raise self._error(f"{old!r} is {text.count(old)} times in {path}; an edit needs it once")
        self._files[path] = text.replace(old, new)
        return "file_editor", {"command": "str_replace", "path": WORKSPACE + path, "old_str": old, "new_str": new}

    def _kernel(self, name: str) -> str:
        if name not in self._kernels:
            raise self._error(f"there is no kernel {name}; there are {', '.join(sorted(self._kernels))}")
        return self._kernels[name]

    def _text(self, path: str) -> str:
        if path not in self._files:
            raise self._error(f"{path} has not been written yet")
        return self._files[path]

    def _error(self, what: str) -> ScriptError:
        return ScriptError(f"answer {len(self.turns)}: {what}")


def _places(before: str, after: str) -> list[tuple[str, str]]:
    """Replacements that turn one text into another when made in order, each of a place found only once."""
    text, places = before, []
    old_lines, new_lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT):
        _, i1, _, j1, _ = group[0]
        _, _, i2, _, j2 = group[-1]
        while text.count("".join(old_lines[i1:i2])) > 1 and i1 > 0 and j1 > 0:
            i1, j1 = i1 - 1, j1 - 1
        old, new = "".join(old_lines[i1:i2]), "".join(new_lines[j1:j2])
        text = text.replace(old, new)
        places.append((old, new))
    return places
