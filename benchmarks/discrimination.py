"""What the evaluator can tell apart: a small slow-down from none, and equal candidates from better ones."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.table import Row
from evaluator.model import Evaluation, EvaluationSpec, reference_candidate
from evaluator.pool import LocalEvaluator
from problems.catalog import Catalog
from problems.model import Problem

RUNS = int(os.environ.get("KERNEL_AGENT_BENCH_RUNS", "60"))
EQUALS = int(os.environ.get("KERNEL_AGENT_BENCH_EQUALS", "100"))
TRIES = 2
"""As many attempts as runs wanted, for those that the control calls noisy."""
SLOWER = 0.05
WANTED_SEEN, WANTED_FALSE = 56 / 60, 1 / 100
PROBLEM = "bundled/bias_gelu_residual"
DELAYED = """

import time

class ModelNew(Model):
    def forward(self, *inputs):
        start = time.perf_counter()
        y = super().forward(*inputs)
        end = start + {factor} * (time.perf_counter() - start)
        while time.perf_counter() < end:
            pass
        return y
"""


def delayed(problem: Problem, share: float) -> str:
    """The reference, made slower by ``share`` of its own time, however long it takes."""
    return problem.source + DELAYED.format(factor=1 + share)


def quiet(verdict: Evaluation) -> bool:
    control = verdict.evidence.control
    return verdict.status == "correct" and control is not None and control.quiet


def slowdown(evaluator: LocalEvaluator, problem: Problem) -> tuple[int, int]:
    """How often a planted slow-down lay outside the confirming interval, of how many quiet runs."""
    seen = of = 0
    for n in range(TRIES * RUNS):
        source = f"{delayed(problem, SLOWER)}# {n}\n"
        verdict = evaluator.evaluate(EvaluationSpec(problem=problem, source=source, purpose="promote"))
        if quiet(verdict) and verdict.speedup_high is not None:
            of += 1
            seen += verdict.speedup_high < 1
        if of == RUNS:
            break
    return seen, of


def promotions(evaluator: LocalEvaluator, problem: Problem) -> tuple[int, int]:
    """How many of equal challengers were accepted in the incumbent's place."""
    accepted = of = 0
    incumbent = reference_candidate(problem)
    for n in range(TRIES * EQUALS):
        spec = EvaluationSpec(problem=problem, source=f"{incumbent}# {n}\n", purpose="promote", incumbent=incumbent)
        verdict = evaluator.evaluate(spec)
        if verdict.status == "correct":
            of += 1
            accepted += bool(verdict.accepted)
        if of == EQUALS:
            break
    return accepted, of


def run() -> list[Row]:
    problem = Catalog().get(PROBLEM)
    with tempfile.TemporaryDirectory() as folder, LocalEvaluator(Path(folder)) as evaluator:
        seen, of = slowdown(evaluator, problem)
        accepted, equals = promotions(evaluator, problem)
    return [
        Row(
            f"a planted {SLOWER:.0%} slow-down lies outside the confirming interval",
            f">= {WANTED_SEEN:.0%}",
            f"{seen} of {of}",
            of > 0 and seen >= WANTED_SEEN * of,
        ),
        Row(
            "equal challengers that take the incumbent's place",
            f"<= {WANTED_FALSE:.0%}",
            f"{accepted} of {equals}",
            equals > 0 and accepted <= WANTED_FALSE * equals,
        ),
    ]
