"""A verdict for people: what it is, the numbers, and what they rest on, in a few lines."""

from __future__ import annotations

from collections.abc import Sequence

from evaluator.model import Evaluation, GateResult

ERROR_LINES = 20


def verdict_text(verdict: Evaluation, problem_id: str, uncompared: Sequence[tuple[str, str]] = ()) -> str:
    """Plain text that still holds what a candidate printed: clean it for the terminal.

    ``uncompared`` are baselines, by name, that there is no speedup over, and why.
    """
    lines = [f"{verdict.status}: {verdict.reason}"]
    rows = [("problem", f"{problem_id} ({verdict.problem_sha[:12]}) on {verdict.gpu or verdict.target}")]
    if verdict.speedup is not None:
        rows.append(("speedup", _speedup(verdict)))
    if verdict.speedup_compile is not None:
        low, high = verdict.speedup_compile_low, verdict.speedup_compile_high
        rows.append(("beside", f"{verdict.speedup_compile:.3f}× over torch.compile (95%: {low:.3f} to {high:.3f})"))
    if verdict.speedup_lane is not None:
        low, high = verdict.speedup_lane_low, verdict.speedup_lane_high
        over = f"{verdict.speedup_lane:.3f}× over eager in {verdict.lane}"
        rows.append(("beside", f"{over} (95%: {low:.3f} to {high:.3f})"))
    rows += [("beside", f"{name}: {reason}") for name, reason in uncompared]
    if verdict.reference_ms is not None and verdict.candidate_ms is not None:
        rows.append(("times", f"eager {verdict.reference_ms:.4g} ms, candidate {verdict.candidate_ms:.4g} ms"))
    if verdict.gates:
        rows.append(("lane", verdict.lane or "none passed"))
        rows.append(("gates", ", ".join(_gate(gate) for gate in verdict.gates)))
    rows.append(("soundness", verdict.soundness or f"not probed (kernel-agent problems probe {problem_id})"))
    if verdict.flags:
        rows.append(("flags", ", ".join(verdict.flags)))
    rows.append(("evidence", _evidence(verdict)))
    if verdict.evidence.control is not None:
        control = verdict.evidence.control
        state = "quiet" if control.quiet else "not quiet: expect wide intervals"
        rows.append(("control", f"reference against itself {control.ratio:.3f} ± {control.half_width:.1%}, {state}"))
    rows.append(("seconds", _seconds(verdict)))
    lines += [f"{name:<10}{value}" for name, value in rows]
    for error in verdict.errors:
        if error.strip() not in verdict.reason:
            lines += ["", *error.strip().splitlines()[:ERROR_LINES]]
    return "\n".join(lines)


def _speedup(verdict: Evaluation) -> str:
    text = f"{verdict.speedup:.3f}× (95%: {verdict.speedup_low:.3f} to {verdict.speedup_high:.3f})"
    return text if verdict.speedup_net is None else f"{text}, {verdict.speedup_net:.3f}× net of call overhead"


def _gate(gate: GateResult) -> str:
    name = gate.gate if gate.lane is None else f"{gate.gate} {gate.lane}"
    return f"{name} {'passed' if gate.passed else 'failed' if gate.applicable else 'not applicable'}"


def _evidence(verdict: Evaluation) -> str:
    seen = verdict.evidence
    parts = [f"jail {seen.isolation}", f"protocol {seen.protocol_version}", f"{seen.threads} threads"]
    if seen.rounds:
        parts.append(
            f"{seen.rounds} rounds of {seen.pairs} pairs in {seen.instances} process pairs, "
            f"{seen.dropped_pairs} pairs dropped, {seen.checked_outputs} outputs checked"
        )
    if seen.reference_drift is not None:
        parts.append(f"reference drift {seen.reference_drift:+.1%}")
    return ", ".join(parts)


def _seconds(verdict: Evaluation) -> str:
    spent = verdict.seconds
    phases = ((name, getattr(spent, name)) for name in ("queue", "build", "control", "prepare", "measure"))
    cached = " (build cached)" if verdict.build is not None and verdict.build.cached else ""
    return ", ".join(f"{name} {value:.1f}" for name, value in (*phases, ("total", spent.total)) if value) + cached
