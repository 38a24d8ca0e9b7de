"""One candidate of a corpus: its text, what it tries, and what a judge must say of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from evaluator.model import Lane, Status
from problems.model import Problem
from tests.evaluator.sources import problem

CORRECT: frozenset[Status] = frozenset({"correct"})
WRONG: frozenset[Status] = frozenset({"incorrect"})
WRONG_OR_WILD: frozenset[Status] = frozenset({"incorrect", "non_finite"})
"""What lies in memory that nobody wrote may be no number at all."""


@dataclass(frozen=True)
class Entry:
    """``problem``, ``lane``: what it is judged on, and as what. ``family``: for hostile ones, what they try."""

    name: str
    family: str
    source: str
    statuses: frozenset[Status] = CORRECT
    """Any of these; with ``correct``, the interval of the speedup must reach down to 1."""
    words: str = ""
    """What the reason must contain."""
    problem: Problem = field(default_factory=problem)
    lane: Lane = "fp32"


def statuses(*names: Status) -> frozenset[Status]:
    return frozenset(names)


JAILED = """
with open("/proc/1/comm") as f:
    if f.read().strip() != "bwrap":
        raise SystemExit("this candidate would harm a host: it runs in a jail only")
"""
"""Begins the text of every candidate that would damage a host, or outlive its process, where no jail held it."""
