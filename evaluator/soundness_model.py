"""What is found out about a problem: can it tell a right answer from a wrong one?

Frozen pydantic models, without torch. R and M are the gate's norms (see ``evaluator.gate``), unitless, in units of an
output's scale. ``_bytes`` bytes, ``_seconds`` seconds.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from evaluator.model import LANES, PROTOCOL_VERSION, Lane
from problems.model import Problem, SizeOverride

SOUNDNESS_VERSION = "2"
"""Raised whenever the same problem may get another report."""

Soundness = Literal["sound", "repaired", "unsound", "too_large"]
Conditions = Literal["judged", "initialised", "he weights", "eval mode", "larger batch"]
"""``judged``: parameters drawn as the judge draws them. ``initialised``: as the problem makes them. The others are the
repairs, in the order in which they are tried."""
REPAIRS: tuple[Conditions, ...] = ("he weights", "eval mode", "larger batch")
CONSTANT_R = 1e-7
"""Where rounding alone leaves this, the output does not depend on the input."""


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")


class Estimate(Frozen):
    """What one run of the model takes, counted on tensors without storage; nothing is computed."""

    parameter_bytes: int
    input_bytes: int
    output_bytes: int
    peak_bytes: int
    """Largest sum of intermediate results alive at once, in float32."""
    total_bytes: int
    """Sum of all of them: what a gradient has to keep."""
    flops: int
    operations: int
    exact: bool = True
    """False: counting ended early, when it was clear that this does not fit."""

    @property
    def needed_bytes(self) -> int:
        """To probe: the model in float32, in float64 and once more while it is drawn anew; three inputs with their
        answers in both precisions; one run in float64."""
        return 4 * self.parameter_bytes + 6 * self.input_bytes + 12 * self.output_bytes + 2 * self.peak_bytes


class PaperShare(Frozen):
    """Share of elements within the tolerance of a paper's gate; 1 is accepted."""

    gate: str
    share: float


class Null(Frozen):
    """An answer that did not come from the input, as the gate sees it."""

    name: str
    """``zeros``, ``batch mean``, ``input mean``, ``constant``, ``replay`` or ``identity``"""
    output: int
    """The output it was tried on, the others being right; of several, the one where it came nearest."""
    rms: float
    tail: float
    lane: Lane | None
    """Strictest lane of the gate that takes it for right; None: every lane refuses it."""
    papers: tuple[PaperShare, ...]

    def fools(self, lane: Lane) -> bool:
        """Whether it is called correct when ``lane`` is the loosest allowed."""
        return self.lane is not None and LANES.index(self.lane) <= LANES.index(lane)


class Range(Frozen):
    """Finite magnitudes of the outputs (float64) and of what modules return."""

    largest: float
    smallest: float
    """Smallest that is not zero."""
    zeros: float
    """Share of zeros."""
    nan: bool
    infinite: bool
    largest_inside: float
    """Largest magnitude that a submodule returned, in float32."""

    @property
    def overflows_half(self) -> bool:
        return max(self.largest, self.largest_inside) > 65504.0


class Behaviour(Frozen):
    """What forward does beside computing."""

    draws_random: bool
    """The global generator moved."""
    random_rms: float
    """R between two calls that differ by the global seed alone."""
    random_passes: bool
    """The gate would not notice that."""
    state_rms: float
    """R between two calls with the same input and seed, another call in between."""
    state_passes: bool
    changed: tuple[str, ...]
    """Buffers, parameters and attributes of modules that a call changed."""
    changes_inputs: bool


