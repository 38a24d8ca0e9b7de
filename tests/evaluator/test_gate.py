"""The gate as documented: its scale, bounds, lanes and masks, on emulated precisions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator import gate
from evaluator.gate import FLOORS, NO_ERROR, Error, Yardstick
from evaluator.model import LANES

STRICT = Yardstick()


def tensors(seed: int, shape: tuple[int, ...] = (32, 128)) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rounded(x: torch.Tensor, bits: int) -> torch.Tensor:
    """``x`` with a mantissa of ``bits`` explicit bits, rounded to nearest."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2 ** (bits + 1)).round() / 2 ** (bits + 1), exponent)


@given(seed=st.integers(0, 2**31), power=st.integers(-60, 60), noise=st.sampled_from([1e-7, 1e-4, 1e-2]))
@settings(max_examples=40, deadline=None)
def test_an_error_does_not_depend_on_the_scale_of_the_output(seed: int, power: int, noise: float) -> None:
    r = tensors(seed)
    c = r + noise * tensors(seed + 1)
    (one,), (scaled,) = gate.measure([c], [r]), gate.measure([c * 2.0**power], [r * 2.0**power])
    assert scaled.rms == pytest.approx(one.rms, rel=1e-9)
    assert scaled.tail == pytest.approx(one.tail, rel=1e-9)
    assert scaled.peak == pytest.approx(one.peak, rel=1e-9)


@given(seed=st.integers(0, 2**31), chunk=st.integers(1, 5000))
@settings(max_examples=40, deadline=None)
def test_chunking_changes_nothing(seed: int, chunk: int) -> None:
    r = tensors(seed, (7, 3, 70))
    c = r + 1e-3 * tensors(seed + 1, (7, 3, 70))
    (whole,) = gate.measure([c], [r])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "CHUNK", chunk)
        (parts,) = gate.measure([c], [r])
    assert parts.rms == pytest.approx(whole.rms, rel=1e-12)
    assert (parts.tail, parts.peak, parts.finite) == (whole.tail, whole.peak, whole.finite)


def test_how_tensors_lie_in_memory_changes_nothing() -> None:
    reference, candidate = tensors(1).double(), tensors(2)
    (turned,) = gate.measure([candidate.t().contiguous().t()], [reference.t().contiguous().t()])
    (plain,) = gate.measure([candidate], [reference])
    assert turned.rms == pytest.approx(plain.rms, rel=1e-12)
    assert (turned.tail, turned.peak) == pytest.approx((plain.tail, plain.peak), rel=1e-12)


@given(
    rms=st.floats(0, 1), tail=st.floats(0, 1), peak=st.floats(0, 10), eager=st.floats(0, 1e-3), noise=st.floats(0, 1e-2)
)
@settings(deadline=None)
def test_lanes_are_ordered(rms: float, tail: float, peak: float, eager: float, noise: float) -> None:
    errors = (Error(rms, tail, peak),)
    yardstick = Yardstick((Error(eager, eager, eager),), (Error(noise, noise, noise),))
    passed = [gate.passes(errors, yardstick, lane) for lane in LANES]
    assert passed == sorted(passed)
    assert gate.strictest(errors, yardstick) == next((n for n, ok in zip(LANES, passed, strict=True) if ok), None)


@pytest.mark.parametrize("lane", LANES)
def test_the_bounds_are_inclusive_and_all_three_bind(lane: str) -> None:
    r0, m0 = FLOORS[lane]  # type: ignore[index]
    at = Error(r0, m0, 100 * m0)
    assert gate.passes((at,), STRICT, lane)  # type: ignore[arg-type]
    for beyond in (Error(r0 * 1.01, m0, m0), Error(r0, m0 * 1.01, m0), Error(r0, m0, 101 * m0)):
        assert not gate.passes((beyond,), STRICT, lane)  # type: ignore[arg-type]
    assert not gate.passes((Error(0, 0, 0, finite=False),), STRICT, lane)  # type: ignore[arg-type]


