"""Right or wrong: a candidate's error against a float64 reference, beside eager's own error.

For each output, with c the candidate, r the float64 reference and s the RMS of r over the smallest trailing
dimensions that hold at least 64 elements (floored at 1e-3 of the RMS of all of r):

    R = rms((c - r) / s)                     the typical error in units of the output's scale
    M = the 1 - 1e-6 quantile of |c - r| / (s + |r|)
    P = max |c - r| / (s + |r|)

An output passes iff R <= max(4 R_eager, 4 R_pert, R0), M <= max(8 M_eager, 8 M_pert, M0) and P <= 100 times that last
bound; an answer passes iff each of its outputs does. R_eager is eager's own error in that output and R_pert the
reference's under one ulp of input noise, both pooled over inputs, never over outputs: one that is ill-conditioned
excuses no other. The absolute floors R0, M0 make a lane; they were found by emulating each precision on MLPs of 1 to
24 layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest

import torch

from evaluator.model import LANES, GateResult, Lane

FLOORS: dict[Lane, tuple[float, float]] = {
    "fp32": (1e-5, 1e-4),
    "tf32": (1e-3, 1e-2),
    "fp16": (2e-3, 2e-2),
    "bf16": (1e-2, 8e-2),
}
PAPER_GATES: dict[str, float] = {"kernelbench-1e-4": 1e-4, "cuda-1e-2": 1e-2, "triton-5e-2": 5e-2}
"""allclose(atol = rtol = t) on every element, as published."""
CHAOTIC_R = 1e-2
CHUNK = 1 << 22
SCALE_ELEMENTS = 64
SAME = 1e-12
"""Error of what is the same but for rounding in float64."""


@dataclass(frozen=True)
class Error:
    """One output against the float64 reference. ``finite``: the finite masks match position by position."""

    rms: float
    tail: float
    peak: float
    finite: bool = True

    def worst(self, other: Error) -> Error:
        return Error(
            max(self.rms, other.rms),
            max(self.tail, other.tail),
            max(self.peak, other.peak),
            self.finite and other.finite,
        )


NO_ERROR = Error(0.0, 0.0, 0.0)
Errors = tuple[Error, ...]
"""Of each output of an answer; empty where none was seen yet."""


def worst(one: Errors, other: Errors) -> Errors:
    """Output by output."""
    return tuple(a.worst(b) for a, b in zip_longest(one, other, fillvalue=NO_ERROR))


@dataclass(frozen=True)
class Yardstick:
    """What the reference itself does, for each output: eager's error and the effect of one ulp of input noise."""

    eager: Errors = ()
    noise: Errors = ()
    nulls: Mapping[str, Errors] = field(default_factory=dict)
    """Errors of answers that nobody computed (see ``null_answers``)."""
    lanes: tuple[Lane, ...] = LANES
    """Those that the target computes in."""

    @property
    def chaotic(self) -> bool:
        return any(noise.rms > CHAOTIC_R for noise in self.noise)

    def orderly(self, outputs: int) -> list[int]:
        """Those of so many outputs that are not chaotic."""
        return [n for n in range(outputs) if n >= len(self.noise) or self.noise[n].rms <= CHAOTIC_R]

    def of(self, output: int) -> Yardstick:
        """For that output alone."""
        return Yardstick(self.eager[output : output + 1], self.noise[output : output + 1], lanes=self.lanes)

    def bounds(self, lane: Lane, outputs: int) -> list[tuple[float, float]]:
        """Of R and M, for each of so many outputs; the lane's floors alone for what was not measured."""
        r0, m0 = FLOORS[lane]
        seen = islice(zip_longest(self.eager, self.noise, fillvalue=NO_ERROR), outputs)
        found = [(max(4 * own.rms, 4 * moved.rms, r0), max(8 * own.tail, 8 * moved.tail, m0)) for own, moved in seen]
        return found + [(r0, m0)] * (outputs - len(found))


