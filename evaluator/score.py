"""From what was measured to what is reported: speedup and interval, drift, the gain over an incumbent, acceptance.

Players stand in the order reference, (incumbent,) candidate. All times in seconds, all logarithms natural.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from evaluator import contest, timing
from evaluator.contest import Rounds
from evaluator.model import Purpose
from evaluator.verdicts import Verdict, require_steady

OVERHEAD_SHARE = 0.20
FLOOR_SHARE = 0.9
MIN_GAIN = math.log(1.01)
GAIN_DRIFT = 0.0
"""Drift that is forgiven where a gain is concerned: 1% is enough of one, and contest.DRIFT is more."""


@dataclass(frozen=True)
class Ruler:
    """What is known of machine and problem, whoever the candidate is."""

    between_sd: float
    """Deviation of ln(ratio) between instances of the same processes."""
    null_seconds: float
    """A call that answers with a ready output."""
    write_seconds: float
    """Writing the outputs once, at the machine's bandwidth."""


@dataclass(frozen=True)
class Score:
    speedup: float
    low: float
    high: float
    net: float | None
    """With the protocol's own time taken from both sides; None where nothing would be left."""
    reference_seconds: float
    candidate_seconds: float
    drift: float
    """Of the reference beside the candidate, against alone: 0.1 is 10% slower."""
    gain: float | None
    """Over the incumbent: 0.1 is 1.1 times as fast."""
    gain_low: float | None
    accepted: bool | None
    """In the incumbent's place; None where nobody asked."""
    flags: tuple[str, ...]


def last_player(rounds: Sequence[Rounds]) -> int:
    return len(next(pair for r in rounds for pairs in r.pairs for pair in pairs)) - 1


def log_ratios(rounds: Sequence[Rounds], over: int = 0) -> list[float]:
    """m_r of all rounds: ln of ``over``'s time by the candidate's."""
    last = last_player(rounds)
    return [m for r in rounds for m in r.log_ratios(over, last)]


def score(rounds: Sequence[Rounds], purpose: Purpose, ruler: Ruler) -> Score:
    """Raises Verdict: ``unstable`` with too wide an interval, ``below_floor`` for what no machine can do."""
    now = timing.estimate(log_ratios(rounds), ruler.between_sd, len(rounds))
    require_steady(now)
    last = last_player(rounds)
    reference = statistics.mean(r.median_seconds(0) for r in rounds)
    candidate = statistics.mean(r.median_seconds(last) for r in rounds)
    _above_floor(ruler, reference, candidate)
    flags = []
    drift = statistics.mean(r.drift() for r in rounds)
    # Where the reference ran slower beside the candidate than alone, its time alone counts.
    scale = math.exp(-drift) if drift > contest.DRIFT else 1.0
    if scale < 1:
        flags.append("reference_drift")
    null = ruler.null_seconds
    if null > OVERHEAD_SHARE * candidate:
        flags.append("overhead_limited")
    gain, gain_low, accepted = _gain(rounds, purpose, ruler, drift if drift > GAIN_DRIFT else 0.0)
    return Score(
        speedup=now.ratio * scale,
        low=now.low * scale,
        high=now.high,
        net=(reference - null) / (candidate - null) * scale if candidate > 1.05 * null and reference > null else None,
        reference_seconds=reference,
        candidate_seconds=candidate,
        drift=math.expm1(drift),
        gain=gain,
        gain_low=gain_low,
        accepted=accepted,
        flags=tuple(flags),
    )


def _gain(
    rounds: Sequence[Rounds], purpose: Purpose, ruler: Ruler, slowed: float
) -> tuple[float | None, float | None, bool | None]:
    """Gain, its lower bound and acceptance. What slowed the reference down slowed the incumbent down as well."""
    if purpose != "promote":
        return None, None, None
    if last_player(rounds) == 1:
        return None, None, True
    logs = log_ratios(rounds, over=1)
    bound = timing.lower_bound(logs, ruler.between_sd, len(rounds)) - slowed
    gain = statistics.mean(logs) - slowed
    return math.expm1(gain), math.expm1(bound), bound > 0 and gain >= MIN_GAIN


def _above_floor(ruler: Ruler, reference: float, candidate: float) -> None:
    """Nothing writes an output faster than this; a reference that does returns a view, and so may the candidate."""
    floor = FLOOR_SHARE * ruler.write_seconds
    if candidate < floor < reference:
        raise Verdict(
            "below_floor",
            f"{candidate * 1e3:.4f} ms is less than it takes to write the output ({floor * 1e3:.4f} ms)",
        )
