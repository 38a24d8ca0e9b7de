"""How commands print: plain text and tables for people, one JSON object for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

PIPE_WIDTH = 160
"""Columns where there is no terminal to ask: wide enough that no row of ours is folded."""


def console(*, stderr: bool = False) -> Console:
    """A console that takes text for text: no markup, no guessing of what to colour."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def print_json(document: BaseModel) -> None:
    """The whole of stdout for ``--json``."""
    sys.stdout.write(document.model_dump_json(indent=2) + "\n")


def print_text(text: str) -> None:
    """Text with untrusted parts, made safe for a terminal."""
    from kernel_agent.plain_text import plain

    sys.stdout.write(plain(text).rstrip("\n") + "\n")
