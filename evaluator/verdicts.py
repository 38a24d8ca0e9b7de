"""How an evaluation ends: every failure as a status with a reason for its author, and the evidence gathered so far."""

from __future__ import annotations

import ast
import time

import torch

from evaluator import timing
from evaluator.bench import Bench, ReferenceFailed
from evaluator.contest import Fault, Rounds
from evaluator.model import Build, EvaluationSpec, Evidence, PhaseSeconds, Status
from evaluator.workers import WorkerFailed


class Verdict(Exception):
    """Ends an evaluation early with a status."""

    def __init__(self, status: Status, reason: str, errors: tuple[str, ...] = (), build: Build | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.errors, self.build = status, reason, errors, build


class Progress:
    """What is known of one evaluation so far; becomes its evidence whether it ends well or not."""

    def __init__(self, spec: EvaluationSpec, level: str) -> None:
        self.spec, self.level = spec, level
        self.started = self._last = time.monotonic()
        self.phases: dict[str, float] = {}
        self.build: Build | None = None
        self.rounds: list[Rounds] = []
        self.bench: Bench | None = None
        self.flags: list[str] = []
        self.log = ""
        self.drift: float | None = None

    def phase(self, name: str) -> None:
        now = time.monotonic()
        self.phases[name] = self.phases.get(name, 0.0) + now - self._last
        self._last = now

    def seconds(self) -> PhaseSeconds:
        calls = sum(r.call_seconds for r in self.rounds)
        return PhaseSeconds(**self.phases, calls=calls, total=time.monotonic() - self.started)

    def evidence(self, threads: int) -> Evidence:
        logs = tuple(m for r in self.rounds for m in r.log_ratios(0, -1))
        return Evidence(
            isolation=self.level,
            rounds=sum(len(r.pairs) for r in self.rounds),
            pairs=sum(r.n_pairs for r in self.rounds),
            dropped_pairs=sum(r.dropped for r in self.rounds),
            instances=len(self.rounds),
            round_log_ratios=logs,
            checked_outputs=sum(r.checked for r in self.rounds),
            null_call_ms=self.bench.null_ms if self.bench else None,
            reference_drift=self.drift,
            idle_cpu_share=max((r.idle_share for r in self.rounds), default=None),
            control=self.bench.control if self.bench else None,
            threads=threads,
            torch_version=torch.__version__,
            log=self.log,
        )


def verdict_of(fault: Fault) -> Verdict:
    """A player's fault as a status. The reference's and the incumbent's faults are not the candidate's."""
    if fault.player.name == "reference":
        return Verdict("reference_error", f"the reference failed while it was measured: {fault.message}")
    if fault.player.name == "incumbent":
        return Verdict("unstable", f"the incumbent failed beside the challenger: {fault.message}")
    if fault.failure is None:
        advice = {
            "mutated_input": "; work on a copy instead",
            "background_work": "; finish all work and join your threads before forward returns",
        }.get(fault.kind, "")
        status: Status = fault.kind  # type: ignore[assignment]
        return Verdict(status, fault.message + advice)
    return worker_verdict(fault.failure, loading=fault.kind == "load")


def parse(source: str) -> None:
    """Refuse what is not Python at all, with its line, before a process is spent on it."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        text = (error.text or "").rstrip()
        raise Verdict(
            "compile_error", f"Python syntax error in line {error.lineno}: {error.msg}", (text,) if text else ()
        ) from None
    except ValueError as error:
        raise Verdict("compile_error", f"not Python source: {error}") from None
    except (MemoryError, RecursionError):
        raise Verdict("compile_error", "Python cannot parse this source: it is nested too deeply") from None


def worker_verdict(failure: WorkerFailed, *, loading: bool) -> Verdict:
    report = failure.report
    where = "while it was loaded (import, constructor, load_state_dict)" if loading else "in forward"
    errors = tuple(t for t in (report.message, report.detail) if t)
    if failure.outcome == "timeout":
        return Verdict("timeout", f"{report.message} {where}; everything it had started was ended", errors)
    if failure.outcome == "gone":
        return Verdict("crashed", f"{failure.exit_text} {where}; what it printed is no evidence", errors)
    if failure.outcome == "unstoppable":
        return Verdict(
            "background_work", f"{report.message}; start no processes or threads that outlive a call", errors
        )
    if report.kind in ("wrong_shape", "wrong_dtype", "out_of_memory", "compile_error"):
        status: Status = report.kind  # type: ignore[assignment]
        return Verdict(status, report.message, errors)
    if report.kind == "weights_not_transferable":
        return Verdict("weights_not_transferable", report.message, errors)
    return Verdict("load_error" if loading else "runtime_error", f"{report.message} ({where})", errors)


def reference_verdict(failed: ReferenceFailed) -> Verdict:
    failure = failed.failure
    report = failure.report
    errors = tuple(t for t in (report.message, report.detail) if t)
    status: Status = "skipped_oom_reference" if report.kind == "out_of_memory" else "reference_error"
    return Verdict(status, f"the problem's own model failed: {report.message or failure.exit_text}", errors)


def require_steady(now: timing.Estimate) -> None:
    if now.half_width > timing.UNSTABLE_HALF_WIDTH:
        raise Verdict(
            "unstable", f"the interval stayed at ±{now.half_width:.0%} after {now.rounds} rounds; evaluate again"
        )


def in_words(speedup: float, low: float, high: float, accepted: bool | None) -> str:
    side = "faster than" if low > 1 else "slower than" if high < 1 else "as fast as"
    text = f"correct, {side} eager: {speedup:.3f}x [{low:.3f}, {high:.3f}]"
    if accepted is False:
        text += "; not a new best: the gain over the best so far is not beyond doubt"
    return text
