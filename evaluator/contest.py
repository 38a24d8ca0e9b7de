"""Rounds of paired calls: fresh weights a round, a fresh input a pair, one side at a time, every output checked."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch

from evaluator import draws, gate, timing
from evaluator.machine import steal_ticks
from evaluator.model import Lane
from evaluator.processes import Used
from evaluator.workers import Worker, WorkerFailed

if TYPE_CHECKING:
    from evaluator.bench import Bench

CHECKED_CALLS = 5
"""At least three by our protocol; five is what the papers' gates try."""
SOLO_CALLS = 8
GOOD_BLOCKS, SOLO_BLOCKS, SOLO_PAUSE_SECONDS = 3, 6, 0.1
"""Of those calls where the first say that the reference was slowed down: a machine has slow phases of its own."""
FASTER = 0.05
"""As drift, the other way: how much faster the reference may be beside the candidate than alone. Alone with more than
that it was not: something of the candidate's was still being cleared away."""
DRIFT = 0.03
"""Slow-down of the reference beside the candidate, against alone, that is taken for the machine's own (natural log)."""
STOPPED_SECONDS = 20e-6
"""CPU time that the scheduler may still book on what is stopped; whatever really runs on uses more in one look."""
RESTLESS, BLATANT_SECONDS = 3, 5e-3
"""Times in a contest that it must happen: a core taken away in the middle of stopping looks the same, once. But so much
at a time is no accident."""
MAX_DROPPED = 0.10
FOLLOWS = (0.5, 1.5)
LATE_SECONDS = 0.1
NEAR_SHARE = 0.25
"""Of the rounds after the first, which always has a near-duplicate: who keeps answers cannot know the round."""


@dataclass
class Player:
    name: str
    worker: Worker
    seconds: list[float] = field(default_factory=list)
    """Timed calls, in order."""
    restless: int = 0
    """Times that it used the CPU while it was stopped."""
    answer_bytes: int = 0
    """Its largest answer, as it lay in memory."""


class Fault(Exception):
    """A player broke a rule or failed; the judge turns it into a status."""

    def __init__(self, player: Player, kind: str, message: str, failure: WorkerFailed | None = None) -> None:
        super().__init__(message)
        self.player, self.kind, self.message, self.failure = player, kind, message, failure


@dataclass
class Rounds:
    """What a contest measured: for each round and pair the seconds of every player, in the players' order."""

    pairs: list[list[tuple[float, ...]]] = field(default_factory=list)
    dropped: int = 0
    checked: int = 0
    idle_share: float = 0.0
    errors: gate.Errors = ()
    shares: dict[str, float] = field(default_factory=dict)
    solo_seconds: float | None = None
    """Of the first player's calls with no other process alive."""
    answer_bytes: int = 0
    """The last player's, at its largest."""
    call_seconds: float = 0.0
    """All calls whole: inputs written, caches swept, the work, everything stopped again, the answer read out."""

    def log_ratios(self, over: int, under: int) -> list[float]:
        """m_r per round: median over its pairs of ln(t_over / t_under)."""
        return [statistics.median(math.log(p[over] / p[under]) for p in pairs) for pairs in self.pairs if pairs]

    def median_seconds(self, player: int) -> float:
        return statistics.median(p[player] for pairs in self.pairs for p in pairs)

    def drift(self, solo_seconds: float | None = None) -> float:
        """What the log speedup owes to the first player's being slower than alone; 0 where that was not measured.

        Its excess over its time alone is taken off pair by pair, and what is left summed up as a speedup is: who slows
        the reference down in a few rounds gains in those alone. A slow phase of the machine hits both sides, and gains
        nobody anything: as much as the last player itself lost in the pair, beside its own median, stays. So a speedup
        without its drift is at most the reference's time alone over the last player's median or better.
        """
        solo = solo_seconds or self.solo_seconds
        if not solo:
            return 0.0
        usual = statistics.median(p[-1] for pairs in self.pairs for p in pairs)

        def owed(pair: tuple[float, ...]) -> float:
            excess, lost = math.log(pair[0] / solo), math.log(pair[-1] / usual)
            return excess - max(0.0, min(excess, lost))

        def median(pairs: list[tuple[float, ...]], share: float) -> float:
            return statistics.median(math.log(p[0] / p[-1]) - share * owed(p) for p in pairs)

        return statistics.mean(median(pairs, 0.0) - median(pairs, 1.0) for pairs in self.pairs if pairs)

    @property
    def n_pairs(self) -> int:
        return sum(len(p) for p in self.pairs)