def scale_of(r: torch.Tensor) -> torch.Tensor:
    """s of the module's docstring, in r's dtype, broadcastable against ``r``."""
    if r.numel() == 0:
        return r
    local = _group_rms(r)
    if not bool(torch.isfinite(local).all()):
        local = _group_rms(torch.where(torch.isfinite(r), r, torch.zeros((), dtype=r.dtype)))
    return local.clamp_min(1e-3 * float(local.pow(2).mean().sqrt()) + 1e-300)


def _group_rms(x: torch.Tensor) -> torch.Tensor:
    """RMS over the smallest trailing dimensions that hold at least 64 elements, which are kept with size 1."""
    dims, elements = [], 1
    for d in range(x.dim() - 1, -1, -1):
        if elements >= SCALE_ELEMENTS:
            break
        dims.append(d)
        elements *= x.shape[d]
    return torch.linalg.vector_norm(x, dim=dims, keepdim=True) / math.sqrt(elements) if dims else x.abs()


def measure(candidate: Sequence[torch.Tensor], reference: Sequence[torch.Tensor]) -> Errors:
    """Errors of ``candidate`` (any dtype) against ``reference`` (float64, or the exact dtype when not floating)."""
    return tuple(_measure_one(c, r) for c, r in zip(candidate, reference, strict=True))


def _real(x: torch.Tensor) -> torch.Tensor:
    """Numbers that can be compared one by one: a complex one is two, and 8 bits wide ones are made 32."""
    if x.is_complex():
        return torch.view_as_real(x.resolve_conj().resolve_neg())
    return x.float() if x.is_floating_point() and x.itemsize == 1 else x


def _measure_one(c: torch.Tensor, r: torch.Tensor) -> Error:
    if r.numel() == 0:
        return NO_ERROR
    c, r = _real(c), _real(r)
    if not r.is_floating_point():
        wrong = float((c != r).double().mean())
        return Error(wrong, wrong, wrong)
    s = scale_of(r)
    if r.numel() <= CHUNK:
        difference = c.double() - r
        rms = math.sqrt(float((_group_rms(difference) / s).pow(2).mean()))
        if math.isfinite(rms):
            relative = difference.abs_().div_(r.abs().add_(s)).reshape(-1)
            keep = max(1, round(r.numel() * 1e-6))
            peak = float(relative.max())
            return Error(rms, peak if keep == 1 else float(torch.topk(relative, keep).values[-1]), peak)
    s = s.expand_as(r).reshape(-1)
    flat_c, flat_r = c.reshape(-1), r.reshape(-1)
    keep = max(1, round(r.numel() * 1e-6))
    square, count, tails, finite = 0.0, 0, [], True
    for start in range(0, r.numel(), CHUNK):
        part = slice(start, start + CHUNK)
        cc, rr, ss = flat_c[part].double(), flat_r[part], s[part]
        difference = cc - rr
        scaled = difference / ss
        sum_of_squares = float(torch.dot(scaled, scaled))
        if not math.isfinite(sum_of_squares):
            # Somewhere something is not finite: compare the masks, then what lies inside both.
            mask = torch.isfinite(rr)
            same = torch.equal(torch.isfinite(cc), mask) and torch.equal(
                cc[~mask].nan_to_num(7), rr[~mask].nan_to_num(7)
            )
            finite = finite and same
            mask &= torch.isfinite(cc)
            difference, rr, ss = difference[mask], rr[mask], ss[mask]
            sum_of_squares = float((difference / ss).pow(2).sum())
        if difference.numel() == 0:
            continue
        square += sum_of_squares
        count += difference.numel()
        relative = difference.abs_().div_(rr.abs().add_(ss))
        tails.append(torch.topk(relative, min(keep, relative.numel())).values if keep > 1 else relative.max().view(1))
    if not tails:
        return Error(0.0, 0.0, 0.0, finite)
    top = torch.topk(torch.cat(tails), min(keep, sum(t.numel() for t in tails))).values
    return Error((square / max(count, 1)) ** 0.5, float(top[-1]), float(top[0]), finite)


