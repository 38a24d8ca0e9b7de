"""The jailed side of a probe: runs the problem's code, measures it, reports numbers. It gives no verdict.

    python -I prober.py FD

The numbers are computed here, by the judge's own formulas (``evaluator.gate``), and not by the parent from tensors
sent to it: the outputs are the problem's own word in either case, so that a hostile problem lies about nothing but
itself, and hundreds of ablations need not be copied. The parent checks the report's form and decides.

Life: send ``r`` once torch is imported, receive an ``Assignment`` and a buffer (as in ``evaluator.channel``), write
``Findings`` into the buffer, answer ``d``.
"""

from __future__ import annotations

import gc
import json
import mmap
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = str(Path(__file__).resolve().parents[2])
if __name__ == "__main__":
    sys.path.insert(0, PACKAGES)  # an isolated interpreter knows installed packages alone

import torch  # noqa: E402

from evaluator.probing.ablation import Ablations  # noqa: E402
from evaluator.probing.clock import Clock  # noqa: E402
from evaluator.probing.estimate import estimate  # noqa: E402
from evaluator.probing.ladder import ladder, larger_batch  # noqa: E402
from evaluator.probing.subject import Subject  # noqa: E402
from evaluator.probing.trial import trial  # noqa: E402
from evaluator.soundness_model import REPAIRS, Assignment, Conditions, Estimate, Findings  # noqa: E402
from evaluator.worker import Failure, classify, read_text, set_precision  # noqa: E402
from problems.model import SizeOverride  # noqa: E402
from problems.sizes import override  # noqa: E402

Rung = tuple[SizeOverride, ...]

RUNS = 100
"""Runs of the model (float32, forward) that a probe's time is planned for."""
PATIENCE = 5
"""Times as long as planned that a run may take where nothing smaller is to be had."""
FLOPS_PER_SECOND, BYTES_PER_SECOND, OPERATION_SECONDS = 25e9, 1.5e9, 15e-6
"""What one thread does, cautiously: float32 products, traffic of eager operations, and the cost of each."""
COMPARED_BYTES_PER_SECOND = 1e8
"""What it compares, of float32 outputs, including the papers' gates: about once per run."""
REPAIR_SHARE, ABLATION_SHARE = 1.0, 0.8
"""Of a probe's time: no repair begins later, and no ablation."""


