"""What is optimized: one problem, as text. Nothing here executes a problem."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict

Origin = Literal["bundled", "kernelbench", "file"]


class ProblemError(Exception):
    """The user named a problem that cannot be used; the message says what, where and the remedy."""


class SizeOverride(BaseModel):
    """A module-level constant of the problem that was replaced by another value."""

    model_config = ConfigDict(frozen=True)

    name: str
    value: int | float | bool


class Problem(BaseModel):
    """A module in KernelBench's format: ``Model``, ``get_inputs()`` and ``get_init_inputs()``.

    ``source`` is the effective text, with size overrides applied; identity is its hash, so that a problem at
    other sizes is another problem.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    """Stable name, such as ``bundled/attention`` or ``kernelbench/level3/1_MLP``."""
    title: str
    """First line of the module's docstring, or its file name in words."""
    origin: Origin
    source: str
    overrides: tuple[SizeOverride, ...] = ()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def slug(self) -> str:
        """The id as a file name: one path component, safe characters only."""
        return "".join(c if c.isalnum() or c in "-_." else "_" for c in self.id)