class Trial(Frozen):
    """One problem under one set of conditions."""

    conditions: Conditions
    input_rms: float
    """R between answers to two inputs; of several outputs, the one that moves least."""
    nulls: tuple[Null, ...]
    eager_rms: float
    eager_tail: float
    finite: bool
    """float32 is finite exactly where float64 is."""
    noise_rms: float
    """R of the float64 answer under one ulp (float32) of input noise."""
    noise_tail: float
    chaotic: bool
    """Rounding decides the output: one of these two errors is beyond ``gate.CHAOTIC_R``."""
    rms_bound: float
    """What the gate allows in the lane asked about, and for ``tail`` likewise."""
    tail_bound: float
    float64: bool
    """False: the model does not run in float64, so float32 had to serve as the reference."""
    range: Range
    behaviour: Behaviour

    def faults(self, lane: Lane) -> tuple[str, ...]:
        """Why a verdict on a candidate would mean nothing under these conditions; empty: it means something."""
        found = []
        fooled = [null for null in self.nulls if null.fools(lane)]
        if fooled:
            names = ", ".join(dict.fromkeys(n.name for n in fooled))
            ignored = "the output does not depend on the input: " if self.input_rms <= CONSTANT_R else ""
            nearest = min(n.rms for n in fooled)
            found.append(f"{ignored}answers that ignore the input pass ({names}; R {nearest:.1e})")
        steady = self.behaviour.state_passes
        if self.chaotic and steady and not self.behaviour.draws_random:
            found.append(
                f"chaotic: rounding decides the output (float32 against float64 R {self.eager_rms:.1e}, "
                f"one ulp of input noise R {self.noise_rms:.1e})"
            )
        if self.range.nan:
            found.append("the output holds NaN")
        if not self.finite:
            found.append("float32 overflows where float64 does not")
        if not self.behaviour.random_passes:
            found.append(f"random: the global seed moves the output by R {self.behaviour.random_rms:.1e}")
        if not steady:
            found.append(
                f"stateful: the same call answers differently after another (R {self.behaviour.state_rms:.1e}"
                + (f"; changed: {', '.join(self.behaviour.changed[:4])})" if self.behaviour.changed else ")")
            )
        return tuple(found)


class Ablation(Frozen):
    """A part of the model, changed alone."""

    name: str
    change: Literal["redrawn", "bypassed", "zeroed"]
    rms: float
    tail: float
    noticed: bool


class Reduction(Frozen):
    """A size constant that was lowered so that the probe fits."""

    name: str
    was: int
    now: int


class Assignment(Frozen):
    """What the jailed prober is told."""

    problem: Problem
    lane: Lane
    threads: int
    seconds: float
    """Planned wall time; the parent ends the process a good while later."""
    memory_bytes: int
    seed: int


class Findings(Frozen):
    """What the jailed prober reports: numbers, no verdict. Its texts are untrusted."""

    sizes: tuple[SizeOverride, ...] = ()
    """Overrides on top of the problem's own, with which everything was found."""
    full: Estimate | None = None
    """At the problem's own sizes; None: it could not be counted without running it."""
    estimate: Estimate | None = None
    """At the sizes probed."""
    too_large: str = ""
    """What does not fit, against what."""
    error: str = ""
    """The problem does not run; everything below is empty."""
    trials: tuple[Trial, ...] = ()
    ablations: tuple[Ablation, ...] = ()
    """Weakest influence on the outputs first, by the gradient."""
    not_reached: int = 0
    """Ablations for which there was no time: those of greater influence."""
    untried: tuple[str, ...] = ()
    """Repairs that were not tried, each with the reason."""
    cpu_seconds: float = 0.0


class SoundnessReport(Frozen):
    """The verdict on a problem, with every number it rests on. Holds at ``sizes`` only."""

    problem: str
    problem_sha: str
    protocol_version: str = PROTOCOL_VERSION
    soundness_version: str = SOUNDNESS_VERSION
    lane: Lane
    """The gate in use: the loosest lane in which a candidate could be called correct."""
    verdict: Soundness
    repair: Conditions | None = None
    """``repaired``: the conditions under which the problem is sound."""
    reasons: tuple[str, ...] = ()
    """Why it is not sound as it is."""
    notes: tuple[str, ...] = ()
    """What a reader should know of a sound one too."""
    sizes: tuple[SizeOverride, ...]
    """Every size constant, with the value that all this was found at."""
    reduced: tuple[Reduction, ...] = ()
    findings: Findings
    memory_bytes: int
    """What the probe was allowed."""
    isolation: str
    seconds: float

    @property
    def unnoticed(self) -> tuple[str, ...]:
        """Parts whose change the gate does not see: dead code, or as good as dead."""
        return tuple(dict.fromkeys(a.name for a in self.findings.ablations if not a.noticed))
