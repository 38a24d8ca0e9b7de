"""The evaluator's border: what goes in (``EvaluationSpec``) and what comes out (``Evaluation``).

Frozen pydantic models only; nothing here imports torch, so that every package may use these nouns.
Units are in the names: ``_ms`` milliseconds, ``_seconds`` seconds, ``_bytes`` bytes. Speedups are ratios of
reference time over candidate time (above 1: the candidate is faster).
"""

from __future__ import annotations

import hashlib
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from problems.model import Problem

PROTOCOL_VERSION = "2"

Status = Literal[
    "correct",
    "incorrect",
    "wrong_shape",
    "wrong_dtype",
    "non_finite",
    "weights_not_transferable",
    "mutated_input",
    "background_work",
    "below_floor",
    "unstable",
    "compile_error",
    "build_timeout",
    "load_error",
    "runtime_error",
    "timeout",
    "out_of_memory",
    "crashed",
    "compiled",
    "interpreted",
    "reference_error",
    "reference_unsupported_in_precision",
    "skipped_oom_reference",
    "problem_unsound",
]
ON_THE_PROBLEM: frozenset[str] = frozenset(
    {"reference_error", "reference_unsupported_in_precision", "skipped_oom_reference", "problem_unsound"}
)
"""Statuses on the problem's account: never charged to the candidate."""

Target = Literal["cpu", "cuda"]
Purpose = Literal["screen", "promote", "final"]
Lane = Literal["fp32", "tf32", "fp16", "bf16"]
LANES: tuple[Lane, ...] = ("fp32", "tf32", "fp16", "bf16")
"""Precision lanes, strictest first."""
LANES_ON: dict[Target, tuple[Lane, ...]] = {"cpu": ("fp32", "fp16", "bf16"), "cuda": LANES}
"""Those that a target computes in: TF32 is a mode of NVIDIA's tensor cores."""
Isolation = Literal["jail", "none"]
Contract = Literal["names", "kernelbench"]
"""How a candidate comes by the reference's weights: ``names``, loaded by name and replaced between rounds; or
``kernelbench``, drawn in the order of construction from a seed set before each constructor, a new one each round."""


class EvaluatorError(Exception):
    """Our failure or the user's bad input, never a candidate's: those are statuses."""


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Limits(Frozen):
    """Caps on one evaluation. A candidate that reaches one ends with the status named."""

    build_seconds: float = 120.0
    """``build_timeout``"""
    load_seconds: float = 60.0
    """import, constructor and first weights: ``timeout``"""
    first_call_seconds: float = 60.0
    """each of the checked, untimed calls (JIT, autotune): ``timeout``"""
    call_seconds: float = 20.0
    """each timed call: ``timeout``"""
    search_seconds: float = 8.0
    """timed part of a screening evaluation"""
    confirm_seconds: float = 60.0
    """timed part of a promotion or final evaluation"""
    memory_bytes: int = 12 << 30
    processes: int = 256
    file_bytes: int = 1 << 30
    scratch_bytes: int = 1 << 30


def lane_on(target: Target, lane: Lane) -> Lane:
    """The loosest lane that ``target`` computes in and that is no looser than ``lane``."""
    allowed = LANES[: LANES.index(lane) + 1]
    return [known for known in LANES_ON[target] if known in allowed][-1]


def reference_candidate(problem: Problem) -> str:
    """The problem's own model as a candidate: judging it is an A/A, and says what eager takes."""
    return f"{problem.source}\n\nModelNew = Model\n"


