"""Weights and inputs as the judge draws them."""

from __future__ import annotations

import pytest
import torch

from evaluator import draws
from evaluator.channel import StateSpec


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def test_fresh_parameters_differ_and_keep_their_distribution(rng: torch.Generator) -> None:
    initial = 3 + 0.5 * torch.randn(200, 100)
    first, second = draws.fresh_parameter(initial, rng), draws.fresh_parameter(initial, rng)
    for drawn in (first, second):
        assert drawn.shape == initial.shape
        assert drawn.dtype == initial.dtype
        assert float((drawn == initial).double().mean()) < 0.01
        assert float(drawn.mean()) == pytest.approx(float(initial.mean()), rel=0.02)
        assert float(drawn.std()) == pytest.approx(float(initial.std()), rel=0.25)
    assert not torch.equal(first, second)


def test_large_parameters_are_rolled(rng: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "PERMUTED_ELEMENTS", 100)
    initial = torch.arange(1.0, 1001.0)
    drawn = draws.fresh_parameter(initial, rng)
    assert float((drawn / initial - 1).abs().median()) > 0.1
    assert float(drawn.mean()) == pytest.approx(float(initial.mean()), rel=0.05)


@pytest.mark.parametrize("value", [0.0, 1.0, -2.0])
def test_constant_parameters_become_non_trivial(value: float, rng: torch.Generator) -> None:
    drawn = draws.fresh_parameter(torch.full((500,), value), rng)
    assert float(drawn.std()) > 0.05
    assert float(drawn.mean()) == pytest.approx(value, abs=0.1 * max(1, abs(value)))
    assert float(draws.fresh_parameter(torch.full((1,), value), rng)) != value


def test_integers_and_empty_parameters_stay(rng: torch.Generator) -> None:
    assert torch.equal(draws.fresh_parameter(torch.arange(5), rng), torch.arange(5))
    assert draws.fresh_parameter(torch.empty(0, 3), rng).shape == (0, 3)


def test_weights_keep_buffers_and_draw_parameters(rng: torch.Generator) -> None:
    state = [
        StateSpec(name="w", shape=(16,), dtype="float32", offset=0, parameter=True),
        StateSpec(name="running", shape=(4,), dtype="float32", offset=64, parameter=False),
    ]
    weights = draws.Weights(state, 128)
    try:
        weights.initial.tensor(state[0], 0).copy_(torch.arange(16.0))
        weights.initial.tensor(state[1], 64).copy_(torch.arange(4.0))
        weights.draw(rng)
        first = weights.buffer.tensor(state[0], 0).clone()
        weights.draw(rng)
        assert not torch.equal(first, weights.buffer.tensor(state[0], 0))
        assert torch.equal(weights.buffer.tensor(state[1], 64), torch.arange(4.0))
    finally:
        weights.close()


@pytest.mark.parametrize("inputs", [[torch.randn(40, 7)], [torch.randn(9), torch.arange(4), torch.zeros(3, 3)]])
def test_near_duplicates_change_exactly_one_element(inputs: list[torch.Tensor], rng: torch.Generator) -> None:
    for _ in range(20):
        copies = draws.near_duplicate(inputs, rng)
        assert copies is not None
        changed = [(a != b) for a, b in zip(inputs, copies, strict=True)]
        assert sum(int(c.sum()) for c in changed) == 1
        (n,) = [n for n, c in enumerate(changed) if c.any()]
        step = float((copies[n] - inputs[n]).abs().max())
        scale = float(inputs[n].pow(2).mean().sqrt()) or 1.0
        assert step == pytest.approx(3 * scale, rel=1e-3)


def test_integers_have_no_near_duplicate(rng: torch.Generator) -> None:
    assert draws.near_duplicate([torch.arange(5)], rng) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_noise_moves_each_element_by_one_unit_in_the_last_place(dtype: torch.dtype, rng: torch.Generator) -> None:
    x = torch.randn(1000, generator=rng).to(dtype)
    up = torch.nextafter(x, torch.tensor(torch.inf, dtype=dtype))
    down = torch.nextafter(x, torch.tensor(-torch.inf, dtype=dtype))
    moved, counts = draws.one_ulp_noise([x, torch.arange(3)], rng)
    assert bool(((moved == up) | (moved == down)).all())
    assert 400 < int((moved == up).sum()) < 600
    assert torch.equal(counts, torch.arange(3))


def test_seeds_are_not_repeated() -> None:
    assert len({draws.seed() for _ in range(100)}) == 100
    assert draws.generator().initial_seed() != draws.generator().initial_seed()
