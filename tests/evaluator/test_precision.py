"""Precision lanes on networks of several depths, and references whose own precision is in doubt."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch

from evaluator import draws, gate
from evaluator.gate import PAPER_GATES, Errors, Yardstick
from evaluator.model import LANES, LANES_ON, Lane, lane_on
from problems.model import Problem
from tests.evaluator.conftest import Judged, accepted
from tests.evaluator.sources import HEAD, candidate

Rounding = Callable[[torch.Tensor], torch.Tensor]
WIDTH, ROWS = 256, 256
DEPTHS = (1, 4, 12)


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Ten explicit bits of mantissa at single precision's range, rounded to nearest."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)


OPERANDS: dict[Lane | None, Rounding] = {
    None: lambda x: x,
    "fp32": lambda x: x.float().double(),
    "tf32": tf32,
    "fp16": lambda x: x.half().double(),
    "bf16": lambda x: x.bfloat16().double(),
}


@cache
def mlp(depth: int, lane: Lane | None = None) -> torch.Tensor:
    """Layers of tanh in float64, with the operands of every product rounded to the lane's precision."""
    operand = OPERANDS[lane]
    rng = torch.Generator().manual_seed(depth)
    x = torch.randn(ROWS, WIDTH, generator=rng, dtype=torch.float64)
    for _ in range(depth):
        w = torch.randn(WIDTH, WIDTH, generator=rng, dtype=torch.float64) / WIDTH**0.5
        b = 0.1 * torch.randn(WIDTH, generator=rng, dtype=torch.float64)
        x = torch.tanh(operand(x) @ operand(w) + b)
    return x


def errors_in(lane: Lane, depth: int) -> Errors:
    return gate.measure([mlp(depth, lane)], [mlp(depth)])


def yardstick(depth: int) -> Yardstick:
    return Yardstick(eager=errors_in("fp32", depth))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("lane", LANES)
def test_a_precision_passes_in_its_own_lane_and_in_looser_ones(lane: Lane, depth: int) -> None:
    error, own = errors_in(lane, depth), LANES.index(lane)
    assert all(gate.passes(error, yardstick(depth), looser) for looser in LANES[own:])


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    ("lane", "refused"),
    [
        ("tf32", ("fp32",)),
        ("fp16", ("fp32",)),  # as many bits of mantissa as TF32: only its range is smaller
        ("bf16", ("fp32", "tf32", "fp16")),
    ],
)
def test_stricter_lanes_refuse_a_precision(lane: Lane, refused: tuple[Lane, ...], depth: int) -> None:
    error = errors_in(lane, depth)
    assert not any(gate.passes(error, yardstick(depth), stricter) for stricter in refused)
    assert gate.strictest(error, yardstick(depth)) not in (*refused, None)


@pytest.mark.parametrize("depth", DEPTHS)
def test_half_precision_that_overflows_is_not_finite(depth: int) -> None:
    """What tells fp16 from tf32: 300 squared is beyond the range of half precision."""
    scaled = 300.0 * mlp(depth)
    errors = gate.measure([(scaled.half() * scaled.half()).double()], [scaled * scaled])
    assert not errors[0].finite
    assert gate.strictest(errors, yardstick(depth)) is None


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_papers_gates_are_reported_by_name_beside_the_lanes(depth: int) -> None:
    """The looser a paper's tolerance, the more passes it: single precision all three, bfloat16 the loosest at most."""
    passed = {}
    for lane in (LANES[0], LANES[-1]):
        shares = gate.paper_shares([mlp(depth, lane).float()], [mlp(depth, "fp32").float()])
        rows = gate.results(errors_in(lane, depth), yardstick(depth), shares)
        assert [row.lane for row in rows if row.gate == "honest"] == list(LANES)
        passed[lane] = {row.gate: row.passed for row in rows if row.gate != "honest"}
        ordered = [shares[name] for name in sorted(PAPER_GATES, key=lambda name: PAPER_GATES[name])]
        assert ordered == sorted(ordered)
    assert passed["fp32"] == dict.fromkeys(PAPER_GATES, True)
    assert not passed["bf16"]["kernelbench-1e-4"]