def surely_passes(
    candidate: Sequence[torch.Tensor], eager: Sequence[torch.Tensor], yardstick: Yardstick, lane: Lane
) -> bool:
    """Whether eager's own answer is proof enough that ``candidate`` passes; False says nothing yet.

    Both norms obey the triangle inequality, so the error against float64 is at most the distance to eager plus
    eager's own. A tenth of the bounds is left for eager's error on this input and for single precision here.
    """
    bounds = yardstick.bounds(lane, len(eager))
    for c, e, own, (r_bound, m_bound) in zip(candidate, eager, yardstick.eager, bounds, strict=True):
        if e.numel() == 0:
            continue
        c, e = _real(c), _real(e)
        if not e.is_floating_point():
            if not torch.equal(c, e):
                return False
            continue
        reference = e.float()
        s = scale_of(reference)
        difference = c.float() - reference
        rms = math.sqrt(float((_group_rms(difference) / s).pow(2).mean()))
        least, most = torch.aminmax(difference)
        tail = max(-float(least), float(most)) / float(s.min())  # above the quantile, without a pass over everything
        if tail + own.peak > 0.9 * m_bound:
            tail = float(difference.abs_().div_(reference.abs().add_(s)).max())
        # A comparison with NaN is false, and so is this one.
        if not (rms + own.rms <= 0.9 * r_bound and tail + own.peak <= 0.9 * m_bound):
            return False
    return True


def passes(errors: Errors, yardstick: Yardstick, lane: Lane) -> bool:
    """Whether every output does."""
    return all(
        error.finite and error.rms <= r_bound and error.tail <= m_bound and error.peak <= 100 * m_bound
        for error, (r_bound, m_bound) in zip(errors, yardstick.bounds(lane, len(errors)), strict=True)
    )


def nearest(errors: Errors, yardstick: Yardstick, lane: Lane) -> tuple[int, Error, tuple[float, float]]:
    """The output that is nearest to its bounds or furthest beyond: its number, its error and those bounds."""
    errors = errors or (NO_ERROR,)
    bounds = yardstick.bounds(lane, len(errors))

    def share(n: int) -> float:
        error, (r_bound, m_bound) = errors[n], bounds[n]
        if not error.finite:
            return math.inf
        return max(error.rms / r_bound, error.tail / m_bound, error.peak / (100 * m_bound))

    n = max(range(len(errors)), key=share)
    return n, errors[n], bounds[n]


