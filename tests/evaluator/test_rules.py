"""Each rule of the protocol, on and off: with it a cheat ends in a fault, without it the same cheat is called right.

Played in this process, on one bench, so that a rule can be taken out; what the whole judge says is tested elsewhere.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluator import cgroup, contest, draws, gate, timing
from evaluator.bench import CONTROL_TRIES, Bench
from evaluator.contest import Contest, Fault, Player
from evaluator.judge import Judge
from evaluator.machine import Sweep
from evaluator.model import EvaluationSpec, Lane, Limits
from evaluator.processes import Tree, Used
from evaluator.workers import Nursery, Worker, WorkerFailed
from problems.model import Problem
from tests.evaluator.corpus.awake import AFTER_THE_CLOCK, ENDS_STOPPED
from tests.evaluator.sources import ANSWER, HEAD, candidate, problem

LIMITS = Limits(load_seconds=20, first_call_seconds=20, call_seconds=20, processes=96, scratch_bytes=64 << 20)
ROUNDS, PAIRS = 2, 3

NORMALIZED = problem(
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.eval()

    def forward(self, x):
        return torch.relu(self.norm(x))

def get_inputs():
    return [torch.randn(512, 64)]

def get_init_inputs():
    return [64]
"""
)

# Right only where its thread saw the input before it was asked.
EARLY = candidate(
    f"""
    import threading, time
    if self.x is None:
        self.x, self.ready = x, (x.clone(), {ANSWER})
        def watch():
            with torch.no_grad():
                while True:
                    time.sleep(0.0005)
                    if not torch.equal(self.ready[0], self.x):
                        seen = self.x.clone()
                        self.ready = seen, F.gelu(self.linear(seen))
        threading.Thread(target=watch, daemon=True).start()
    seen, answer = self.ready
    return answer if torch.equal(seen, x) else torch.zeros_like(answer)
    """,
    init="self.x = None",
    extra="""
    def load_state_dict(self, state, strict=True):
        self.x = None
        return super().load_state_dict(state, strict)
    """,
)

# SIGCONT from its own timer undoes a stop; its thread then burns what the other side should have.
WAKES_ITSELF = candidate(
    f"return {ANSWER}",
    top="""
    import ctypes, signal, struct, threading

    libc = ctypes.CDLL(None, use_errno=True)
    libc.signal(signal.SIGCONT, ctypes.cast(libc.abs, ctypes.c_void_p))
    event = ctypes.create_string_buffer(struct.pack("QiI48x", 0, signal.SIGCONT, 0))
    timer = ctypes.c_void_p()
    assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
    soon = ctypes.create_string_buffer(struct.pack("qqqq", 0, 2_000_000, 0, 2_000_000))

    def burn():
        while True:
            libc.timer_settime(timer, 0, soon, None)  # again and again: SIGSTOP takes a pending SIGCONT away
            sum(range(1000))
    """,
    init="threading.Thread(target=burn, daemon=True).start()",
)

BY_CALL = """
def load_state_dict(self, state, strict=True):
    self.loads, self.calls = getattr(self, "loads", 0) + 1, 0
    return super().load_state_dict(state, strict)
"""
UNTIMED = "self.calls += 1; untimed = self.loads < 2 or self.calls < 2"


@dataclass(frozen=True)
class Rule:
    source: str
    kind: str
    """Of the fault, with the rule."""
    off: Callable[[pytest.MonkeyPatch, Bench], None]
    on: Problem = field(default_factory=problem)
    lane: Lane = "fp32"


def same_input(patch: pytest.MonkeyPatch, bench: Bench) -> None:
    kept = bench.draw_inputs()
    patch.setattr(bench, "draw_inputs", lambda: kept)
    no_near_duplicates(patch, bench)


def no_near_duplicates(patch: pytest.MonkeyPatch, _: Bench) -> None:
    patch.setattr(draws, "near_duplicate", lambda *_: None)


def same_weights(patch: pytest.MonkeyPatch, bench: Bench) -> None:
    patch.setattr(bench, "fresh_weights", lambda: None)