def test_the_references_own_error_and_noise_widen_the_bounds() -> None:
    assert Yardstick(eager=(Error(1, 1, 1),)).bounds("fp32", 1) == [(4, 8)]
    assert Yardstick(noise=(Error(1, 1, 1),)).bounds("fp32", 1) == [(4, 8)]
    assert STRICT.bounds("fp32", 1) == [FLOORS["fp32"]]
    assert Yardstick(noise=(Error(0.011, 0, 0),)).chaotic
    assert not Yardstick(noise=(Error(0.009, 0, 0),)).chaotic


def test_an_output_that_eager_gets_wrong_excuses_no_other() -> None:
    poor, fine = Error(0.1, 0.1, 0.1), Error(1e-7, 1e-6, 1e-6)
    yardstick = Yardstick(eager=(poor, fine))
    assert gate.passes((poor, fine), yardstick, "fp32")
    assert not gate.passes((fine, poor), yardstick, "fp32")
    assert gate.nearest((poor, poor), yardstick, "fp32") == (1, poor, FLOORS["fp32"])
    assert gate.passes((poor,), yardstick.of(0), "fp32")
    assert not gate.passes((poor,), yardstick.of(1), "fp32")
    (row,) = (r for r in gate.results((fine, poor), yardstick, {}) if r.lane == "fp32")
    assert (row.passed, row.rms, row.rms_bound) == (False, 0.1, FLOORS["fp32"][0])


@pytest.mark.parametrize(
    ("make", "allowed"),
    [
        (lambda x: x.float().double(), {"fp32"}),
        (lambda x: rounded(x, 10), {"tf32", "fp16"}),
        (lambda x: x.half().double(), {"tf32", "fp16"}),
        (lambda x: x.bfloat16().double(), {"fp16", "bf16"}),
    ],
    ids=["float32", "tf32", "float16", "bfloat16"],
)
def test_emulated_precisions_fall_in_their_lanes(make: object, allowed: set[str]) -> None:
    """A four-layer MLP with every operand rounded, products accumulated exactly."""
    assert callable(make)
    x, exact = tensors(1, (256, 256)), tensors(1, (256, 256))
    for layer in range(4):
        w = tensors(10 + layer, (256, 256)) / 16
        exact = torch.nn.functional.gelu(exact @ w) * 1.5
        x = torch.nn.functional.gelu(make(make(x) @ make(w))) * 1.5
    assert gate.strictest(gate.measure([make(x)], [exact]), STRICT) in allowed


@pytest.mark.parametrize(("mine", "theirs"), [(math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0), (1.0, -math.inf)])
def test_finite_masks_must_match(mine: float, theirs: float) -> None:
    r, c = tensors(3), tensors(3)
    r[4, 5], c[4, 5] = theirs, mine
    errors = gate.measure([c], [r])
    assert not errors[0].finite
    assert not gate.passes(errors, STRICT, "bf16")


def test_infinities_in_the_same_places_pass() -> None:
    r = tensors(3)
    r[0, :10] = -math.inf
    assert gate.measure([r.clone()], [r]) == (NO_ERROR,)
    opposite = r.clone()
    opposite[0, 0] = math.inf
    assert not gate.passes(gate.measure([opposite], [r]), STRICT, "bf16")


def test_one_wild_element_is_not_lost_among_millions() -> None:
    r = torch.ones(2000, 1000, dtype=torch.float64)
    c = r.clone()
    c[1234, 567] = 3e4
    assert not gate.passes(gate.measure([c], [r]), STRICT, "bf16")


def test_small_rows_have_their_own_scale() -> None:
    """Zeros in a row far below the output's overall scale are an error of that row, not rounding of the whole."""
    r = tensors(5)
    r[7] *= 0.01
    c = r.clone()
    c[7] = 0
    assert gate.measure([c], [r])[0].tail > 0.3
    assert not gate.passes(gate.measure([c], [r]), STRICT, "bf16")


def test_a_scale_spans_at_least_64_elements() -> None:
    assert gate.scale_of(torch.ones(4, 8, 8, 4)).shape == (4, 8, 1, 1) or gate.scale_of(
        torch.ones(4, 8, 8, 4)
    ).shape == (4, 1, 1, 1)
    assert gate.scale_of(torch.ones(10, 64)).shape == (10, 1)
    assert gate.scale_of(torch.ones(10, 2, 16)).shape == (1, 1, 1)


