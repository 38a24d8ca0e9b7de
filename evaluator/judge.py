"""The judge: one per device. Holds inputs, weights, clock, comparison and verdict; never imports candidate code."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

from evaluator import cgroup, gate, timing
from evaluator.bench import Bench, ReferenceFailed, reference_spec
from evaluator.builds import BuildCache, BuildFailed
from evaluator.contest import Contest, Fault, Player, Rounds
from evaluator.lease import device_lease
from evaluator.machine import Sweep, cpu_name, write_bandwidth_bytes_per_s
from evaluator.model import Evaluation, EvaluationSpec, Limits, reference_candidate
from evaluator.processes import usable_cores
from evaluator.sandbox import require
from evaluator.score import Ruler, log_ratios, score
from evaluator.verdicts import (
    Progress,
    Verdict,
    in_words,
    parse,
    reference_verdict,
    require_steady,
    verdict_of,
)
from evaluator.workers import Nursery, Worker, WorkerFailed

SPARES = 9
"""A build and a confirmation, begun at once; each takes a second to start and some 100 MB while it waits."""
INSTANCES, MOST_INSTANCES = 3, 6
"""Of every side when confirming; as many as it takes where the rounds disagree. What differs between processes needs
processes to average, not rounds: the more instances, the fewer A/A evaluations were more than 2% from 1."""
CONFIRM_ROUNDS, CONFIRM_PAIRS = 6, 4
VERDICTS_KEPT = 512
MAX_BENCHES = 2


class Side(NamedTuple):
    """Who takes part: the name, the module's text and the extensions built from it."""

    name: str
    source: str
    extensions: bytes | None = None


