"""Results as rows of text: printed, and kept in docs/benchmarks.md between marks of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evaluator.machine import cpu_name

DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Row:
    what: str
    wanted: str
    measured: str
    met: bool


def markdown(rows: Sequence[Row]) -> str:
    lines = ["| what | wanted | measured | met |", "| --- | --- | --- | --- |"]
    lines += [f"| {r.what} | {r.wanted} | {r.measured} | {'yes' if r.met else '**no**'} |" for r in rows]
    return "\n".join(lines)


def report(name: str, rows: Sequence[Row], *, keep: bool) -> None:
    """Print the rows; with ``keep`` replace the section ``name`` of docs/benchmarks.md by them."""
    cores = len(os.sched_getaffinity(0))
    stamp = f"{datetime.now(UTC):%Y-%m-%d}, {cpu_name()}, {cores} cores"
    text = f"{stamp}\n\n{markdown(rows)}"
    print(f"\n{name}: {text}\n", flush=True)
    if not keep:
        return
    document = DOCUMENT.read_text()
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, _, rest = document.partition(begin)
    _, _, tail = rest.partition(end)
    DOCUMENT.write_text(f"{head}{begin}\n{text}\n{end}{tail}")