def test_a_judge_refuses_a_lane_that_was_not_asked_for_and_says_which_would_pass(judged: Judged) -> None:
    source = candidate(
        "return F.gelu(F.linear(x.bfloat16(), self.linear.weight.bfloat16(), self.linear.bias.bfloat16())).float()"
    )
    refused = judged(source)
    assert refused.status == "incorrect"
    assert refused.reason.rsplit("it would pass ", 1)[1] in ("fp16", "bf16")
    allowed = judged(source, lane="bf16")
    assert accepted(allowed), allowed.reason
    if allowed.status == "correct":
        assert allowed.lane in ("fp16", "bf16")
        honest = {g.lane: g.passed for g in allowed.gates if g.gate == "honest"}
        assert not honest["fp32"]
        assert honest["bf16"]
        papers = {g.gate: g.passed for g in allowed.gates if g.gate != "honest"}
        assert set(papers) == set(PAPER_GATES)
        assert not papers["kernelbench-1e-4"]


def test_a_lane_that_the_target_does_not_compute_in_decides_nothing() -> None:
    on_cpu = Yardstick(eager=errors_in("fp32", 4), lanes=LANES_ON["cpu"])
    error = errors_in("tf32", 4)
    assert gate.strictest(error, on_cpu) == "fp16"
    assert gate.strictest(error, yardstick(4)) == "tf32"
    rows = {row.lane: row for row in gate.results(error, on_cpu, {})}
    assert [lane for lane, row in rows.items() if not row.applicable] == ["tf32"]
    assert not rows["tf32"].passed
    assert rows["fp16"].passed
    assert [lane_on("cpu", lane) for lane in LANES] == ["fp32", "fp32", "fp16", "bf16"]
    assert [lane_on("cuda", lane) for lane in LANES] == list(LANES)


def test_a_judge_asked_for_such_a_lane_decides_in_the_next_stricter_one(judged: Judged) -> None:
    coarse = judged(candidate("return F.gelu(self.linear(x)) * (1 + 2e-4)"), lane="tf32")
    assert coarse.status == "incorrect"
    assert "lane fp32 allows" in coarse.reason
    assert "lane_not_applicable" in coarse.flags


# -- a chaotic reference ----------------------------------------------------------------------------------------

STEPS = 60


def iterated(x: torch.Tensor) -> torch.Tensor:
    for _ in range(STEPS):
        x = torch.sin(5 * x)
    return x


def rewritten(x: torch.Tensor) -> torch.Tensor:
    """The same map with its product in two parts."""
    for _ in range(STEPS):
        x = torch.sin(2 * x + 3 * x)
    return x


def test_a_chaotic_reference_is_marked_and_honest_rewrites_pass_its_gate() -> None:
    rng = torch.Generator().manual_seed(3)
    noise: Errors = ()
    eager: Errors = ()
    for _ in range(8):
        x = torch.randn(512, 64, generator=rng)
        truth = [iterated(x.double())]
        (moved,) = draws.one_ulp_noise([x], rng)
        noise = gate.worst(noise, gate.measure([iterated(moved.double())], truth))
        eager = gate.worst(eager, gate.measure([iterated(x)], truth))
    found = Yardstick(eager, noise)
    assert found.chaotic
    x = torch.randn(512, 64, generator=rng)
    error = gate.measure([rewritten(x)], [iterated(x.double())])
    assert not gate.passes(error, Yardstick(), "bf16"), "only its own yardstick can let it pass"
    assert gate.passes(error, found, "fp32")


CHAOTIC = Problem(
    id="tests/chaotic",
    title="a sine of a sine",
    origin="file",
    source=HEAD
    + f"""

class Model(nn.Module):
    def forward(self, x):
        for _ in range({STEPS}):
            x = torch.sin(5 * x)
        return x


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []
""",
)


def test_a_judge_charges_a_chaotic_reference_to_the_problem(judged: Judged) -> None:
    """Where any answer passes no speedup is given; asked for all the same, it is flagged, for rewrites too."""
    source = CHAOTIC.source.replace("class Model(", "class ModelNew(").replace("5 * x", "2 * x + 3 * x")
    refused = judged(source, CHAOTIC)
    assert refused.status == "problem_unsound"
    assert "zeros would pass" in refused.reason
    evaluation = judged(source, CHAOTIC, unsound="flag")
    assert {"chaotic", "problem_unsound"} <= set(evaluation.flags)
    assert accepted(evaluation), evaluation.reason