def nobody_is_stopped(patch: pytest.MonkeyPatch, _: Bench) -> None:
    for name in ("stop_all", "stop_known"):
        patch.setattr(Tree, name, lambda *_: True)
    newcomers_are_overlooked(patch, _)
    patch.setattr(Contest, "_still", lambda *_: 0.0)
    prepare = Contest._prepare

    def slowly(contest: Contest, player: Player, inputs: list[torch.Tensor]) -> float:
        before = prepare(contest, player, inputs)
        time.sleep(0.03)  # what a sweep takes on a slower machine
        return before

    patch.setattr(Contest, "_prepare", slowly)


def nobody_is_watched(patch: pytest.MonkeyPatch, _: Bench) -> None:
    """Asked to stop, and believed."""
    patch.setattr(Contest, "_still", lambda *_: 0.0)
    for name in ("stop_all", "stop_known"):
        patch.setattr(Tree, name, believing(getattr(Tree, name)))
    newcomers_are_overlooked(patch, _)


def believing(stop: Callable[..., bool]) -> Callable[..., bool]:
    def stopped(tree: Tree, *_: float) -> bool:
        stop(tree, 0.01)
        return True

    return stopped


def inputs_are_not_compared(patch: pytest.MonkeyPatch, _: Bench) -> None:
    patch.setattr(Contest, "_untouched", lambda *_: None)


def timed_outputs_are_not_checked(patch: pytest.MonkeyPatch, _: Bench) -> None:
    patch.setattr(Contest, "_judge_by_eager", lambda *_: None)
    patch.setattr(Contest, "_follow", lambda *_: None)


def timed_outputs_are_checked_loosely(patch: pytest.MonkeyPatch, _: Bench) -> None:
    patch.setattr(gate, "strictest", lambda *_: None)


def newcomers_are_overlooked(patch: pytest.MonkeyPatch, _: Bench) -> None:
    patch.setattr(Worker, "_outlived", lambda *_: False)
    patch.setattr(Contest, "_still", lambda *_: 0.0)  # it would be seen computing, too


def the_dead_are_forgotten(patch: pytest.MonkeyPatch, _: Bench) -> None:
    patch.setattr(Used, "since", lambda now, then: sum(now[pid] - then.get(pid, 0.0) for pid in now))
    for limit in ("RESTLESS", "BLATANT_SECONDS"):  # by chance, one may be seen at it
        patch.setattr(contest, limit, math.inf)


def nobody_looks_after_the_clock(patch: pytest.MonkeyPatch, _: Bench) -> None:
    patch.setattr(Worker, "used_by_end", property(lambda _: None, lambda *_: None), raising=False)


def statistics_stay(patch: pytest.MonkeyPatch, _: Bench) -> None:
    patch.setattr(draws, "fresh_statistic", lambda *drawn: drawn[1])


RULES = {
    "every call gets a fresh input": Rule(
        candidate(
            f"""
            key = x.data_ptr(), self.linear.weight._version
            if self.known[0] != key:
                self.known = key, {ANSWER}
            return self.known[1]
            """,
            init="self.known = None, None",
        ),
        "incorrect",
        same_input,
    ),
    "weights are replaced between rounds": Rule(
        candidate(
            """
            if self.packed is None:
                self.packed = self.linear.weight.clone(), self.linear.bias.clone()
            return F.gelu(F.linear(x, *self.packed))
            """,
            init="self.packed = None",
        ),
        "incorrect",
        same_weights,
    ),
    "near-duplicates are told apart": Rule(
        candidate(
            f"""
            key = x.flatten()[::512].tolist(), self.linear.weight._version
            if self.known[0] != key:
                self.known = key, {ANSWER}
            return self.known[1]
            """,
            init="self.known = None, None",
        ),
        "incorrect",
        no_near_duplicates,
    ),
    "whoever is not on the clock is stopped": Rule(EARLY, "incorrect", nobody_is_stopped),
    "what is stopped uses no CPU": Rule(WAKES_ITSELF, "background_work", nobody_is_watched),
    "inputs are compared after the call": Rule(
        candidate(f"y = {ANSWER}; x.mul_(0.5); return y"), "mutated_input", inputs_are_not_compared
    ),
    "timed outputs are checked": Rule(
        candidate(f"{UNTIMED}; y = {ANSWER}; return y if untimed else y * 1.01", extra=BY_CALL),
        "incorrect",
        timed_outputs_are_not_checked,
    ),
    "timed outputs are checked in the lane that is reported": Rule(
        candidate(
            f"{UNTIMED}; y = {ANSWER}; return y if untimed else y.bfloat16().float()",
            extra=BY_CALL,
        ),
        "lane fp16",
        timed_outputs_are_checked_loosely,
        lane="bf16",
    ),
    "what was begun in a call ends with it": Rule(
        candidate(
            f"""
            import os
            self.calls += 1
            if self.calls > 6 and os.fork() == 0:
                while True: pass
            return {ANSWER}
            """,
            init="self.calls = 0",
        ),
        "background_work",
        newcomers_are_overlooked,
    ),
    "running statistics are drawn": Rule(
        candidate(
            "return torch.addcmul(self.norm.bias, x, self.norm.weight).relu_()",
            init="self.norm = nn.BatchNorm1d(features)",
        ).replace("        self.linear = nn.Linear(features, features)\n", ""),
        "incorrect",
        statistics_stay,
        on=NORMALIZED,
    ),
}


