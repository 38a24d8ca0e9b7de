"""Strategies as users write them: ``none``, ``cliff:128k``, ``cliff:16k,k=1,thought=200``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from compaction.errors import CompactionError
from compaction.history import Frozen

MIN_BUDGET_TOKENS = 1_000


class NoneSpec(Frozen):
    """Never compact."""

    strategy: Literal["none"] = "none"

    def __str__(self) -> str:
        return "none"


class CliffSpec(Frozen):
    """CliffCompaction with a budget and its excerpt limits."""

    strategy: Literal["cliff"] = "cliff"
    budget_tokens: int = Field(ge=MIN_BUDGET_TOKENS)
    """No prompt may exceed it."""
    k: int = Field(3, ge=1, le=100)
    """Newest turns kept word for word at a cut."""
    thought: int = Field(300, ge=0, le=100_000)
    """Characters kept of what the model said in an excerpted turn."""
    result: int = Field(500, ge=0, le=100_000)
    """A tool result up to this many characters is kept word for word, a longer one dropped."""

    def __str__(self) -> str:
        extras = "".join(f",{name}={getattr(self, name)}" for name in ("thought", "result") if self._differs(name))
        return f"cliff:{format_tokens(self.budget_tokens)},k={self.k}{extras}"

    def _differs(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)


Spec = NoneSpec | CliffSpec


def parse_spec(text: str) -> Spec:
    """Read a strategy; ``parse_spec(str(spec)) == spec``.

    :raises CompactionError: naming the part that cannot be used and what may stand there.
    """
    name, colon, rest = text.strip().partition(":")
    parser = PARSERS.get(name)
    if parser is None:
        raise CompactionError(
            f"unknown compaction strategy {name!r} in {text!r}: known are {', '.join(sorted(PARSERS))}"
        )
    return parser(text, rest if colon else None)


def parse_tokens(text: str) -> int | None:
    """``128k``, ``1.5m`` or a plain number of tokens; k is 1000. None when it is no such thing."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([km]?)", text.strip().lower())
    if match is None:
        return None
    value = float(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[match[2]]
    return int(value) if value == int(value) else None


def format_tokens(tokens: int) -> str:
    return f"{tokens // 1000}k" if tokens % 1000 == 0 else str(tokens)


def _parse_none(text: str, rest: str | None) -> Spec:
    if rest is not None:
        raise CompactionError(f"strategy none takes nothing after its name, but {text!r} has {rest!r}: write none")
    return NoneSpec()


def _parse_cliff(text: str, rest: str | None) -> Spec:
    budget, *options = (rest or "").split(",")
    tokens = parse_tokens(budget)
    if tokens is None:
        raise CompactionError(f"budget {budget!r} in {text!r} is no number of tokens: write for example cliff:128k")
    if tokens < MIN_BUDGET_TOKENS:
        raise CompactionError(f"budget {budget!r} in {text!r} is below the least, {MIN_BUDGET_TOKENS} tokens")
    values: dict[str, int] = {}
    ranges = {"k": (1, 100), "thought": (0, 100_000), "result": (0, 100_000)}
    for option in options:
        key, _, value = (part.strip() for part in option.partition("="))
        if key not in ranges:
            raise CompactionError(f"unknown option {option.strip()!r} in {text!r}: known are {', '.join(ranges)}")
        if key in values:
            raise CompactionError(f"option {key} is given twice in {text!r}")
        low, high = ranges[key]
        if not re.fullmatch(r"\d{1,6}", value) or not low <= int(value) <= high:
            raise CompactionError(f"option {key}={value} in {text!r} is no whole number from {low} to {high}")
        values[key] = int(value)
    return CliffSpec(budget_tokens=tokens, **values)


PARSERS: Mapping[str, Callable[[str, str | None], Spec]] = MappingProxyType(
    {"cliff": _parse_cliff, "none": _parse_none}
)
"""Strategy name to the reader of what follows it: a new strategy is one more line here."""
