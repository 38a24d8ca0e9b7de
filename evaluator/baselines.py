"""What torch.compile makes of a problem here: judged like a candidate, kept, and set beside later verdicts.

The judge times eager beside every candidate. torch.compile takes minutes, so that it is timed once: as a candidate that
compiles the problem's own model, in the same paired rounds, with the same checks. The speedup of another candidate over
it is then a ratio of two speedups over eager.
"""

from __future__ import annotations

import hashlib
import math
import platform
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import AwareDatetime, ValidationError

from evaluator.keeping import keep
from evaluator.model import (
    ON_THE_PROBLEM,
    Evaluation,
    EvaluationSpec,
    Frozen,
    Isolation,
    Limits,
    Purpose,
    Status,
    reference_candidate,
)
from evaluator.pool import Evaluator
from problems.model import Problem

TRUSTED_FOR = timedelta(days=7)
MOST_EAGER_CHANGE = 0.10
"""Relative change of eager's time beyond which the machine is no longer the one that was measured."""
TRIES = 2
"""A measurement that was too noisy is repeated; each costs minutes."""
STALE = "baseline_stale"
"""The flag of a verdict for which there is a baseline that cannot be trusted any more."""
LIMITS = Limits(load_seconds=300.0, first_call_seconds=1200.0, scratch_bytes=4 << 30)
"""Inductor compiles in the first call; its precompiled headers alone take a good part of a gigabyte's scratch."""
NO_PYTHON = "("
"""Refused before a process is spent on it, by a judge that still says who it is."""

_COMPILED = """

import os

os.environ["TORCHINDUCTOR_CACHE_DIR"] = "/tmp/inductor"

import torch
import torch._inductor.config

# More would be processes of their own, which stay alive between calls.
torch._inductor.config.compile_threads = 1


class ModelNew(Model):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.compile()
"""


class Conditions(Frozen):
    """What a baseline was measured on. Under any other it says nothing."""

    problem_sha: str
    device: str
    threads: int
    torch_version: str
    python_version: str
    protocol_version: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class Baseline(Frozen):
    """Eager and torch.compile on one problem. Only with the status ``correct`` is there a compiled time."""

    conditions: Conditions
    status: Status
    """The verdict on the compiled model: ``runtime_error`` when the compiler failed, ``incorrect`` when it erred."""
    reason: str
    eager_ms: float | None = None
    compile_ms: float | None = None
    compile_speedup: float | None = None
    """Eager time over compiled time, with the 95% interval that follows."""
    compile_speedup_low: float | None = None
    compile_speedup_high: float | None = None
    measured_at: AwareDatetime


def compiled_candidate(problem: Problem) -> str:
    """The problem's own model under torch.compile, with the default mode and backend, as a candidate."""
    return problem.source + _COMPILED


def measure(
    evaluator: Evaluator,
    problem: Problem,
    purpose: Purpose = "final",
    isolation: Isolation = "jail",
    limits: Limits = LIMITS,
) -> Baseline:
    """Judge torch.compile against eager. A failure to compile is a status; an ``unstable`` one is not to be kept.

    It is compiled once for each set of processes: once to ``screen`` it, which is quick and coarse; the ``final`` one
    takes minutes. Raises EvaluatorError.
    """

    def judged(source: str, purpose: Purpose) -> Evaluation:
        spec = EvaluationSpec(problem=problem, source=source, purpose=purpose, isolation=isolation, limits=limits)
        for _ in range(TRIES):
            evaluation = evaluator.evaluate(spec)
            if evaluation.status != "unstable":
                break
        return evaluation

    compiled = judged(compiled_candidate(problem), purpose)
    eager_ms = compiled.reference_ms
    if compiled.status not in {"correct", "unstable", *ON_THE_PROBLEM}:
        eager_ms = judged(reference_candidate(problem), "screen").reference_ms
    return Baseline(
        conditions=conditions_of(compiled),
        status=compiled.status,
        reason=compiled.reason,
        eager_ms=eager_ms,
        compile_ms=compiled.candidate_ms,
        compile_speedup=compiled.speedup,
        compile_speedup_low=compiled.speedup_low,
        compile_speedup_high=compiled.speedup_high,
        measured_at=datetime.now(UTC),
    )


