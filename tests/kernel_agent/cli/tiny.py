"""A problem of a few kilobytes and a recorded session on it, so that a whole campaign takes seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernel_agent.gateway.recording import Header, Recording, Turn
from problems.catalog import Catalog

PROBLEM = '''"""Scale a small matrix"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0


rows = 16


def get_inputs():
    return [torch.randn(rows, 16)]


def get_init_inputs():
    return []
'''
BROKEN = "class ModelNew(:\n"
"""Judged without being built."""


def write_problem(folder: Path) -> Path:
    path = folder / "tiny.py"
    path.write_text(PROBLEM)
    return path


def write_recording(folder: Path, problem: Path, waits: int = 0) -> Path:
    """A session that submits a broken kernel, then waits ``waits`` times for a minute, then looks at its history."""
    sources = Catalog().resolve(str(problem))
    turns = [
        _turn(0, "file_editor", {"command": "create", "path": "/workspace/kernel.py", "file_text": BROKEN}),
        _turn(1, "evaluate_kernel", {"path": "kernel.py", "hypothesis": "a first try"}),
        *(_turn(2 + n, "terminal", {"command": "sleep 60"}) for n in range(waits)),
        _turn(2 + waits, "history", {"query": "tried"}),
        _turn(3 + waits, "terminal", {"command": "ls"}),
    ]
    header = Header(
        name="tiny",
        problem_id=sources.id,
        problem_sha=sources.sha256,
        strategy="cliff:16k",
        model="a script",
        provenance="scripted",
    )
    path = folder / "recordings" / "tiny.jsonl"
    Recording(header=header, turns=tuple(turns)).save(path)
    return path


def _turn(n: int, tool: str, arguments: dict[str, Any]) -> Turn:
    call = {"id": f"call_{n}", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
    return Turn(n=n, message={"role": "assistant", "content": f"Step {n}.", "tool_calls": [call]})
