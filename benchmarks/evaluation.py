"""How long a verdict takes once the evaluator is warm and the candidate is built."""

from __future__ import annotations

import statistics
import tempfile
import time
from importlib.resources import files
from pathlib import Path

from benchmarks.table import Row
from evaluator.model import EvaluationSpec, Purpose
from evaluator.pool import LocalEvaluator
from problems.catalog import Catalog

RUNS = 10
THINK_SECONDS = 3.0
"""Between requests, as an agent thinks: spares are refilled then."""
LIMITS: dict[Purpose, float] = {"screen": 3.0, "promote": 7.0}
OVERHEAD_LIMIT = 0.7
KERNELS = {
    "bundled/bias_gelu_residual": "bias_gelu_residual/07_fused_product.py",
    "bundled/gated_recurrence": "gated_recurrence/06_batch_over_cores.py",
}


def seconds(evaluator: LocalEvaluator, problem_id: str, purpose: Purpose) -> tuple[list[float], list[float]]:
    """Wall seconds of warm evaluations, build and control apart, and those of them outside the calls."""
    problem = Catalog().get(problem_id)
    kernel = (files("kernel_agent.recordings") / "kernels" / KERNELS[problem_id]).read_text()
    walls, outside = [], []
    for n in range(RUNS + 1):
        # A comment makes it another candidate with the same extension, which is built once more and then found.
        spec = EvaluationSpec(problem=problem, source=f"{kernel}\n# {purpose} {n}\n", purpose=purpose)
        time.sleep(THINK_SECONDS)
        start = time.monotonic()
        evaluation = evaluator.evaluate(spec)
        if n and evaluation.status == "correct":
            built = evaluation.build.seconds if evaluation.build else 0.0
            walls.append(time.monotonic() - start - built - evaluation.seconds.control)
            outside.append(walls[-1] - evaluation.seconds.calls)
    return walls, outside


def row(what: str, values: list[float], limit: float) -> Row:
    median = statistics.median(values) if values else float("inf")
    worst = max(values, default=float("inf"))
    measured = f"median {median:.2f} s, worst {worst:.2f} s of {len(values)}"
    return Row(what, f"<= {limit:g} s", measured, median <= limit)


def run() -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder, LocalEvaluator(Path(folder)) as evaluator:
        for problem_id in KERNELS:
            for purpose, limit in LIMITS.items():
                walls, outside = seconds(evaluator, problem_id, purpose)
                what = f"{problem_id}, {purpose}: seconds a warm evaluation, build and control apart"
                rows.append(row(what, walls, limit))
                if purpose == "screen":
                    rows.append(row("of which outside the calls (draws, checks, processes)", outside, OVERHEAD_LIMIT))
    return rows
