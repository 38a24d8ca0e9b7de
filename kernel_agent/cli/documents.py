"""What ``--json`` prints where no model of the packages says it already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evaluator.soundness_model import SoundnessReport
from gpu_profiles.model import Device, GpuProfile
from kernel_agent.doctor import Check, Probe
from kernel_agent.model import Campaign, Frozen, Session
from problems.model import Origin, Problem, SizeOverride
from problems.sizes import constants

if TYPE_CHECKING:
    from kernel_agent.report import Report


class ProblemDocument(Frozen):
    """A problem without its source."""

    id: str
    title: str
    origin: Origin
    sha256: str
    constants: tuple[SizeOverride, ...]
    """Size constants with the values in effect."""
    overrides: tuple[SizeOverride, ...]

    @classmethod
    def of(cls, problem: Problem) -> ProblemDocument:
        return cls(
            id=problem.id,
            title=problem.title,
            origin=problem.origin,
            sha256=problem.sha256,
            constants=constants(problem.source, problem.id),
            overrides=problem.overrides,
        )


class ProblemsDocument(Frozen):
    problems: tuple[ProblemDocument, ...]


class ProblemSourceDocument(Frozen):
    problem: ProblemDocument
    source: str


class SoundnessDocument(Frozen):
    reports: tuple[SoundnessReport, ...]


class GpusDocument(Frozen):
    devices: tuple[Device, ...]
    reason: str
    """Why there are none."""
    profiles: tuple[GpuProfile, ...]


class CampaignsDocument(Frozen):
    campaigns: tuple[Campaign, ...]


class StatusDocument(Frozen):
    campaign: Campaign
    sessions: tuple[Session, ...]


class DemoProblem(Frozen):
    problem: str
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    statuses: dict[str, int]
    steps: int
    candidates: int
    compactions: int
    tokens: int
    cost_usd: float


class DemoDocument(Frozen):
    problems: tuple[DemoProblem, ...]
    export: Path
    seconds: float
    """Wall time of the whole demo."""

    @classmethod
    def of(cls, report: Report, export: Path, seconds: float) -> DemoDocument:
        problems = tuple(
            DemoProblem.model_validate(p.model_dump(include=set(DemoProblem.model_fields))) for p in report.problems
        )
        return cls(problems=problems, export=export, seconds=seconds)


class DoctorDocument(Frozen):
    checks: tuple[Check, ...]
    healthy: bool
    model: Probe | None
    """What the model said, when one was asked."""
