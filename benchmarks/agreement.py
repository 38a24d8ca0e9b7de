"""A/A: the reference judged as its own candidate. What it says besides 1 is the evaluator's error."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import Row
from evaluator.model import Evaluation, EvaluationSpec, Purpose
from evaluator.pool import LocalEvaluator
from problems.catalog import Catalog

RUNS = int(os.environ.get("KERNEL_AGENT_BENCH_RUNS", "60"))
TRIES = 2 * RUNS
WITHIN = 0.02
WANTED_WITHIN, WANTED_COVERED = 56 / 60, 54 / 60
PROBLEM = "bundled/bias_gelu_residual"


@dataclass
class Tally:
    quiet: int = 0
    within: int = 0
    covered: int = 0
    noisy: int = 0

    def add(self, e: Evaluation) -> None:
        control = e.evidence.control
        if e.status != "correct" or control is None or not control.quiet:
            self.noisy += 1
            return
        assert e.speedup is not None
        assert e.speedup_low is not None
        assert e.speedup_high is not None
        self.quiet += 1
        self.within += abs(e.speedup - 1) <= WITHIN
        self.covered += e.speedup_low <= 1 <= e.speedup_high


def tally(evaluator: LocalEvaluator, purpose: Purpose) -> Tally:
    """Judge until enough runs were called quiet by their control, or twice as many were tried."""
    problem, found = Catalog().get(PROBLEM), Tally()
    for n in range(TRIES):
        source = f"{problem.source}\n\nModelNew = Model  # {purpose} {n}\n"
        found.add(evaluator.evaluate(EvaluationSpec(problem=problem, source=source, purpose=purpose)))
        if found.quiet == RUNS:
            break
    return found


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, LocalEvaluator(Path(folder)) as evaluator:
        screen, confirm = tally(evaluator, "screen"), tally(evaluator, "promote")
    noise = f"{screen.noisy + confirm.noisy} more runs on a machine that its control called noisy"
    return [
        Row(
            "A/A, confirming (three to six instances a side): within 2% of 1",
            f">= {WANTED_WITHIN:.0%}",
            f"{confirm.within} of {confirm.quiet}; {noise}",
            confirm.quiet > 0 and confirm.within >= WANTED_WITHIN * confirm.quiet,
        ),
        Row(
            "A/A, confirming: the interval covers 1",
            f">= {WANTED_COVERED:.0%}",
            f"{confirm.covered} of {confirm.quiet}",
            confirm.quiet > 0 and confirm.covered >= WANTED_COVERED * confirm.quiet,
        ),
        Row(
            "A/A, screening (one instance a side): the interval covers 1",
            f">= {WANTED_COVERED:.0%}",
            f"{screen.covered} of {screen.quiet} ({screen.within} within 2%)",
            screen.quiet > 0 and screen.covered >= WANTED_COVERED * screen.quiet,
        ),
    ]
