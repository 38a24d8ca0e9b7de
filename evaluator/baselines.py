"""Other ways to run a problem's own model: judged like a candidate, kept, and set beside later verdicts.

The judge times eager, in single precision, beside every candidate. Two more are worth comparing with: torch.compile,
which takes minutes, and eager in the lower precision of a lane, without which a kernel in half precision would be
compared with single precision alone. Each is timed once: as a candidate made of the problem's own model, in the same
paired rounds, with the same checks. The speedup of another candidate over it is then a ratio of two speedups over
eager.
"""

from __future__ import annotations

import hashlib
import math
import platform
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, ValidationError

from evaluator.keeping import keep
from evaluator.model import (
    ON_THE_PROBLEM,
    Evaluation,
    EvaluationSpec,
    Frozen,
    Isolation,
    Lane,
    Limits,
    Purpose,
    Status,
    reference_candidate,
)
from evaluator.pool import Evaluator
from problems.model import Problem

Way = Literal["compile", "fp16", "bf16"]
"""How the model is run: compiled, or with its parameters and inputs cast."""
CAST: dict[Lane, Way] = {"fp16": "fp16", "bf16": "bf16"}
"""The way to compare with in a lane of its own."""
_DTYPES: dict[Way, str] = {"fp16": "float16", "bf16": "bfloat16"}

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
_CAST = """

import torch

_DTYPE = torch.{dtype}


def _answered(value):
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype is _DTYPE else value
    if isinstance(value, dict):
        return {{k: _answered(v) for k, v in value.items()}}
    return type(value)(map(_answered, value)) if isinstance(value, (tuple, list)) else value


class ModelNew(Model):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.to(_DTYPE)

    def forward(self, *inputs):
        cast = [x.to(_DTYPE) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
        return _answered(super().forward(*cast))
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
    """The problem's own model, run one way. Only with the status ``correct`` is there a time."""

    way: Way = "compile"
    conditions: Conditions
    status: Status
    """``runtime_error`` when the compiler failed, ``incorrect`` when it erred; and for a cast model that does not work,
    or not to its lane's precision, ``reference_unsupported_in_precision``."""
    reason: str
    eager_ms: float | None = None
    ms: float | None = None
    speedup: float | None = None
    """Eager time over this one, with the 95% interval that follows."""
    speedup_low: float | None = None
    speedup_high: float | None = None
    measured_at: AwareDatetime


def model_as_candidate(problem: Problem, way: Way) -> str:
    """The problem's own model as a candidate: under torch.compile (default mode and backend), or cast."""
    return problem.source + (_COMPILED if way == "compile" else _CAST.format(dtype=_DTYPES[way]))


def measure(
    evaluator: Evaluator,
    problem: Problem,
    way: Way = "compile",
    purpose: Purpose = "final",
    isolation: Isolation = "jail",
    limits: Limits = LIMITS,
) -> Baseline:
    """Judge it against eager. A failure to compile is a status; an ``unstable`` one is not to be kept.

    It is compiled once for each set of processes: once to ``screen`` it, which is quick and coarse; the ``final`` one
    takes minutes. Raises EvaluatorError.
    """

    def judged(source: str, purpose: Purpose, lane: Lane = "fp32") -> Evaluation:
        spec = EvaluationSpec(
            problem=problem, source=source, purpose=purpose, lane=lane, isolation=isolation, limits=limits
        )
        for _ in range(TRIES):
            evaluation = evaluator.evaluate(spec)
            if evaluation.status != "unstable":
                break
        return evaluation

    found = judged(model_as_candidate(problem, way), purpose, "fp32" if way == "compile" else way)
    status, reason, eager_ms = found.status, found.reason, found.reference_ms
    if status not in {"correct", "unstable", *ON_THE_PROBLEM}:
        eager_ms = judged(reference_candidate(problem), "screen").reference_ms
        if way != "compile":
            status, reason = "reference_unsupported_in_precision", f"not in {way}: {status}: {reason}"
    return Baseline(
        way=way,
        conditions=conditions_of(found),
        status=status,
        reason=reason,
        eager_ms=eager_ms,
        ms=found.candidate_ms,
        speedup=found.speedup,
        speedup_low=found.speedup_low,
        speedup_high=found.speedup_high,
        measured_at=datetime.now(UTC),
    )


def ways(evaluation: Evaluation) -> tuple[Way, ...]:
    """What a verdict is to be compared with besides eager; nothing where it has no speedup."""
    if evaluation.speedup is None:
        return ()
    cast = CAST.get(evaluation.lane) if evaluation.lane else None
    return ("compile",) if cast is None else ("compile", cast)


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


def cached(folder: Path, conditions: Conditions, way: Way = "compile") -> Baseline | None:
    """The baseline kept for exactly these conditions, however old. What cannot be read as one counts as none."""
    try:
        found = Baseline.model_validate_json(_path(folder, conditions, way).read_bytes())
    except (OSError, ValidationError):
        return None
    return found if (found.conditions, found.way) == (conditions, way) else None


def save(folder: Path, baseline: Baseline) -> None:
    """Keep ``baseline`` in the place of an older one under its conditions."""
    keep(_path(folder, baseline.conditions, baseline.way), (baseline.model_dump_json(indent=2) + "\n").encode())


def _path(folder: Path, conditions: Conditions, way: Way) -> Path:
    return folder / f"{conditions.sha256}-{way}.json"


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
    """``evaluation`` with its speedup over ``baseline``, or with a flag where that is stale.

    With S the candidate's speedup over eager and C that of the baseline, ln(S/C) = ln S - ln C. They were measured
    apart, so that the half-widths of the 95% intervals add in quadrature (the variance of a difference of independent
    quantities); the two sides of an interval are kept apart, since a drift widens one only:

        low  = S/C exp(-hypot(ln S - ln S_low, ln C_high - ln C))
        high = S/C exp(+hypot(ln S_high - ln S, ln C - ln C_low))

    Unchanged when there is no speedup on either side.
    """
    s, s_low, s_high = evaluation.speedup, evaluation.speedup_low, evaluation.speedup_high
    c, c_low, c_high = baseline.speedup, baseline.speedup_low, baseline.speedup_high
    if s is None or s_low is None or s_high is None or c is None or c_low is None or c_high is None:
        return evaluation
    if doubt(baseline, evaluation, now):
        return evaluation.model_copy(update={"flags": tuple(dict.fromkeys((*evaluation.flags, STALE)))})
    ratio = s / c
    below = math.hypot(math.log(s / s_low), math.log(c_high / c))
    above = math.hypot(math.log(s_high / s), math.log(c / c_low))
    name = "speedup_compile" if baseline.way == "compile" else "speedup_lane"
    return evaluation.model_copy(
        update={name: ratio, f"{name}_low": ratio * math.exp(-below), f"{name}_high": ratio * math.exp(above)}
    )