class Prober:
    """One probe of one problem."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment, self.problem = assignment, assignment.problem
        self.clock = Clock(assignment.threads)
        self.planned_seconds = assignment.seconds / RUNS
        self.rng = torch.Generator().manual_seed(assignment.seed)

    def findings(self) -> Findings:
        counted = list(self._counted())
        full = next((e for rung, e in counted if not rung), None)
        known = [(rung, e) for rung, e in counted if e is not None]
        fitting = [(rung, e) for rung, e in known if self._lacks(e, PATIENCE) == ""]
        if known and not fitting:
            rung, smallest = known[-1]
            return Findings(sizes=rung, full=full, estimate=smallest, too_large=self._lacks(smallest, PATIENCE))
        # The first that fits is the last that was counted. What cannot be counted is tried from its smallest size on.
        order: list[tuple[Rung, Estimate | None]] = [*fitting[-1:]] if known else counted[::-1]
        failure: BaseException | None = None
        for rung, e in order:
            try:
                return self._measured(rung, full, e)
            except (Exception, SystemExit) as error:
                failure = error
                gc.collect()
        return self._failed(failure, full)

    def _failed(self, failure: BaseException | None, full: Estimate | None) -> Findings:
        text = failure.message if isinstance(failure, Failure) else f"{type(failure).__name__}: {failure}"
        if failure is not None and classify(failure) == "out_of_memory":
            return Findings(full=full, too_large=f"it ran out of the {self.assignment.memory_bytes} bytes allowed")
        return Findings(full=full, error=text[:1000])

    # -- sizes --------------------------------------------------------------------------------------------------

    def _counted(self) -> Iterator[tuple[Rung, Estimate | None]]:
        """Every rung with its estimate until one fits; None for one that cannot be counted."""
        for rung in ladder(self.problem):
            counted = self._count(rung)
            yield rung, counted
            if counted is not None and self._lacks(counted, 1) == "":
                return

    def _count(self, rung: Rung) -> Estimate | None:
        source = override(self.problem.source, rung)
        try:
            return estimate(source, PATIENCE * self.planned_seconds, self._seconds)
        except (Exception, SystemExit):
            return None

    def _seconds(self, e: Estimate) -> float:
        work = e.flops / FLOPS_PER_SECOND + e.total_bytes / BYTES_PER_SECOND
        work += e.output_bytes / COMPARED_BYTES_PER_SECOND
        return work / self.assignment.threads + e.operations * OPERATION_SECONDS

    def _lacks(self, e: Estimate, patience: float) -> str:
        """What does not fit, against what; empty when it does."""
        if e.needed_bytes > self.assignment.memory_bytes:
            return f"it needs {e.needed_bytes} bytes to probe, of {self.assignment.memory_bytes} allowed"
        seconds, most = self._seconds(e), patience * self.planned_seconds
        if seconds > most or not e.exact:
            at_least = "" if e.exact else "at least "
            return f"one run takes {at_least}{seconds:.1f} s here, of {most:.1f} s allowed"
        return ""

    # -- measuring ----------------------------------------------------------------------------------------------

    def _measured(self, rung: Rung, full: Estimate | None, counted: Estimate | None) -> Findings:
        source, lane = override(self.problem.source, rung), self.assignment.lane
        subject = Subject(source, "initialised", self.rng)
        first, _ = trial(subject, lane)
        subject.draw_weights("judged")
        judged, yardstick = trial(subject, lane)
        trials = [first, judged]
        untried: list[str] = []
        for repair in REPAIRS:
            if not trials[-1].faults(lane):
                break
            reason, repaired = self._repair_source(repair, rung)
            if reason:
                untried.append(f"{repair}: {reason}")
                continue
            del subject
            gc.collect()
            subject = Subject(repaired, repair, self.rng)
            repeated, yardstick = trial(subject, lane)
            trials.append(repeated)
        looked: Ablations | None = None
        if not trials[-1].faults(lane):
            looked = Ablations(subject, lane, yardstick, self.clock, ABLATION_SHARE * self.assignment.seconds)
            room = self.assignment.memory_bytes - (counted.needed_bytes if counted else 0)
            looked.run(gradient=counted is not None and counted.total_bytes < room)
        return Findings(
            sizes=rung,
            full=full,
            estimate=counted,
            trials=tuple(trials),
            ablations=tuple(looked.found) if looked else (),
            not_reached=looked.not_reached if looked else 0,
            untried=tuple(untried),
            cpu_seconds=self.clock.cpu_seconds(),
        )

    def _repair_source(self, repair: Conditions, rung: Rung) -> tuple[str, str]:
        """Why the repair cannot be tried, or nothing and the source to try it with."""
        if self.clock.seconds() > REPAIR_SHARE * self.assignment.seconds:
            return "no time was left", ""
        if repair != "larger batch":
            return "", override(self.problem.source, rung)
        larger = larger_batch(self.problem, rung)
        if larger is None:
            return "no constant of the problem is a batch size that could grow", ""
        counted = self._count(larger)
        reason = "" if counted is None else self._lacks(counted, PATIENCE)
        return reason, override(self.problem.source, larger)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.send(b"r")
    _, fds, _, _ = socket.recv_fds(control, 4, 8)
    assignment = Assignment.model_validate(json.loads(read_text(fds[0])))
    torch.set_num_threads(assignment.threads)
    set_precision("ieee")
    text = Prober(assignment).findings().model_dump_json().encode()
    out = mmap.mmap(fds[2], 0)
    out[: len(text)] = text
    control.send(b"d")


if __name__ == "__main__":
    main()