@pytest.fixture(scope="module")
def spares(level: str) -> Iterator[Nursery]:
    nursery = Nursery(level, 2, 2)
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def benches(spares: Nursery) -> Iterator[Callable[[Problem], Bench]]:
    known: dict[str, Bench] = {}
    sweep = Sweep()

    def bench(on: Problem) -> Bench:
        if on.sha256 not in known:
            known[on.sha256] = Bench(on, spares, sweep, LIMITS)
        return known[on.sha256]

    yield bench
    for one in known.values():
        one.close()


def ended(failure: WorkerFailed) -> str:
    """What the judge calls it."""
    return "background_work" if failure.outcome == "unstoppable" else failure.outcome


def play(bench: Bench, rule: Rule) -> str:
    """The fault's kind; without one, the lane that the candidate would be reported in."""
    workers = bench.nursery.take(LIMITS, 2)
    try:
        players = [bench.reference(workers[0]), Player("candidate", workers[1])]
        bench.start(workers[1], rule.source, "ModelNew")
        rounds = Contest(bench, players, check=(1,), lane=rule.lane).run(30.0, ROUNDS, PAIRS)
    except Fault as fault:
        return fault.kind if fault.failure is None else ended(fault.failure)
    except WorkerFailed as failure:
        return ended(failure)
    finally:
        for worker in workers:
            worker.kill()
    return f"lane {lane_of(rounds.errors, bench.yardstick)}"


