"""The statistics: balanced orders, intervals that cover, looks that are few."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator import timing


@given(players=st.integers(2, 3), blocks=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_orders_are_balanced(players: int, blocks: int, seed: int) -> None:
    orders = timing.orders(players, 2 * blocks, random.Random(seed))
    assert all(sorted(order) == list(range(players)) for order in orders)
    for a in range(players):
        for b in range(a):
            assert sum(order.index(a) < order.index(b) for order in orders) == blocks
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        assert first == second[::-1]


def test_orders_are_drawn_at_random() -> None:
    rng = random.Random(1)
    firsts = [timing.orders(2, 2, rng)[0][0] for _ in range(400)]
    assert 150 < sum(firsts) < 250


def rounds_of(rng: random.Random, truth: float, rounds: int, noise: float, shift: float) -> list[float]:
    """Round medians of six pairs, with a shift that all pairs of a round share."""
    found = []
    for _ in range(rounds):
        shared = rng.gauss(0, shift)
        found.append(statistics.median(truth + shared + rng.gauss(0, noise) for _ in range(6)))
    return found


@pytest.mark.parametrize(
    ("rounds", "noise", "shift"), [(8, 0.02, 0), (8, 0.02, 0.01), (12, 0.005, 0.02), (24, 0.02, 0)]
)
def test_intervals_cover_the_truth_at_the_nominal_rate(rounds: int, noise: float, shift: float) -> None:
    rng, runs, truth = random.Random(7), 1500, math.log(1.3)
    covered = 0
    for _ in range(runs):
        now = timing.estimate(rounds_of(rng, truth, rounds, noise, shift), looked=False)
        covered += abs(now.mean - truth) <= now.half_width
    assert 0.93 <= covered / runs <= 0.975


def test_intervals_still_cover_when_the_data_chose_when_to_stop() -> None:
    rng, runs, covered = random.Random(8), 1500, 0
    for _ in range(runs):
        found: list[float] = []
        seconds = rng.choice((0.05, 0.12, 0.3))
        while not timing.enough(found, len(found) * seconds):
            found += rounds_of(rng, 0.0, 1, 0.03, 0.01)
        now = timing.estimate(found)
        covered += abs(now.mean) <= now.half_width
    assert covered / runs >= 0.93


def test_the_deviation_between_processes_is_not_averaged_away() -> None:
    rng, runs, between, covered = random.Random(9), 1500, 0.02, 0
    for _ in range(runs):
        process = rng.gauss(0, between)
        now = timing.estimate(rounds_of(rng, process, 24, 0.005, 0), between)
        covered += abs(now.mean) <= now.half_width
    assert covered / runs >= 0.93
    assert timing.estimate([0.0] * 24, between).half_width == pytest.approx(1.96 * between)
    assert timing.estimate([0.0] * 24, between, 4).half_width == pytest.approx(1.96 * between / 2)


def test_a_lower_bound_is_rarely_above_the_truth() -> None:
    rng = random.Random(10)
    above = sum(timing.lower_bound(rounds_of(rng, 0.0, 24, 0.02, 0.01), 0.0, 2) > 0 for _ in range(4000))
    assert above <= 22  # 10 expected at 0.25%
    assert timing.lower_bound([0.5], 0.0, 1) == -math.inf
    assert timing.lower_bound([0.1] * 24, 0.0, 2) == pytest.approx(0.1)


@pytest.mark.parametrize("between", [0.002, 0.01, 0.03])
def test_equals_win_no_more_often_for_sets_that_were_added_until_they_agreed(between: float) -> None:
    rng, runs, won, covered, added = random.Random(11), 2000, 0, 0, 0
    for _ in range(runs):
        sets: list[list[float]] = []
        while len(sets) < 3 or (len(sets) < 6 and not timing.confirmed(sets)):
            sets.append(rounds_of(rng, rng.gauss(0, between), 6, 0.03, 0.01))
        found = [m for rounds in sets for m in rounds]
        added += len(sets) > 3
        won += timing.lower_bound(found, between, len(sets)) > 0
        now = timing.estimate(found, between, len(sets))
        covered += abs(now.mean) <= now.half_width
    assert won / runs <= 0.005
    assert covered / runs >= 0.93
    assert added / runs > 0.7 if between == 0.03 else added / runs < 0.7, "mostly where they differ"


def test_looks_happen_at_the_looks_only() -> None:
    steady = [0.0, 1e-4]
    for n in range(2, 24):
        assert timing.enough((steady * 12)[:n]) == (n in timing.LOOKS)
    noisy = [0.3, -0.3] * 12
    assert not any(timing.enough(noisy[:n]) for n in range(1, 24))
    assert timing.enough(noisy), "the last look ends it"


def test_a_late_look_takes_a_coarser_interval() -> None:
    swinging = [0.045 * (-1) ** n for n in range(8)]
    assert timing.ENOUGH_HALF_WIDTH_FAST < timing.estimate(swinging).within <= timing.ENOUGH_HALF_WIDTH_LATE
    assert not timing.enough(swinging, timing.LATE_SECONDS)
    assert timing.enough(swinging, timing.LATE_SECONDS + 0.1)
    assert not timing.enough(swinging[:7], 60), "looks stay the only places to stop"


def test_a_fast_candidate_needs_a_coarser_interval() -> None:
    def swinging(mean: float) -> list[float]:
        return [mean + 0.024 * (-1) ** n for n in range(8)]

    within = timing.estimate(swinging(0)).within
    assert timing.ENOUGH_HALF_WIDTH < within <= timing.ENOUGH_HALF_WIDTH_FAST
    assert not timing.enough(swinging(0))
    assert timing.enough(swinging(math.log(1.5)))


def test_too_few_rounds_give_no_interval() -> None:
    assert timing.estimate([]).half_width == math.inf
    assert timing.estimate([0.2]).half_width == math.inf


@given(seconds=st.floats(1e-6, 100), cap=st.floats(0.1, 60))
def test_rounds_fit_the_cap(seconds: float, cap: float) -> None:
    pairs = timing.pairs_per_round(seconds, cap)
    assert 2 <= pairs <= timing.PAIRS
    assert pairs == 2 or pairs * seconds * timing.LOOKS[0] <= cap * 1.001


def test_the_usual_round_has_six_pairs() -> None:
    assert timing.pairs_per_round(0.001, 8) == 6
    assert timing.pairs_per_round(0, 8) == 6
    assert timing.pairs_per_round(0.3, 8) == 3


def test_controls_move_the_prior() -> None:
    assert timing.between_process_sd([]) == pytest.approx(timing.PRIOR_SD)
    assert timing.between_process_sd([0.0] * 50) < timing.PRIOR_SD / 3
    assert timing.between_process_sd([0.05] * 200) == pytest.approx(0.05, rel=0.02)
