"""Smaller and smaller versions of a problem: batch sizes go first, then lengths, then image sizes, then widths."""

from __future__ import annotations

import re
from collections.abc import Iterator

from problems.model import Problem, SizeOverride
from problems.sizes import constants

KINDS: tuple[tuple[str, int], ...] = (
    (r"batch|^b$|^bs$|^n$|^rows$|samples", 2),
    (r"seq|length|^steps$|positions|tokens|^t$", 16),
    (r"height|width|image|img|^h$|^w$|spatial|resolution", 32),
    (r"^(input|output|hidden|feature)_?(size|dim|features)$|^features$|^dim$|embd|embed", 256),
)
"""Names of constants and the value that each kind is not lowered below. Widths come last, since lowering
them changes how errors grow; a batch of one is the last resort, since a mean over it is none."""
LARGER_BATCH, MOST_BATCH = 8, 64


def ladder(problem: Problem) -> Iterator[tuple[SizeOverride, ...]]:
    """Overrides of ``problem`` as it is: none, then each rung smaller than the last, the largest constant halved."""
    present = _integers(problem)
    values = dict(present)
    yield ()
    for pattern, least in KINDS:
        names = [name for name in values if re.search(pattern, name.lower())]
        while lowerable := [name for name in names if values[name] // 2 >= least]:
            name = max(lowerable, key=lambda n: values[n])
            values[name] //= 2
            yield _changes(present, values)
    single = {name: 1 for name, value in values.items() if _is_batch(name) and value > 1}
    if single:
        yield _changes(present, values | single)


def larger_batch(problem: Problem, rung: tuple[SizeOverride, ...]) -> tuple[SizeOverride, ...] | None:
    """``rung`` with its batch sizes eight times as large, up to 64; None when no constant is a batch size."""
    present = _integers(problem)
    values = present | {o.name: int(o.value) for o in rung}
    names = [name for name in values if _is_batch(name) and values[name] < MOST_BATCH]
    if not names:
        return None
    return _changes(present, values | {name: min(MOST_BATCH, values[name] * LARGER_BATCH) for name in names})


def _is_batch(name: str) -> bool:
    return re.search(KINDS[0][0], name.lower()) is not None


def _integers(problem: Problem) -> dict[str, int]:
    return {c.name: c.value for c in constants(problem.source, problem.id) if type(c.value) is int}


def _changes(present: dict[str, int], values: dict[str, int]) -> tuple[SizeOverride, ...]:
    return tuple(SizeOverride(name=n, value=v) for n, v in values.items() if v != present[n])
