"""A report on a problem's soundness for people."""

from __future__ import annotations

from evaluator.soundness_model import Estimate, SoundnessReport, Trial

WEAKEST = 5
"""Parts shown with their effect."""


def report_line(report: SoundnessReport) -> str:
    """One row of many: verdict, problem, and what there is to say of it."""
    repair = f" by {report.repair}" if report.repair else ""
    said = "; ".join((*report.reasons, *report.notes))
    at = ", ".join(f"{r.name}={r.now}" for r in report.reduced)
    return f"{report.verdict + repair:<24}{report.problem}{f' ({at})' if at else ''}{f': {said}' if said else ''}"


def report_text(report: SoundnessReport) -> str:
    """Plain text that still holds names from the problem: clean it for the terminal."""
    repair = f" by {report.repair}" if report.repair else ""
    lines = [f"{report.verdict}{repair}: {report.problem}", *(f"  because {reason}" for reason in report.reasons)]
    rows = [("sizes", ", ".join(f"{s.name}={s.value}" for s in report.sizes) or "no constants")]
    if report.reduced:
        rows.append(("reduced", ", ".join(f"{r.name} {r.was} to {r.now}" for r in report.reduced)))
    findings = report.findings
    if findings.estimate is not None:
        rows.append(("one run", _estimate(findings.estimate)))
    rows += [(trial.conditions, _trial(trial)) for trial in findings.trials]
    if findings.ablations:
        weakest = sorted(findings.ablations, key=lambda a: a.rms)[:WEAKEST]
        shown = ", ".join(f"{a.name} {a.change} R {a.rms:.1e}" for a in weakest)
        rows.append(("ablations", f"{len(findings.ablations)} tried, weakest: {shown}"))
    rows.append(("gate", f"lane {report.lane}, protocol {report.protocol_version}, jail {report.isolation}"))
    rows.append(("seconds", f"{report.seconds:.1f}, of the processor {report.findings.cpu_seconds:.1f}"))
    lines += [f"{name:<15}{value}" for name, value in rows]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines)


def _trial(trial: Trial) -> str:
    nulls = ", ".join(f"{n.name} {n.rms:.1e}" + (f" PASSES {n.lane}" if n.lane else "") for n in trial.nulls)
    return (
        f"R of nulls: {nulls}; bound {trial.rms_bound:.1e}, eager {trial.eager_rms:.1e}, "
        f"input noise {trial.noise_rms:.1e}; output {trial.range.smallest:.1e} to {trial.range.largest:.1e}"
    )


def _estimate(estimate: Estimate) -> str:
    return (
        f"{estimate.flops / 1e9:.3g} GFLOP, parameters {estimate.parameter_bytes} bytes, "
        f"needs {estimate.needed_bytes} bytes to probe"
    )
