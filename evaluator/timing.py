"""From round medians to a speedup with an interval.

m_r, the median over a round's pairs of ln(t_ref / t_cand), is one observation. A t-interval over rounds (never a
bootstrap over pairs: a shift shared within a round made its "95%" cover 48 to 87%) is widened for looking more than
once, and by the machine's deviation between process instances, which no number of rounds averages away.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LOOKS = (8, 12, 16, 24)
ENOUGH_HALF_WIDTH = 0.015
ENOUGH_HALF_WIDTH_FAST = 0.03
FAST = math.log(1.2)
ENOUGH_HALF_WIDTH_LATE = 0.05
LATE_SECONDS = 1.0
"""From then on a coarser interval will do: on a restless machine 24 rounds instead of 12 made it narrower by a third
and the evaluation longer by 2 s, and a screening only decides whether to confirm."""
CONFIRMED_HALF_WIDTH, CONFIRMED_HALF_WIDTH_FAST = 0.03, 0.08
LOOK_PENALTY = 1.15
UNSTABLE_HALF_WIDTH = 0.10
PAIRS = 6
PRIOR_SD, PRIOR_WEIGHT = 0.01, 4
"""Between-process deviation of ln(ratio) that two cores showed, and how many observations it counts for."""
Z95, Z9975 = 1.960, 2.807

# Student's t: two-sided 95% and one-sided 99.75% by degrees of freedom (tables; the normal quantile beyond).
# fmt: off
_T95 = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262,
    10: 2.228, 11: 2.201, 13: 2.16, 15: 2.131, 19: 2.093, 23: 2.069, 29: 2.045, 39: 2.023, 59: 2.001,
}
# fmt: on
# fmt: off
_T9975 = {
    1: 127.3, 2: 14.09, 3: 7.453, 4: 5.598, 5: 4.773, 6: 4.317, 7: 4.029, 8: 3.833, 9: 3.69,
    10: 3.581, 11: 3.497, 13: 3.372, 15: 3.286, 19: 3.174, 23: 3.104, 29: 3.038, 39: 2.976, 59: 2.915,
}
# fmt: on


def _quantile(table: dict[int, float], freedom: int) -> float:
    """The table's value, on the safe side (fewer degrees of freedom) between entries."""
    return table[max(k for k in table if k <= max(1, freedom))]


@dataclass(frozen=True)
class Estimate:
    """Mean of the rounds' log ratios and the half-width of its 95% interval, both natural logarithms."""

    mean: float
    within: float
    """Half-width from the rounds alone, widened for the looks."""
    half_width: float
    """With the between-process deviation."""
    rounds: int

    @property
    def ratio(self) -> float:
        return math.exp(self.mean)

    @property
    def low(self) -> float:
        return math.exp(self.mean - self.half_width)

    @property
    def high(self) -> float:
        return math.exp(self.mean + self.half_width)


def estimate(rounds: Sequence[float], between_sd: float = 0.0, instances: int = 1, *, looked: bool = True) -> Estimate:
    """95% interval from round medians. Fewer than two rounds give an infinite interval."""
    n = len(rounds)
    if n < 2:
        return Estimate(rounds[0] if rounds else 0.0, math.inf, math.inf, n)
    within = _quantile(_T95, n - 1) * statistics.stdev(rounds) / math.sqrt(n) * (LOOK_PENALTY if looked else 1.0)
    between = Z95 * between_sd / math.sqrt(instances)
    return Estimate(statistics.mean(rounds), within, math.hypot(within, between), n)


def lower_bound(rounds: Sequence[float], between_sd: float, instances: int) -> float:
    """One-sided 99.75% lower bound of the mean log ratio, widened for the looks."""
    n = len(rounds)
    if n < 2:
        return -math.inf
    within = _quantile(_T9975, n - 1) * statistics.stdev(rounds) / math.sqrt(n) * LOOK_PENALTY
    return statistics.mean(rounds) - math.hypot(within, Z9975 * between_sd / math.sqrt(instances))


def enough(rounds: Sequence[float], seconds: float = 0.0) -> bool:
    """Whether a look at this many rounds, which took ``seconds``, may stop: only at 8, 12, 16 and 24."""
    if len(rounds) not in LOOKS:
        return False
    now = estimate(rounds)
    wanted = ENOUGH_HALF_WIDTH_FAST if now.mean > FAST else ENOUGH_HALF_WIDTH
    if seconds > LATE_SECONDS:
        wanted = ENOUGH_HALF_WIDTH_LATE
    return now.within <= wanted or len(rounds) == LOOKS[-1]


def confirmed(sets: Sequence[Sequence[float]]) -> bool:
    """Whether the rounds of several sets of processes agree well enough, set by set, to need no further one."""
    means = [statistics.mean(rounds) for rounds in sets]
    half_width = _quantile(_T95, len(means) - 1) * statistics.stdev(means) / math.sqrt(len(means))
    return half_width <= (CONFIRMED_HALF_WIDTH_FAST if statistics.mean(means) > FAST else CONFIRMED_HALF_WIDTH)


def between_process_sd(controls: Sequence[float]) -> float:
    """Deviation of single-instance A/A log ratios, shrunk towards the prior while there are few of them."""
    total = PRIOR_WEIGHT * PRIOR_SD**2 + sum(c * c for c in controls)
    return math.sqrt(total / (PRIOR_WEIGHT + len(controls)))


def pairs_per_round(seconds_per_pair: float, cap_seconds: float) -> int:
    """6, fewer (at least 2) when eight rounds would not fit the cap."""
    if seconds_per_pair <= 0:
        return PAIRS
    return max(2, min(PAIRS, int(cap_seconds / (LOOKS[0] * seconds_per_pair))))


def orders(players: int, pairs: int, rng: random.Random) -> list[tuple[int, ...]]:
    """Who goes when in each pair of a round: blocks of an order and its reverse (ABBA or BAAB), drawn at random."""
    result: list[tuple[int, ...]] = []
    while len(result) < pairs:
        order = list(range(players))
        rng.shuffle(order)
        result += [tuple(order), tuple(reversed(order))]
    return result[:pairs]


def start_orders(players: int, instances: int, rng: random.Random) -> list[tuple[int, ...]]:
    """In which order each instance's processes are started: one drawn at random, then it and its reverse in turn.

    Of two processes of the same program the one started first was 1% slower.
    """
    order = list(range(players))
    rng.shuffle(order)
    return [tuple(order if n % 2 == 0 else reversed(order)) for n in range(instances)]
