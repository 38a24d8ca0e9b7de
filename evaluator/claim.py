"""What an in-process evaluator says of a candidate. A claim, not a verdict: the candidate sat beside the clock.

Frozen pydantic models only; nothing here imports torch.
"""

from __future__ import annotations

from typing import Literal

from evaluator.model import Frozen, Lane

TOLERANCES = (1e-4, 1e-2)
"""Both tolerances in use, strictest first: atol = rtol."""

ClaimStatus = Literal["correct", "incorrect", "error", "timeout", "crashed", "unreadable"]


def tolerance_of(lane: Lane) -> float:
    """The tolerance that such an evaluator holds a lane to: the tight one where the dtype is float32."""
    return TOLERANCES[0] if lane in ("fp32", "tf32") else TOLERANCES[1]


class Claim(Frozen):
    """The in-process loop's answer about one candidate."""

    status: ClaimStatus
    """``correct`` and ``incorrect`` are at ``tolerance``; ``unreadable``: what came back was no answer at all."""
    reason: str
    """One sentence; it may quote what the candidate raised (untrusted text, control characters stripped)."""
    tolerance: float
    passed: tuple[float, ...] = ()
    """Those of ``TOLERANCES`` at which every output of every trial was close."""
    largest_error: float | None = None
    """Largest absolute difference of an element, over all trials."""
    speedup: float | None = None
    """Mean reference time over mean candidate time; given whenever both were timed, that is, from 1e-2 on."""
    candidate_ms: float | None = None
    reference_ms: float | None = None
    calls: int = 0
    """Timed calls of the candidate."""
    seconds: float = 0.0
    """Wall seconds of the whole, the start of the process included."""