class Judge:
    """Judges CPU candidates on this host, one at a time. Close it: it owns processes."""

    def __init__(self, isolation: str, cache_dir: Path, threads: int | None = None) -> None:
        self.level = require(isolation)
        cgroup.sweep()
        self.threads = threads or usable_cores()
        torch.set_num_threads(self.threads)
        self.nursery = Nursery(self.level, self.threads, SPARES)
        self.builds = BuildCache(cache_dir, self.nursery)
        self.sweep = Sweep()
        self.benches: dict[object, Bench] = {}
        self.verdicts: dict[str, Evaluation] = {}
        self.random = random.SystemRandom()
        self._limits: Limits | None = None
        """Of the last request: the next one mostly has the same."""

    # -- the one entrance ---------------------------------------------------------------------------------------

    def evaluate(self, spec: EvaluationSpec) -> Evaluation:
        """Always a verdict; an exception is a failure of ours. The same request gets the same answer."""
        known = self.verdicts.get(spec.sha256)
        if known is not None:
            return known
        progress = Progress(spec, self.level)
        try:
            parse(spec.source)
            # A build is heavy work too, and on this target it would disturb whoever measures: it takes the lease.
            with device_lease("cpu"):
                progress.phase("queue")
                evaluation = self._evaluate(spec, progress)
        except Verdict as verdict:
            progress.build = verdict.build or progress.build
            evaluation = self._failed(spec, progress, verdict)
        except Fault as fault:  # in the control, which knows only the reference
            evaluation = self._failed(spec, progress, verdict_of(fault))
        except ReferenceFailed as failed:
            evaluation = self._failed(spec, progress, reference_verdict(failed))
        except WorkerFailed as failure:
            # The bench's own worker: the kernel may end it for want of memory. A new one serves the next request.
            self._forget(spec)
            ours = Verdict("unstable", f"the problem's own worker failed ({failure}); evaluate again")
            evaluation = self._failed(spec, progress, ours)
        self._limits = spec.limits
        if evaluation.status != "unstable":
            if len(self.verdicts) >= VERDICTS_KEPT:
                self.verdicts.pop(next(iter(self.verdicts)))
            self.verdicts[spec.sha256] = evaluation
        return evaluation

    def idle(self, until: int) -> None:
        """Get ready for the next request until descriptor ``until`` can be read. Raises EvaluatorError."""
        if self._limits is not None:
            self.nursery.tend(self._limits, until)

    def close(self) -> None:
        for bench in self.benches.values():
            bench.close()
        self.benches.clear()
        self.nursery.close()

    # -- the road of one verdict --------------------------------------------------------------------------------

    def _evaluate(self, spec: EvaluationSpec, progress: Progress) -> Evaluation:
        bench = self._bench(spec)
        progress.bench = bench
        progress.flags += bench.flags
        if spec.lane_here != spec.lane:
            progress.flags.append("lane_not_applicable")
        progress.phase("prepare")
        self._sound(spec, bench, progress)
        sides = [Side("reference", spec.problem.source)]
        if spec.incumbent is not None:
            sides.append(Side("incumbent", spec.incumbent, self._build(spec, bench, spec.incumbent, progress)))
        sides.append(Side("candidate", spec.source, self._build(spec, bench, spec.source, progress)))
        progress.phase("build")
        self.nursery.settle()
        gc.collect()
        gc.disable()
        try:
            most = 1 if spec.purpose == "screen" else MOST_INSTANCES
            for n, order in enumerate(timing.start_orders(len(sides), most, self.random)):
                if n >= INSTANCES and self._confirmed(spec, progress.rounds):
                    break
                self._instance(spec, bench, sides, order, progress)
        finally:
            gc.enable()
        progress.phase("measure")
        return self._score(spec, bench, progress)

    def _confirmed(self, spec: EvaluationSpec, sets: Sequence[Rounds]) -> bool:
        """Whether the sets of processes agree, or one more would not fit the cap."""
        spent = sum(r.call_seconds for r in sets)
        fits = spent + spent / len(sets) <= spec.limits.confirm_seconds
        return not fits or timing.confirmed([log_ratios([r]) for r in sets])

    def _bench(self, spec: EvaluationSpec) -> Bench:
        key = reference_spec(spec)
        if key not in self.benches:
            while len(self.benches) >= MAX_BENCHES:
                self.benches.pop(next(iter(self.benches))).close()
            try:
                self.benches[key] = Bench(spec.problem, self.nursery, self.sweep, spec.limits, spec.contract)
            except ReferenceFailed as failed:
                raise reference_verdict(failed) from failed
        return self.benches[key]

    def _forget(self, spec: EvaluationSpec) -> None:
        bench = self.benches.pop(reference_spec(spec), None)
        if bench is not None:
            bench.close()

    def _build(self, spec: EvaluationSpec, bench: Bench, source: str, progress: Progress) -> bytes | None:
        try:
            built = self.builds.get(source, bench.description.init, spec.problem.source, spec.limits)
        except BuildFailed as failed:
            if source != spec.source:
                raise Verdict("unstable", f"the incumbent could not be built again: {failed.reason}") from failed
            raise Verdict(failed.status, failed.reason, failed.errors, failed.build) from failed
        if source == spec.source:
            progress.build = built.facts
        return built.extensions

    def _instance(
        self, spec: EvaluationSpec, bench: Bench, sides: Sequence[Side], order: Sequence[int], progress: Progress
    ) -> None:
        """One set of fresh processes, started in ``order`` and played against each other."""
        workers = self.nursery.take(spec.limits, len(sides))
        self.nursery.settle()
        self.random.shuffle(workers)
        if workers[-1].group is None:
            progress.flags.append("no_control_group")
        players: dict[int, Player] = {}
        try:
            for i in order:
                if sides[i].name == "reference":
                    players[i] = bench.reference(workers[i])
                else:
                    players[i] = self._load(bench, sides[i], workers[i])
            lined_up = [players[i] for i in range(len(sides))]
            contest = Contest(bench, lined_up, check=range(1, len(sides)), lane=spec.lane_here)
            progress.rounds.append(contest.rounds)
            if spec.purpose == "screen":
                contest.run(spec.limits.search_seconds)
            else:
                contest.run(spec.limits.confirm_seconds / INSTANCES, CONFIRM_ROUNDS, CONFIRM_PAIRS)
            progress.log = workers[-1].log_tail()
            for worker in workers[1:]:
                worker.kill()
            if any(worker.lingers for worker in workers[1:]):
                raise Verdict(
                    "background_work",
                    f"its processes had not ended {cgroup.ENDED_SECONDS:g} s after they were killed: leave less to "
                    "clear away",
                )
            contest.solo()
            if contest.rounds.solo_seconds is None:
                raise Verdict(
                    "unstable",
                    "the reference was slower alone than beside the candidate: something was still at work when all "
                    "others had been ended; evaluate again",
                )
        except Fault as fault:
            progress.log = workers[-1].log_tail()
            raise verdict_of(fault) from fault
        except ReferenceFailed as failed:
            raise reference_verdict(failed) from failed
        finally:
            for worker in workers:
                worker.kill()
            with suppress(WorkerFailed):  # whoever asks it next will know
                bench.end_draw()

    def _load(self, bench: Bench, side: Side, worker: Worker) -> Player:
        player = Player(side.name, worker)
        try:
            bench.start(worker, side.source, "ModelNew", side.extensions)
        except WorkerFailed as failure:
            raise Fault(player, "load", str(failure), failure) from failure
        return player

    # -- verdicts -----------------------------------------------------------------------------------------------

    def _score(self, spec: EvaluationSpec, bench: Bench, progress: Progress) -> Evaluation:
        rounds = progress.rounds
        errors: gate.Errors = ()
        shares: dict[str, float] = {}
        for r in rounds:
            errors = gate.worst(errors, r.errors)
            shares = {k: min(v, shares.get(k, 1.0)) for k, v in r.shares.items()}
        gates = gate.results(errors, bench.yardstick, shares)
        lane = gate.strictest(errors, bench.yardstick)
        logs = log_ratios(rounds)
        screen = spec.purpose == "screen"
        require_steady(timing.estimate(logs))
        if screen and spec.source == reference_candidate(spec.problem):
            bench.take_as_control(logs)
        self._controlled(bench, progress)
        n_bytes = max(r.answer_bytes for r in rounds)
        ruler = Ruler(bench.between_sd, bench.null_ms / 1e3, n_bytes / write_bandwidth_bytes_per_s())
        scored = score(rounds, spec.purpose, ruler)
        progress.drift = scored.drift
        return Evaluation(
            status="correct",
            reason=in_words(scored.speedup, scored.low, scored.high, scored.accepted),
            source_sha=spec.source_sha,
            problem_sha=spec.problem.sha256,
            purpose=spec.purpose,
            target=spec.target,
            gpu=cpu_name(),
            isolation=self.level,
            speedup=scored.speedup,
            speedup_low=scored.low,
            speedup_high=scored.high,
            speedup_net=scored.net,
            reference_ms=scored.reference_seconds * 1e3,
            candidate_ms=scored.candidate_seconds * 1e3,
            gain=scored.gain,
            gain_low=scored.gain_low,
            accepted=scored.accepted,
            lane=lane,
            gates=gates,
            flags=tuple(dict.fromkeys((*progress.flags, *scored.flags))),
            build=progress.build,
            seconds=progress.seconds(),
            evidence=progress.evidence(self.threads),
        )

    def _sound(self, spec: EvaluationSpec, bench: Bench, progress: Progress) -> None:
        """No speedup on a problem that takes an answer nobody computed for right, unless it is asked for.

        None either where eager's own answer is not finite though the exact one is: it would be the candidate's fault.
        """
        if not all(error.finite for error in bench.yardstick.eager):
            raise Verdict(
                "problem_unsound", "eager's own answer has NaN or infinity where the reference in float64 has none"
            )
        null = gate.accepted_null(bench.yardstick, spec.lane_here)
        if null is None:
            return
        if spec.unsound == "refuse":
            chaos = "; one unit in the last place of its inputs moves its output visibly" * bench.yardstick.chaotic
            raise Verdict(
                "problem_unsound",
                f"this problem cannot tell right from wrong: {null} would pass in lane {spec.lane_here}{chaos}. "
                "`kernel-agent problems probe` says what repairs it",
            )
        progress.flags.append("problem_unsound")

    def _controlled(self, bench: Bench, progress: Progress) -> None:
        """No number is believed of a machine on which the reference differs from itself."""
        bench.ensure_control()
        progress.phase("control")
        if not bench.control_ok:
            assert bench.control is not None
            raise Verdict(
                "unstable",
                f"this machine is too noisy at the moment: the reference against itself gave {bench.control.ratio:.3f} "
                f"(half-width {bench.control.half_width:.1%}); evaluate again when it is quieter",
            )

    def _failed(self, spec: EvaluationSpec, progress: Progress, verdict: Verdict) -> Evaluation:
        return Evaluation(
            status=verdict.status,
            reason=verdict.reason,
            source_sha=spec.source_sha,
            problem_sha=spec.problem.sha256,
            purpose=spec.purpose,
            target=spec.target,
            gpu=cpu_name(),
            isolation=self.level,
            flags=tuple(dict.fromkeys(progress.flags)),
            errors=verdict.errors,
            build=progress.build,
            seconds=progress.seconds(),
            evidence=progress.evidence(self.threads),
        )
