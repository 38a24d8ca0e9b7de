"""What a step costs beside its tools and its model."""

from __future__ import annotations

import json
import statistics
import tempfile
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from benchmarks.table import Row
from tests.kernel_agent.engine.played import Stage, shell, stage, turn

STEPS = 60
LIMIT_MS = 100.0


def overheads_ms(at: Stage) -> list[float]:
    """For each step: from the answer to the next request, less the time its tool took."""
    folder = next((at.workspace.parent / "state" / "conversation").iterdir()) / "events"
    events = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    tools = [
        (datetime.fromisoformat(b["timestamp"]) - datetime.fromisoformat(a["timestamp"])).total_seconds()
        for a, b in pairwise(events)
        if a["kind"] == "ActionEvent" and b["kind"] == "ObservationEvent"
    ]
    calls = [c for c in at.store.calls(at.session_id) if c.ended_at is not None]
    gaps = [(b.started_at - a.ended_at).total_seconds() for a, b in pairwise(calls) if a.ended_at]
    return [1e3 * (gap - tool) for gap, tool in zip(gaps, tools, strict=False)]


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        at = stage(Path(folder), [turn(f"Step {n}.", shell(f"echo {n}")) for n in range(STEPS)])
        with at.evaluator() as evaluator:
            at.engine(evaluator).run(at.campaign.id)
        found = overheads_ms(at)
        at.store.close()
    median, tail = statistics.median(found), statistics.quantiles(found, n=20)[-1]
    return [
        Row(
            "session overhead a step, beside tools and model",
            f"<= {LIMIT_MS:g} ms",
            f"median {median:.0f} ms, 95th percentile {tail:.0f} ms of {len(found)} steps",
            median <= LIMIT_MS,
        )
    ]