lane_of: Callable[..., Any] = gate.strictest
"""Kept aside: a rule that is taken out replaces it."""


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_what_stops_a_cheat(
    name: str, benches: Callable[[Problem], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = RULES[name]
    bench = benches(rule.on)
    assert play(bench, rule) == rule.kind
    rule.off(monkeypatch, bench)
    bench.weights.draw(bench.rng)
    bench.load_weights(bench.oracle)
    without = play(bench, rule)
    assert without.startswith("lane "), without
    assert without != rule.kind


def test_nobody_ends_while_it_is_stopped(benches: Callable[[Problem], Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    bench = benches(problem())
    monkeypatch.setattr(bench, "sweep", lambda: time.sleep(0.05))  # so long that they hardly ever miss it
    rule = Rule(ENDS_STOPPED, "background_work", the_dead_are_forgotten)
    assert play(bench, rule) == rule.kind
    rule.off(monkeypatch, bench)
    assert play(bench, rule).startswith("lane ")


def test_what_is_finished_after_the_clock_is_seen(
    benches: Callable[[Problem], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    outlived = Worker._outlived

    def slowly(worker: Worker) -> bool:
        found = outlived(worker)
        time.sleep(0.05)  # as a walk among many processes takes
        return found

    monkeypatch.setattr(Worker, "_outlived", slowly)
    no_near_duplicates(monkeypatch, benches(problem()))  # it would have to know them
    rule = Rule(AFTER_THE_CLOCK, "background_work", nobody_looks_after_the_clock)
    assert play(benches(problem()), rule) == rule.kind
    rule.off(monkeypatch, benches(problem()))
    assert play(benches(problem()), rule).startswith("lane ")


def test_the_reference_is_asked_only_when_every_answer_is_captured(
    benches: Callable[[Problem], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = benches(problem())
    seen: list[str] = []
    workers = bench.nursery.take(LIMITS, 2)

    def noted[**P, T](event: str, call: Callable[P, T]) -> Callable[P, T]:
        def noting(*args: P.args, **kwargs: P.kwargs) -> T:
            seen.append(event)
            return call(*args, **kwargs)

        return noting

    monkeypatch.setattr(bench, "truth", noted("truth", bench.truth))
    for n, worker in enumerate(workers):
        monkeypatch.setattr(worker, "captured", noted(f"captured {n}", worker.captured))
    try:
        players = [bench.reference(w) for w in workers]
        Contest(bench, players, check=(1,)).run(30.0, 1, 2)
    finally:
        for worker in workers:
            worker.kill()
    for n, event in enumerate(seen):
        if event == "truth":
            assert {"captured 0", "captured 1"} == set(seen[n - 2 : n])
    assert "truth" in seen


def test_pairs_are_dropped_for_what_the_machine_did_but_few(
    benches: Callable[[Problem], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, ticks = benches(problem()), itertools.count()
    monkeypatch.setattr(contest, "steal_ticks", lambda: next(ticks))  # as if time were stolen in every pair
    workers = bench.nursery.take(LIMITS, 2)
    try:
        rounds = Contest(bench, [bench.reference(w) for w in workers], check=()).run(60.0, 4, 6)
    finally:
        for worker in workers:
            worker.kill()
    assert rounds.dropped == 2
    assert rounds.n_pairs == 4 * 6 - 2


def test_no_number_is_believed_of_a_machine_on_which_the_reference_differs_from_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def noisy(bench: Bench) -> None:
        asked.append(bench)
        bench.take_as_control([0.3, 0.31] * 4)

    monkeypatch.setattr(Bench, "_run_control", noisy)
    monkeypatch.setattr(timing, "UNSTABLE_HALF_WIDTH", 10.0)  # a judge inside pytest is a restless one
    judge = Judge("jail", tmp_path, threads=2)
    spec = EvaluationSpec(problem=problem(), source=candidate(f"return {ANSWER}"), limits=LIMITS)
    try:
        refused = judge.evaluate(spec)
        assert refused.status == "unstable"
        assert "the reference against itself gave 1.3" in refused.reason
        assert len(asked) == CONTROL_TRIES
        monkeypatch.setattr(Bench, "control_ok", True)
        assert "against itself" not in judge.evaluate(spec).reason
    finally:
        judge.close()


def test_a_verdict_without_a_control_group_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup.Group, "create", lambda *_: None)
    judge = Judge("jail", tmp_path, threads=2)
    try:
        verdict = judge.evaluate(EvaluationSpec(problem=problem(), source="raise ValueError('x')\n", limits=LIMITS))
    finally:
        judge.close()
    assert verdict.status == "load_error"
    assert "no_control_group" in verdict.flags


def test_constant_answers_are_known_before_they_are_scored(benches: Callable[[Problem], Bench]) -> None:
    assert gate.accepted_null(benches(problem()).yardstick, "bf16") is None
    constant = problem(problem().source.replace("F.gelu(self.linear(x))", "F.gelu(self.linear(x)) * 0 + 3"))
    assert gate.accepted_null(benches(constant).yardstick, "fp32") is not None


def test_weights_are_drawn_within_the_problem_s_own_distribution() -> None:
    rng = torch.Generator().manual_seed(1)
    mean = draws.fresh_statistic("norm.running_mean", torch.zeros(1000), rng)
    variance = draws.fresh_statistic("norm.running_var", torch.ones(1000), rng)
    mask = draws.fresh_statistic("mask", torch.ones(1000), rng)
    assert 0.05 < float(mean.std()) < 0.2
    assert float(variance.min()) > 0
    assert float(variance.std()) > 0.1
    assert torch.equal(mask, torch.ones(1000))
