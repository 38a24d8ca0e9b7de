"""What is reported of measured times, each rule on and off: the numbers of a cheat, and what they would come to."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import pytest

from evaluator import contest, score, timing
from evaluator.contest import Rounds
from evaluator.model import Purpose
from evaluator.score import Ruler, Score
from evaluator.verdicts import Verdict
from evaluator.workers import covered

RULER = Ruler(between_sd=0.005, null_seconds=1e-4, write_seconds=5e-5)
REFERENCE = 10e-3


def measured(*others: float, solo: float = REFERENCE, noise: float = 0.004, instances: int = 3) -> list[Rounds]:
    """Eight rounds of four pairs an instance: the reference takes 10 ms, the others what is given."""
    rng = random.Random(3)
    made = []
    for _ in range(instances):
        pairs = [
            [tuple(t * math.exp(rng.gauss(0, noise)) for t in (REFERENCE, *others)) for _ in range(4)] for _ in range(8)
        ]
        made.append(Rounds(pairs=pairs, solo_seconds=solo))
    return made


def reported(rounds: list[Rounds], purpose: Purpose = "promote", ruler: Ruler = RULER) -> Score | str:
    try:
        return score.score(rounds, purpose, ruler)
    except Verdict as verdict:
        return verdict.status


def numbers(rounds: list[Rounds], purpose: Purpose = "promote", ruler: Ruler = RULER) -> Score:
    found = reported(rounds, purpose, ruler)
    assert isinstance(found, Score), found
    return found


@dataclass(frozen=True)
class Rule:
    rounds: list[Rounds]
    stops: Callable[[Score | str], bool]
    name: str
    """The constant that switches it off, set to ``off``."""
    off: float
    ruler: Ruler = RULER
    where: ModuleType = score


RULES = {
    "nothing is faster than writing the output": Rule(
        measured(2e-5), lambda found: found == "below_floor", "FLOOR_SHARE", 0.0
    ),
    "a reference slowed down beside the candidate does not count": Rule(
        # The candidate is as fast as eager, but burns CPU while it should stand still.
        measured(8e-3, solo=8e-3),
        lambda found: isinstance(found, Score) and found.low <= 1 and "reference_drift" in found.flags,
        "DRIFT",
        math.inf,
        where=contest,
    ),
    "an incumbent slowed down with the reference does not count": Rule(
        # By less than is forgiven to a speedup, and by more than a gain must be.
        measured(5e-3, 4.88e-3, solo=REFERENCE / 1.025),
        lambda found: isinstance(found, Score) and not found.accepted,
        "GAIN_DRIFT",
        math.inf,
    ),
    "a gain below 1% is no new best": Rule(
        measured(5e-3, 4.97e-3, noise=1e-4),
        lambda found: isinstance(found, Score) and not found.accepted,
        "MIN_GAIN",
        0.0,
        Ruler(between_sd=0.0, null_seconds=1e-4, write_seconds=5e-5),
    ),
    "what is mostly protocol is said to be": Rule(
        measured(4e-4),
        lambda found: isinstance(found, Score) and "overhead_limited" in found.flags,
        "OVERHEAD_SHARE",
        1.0,
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_what_stops_a_number(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = RULES[name]
    assert rule.stops(reported(rule.rounds, ruler=rule.ruler))
    monkeypatch.setattr(rule.where, rule.name, rule.off)
    assert not rule.stops(reported(rule.rounds, ruler=rule.ruler))


def test_a_gain_must_be_beyond_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    lucky = measured(5e-3, 4.85e-3, noise=0.12)
    found = numbers(lucky)
    assert found.gain is not None
    assert found.gain > 0.01
    assert not found.accepted
    monkeypatch.setattr(timing, "lower_bound", lambda logs, *_: sum(logs) / len(logs))
    assert numbers(lucky).accepted


def test_the_deviation_between_processes_keeps_a_small_gain_out() -> None:
    rounds = measured(5e-3, 4.9e-3, noise=1e-3)
    assert numbers(rounds).accepted
    assert not numbers(rounds, ruler=Ruler(0.02, 1e-4, 5e-5)).accepted


def test_a_wide_interval_is_no_verdict() -> None:
    assert reported(measured(5e-3, noise=1.0)) == "unstable"


def test_a_reference_that_is_below_the_floor_as_well_returns_views() -> None:
    views = [Rounds([[(1e-5, 1e-5 * (1 + 1e-3 * (n % 3))) for n in range(4)] for _ in range(8)], solo_seconds=1e-5)] * 3
    found = numbers(views)
    assert found.speedup == pytest.approx(1, abs=0.01)
    assert found.net is None, "nothing is left beside the protocol"


def test_the_numbers_of_an_ordinary_candidate() -> None:
    found = numbers(measured(5e-3))
    assert found.low < 2 < found.high
    assert found.speedup == pytest.approx(2, rel=0.01)
    assert found.net == pytest.approx(9.9 / 4.9, rel=0.01)
    assert found.reference_seconds == pytest.approx(REFERENCE, rel=0.01)
    assert found.candidate_seconds == pytest.approx(5e-3, rel=0.01)
    assert abs(found.drift) < 0.01
    assert (found.gain, found.gain_low, found.accepted, found.flags) == (None, None, True, ())
    assert numbers(measured(5e-3, instances=1), "screen").accepted is None
    assert numbers(measured(5e-3), "final").accepted is None


def test_drift_within_the_machine_s_own_costs_nothing() -> None:
    def speedup(drift: float) -> float:
        return numbers(measured(5e-3, solo=REFERENCE / (1 + drift))).speedup

    assert speedup(0.02) == speedup(0.0)
    assert speedup(-0.2) == speedup(0.0)
    assert speedup(0.25) == pytest.approx(speedup(0.0) / 1.25, rel=0.01)


@pytest.mark.parametrize("slowed", [3, 11, 24])
def test_a_reference_slowed_down_in_some_rounds_gains_nothing(slowed: int) -> None:
    """Fewer than half of the rounds leave its median over all calls where it was, and move the mean of the ratios."""
    rng = random.Random(slowed)
    rounds = measured(REFERENCE, instances=3)
    slow = set(rng.sample(range(24), slowed))
    for n, where in enumerate(rounds):
        where.pairs = [
            [(p[0] * (1.3 if 8 * n + r in slow else 1.0), p[1]) for p in pairs] for r, pairs in enumerate(where.pairs)
        ]
    found = numbers(rounds)
    assert "reference_drift" in found.flags
    assert found.speedup == pytest.approx(1, abs=0.01)
    assert found.low <= 1


@pytest.mark.parametrize("slowed", [1, 3])
def test_a_slow_phase_of_the_machine_costs_an_honest_candidate_nothing(slowed: int) -> None:
    quiet = numbers(measured(5e-3, instances=3)).speedup
    rounds = measured(5e-3, instances=3)
    for where in rounds:
        where.pairs = [
            [tuple(t * (1.5 if r < slowed else 1.0) for t in p) for p in pairs] for r, pairs in enumerate(where.pairs)
        ]
    found = numbers(rounds)
    assert found.flags == ()
    assert found.speedup == pytest.approx(quiet, rel=0.01)


def test_who_slows_both_sides_down_now_and_then_is_as_fast_as_without() -> None:
    """It may choose the rounds in which it loses time itself; what the reference loses there gains it no more."""
    rounds = measured(5e-3, instances=3)
    for where in rounds:
        where.pairs = [
            [(p[0] * 1.3, p[1] * 1.1) if r % 3 == 0 else p for p in pairs] for r, pairs in enumerate(where.pairs)
        ]
    found = numbers(rounds)
    assert "reference_drift" in found.flags
    assert found.speedup <= numbers(measured(5e-3, instances=3)).speedup * 1.01


def test_processes_are_started_in_an_order_and_its_reverse() -> None:
    rng = random.Random(1)
    first = set()
    for _ in range(40):
        one, two, three = timing.start_orders(3, 3, rng)
        assert sorted(one) == [0, 1, 2]
        assert two == one[::-1]
        assert three == one
        first.add(one[0])
    assert first == {0, 1, 2}, "who is started first is drawn"


@pytest.mark.parametrize(
    ("blocks", "counts", "done"),
    [
        ([1.0], 1.0, True),
        ([0.9], 0.9, False),  # the reference seems to have been slowed down: once more
        ([0.9, 1.0], 1.0, True),
        ([0.9, 0.92, 0.91], 0.92, True),
        ([1.2], None, False),  # still slowed down itself
        ([1.2, 1.0], 1.0, False),
        ([0.7, 1.2], 0.7, False),  # a late block hides nothing
        ([1.2, 1.0, 0.7, 0.9], 0.7, True),
        ([1.2] * 6, None, False),
    ],
)
def test_which_time_alone_counts(blocks: list[float], counts: float | None, done: bool) -> None:
    assert contest.settled(blocks, lambda alone: -math.log(alone)) == (counts, done)


def test_a_candidate_that_varies_beside_a_slowed_reference_gains_nothing() -> None:
    """With an even number of pairs, medians of times are not medians of their ratios."""
    honest = numbers(measured(REFERENCE, instances=3)).speedup
    rounds = measured(REFERENCE, instances=3)
    for where in rounds:
        where.pairs = [
            [(p[0] * (1.2 if i < 3 else 1.0), p[1] * (1.3 if i % 2 else 1.0)) for i, p in enumerate(pairs)]
            if r % 2
            else pairs
            for r, pairs in enumerate(where.pairs)
        ]
    assert numbers(rounds).speedup <= 1.01 * honest


def test_memory_that_outputs_share_is_counted_once() -> None:
    assert covered([]) == 0
    assert covered([(0, 10)] * 5) == 10
    assert covered([(20, 30), (0, 10), (5, 12), (6, 8)]) == 22
