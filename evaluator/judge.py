"""The judge: one per device. Holds inputs, weights, clock, comparison and verdict; never imports candidate code."""

from __future__ import annotations

import gc
import math
import random
import statistics
from contextlib import suppress
from pathlib import Path

import torch

from evaluator import cgroup, gate, timing
from evaluator.bench import Bench, ReferenceFailed, reference_spec
from evaluator.builds import BuildCache, BuildFailed
from evaluator.contest import Contest, Fault, Player
from evaluator.lease import device_lease
from evaluator.machine import Sweep, cpu_name, write_bandwidth_bytes_per_s
from evaluator.model import Evaluation, EvaluationSpec, reference_candidate
from evaluator.sandbox import require
from evaluator.verdicts import (
    Progress,
    Verdict,
    in_words,
    parse,
    reference_verdict,
    require_steady,
    verdict_of,
)
from evaluator.workers import Nursery, Worker, WorkerFailed, physical_cores

SPARES = 3
"""A build and a screening of one candidate, begun at once."""
INSTANCES = 3
"""Of every side when confirming. What differs between processes needs processes to average, not rounds: as many rounds
in three instances as in two left 5% of A/A evaluations more than 2% from 1 instead of 7%."""
CONFIRM_ROUNDS, CONFIRM_PAIRS = 8, 4
DRIFT = 0.03
OVERHEAD_SHARE = 0.20
FLOOR_SHARE = 0.9
MIN_GAIN = math.log(1.01)
VERDICTS_KEPT = 512
MAX_BENCHES = 2