def settled(blocks: Sequence[float], drift: Callable[[float], float]) -> tuple[float | None, bool]:
    """The seconds alone that count, and whether no further block is needed.

    ``drift``: what a time alone makes of the rounds. The slowest block counts, since the machine itself may be in
    another phase than it was in the rounds. One that is slower than the rounds by more than that is no measure; and
    where there was one, of the others the fastest counts: who delayed the first may have delayed the next.
    """
    good = [seconds for seconds in blocks if drift(seconds) >= -FASTER]
    if not good:
        return None, False
    hidden = len(good) < len(blocks)
    seconds = min(good) if hidden else max(good)
    return seconds, len(good) == GOOD_BLOCKS or (not hidden and drift(seconds) <= DRIFT)


class Contest:
    """Plays ``players`` (the first is the reference) against each other on one bench."""

    def __init__(self, bench: Bench, players: Sequence[Player], check: Sequence[int], lane: Lane = "bf16") -> None:
        self.lane = lane
        self.bench, self.players, self.check = bench, list(players), tuple(check)
        self.random = random.Random(draws.seed())
        self.rounds = Rounds()
        self._idle_cpu = self._busy = 0.0
        self._answers: list[list[torch.Tensor]] = []
        """The reference's latest, under the weights in use."""

    # -- whole contests -----------------------------------------------------------------------------------------

    def run(self, cap_seconds: float, fixed_rounds: int | None = None, most_pairs: int = timing.PAIRS) -> Rounds:
        """Checked calls first, then rounds until the interval is narrow enough, the looks end or time is up."""
        self._checked_calls()
        pairs = min(most_pairs, timing.pairs_per_round(self._seconds_per_pair(), cap_seconds))
        start = time.monotonic()
        while True:
            self._round(pairs)
            spent = time.monotonic() - start
            if fixed_rounds is not None:
                enough = len(self.rounds.pairs) >= fixed_rounds
            else:
                enough = timing.enough(self.rounds.log_ratios(0, len(self.players) - 1), spent)
            if enough or spent > cap_seconds:
                break
        self.rounds.answer_bytes = self.players[-1].answer_bytes
        self.rounds.idle_share = self._idle_cpu / self._busy if self._busy else 0.0
        return self.rounds

    def solo(self) -> None:
        """Time the first player, once every other player is gone, into ``rounds.solo_seconds``, unless it is too slow.

        The median of a block of calls; ``settled`` says of which. The oracle runs before each call as the other side
        did, and the judge compares after it, so that caches and predictors are as they were.
        """
        self.players = self.players[:1]
        blocks: list[float] = []
        done = False
        while not done and len(blocks) < SOLO_BLOCKS:
            if blocks:
                time.sleep(SOLO_PAUSE_SECONDS)
            blocks.append(statistics.median([self._solo_call(self.players[0]) for _ in range(SOLO_CALLS)]))
            self.rounds.solo_seconds, done = settled(blocks, self.rounds.drift)

    def _solo_call(self, player: Player) -> float:
        inputs = self.bench.draw_inputs()
        self.bench.truth(inputs)
        seconds = self._timed(player, inputs)
        answer = self._captured(player)
        self.bench.begin_draw()
        gate.surely_passes(answer, answer, self.bench.yardstick, self.lane)
        return seconds

    # -- rounds -------------------------------------------------------------------------------------------------

    def _checked_calls(self) -> None:
        """Untimed calls with a long cap: JIT, autotuning and lazy loading happen here, and count for correctness."""
        for _ in range(CHECKED_CALLS):
            inputs = self.bench.draw_inputs()
            outputs = {}
            for n in self._order():
                outputs[n] = self._call(self.players[n], inputs)
            self._judge(inputs, outputs)
            self._paper_gates(outputs)

    def _order(self) -> list[int]:
        order = list(range(len(self.players)))
        self.random.shuffle(order)
        return order

    def _seconds_per_pair(self) -> float:
        """One pair as it will be, sweep and copies included."""
        start = time.monotonic()
        self._pair(self.bench.draw_inputs(), tuple(self._order()))
        for p in self.players:
            p.seconds.clear()
        return time.monotonic() - start

    def _round(self, pairs: int) -> None:
        self.bench.fresh_weights()
        self._answers.clear()
        self.bench.begin_draw()
        for p in self.players:
            self._guarded(p, partial(self.bench.load_weights, p.worker))
        settling = self.bench.draw_inputs()
        answers = {n: self._call(self.players[n], settling) for n in self._order()}
        self.bench.begin_draw()
        self._judge_by_eager(settling, answers)
        kept: list[tuple[float, ...]] = []
        near_one = not self.rounds.pairs or self.random.random() < NEAR_SHARE
        repeat_after = self.random.randrange(pairs) if near_one else None
        for i, order in enumerate(timing.orders(len(self.players), pairs, self.random)):
            inputs = self.bench.draw_inputs()
            stolen = steal_ticks()
            seconds, outputs = self._pair(inputs, order)
            self.bench.begin_draw()
            for player in self.players:
                self._untouched(player, inputs)
            self._judge_by_eager(inputs, outputs)
            total = self.rounds.n_pairs + len(kept) + self.rounds.dropped + 1
            if steal_ticks() > stolen and self.rounds.dropped + 1 <= MAX_DROPPED * total:
                self.rounds.dropped += 1
            else:
                kept.append(seconds)
            if i == repeat_after:
                self._near_duplicate(inputs, outputs)
        self.rounds.pairs.append(kept)

    def _near_duplicate(self, inputs: list[torch.Tensor], outputs: dict[int, list[torch.Tensor]]) -> None:
        """The same inputs but for one element, off the clock: who keeps answers may well know most of this one."""
        near = draws.near_duplicate(inputs, self.bench.rng)
        if near is not None and self.check:
            after = {n: self._call(self.players[n], near) for n in self._order()}
            self._judge_by_eager(near, after)
            self._follow(outputs, after)

    def _pair(
        self, inputs: list[torch.Tensor], order: tuple[int, ...]
    ) -> tuple[tuple[float, ...], dict[int, list[torch.Tensor]]]:
        seconds = [0.0] * len(self.players)
        outputs: dict[int, list[torch.Tensor]] = {}
        for n in order:
            seconds[n] = self._timed(self.players[n], inputs)
            outputs[n] = self._captured(self.players[n])
        return tuple(seconds), outputs

    # -- calls --------------------------------------------------------------------------------------------------

    def _prepare(self, player: Player, inputs: list[torch.Tensor]) -> Used:
        """Write the inputs while everybody is stopped; what the player had used of the CPU by then."""
        for p in self.players:
            if not p.worker.tree.stop_all():
                raise Fault(p, "background_work", "its processes could not all be stopped between calls")
        before = player.worker.tree.cpu()
        player.worker.write_inputs(inputs)
        return before

    def _timed(self, player: Player, inputs: list[torch.Tensor]) -> float:
        start = time.monotonic()
        mine = self._prepare(player, inputs)
        idle = [p for p in self.players if p is not player]
        before = [p.worker.tree.cpu() for p in idle]
        self.bench.sweep()
        self._still(player, mine, "after its inputs were written and before the clock started")
        seconds = self._guarded(player, partial(player.worker.timed_call, self.bench.limits.call_seconds))
        for p, cpu in zip(idle, before, strict=True):
            self._idle_cpu += self._still(p, cpu, "in the other side's turn")
        self._busy += seconds
        self.rounds.call_seconds += time.monotonic() - start
        player.seconds.append(seconds)
        return seconds

    def _call(self, player: Player, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        start = time.monotonic()
        mine = self._prepare(player, inputs)
        self._still(player, mine, "after its inputs were written and before it was asked")
        self._guarded(player, partial(player.worker.tell, b"g", b"d", self.bench.limits.first_call_seconds))
        self.rounds.call_seconds += time.monotonic() - start
        self._untouched(player, inputs)
        return self._captured(player)

    def _guarded[T](self, player: Player, action: Callable[[], T]) -> T:
        try:
            return action()
        except WorkerFailed as failure:
            raise Fault(player, "failure", str(failure), failure) from failure

    def _still(self, player: Player, before: Used, when: str) -> float:
        """CPU seconds since ``before``, which a stopped player has none of: SIGCONT can come from its own timer."""
        used = player.worker.tree.cpu().since(before)
        player.restless += used > STOPPED_SECONDS
        if used == math.inf:
            raise Fault(player, "background_work", f"a process of its ended {when}, when it was stopped")
        if player.restless >= RESTLESS or used > BLATANT_SECONDS:
            raise Fault(player, "background_work", f"it used {used * 1e3:.2f} ms of CPU {when}, when it was stopped")
        return used

    def _captured(self, player: Player) -> list[torch.Tensor]:
        start = time.monotonic()
        try:
            answer = player.worker.captured()
        except WorkerFailed as failure:
            raise Fault(
                player, "incorrect", f"{failure.report.message}: it answered before the work was done"
            ) from failure
        player.answer_bytes = max(player.answer_bytes, player.worker.answer_bytes)
        if player.worker.used_by_end is not None:
            self._still(player, player.worker.used_by_end, "after its clock had stopped and before its answer was read")
        self.rounds.call_seconds += time.monotonic() - start
        return answer

    def _untouched(self, player: Player, inputs: list[torch.Tensor]) -> None:
        if not player.worker.inputs_equal(inputs):
            raise Fault(player, "mutated_input", "the inputs differ after the call from what was given")

    # -- judging ------------------------------------------------------------------------------------------------

    def _judge(self, inputs: list[torch.Tensor], outputs: dict[int, list[torch.Tensor]]) -> None:
        """Check every output against the float64 reference, which is asked only now, when all are captured."""
        if not self.check:
            return
        truth = self.bench.truth(inputs)
        self.bench.begin_draw()
        for n in self.check:
            errors = gate.measure(outputs[n], truth)
            self.rounds.checked += 1
            if n == self.check[-1]:
                self.rounds.errors = gate.worst(self.rounds.errors, errors)
            if not gate.passes(errors, self.bench.yardstick, self.lane):
                self._explain(self.players[n], inputs, outputs[n], truth, errors)
        self._answers = [*self._answers[-4:], outputs[0]]

    def _judge_by_eager(self, inputs: list[torch.Tensor], outputs: dict[int, list[torch.Tensor]]) -> None:
        """The same in the rounds: eager's answer is at hand, and mostly settles it at a fraction of the cost.

        In the strictest lane passed so far: what is reported of the checked calls must hold on the clock too.
        """
        lane = gate.strictest(self.rounds.errors, self.bench.yardstick) or self.lane
        if all(gate.surely_passes(outputs[n], outputs[0], self.bench.yardstick, lane) for n in self.check):
            self.rounds.checked += len(self.check)
            self._answers = [*self._answers[-4:], outputs[0]]
        else:
            self._judge(inputs, outputs)

    def _explain(
        self,
        player: Player,
        inputs: list[torch.Tensor],
        output: list[torch.Tensor],
        truth: list[torch.Tensor],
        errors: gate.Errors,
    ) -> None:
        """Raise the fault that tells an honest author most."""
        if self._finishes_later(player, truth):
            raise Fault(player, "incorrect", "an output was not finished when forward returned: work was still running")
        if not all(error.finite for error in errors):
            raise Fault(
                player, "non_finite", "NaN or infinity where the reference has finite values, or the other way round"
            )
        if any(self._right(output, answer) for answer in self._answers):
            raise Fault(
                player, "incorrect", "the output is the answer to an earlier input: a cached result was returned"
            )
        worker = player.worker
        try:
            worker.tell(b"b", b"w", self.bench.limits.load_seconds)
            worker.write_inputs(inputs)
            worker.tell(b"g", b"d", self.bench.limits.first_call_seconds)
            rebuilt = worker.captured()
        except WorkerFailed:
            pass
        else:
            if self._right(rebuilt, truth):
                raise Fault(
                    player,
                    "incorrect",
                    "stale weight cache: a freshly built model is right, this one kept something of older weights or "
                    "calls; refresh packed weights in load_state_dict or key them on each parameter's _version",
                )
        raise Fault(player, "incorrect", gate.in_words(errors, self.bench.yardstick, self.lane))

    def _paper_gates(self, outputs: dict[int, list[torch.Tensor]]) -> None:
        """The papers' gates, on as many inputs as those evaluators try."""
        if self.check:
            for name, share in gate.paper_shares(outputs[self.check[-1]], outputs[0]).items():
                self.rounds.shares[name] = min(share, self.rounds.shares.get(name, 1.0))

    def _finishes_later(self, player: Player, truth: list[torch.Tensor]) -> bool:
        """Whether the same memory holds the right answer once the worker has run on for a while."""
        player.worker.tree.resume()
        time.sleep(LATE_SECONDS)
        player.worker.tree.stop_all()
        with suppress(WorkerFailed):
            return self._right(player.worker.captured(), truth)
        return False

    def _right(self, output: list[torch.Tensor], answer: list[torch.Tensor]) -> bool:
        exact = [a.double() if a.is_floating_point() else a for a in answer]
        return gate.passes(gate.measure(output, exact), self.bench.yardstick, self.lane)

    def _follow(self, before: dict[int, list[torch.Tensor]], after: dict[int, list[torch.Tensor]]) -> None:
        """Between near-duplicate inputs the outputs must move as the reference's do; where that is chance, anyhow."""
        kept = self.bench.yardstick.orderly(len(before[0]))

        def those(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
            return [outputs[i] for i in kept]

        for n in self.check:
            share = gate.follows(those(before[n]), those(after[n]), those(before[0]), those(after[0]))
            if share is not None and not FOLLOWS[0] <= share <= FOLLOWS[1]:
                raise Fault(
                    self.players[n],
                    "incorrect",
                    f"one input element changed; the output moved by {share:.0%} of what it must: a cached result",
                )