# -- conditions and the cache -----------------------------------------------------------------------------------


def conditions_of(evaluation: Evaluation) -> Conditions:
    """Those of a verdict that was given on this host by this interpreter."""
    return Conditions(
        problem_sha=evaluation.problem_sha,
        device=evaluation.gpu,
        threads=evaluation.evidence.threads,
        torch_version=evaluation.evidence.torch_version,
        python_version=platform.python_version(),
        protocol_version=evaluation.evidence.protocol_version,
    )


def conditions_here(evaluator: Evaluator, problem: Problem, limits: Limits = LIMITS) -> Conditions:
    """Those under which ``evaluator`` would judge ``problem`` now: it says them with a verdict that costs seconds."""
    return conditions_of(evaluator.evaluate(EvaluationSpec(problem=problem, source=NO_PYTHON, limits=limits)))


def cached(folder: Path, conditions: Conditions) -> Baseline | None:
    """The baseline kept for exactly these conditions, however old. What cannot be read as one counts as none."""
    try:
        found = Baseline.model_validate_json(_path(folder, conditions).read_bytes())
    except (OSError, ValidationError):
        return None
    return found if found.conditions == conditions else None


def save(folder: Path, baseline: Baseline) -> None:
    """Keep ``baseline`` in the place of an older one under its conditions."""
    keep(_path(folder, baseline.conditions), (baseline.model_dump_json(indent=2) + "\n").encode())


def _path(folder: Path, conditions: Conditions) -> Path:
    return folder / f"{conditions.sha256}.json"


# -- trust and use ----------------------------------------------------------------------------------------------


def old(baseline: Baseline, now: datetime | None = None) -> bool:
    """Whether it was measured more than a week before ``now``."""
    return (now or datetime.now(UTC)) - baseline.measured_at > TRUSTED_FOR


def doubt(baseline: Baseline, evaluation: Evaluation, now: datetime | None = None) -> str:
    """Why ``baseline`` does not speak for ``evaluation``, in a few words; empty when it does."""
    mine, theirs = baseline.conditions, conditions_of(evaluation)
    differing = [name for name in Conditions.model_fields if getattr(mine, name) != getattr(theirs, name)]
    if differing:
        return "measured under another " + " and ".join(name.replace("_", " ") for name in differing)
    if old(baseline, now):
        return f"measured {((now or datetime.now(UTC)) - baseline.measured_at).days} days ago"
    before, present = baseline.eager_ms, evaluation.reference_ms
    if before is not None and present is not None and abs(present / before - 1) > MOST_EAGER_CHANGE:
        return f"eager took {before:.4g} ms when it was measured, and takes {present:.4g} ms now"
    return ""


def with_baseline(evaluation: Evaluation, baseline: Baseline, now: datetime | None = None) -> Evaluation:
    """``evaluation`` with its speedup over torch.compile, or with a flag where ``baseline`` is stale.

    With S the candidate's speedup over eager and C that of torch.compile, ln(S/C) = ln S - ln C. They were measured
    apart, so that the half-widths of the 95% intervals add in quadrature (the variance of a difference of independent
    quantities); the two sides of an interval are kept apart, since a drift widens one only:

        low  = S/C exp(-hypot(ln S - ln S_low, ln C_high - ln C))
        high = S/C exp(+hypot(ln S_high - ln S, ln C - ln C_low))

    Unchanged when there is no speedup on either side.
    """
    s, s_low, s_high = evaluation.speedup, evaluation.speedup_low, evaluation.speedup_high
    c, c_low, c_high = baseline.compile_speedup, baseline.compile_speedup_low, baseline.compile_speedup_high
    if s is None or s_low is None or s_high is None or c is None or c_low is None or c_high is None:
        return evaluation
    if doubt(baseline, evaluation, now):
        return evaluation.model_copy(update={"flags": tuple(dict.fromkeys((*evaluation.flags, STALE)))})
    ratio = s / c
    below = math.hypot(math.log(s / s_low), math.log(c_high / c))
    above = math.hypot(math.log(s_high / s), math.log(c / c_low))
    return evaluation.model_copy(
        update={
            "speedup_compile": ratio,
            "speedup_compile_low": ratio * math.exp(-below),
            "speedup_compile_high": ratio * math.exp(above),
        }
    )