class Judge:
    """Judges CPU candidates on this host, one at a time. Close it: it owns processes."""

    def __init__(self, isolation: str, cache_dir: Path, threads: int | None = None) -> None:
        self.level = require(isolation)
        cgroup.sweep()
        self.threads = threads or physical_cores()
        torch.set_num_threads(self.threads)
        self.nursery = Nursery(self.level, self.threads, SPARES)
        self.builds = BuildCache(cache_dir, self.nursery)
        self.sweep = Sweep()
        self.benches: dict[object, Bench] = {}
        self.verdicts: dict[str, Evaluation] = {}
        self.random = random.SystemRandom()

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
        self.nursery.refill(spec.limits)
        if evaluation.status != "unstable":
            if len(self.verdicts) >= VERDICTS_KEPT:
                self.verdicts.pop(next(iter(self.verdicts)))
            self.verdicts[spec.sha256] = evaluation
        return evaluation

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
        progress.phase("prepare")
        self._sound(spec, bench, progress)
        extensions = self._build(spec, bench, spec.source, progress)
        incumbent = None
        if spec.incumbent is not None:
            incumbent = (spec.incumbent, self._build(spec, bench, spec.incumbent, progress))
        progress.phase("build")
        self.nursery.settle()
        gc.collect()
        gc.disable()
        try:
            for n in range(1 if spec.purpose == "screen" else INSTANCES):
                self._instance(spec, bench, extensions, incumbent, n, progress)
        finally:
            gc.enable()
        progress.phase("measure")
        return self._score(spec, bench, progress, incumbent is not None)

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
            raise Verdict(failed.status, failed.reason, failed.errors, failed.build) from failed
        if source == spec.source:
            progress.build = built.facts
        return built.extensions

    def _instance(
        self,
        spec: EvaluationSpec,
        bench: Bench,
        extensions: bytes | None,
        incumbent: tuple[str, bytes | None] | None,
        n: int,
        progress: Progress,
    ) -> None:
        """One set of fresh processes, played against each other."""
        sides = [("reference", spec.problem.source, None), ("candidate", spec.source, extensions)]
        if incumbent is not None:
            sides.insert(1, ("incumbent", *incumbent))
        workers = self.nursery.take(spec.limits, len(sides))
        self.nursery.settle()
        self.random.shuffle(workers)
        order = list(range(len(sides)))
        if spec.purpose == "screen":
            self.random.shuffle(order)
        elif n % 2:
            order.reverse()
        players: dict[int, Player] = {}
        try:
            for i in order:
                name, source, built = sides[i]
                if name == "reference":
                    players[i] = bench.reference(workers[i])
                else:
                    players[i] = self._load(bench, name, workers[i], source, built)
            lined_up = [players[i] for i in range(len(sides))]
            contest = Contest(bench, lined_up, check=range(1, len(sides)), lane=spec.lane)
            progress.rounds.append(contest.rounds)
            if spec.purpose == "screen":
                contest.run(spec.limits.search_seconds)
            else:
                contest.run(spec.limits.confirm_seconds / INSTANCES, CONFIRM_ROUNDS, CONFIRM_PAIRS)
            progress.log = workers[-1].log_tail()
            for worker in workers[1:]:
                worker.kill()
            contest.players = lined_up[:1]
            contest.rounds.solo_seconds = contest.solo()
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

    def _load(self, bench: Bench, name: str, worker: Worker, source: str, built: bytes | None) -> Player:
        player = Player(name, worker)
        try:
            bench.start(worker, source, "ModelNew", built)
        except WorkerFailed as failure:
            raise Fault(player, "load", str(failure), failure) from failure
        return player

    # -- verdicts -----------------------------------------------------------------------------------------------

    def _score(self, spec: EvaluationSpec, bench: Bench, progress: Progress, three: bool) -> Evaluation:
        rounds = progress.rounds
        error = gate.NO_ERROR
        shares: dict[str, float] = {}
        for r in rounds:
            error = error.worst(r.error)
            shares = {k: min(v, shares.get(k, 1.0)) for k, v in r.shares.items()}
        gates = gate.results(error, bench.yardstick, shares)
        lane = gate.strictest(error, bench.yardstick)
        last = len(rounds[0].pairs[0][0]) - 1 if rounds[0].pairs[0] else (2 if three else 1)
        logs = [m for r in rounds for m in r.log_ratios(0, last)]
        screen = spec.purpose == "screen"
        require_steady(timing.estimate(logs, looked=screen))
        if screen and spec.source == reference_candidate(spec.problem):
            bench.take_as_control(logs)
        self._controlled(bench, progress)
        now = timing.estimate(logs, bench.between_sd, len(rounds), looked=screen)
        require_steady(now)
        reference = statistics.mean(r.median_seconds(0) for r in rounds)
        candidate = statistics.mean(r.median_seconds(last) for r in rounds)
        self._floor(bench, reference, candidate)
        solo = statistics.mean(r.solo_seconds for r in rounds if r.solo_seconds)
        progress.drift = reference / solo - 1
        speedup, low, high = now.ratio, now.low, now.high
        if progress.drift > DRIFT:
            # The reference ran slower beside the candidate than alone: score by the slower of the two stories.
            progress.flags.append("reference_drift")
            scale = min(1.0, (1 + DRIFT) / (1 + progress.drift))
            speedup, low, high = speedup * scale, low * scale, high
        null = bench.null_ms / 1e3
        net = (reference - null) / (candidate - null) if candidate > 1.05 * null and reference > null else None
        if null > OVERHEAD_SHARE * candidate:
            progress.flags.append("overhead_limited")
        gain = gain_low = accepted = None
        if spec.purpose == "promote":
            against = [m for r in rounds for m in r.log_ratios(1, last)] if three else None
            if against is not None:
                bound = timing.lower_bound(against, bench.between_sd, len(rounds))
                gain, gain_low = math.expm1(statistics.mean(against)), math.expm1(bound)
                accepted = bound > 0 and statistics.mean(against) >= MIN_GAIN
            else:
                accepted = True
        return Evaluation(
            status="correct",
            reason=in_words(speedup, low, high, accepted),
            source_sha=spec.source_sha,
            problem_sha=spec.problem.sha256,
            purpose=spec.purpose,
            target=spec.target,
            gpu=cpu_name(),
            isolation=self.level,
            speedup=speedup,
            speedup_low=low,
            speedup_high=high,
            speedup_net=net,
            reference_ms=reference * 1e3,
            candidate_ms=candidate * 1e3,
            gain=gain,
            gain_low=gain_low,
            accepted=accepted,
            lane=lane,
            gates=gates,
            flags=tuple(dict.fromkeys(progress.flags)),
            build=progress.build,
            seconds=progress.seconds(),
            evidence=progress.evidence(self.threads),
        )

    def _sound(self, spec: EvaluationSpec, bench: Bench, progress: Progress) -> None:
        """No speedup on a problem that takes an answer nobody computed for right, unless it is asked for."""
        null = gate.accepted_null(bench.yardstick, spec.lane)
        if null is None:
            return
        if spec.unsound == "refuse":
            chaos = "; one unit in the last place of its inputs moves its output visibly" * bench.yardstick.chaotic
            raise Verdict(
                "problem_unsound",
                f"this problem cannot tell right from wrong: {null} would pass in lane {spec.lane}{chaos}. "
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

    def _floor(self, bench: Bench, reference_seconds: float, candidate_seconds: float) -> None:
        """Nothing writes an output faster than this; a reference that does returns a view, and so may the candidate."""
        n_bytes = sum(s.bytes for s in bench.description.outputs)
        floor = FLOOR_SHARE * n_bytes / write_bandwidth_bytes_per_s()
        if candidate_seconds < floor < reference_seconds:
            raise Verdict(
                "below_floor",
                f"{candidate_seconds * 1e3:.4f} ms is less than it takes to write the output ({floor * 1e3:.4f} ms)",
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