def null_answers(truth: Sequence[torch.Tensor], before: Sequence[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
    """Answers to an input that need no work on it; ``before`` are the outputs for another one, if there was one."""
    answers = {
        "zeros": [torch.zeros_like(t) for t in truth],
        "the mean": [torch.full_like(t, t.double().mean().item()) if t.is_floating_point() else t[:0] for t in truth],
        "the answer to another input": list(before),
    }
    shapes = [t.shape for t in truth]
    return {name: answer for name, answer in answers.items() if [a.shape for a in answer] == shapes}


def accepted_null(yardstick: Yardstick, lane: Lane) -> str | None:
    """A null answer that would pass, in all outputs or one: the problem cannot tell right from wrong at this gate.

    One of several outputs may depend on no input; there a null answer is exact, and as right as any.
    """
    for name, errors in yardstick.nulls.items():
        if passes(errors, yardstick, lane):
            return name
        for n, error in enumerate(errors):
            if error.peak > SAME and passes((error,), yardstick.of(n), lane):
                return f"{name} for output {n}"
    return None


def strictest(errors: Errors, yardstick: Yardstick) -> Lane | None:
    """The strictest of the target's lanes that an answer with these errors passes."""
    return next((lane for lane in yardstick.lanes if passes(errors, yardstick, lane)), None)


def in_words(errors: Errors, yardstick: Yardstick, lane: Lane) -> str:
    """What is wrong with an answer that does not pass, for its author."""
    n, error, (r_bound, m_bound) = nearest(errors, yardstick, lane)
    which = f"output {n}: " if len(errors) > 1 else ""
    passed = strictest(errors, yardstick)
    return (
        f"{which}typical error {error.rms:.2g} of the output's scale (lane {lane} allows {r_bound:.2g}), "
        f"largest {error.peak:.2g} (allowed {100 * m_bound:.2g})" + (f"; it would pass {passed}" if passed else "")
    )


def results(errors: Errors, yardstick: Yardstick, shares: dict[str, float]) -> tuple[GateResult, ...]:
    """Every lane of our gate, and the papers' gates by name with the share of elements within tolerance.

    Of several outputs, the numbers are those of the one nearest to its bounds.
    """
    rows = []
    for lane in LANES:
        _, error, (r_bound, m_bound) = nearest(errors, yardstick, lane)
        rows.append(
            GateResult(
                gate="honest",
                lane=lane,
                applicable=lane in yardstick.lanes,
                passed=lane in yardstick.lanes and passes(errors, yardstick, lane),
                rms=error.rms,
                rms_bound=r_bound,
                tail=error.tail,
                tail_bound=m_bound,
            )
        )
    rows += [GateResult(gate=name, passed=share >= 1.0, pass_share=share) for name, share in sorted(shares.items())]
    return tuple(rows)


def paper_shares(candidate: Sequence[torch.Tensor], eager: Sequence[torch.Tensor]) -> dict[str, float]:
    """Share of elements within each paper's tolerance of *eager's* output, as those evaluators compare."""
    candidate, eager = [_real(c) for c in candidate], [_real(e) for e in eager]
    if all(_well_within(c, e, 0.99 * min(PAPER_GATES.values())) for c, e in zip(candidate, eager, strict=True)):
        return dict.fromkeys(PAPER_GATES, 1.0)
    shares = {}
    for name, t in PAPER_GATES.items():
        within = total = 0
        for c, e in zip(candidate, eager, strict=True):
            within += int(torch.isclose(c.to(e.dtype), e, rtol=t, atol=t).sum())
            total += e.numel()
        shares[name] = within / max(total, 1)
    return shares


def _well_within(c: torch.Tensor, e: torch.Tensor, tolerance: float) -> bool:
    """Whether |c - e| <= tolerance (1 + |e|) everywhere; a NaN is not."""
    if not e.is_floating_point() or e.numel() == 0:
        return torch.equal(c, e)
    return float((c.to(e.dtype) - e).abs_().div_(e.abs().add_(1)).max()) <= tolerance


def follows(
    before: Sequence[torch.Tensor],
    after: Sequence[torch.Tensor],
    r_before: Sequence[torch.Tensor],
    r_after: Sequence[torch.Tensor],
) -> float | None:
    """How much of the reference's change between two inputs the candidate's outputs show: 1 all of it, 0 none.

    The projection of the candidate's difference onto the reference's: for near-duplicate inputs both outputs lie
    within tolerance of each other, and only the difference tells a fresh answer from an old one. None when the
    reference's change is too small to be seen in single precision.
    """
    dot = norm = size = 0.0
    for outputs in zip(before, after, r_before, r_after, strict=True):
        c0, c1, r0, r1 = (_real(x) for x in outputs)
        if not r0.is_floating_point():
            continue
        moved = r1 != r0
        change = (r1[moved].double() - r0[moved].double()).nan_to_num(0, 0, 0)
        shown = (c1[moved].double() - c0[moved].double()).nan_to_num(0, 0, 0)
        dot += float(torch.dot(shown, change))
        norm += float(torch.dot(change, change))
        size += float(torch.linalg.vector_norm(r1.nan_to_num(0, 0, 0), dtype=torch.float64)) ** 2
    if norm <= 1e-10 * size or norm == 0:
        return None
    return dot / norm