def test_integers_must_be_equal() -> None:
    r = torch.arange(1000)
    c = r.clone()
    assert gate.measure([c], [r]) == (NO_ERROR,)
    c[1] += 1
    assert not gate.passes(gate.measure([c], [r]), STRICT, "fp32")


def test_empty_outputs_have_no_error() -> None:
    assert gate.measure([torch.empty(0, 3)], [torch.empty(0, 3, dtype=torch.float64)]) == (NO_ERROR,)


def test_following_is_seen_in_the_difference_alone() -> None:
    before = tensors(1)
    after = before.clone()
    after[3, 3] += 5
    assert gate.follows([before], [after], [before], [after]) == pytest.approx(1)
    assert gate.follows([before], [before], [before], [after]) == 0
    halfway = before.clone()
    halfway[3, 3] += 2.5
    assert gate.follows([before], [halfway], [before], [after]) == pytest.approx(0.5)
    assert gate.follows([before], [after], [before], [before]) is None
    integers = [torch.arange(4)]
    assert gate.follows(integers, integers, integers, integers) is None


def test_the_papers_gates_compare_with_eager() -> None:
    eager = torch.ones(100)
    mine = eager.clone()
    mine[:10] += 5e-3
    shares = gate.paper_shares([mine], [eager])
    assert shares == {"kernelbench-1e-4": 0.9, "cuda-1e-2": 1.0, "triton-5e-2": 1.0}
    passed = {row.gate: row.passed for row in gate.results((NO_ERROR,), STRICT, shares) if row.gate != "honest"}
    assert passed == {"kernelbench-1e-4": False, "cuda-1e-2": True, "triton-5e-2": True}


def test_a_null_answer_in_one_output_is_enough_to_be_unsound() -> None:
    right, null = Error(1.0, 1.0, 1.0), Error(1e-6, 1e-6, 1e-6)
    beside = Yardstick((NO_ERROR,) * 2, (NO_ERROR,) * 2, {"zeros": (right, null)})
    assert gate.accepted_null(beside, "fp32") == "zeros for output 1"
    constant = Yardstick((NO_ERROR,) * 2, (NO_ERROR,) * 2, {"zeros": (right, NO_ERROR)})
    assert gate.accepted_null(constant, "fp32") is None


def test_whole_numbers_that_eager_mostly_gets_wrong_tell_nothing() -> None:
    wrong = Error(0.4, 0.4, 0.4)
    yardstick = Yardstick((NO_ERROR, wrong), (NO_ERROR,) * 2, {"zeros": (Error(1.0, 1.0, 1.0),) * 2})
    assert gate.accepted_null(yardstick, "fp32") == "zeros for output 1"


def test_complex_numbers_are_measured_part_by_part() -> None:
    r = torch.complex(tensors(1), tensors(2))
    (same,), (near,) = gate.measure([r], [r]), gate.measure([r + 1e-7j], [r])
    assert same == NO_ERROR
    assert 1e-8 < near.rms < 1e-6
    assert not gate.passes(gate.measure([torch.zeros_like(r)], [r]), STRICT, "bf16")
    assert gate.surely_passes([r.conj().conj()], [r], Yardstick((NO_ERROR,), (NO_ERROR,)), "fp32")
    assert gate.paper_shares([r + 1e-6], [r])["kernelbench-1e-4"] == 1.0


def test_eight_bits_wide_numbers_are_compared() -> None:
    e = torch.randn(64, 64).to(torch.float8_e4m3fn)
    assert gate.paper_shares([e], [e])["kernelbench-1e-4"] == 1.0
    assert gate.paper_shares([torch.zeros_like(e)], [e])["triton-5e-2"] < 0.5
    assert gate.surely_passes([e], [e], Yardstick((NO_ERROR,), (NO_ERROR,)), "bf16")


def test_a_chaotic_output_excuses_no_other_from_following() -> None:
    assert Yardstick((NO_ERROR,) * 3, (NO_ERROR, Error(0.1, 0.1, 0.1), NO_ERROR)).orderly(3) == [0, 2]
    assert Yardstick().orderly(2) == [0, 1]
