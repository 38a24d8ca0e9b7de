"""Which ids a pattern means, and which ids a mistyped one may have meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

_RANGE = re.compile(r"(?P<folder>.+)/(?P<first>\d+)(?:-(?P<last>\d+))?")


def select(pattern: str, ids: Sequence[str]) -> tuple[str, ...]:
    """The ids that ``pattern`` means, in the order of ``ids``; empty when it means none.

    A pattern is an id, a folder (``kernelbench/level3``), a glob (``bundled/*``), a number or a range of numbers
    (``kernelbench/level3/1-10``), or several of these with commas between them.
    """
    parts = [part.strip() for part in pattern.split(",") if part.strip()]
    return tuple(id for id in ids if any(_matches(part.rstrip("/"), id) for part in parts))


def _matches(part: str, id: str) -> bool:
    if id == part or id.startswith(part + "/") or fnmatchcase(id, part):
        return True
    wanted = _RANGE.fullmatch(part)
    folder, _, name = id.rpartition("/")
    number = name.partition("_")[0]
    if not wanted or wanted["folder"] != folder or not number.isdecimal():
        return False
    return int(wanted["first"]) <= int(number) <= int(wanted["last"] or wanted["first"])


def near(text: str, ids: Sequence[str], count: int = 3) -> tuple[str, ...]:
    """Up to ``count`` ids that resemble ``text``, in whole or in their last part, the nearest first."""

    def likeness(id: str) -> float:
        name, wanted = id.rpartition("/")[2], text.rpartition("/")[2]
        pairs = ((id, text), (name, wanted), (name.partition("_")[2], wanted))
        return max(difflib.SequenceMatcher(None, a.lower(), b.lower()).ratio() for a, b in pairs)

    ranked = sorted(((likeness(id), id) for id in ids), key=lambda pair: -pair[0])
    return tuple(id for score, id in ranked[:count] if score >= 0.6)