class EvaluationSpec(Frozen):
    """One request to judge ``source`` against ``problem``."""

    problem: Problem
    source: str
    target: Target = "cpu"
    profile: str | None = None
    """GPU profile id for ``cuda`` on a host without one; ignored on ``cpu``."""
    purpose: Purpose = "screen"
    incumbent: str | None = None
    """Source of the best so far, for ``promote``: judged in the same rounds."""
    lane: Lane = "fp32"
    """Loosest precision lane in which the candidate may be called correct. On a target that does not compute in it,
    the next stricter one counts, with the flag ``lane_not_applicable``."""
    contract: Contract = "names"
    unsound: Literal["refuse", "flag"] = "refuse"
    """What to do with a problem that takes an answer nobody computed for right: ``problem_unsound``, or a flag."""
    isolation: Isolation = "jail"
    limits: Limits = Limits()

    @property
    def lane_here(self) -> Lane:
        """The one that decides."""
        return lane_on(self.target, self.lane)

    @property
    def source_sha(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def sha256(self) -> str:
        """Identity of the request: the same source under the same conditions."""
        return hashlib.sha256((PROTOCOL_VERSION + self.model_dump_json()).encode()).hexdigest()


class GateResult(Frozen):
    """One gate's opinion of the outputs. ``rms`` and ``tail`` are R and M of the gate (see ``evaluator.gate``)."""

    gate: str
    """``honest`` with its lane, or a paper's gate by name."""
    lane: Lane | None = None
    applicable: bool = True
    """False: the target does not compute in this lane, so that nothing was decided in it."""
    passed: bool
    rms: float | None = None
    rms_bound: float | None = None
    tail: float | None = None
    tail_bound: float | None = None
    pass_share: float | None = None
    """Share of elements within tolerance, for the papers' gates."""


class Control(Frozen):
    """An A/A run: the reference against itself in two processes."""

    ratio: float
    half_width: float
    """Half-width of the 95% interval of ln(ratio)."""
    quiet: bool
    between_process_sd: float
    """Standard deviation of ln(ratio) between process instances on this machine."""
    age_seconds: float = 0.0


class Evidence(Frozen):
    """What the judge saw; enough for a stranger to doubt the verdict."""

    protocol_version: str = PROTOCOL_VERSION
    isolation: str
    """Jail level achieved: ``uid+bubblewrap``, ``bubblewrap``, or ``none``."""
    rounds: int = 0
    pairs: int = 0
    dropped_pairs: int = 0
    instances: int = 0
    round_log_ratios: tuple[float, ...] = ()
    """m_r of each round: median over the round's pairs of ln(t_ref / t_cand)."""
    checked_outputs: int = 0
    null_call_ms: float | None = None
    """5th percentile of a worker that only writes an output of this shape."""
    reference_drift: float | None = None
    """Relative change of the reference's time against its time with no candidate alive."""
    idle_cpu_share: float | None = None
    """CPU used by the stopped side over the other side's time on the clock."""
    control: Control | None = None
    threads: int = 0
    torch_version: str = ""
    log: str = ""
    """Tail of what the candidate printed: untrusted text, control characters stripped."""


class Build(Frozen):
    """How the candidate was built."""

    seconds: float
    cached: bool
    log: str = ""
    artifacts: int = 0


class PhaseSeconds(Frozen):
    """Wall seconds per phase, queue excluded."""

    build: float = 0.0
    control: float = 0.0
    prepare: float = 0.0
    measure: float = 0.0
    calls: float = 0.0
    """Of ``measure``: the calls of all sides, from writing their inputs to reading their answers; the rest is
    drawing, checking and processes."""
    total: float = 0.0
    queue: float = 0.0


class Evaluation(Frozen):
    """A verdict. A speedup exists only when the status is ``correct``; then low <= speedup <= high."""

    status: Status
    reason: str
    """One or two sentences for the author: what was seen and what to do about it."""
    source_sha: str
    problem_sha: str
    purpose: Purpose
    target: Target
    gpu: str = ""
    """Device the numbers belong to: a GPU's name, or the CPU's."""
    isolation: str
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_net: float | None = None
    """The ratio with the null worker's 5th percentile subtracted from both sides."""
    speedup_compile: float | None = None
    """torch.compile's time over the candidate's, where a baseline was at hand (see ``evaluator.baselines``)."""
    speedup_compile_low: float | None = None
    speedup_compile_high: float | None = None
    speedup_lane: float | None = None
    """The same over eager in the lower precision of the lane that was passed."""
    speedup_lane_low: float | None = None
    speedup_lane_high: float | None = None
    reference_ms: float | None = None
    candidate_ms: float | None = None
    gain: float | None = None
    """``promote``: incumbent time over challenger time, minus 1."""
    gain_low: float | None = None
    """One-sided 99.75% lower bound of the gain."""
    accepted: bool | None = None
    """``promote``: the challenger is the new best."""
    soundness: Literal["sound", "repaired", "unsound", "too_large"] | None = None
    """Whether the problem can tell right from wrong, where it was probed (``evaluator.soundness``)."""
    gate: str = "honest"
    lane: Lane | None = None
    """Strictest lane passed."""
    gates: tuple[GateResult, ...] = ()
    flags: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """Build or runtime errors, most useful first; untrusted text."""
    build: Build | None = None
    seconds: PhaseSeconds = PhaseSeconds()
    evidence: Evidence

    @model_validator(mode="after")
    def _a_speedup_needs_a_verdict(self) -> Self:
        low, middle, high = self.speedup_low, self.speedup, self.speedup_high
        if self.status == "correct":
            if low is None or middle is None or high is None:
                raise ValueError("a correct evaluation carries speedup, speedup_low and speedup_high")
            if not low <= middle <= high:
                raise ValueError("speedup lies outside its own interval")
        elif not (low is middle is high is None):
            raise ValueError(f"status {self.status} carries no speedup")
        beside = {
            "torch.compile": (self.speedup_compile_low, self.speedup_compile, self.speedup_compile_high),
            "eager in the lane's precision": (self.speedup_lane_low, self.speedup_lane, self.speedup_lane_high),
        }
        for what, (low, middle, high) in beside.items():
            if low is middle is high is None:
                continue
            if self.status != "correct":
                raise ValueError(f"status {self.status} carries no speedup over {what}")
            if low is None or middle is None or high is None:
                raise ValueError(f"a speedup over {what} comes with both ends of its interval")
            if not low <= middle <= high:
                raise ValueError(f"the speedup over {what} lies outside its own interval")
        return self
