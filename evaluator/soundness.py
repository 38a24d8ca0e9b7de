"""Is a problem able to tell right from wrong? Verdicts on problems, kept by the content they were found for.

Imports no torch: a verdict that is in the cache costs a file.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from pathlib import Path

from pydantic import ValidationError

from evaluator.keeping import keep
from evaluator.model import PROTOCOL_VERSION, EvaluatorError, Isolation, Lane
from evaluator.processes import usable_cores
from evaluator.soundness_model import (
    SOUNDNESS_VERSION,
    Assignment,
    Findings,
    Reduction,
    Soundness,
    SoundnessReport,
    Trial,
)
from problems.model import Problem
from problems.sizes import constants

SECONDS = 50.0
"""Planned for one problem on a machine of its own; PATIENCE times that before it is given up."""
PATIENCE = 6.0
MEMORY_SHARE = 0.6
MOST_MEMORY_BYTES = 12 << 30
SHOWN = 8
"""Names in one sentence."""


def cached(problem: Problem, folder: Path, lane: Lane = "fp32") -> SoundnessReport | None:
    """The report kept in ``folder`` for this very source (sizes included) and protocol; None when there is none."""
    try:
        report = SoundnessReport.model_validate_json(_path(problem, folder, lane).read_bytes())
    except (OSError, ValidationError):
        return None
    wanted = (problem.sha256, lane, PROTOCOL_VERSION, SOUNDNESS_VERSION)
    found = (report.problem_sha, report.lane, report.protocol_version, report.soundness_version)
    return report.model_copy(update={"problem": problem.id}) if found == wanted else None


def probe(
    problem: Problem,
    folder: Path,
    *,
    lane: Lane = "fp32",
    isolation: Isolation = "jail",
    again: bool = False,
    seconds: float = SECONDS,
    memory_bytes: int | None = None,
) -> SoundnessReport:
    """The cached report, or a new one, which is kept in ``folder``. Waits for the device: it is heavy work.

    ``memory_bytes``: what the problem may take; by default 60% of what the machine has to spare, 12 GiB at most.
    Raises EvaluatorError when there is no jail, or when the folder cannot be written.
    """
    known = None if again else cached(problem, folder, lane)
    if known is not None:
        return known
    from evaluator.lease import device_lease
    from evaluator.probing import jail
    from evaluator.sandbox import require

    level = require(isolation)
    with device_lease("cpu"):
        started = time.monotonic()
        allowed = memory_bytes or min(MOST_MEMORY_BYTES, jail.memory_bytes(MEMORY_SHARE))
        assignment = Assignment(
            problem=problem,
            lane=lane,
            threads=usable_cores(),
            seconds=seconds,
            memory_bytes=allowed,
            seed=secrets.randbits(62),
        )
        findings = jail.run(assignment, level, PATIENCE * seconds)
        spent = time.monotonic() - started
    report = judged(problem, findings, lane, allowed, level, spent)
    _keep(report, _path(problem, folder, lane))
    return report


def judged(
    problem: Problem, findings: Findings, lane: Lane, memory_bytes: int, isolation: str, seconds: float
) -> SoundnessReport:
    """The verdict that ``findings`` justify."""
    lowered = {o.name: o.value for o in findings.sizes}
    present = constants(problem.source, problem.id)
    trial = next((t for t in findings.trials if t.conditions == "judged"), None)
    verdict, repair, reasons = _verdict(findings, trial, lane)
    return SoundnessReport(
        problem=problem.id,
        problem_sha=problem.sha256,
        lane=lane,
        verdict=verdict,
        repair=repair.conditions if repair else None,
        reasons=reasons,
        notes=_notes(findings, repair or trial, lane),
        sizes=tuple(c.model_copy(update={"value": lowered.get(c.name, c.value)}) for c in present),
        reduced=tuple(
            Reduction(name=c.name, was=int(c.value), now=int(lowered[c.name])) for c in present if c.name in lowered
        ),
        findings=findings,
        memory_bytes=memory_bytes,
        isolation=isolation,
        seconds=seconds,
    )


def _verdict(findings: Findings, trial: Trial | None, lane: Lane) -> tuple[Soundness, Trial | None, tuple[str, ...]]:
    if findings.too_large:
        return "too_large", None, (findings.too_large,)
    if findings.error or trial is None:
        return "unsound", None, (f"it does not run here: {findings.error or 'nothing was measured'}",)
    reasons = trial.faults(lane)
    if not reasons:
        return "sound", None, ()
    repair = next((t for t in findings.trials if t.conditions != "initialised" and not t.faults(lane)), None)
    return ("repaired", repair, reasons) if repair else ("unsound", None, reasons)


def _notes(findings: Findings, trial: Trial | None, lane: Lane) -> tuple[str, ...]:
    """``trial``: the one that the verdict rests on."""
    if trial is None:
        return ()
    notes = []
    initialised = next((t for t in findings.trials if t.conditions == "initialised"), None)
    as_made = initialised.faults(lane) if initialised else ()
    if as_made and not trial.faults(lane):
        notes.append("with its own initial weights: " + "; ".join(as_made))
    looser = sorted({n.lane for n in trial.nulls if n.lane and not n.fools(lane)}, key=str)
    if looser:
        notes.append(f"answers that ignore the input pass in looser lanes: {', '.join(looser)}")
    papers = sorted({p.gate for n in trial.nulls for p in n.papers if p.share >= 1})
    if papers:
        notes.append(f"answers that ignore the input pass the papers' gates {', '.join(papers)}")
    unnoticed = list(dict.fromkeys(a.name for a in findings.ablations if not a.noticed))
    if unnoticed:
        more = f" and {len(unnoticed) - SHOWN} more" if len(unnoticed) > SHOWN else ""
        notes.append(f"no effect on the output: {', '.join(unnoticed[:SHOWN])}{more}")
    if findings.not_reached:
        notes.append(f"{findings.not_reached} parts of greater influence were not tried, for want of time")
    if trial.range.overflows_half:
        inside = max(trial.range.largest, trial.range.largest_inside)
        notes.append(f"values up to {inside:.1e} overflow half precision")
    did = trial.behaviour
    if did.draws_random and did.random_passes:
        notes.append("forward draws random numbers, which the gate does not notice in the output")
    if did.changed:
        more = f" and {len(did.changed) - SHOWN} more" if len(did.changed) > SHOWN else ""
        notes.append(f"forward changes {', '.join(did.changed[:SHOWN])}{more}")
    if did.changes_inputs:
        notes.append("forward changes its inputs")
    if not trial.float64:
        notes.append("it does not run in float64: float32 served as the reference")
    return (*notes, *(f"not tried: {reason}" for reason in findings.untried))


def _path(problem: Problem, folder: Path, lane: Lane) -> Path:
    key = "\n".join((problem.sha256, PROTOCOL_VERSION, SOUNDNESS_VERSION, lane))
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"


def _keep(report: SoundnessReport, path: Path) -> None:
    """Whole or not at all: another process may read it at the same moment."""
    try:
        keep(path, report.model_dump_json().encode())
    except OSError as error:
        raise EvaluatorError(f"cannot keep the report in {path.parent}: {error.strerror or error}") from error
