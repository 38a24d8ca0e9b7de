"""The bundled problems, run: sound enough that a wrong kernel is seen, and right at double precision too."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from problems.catalog import Catalog

IDS = [problem_id for problem_id in Catalog().ids() if problem_id.startswith("bundled/")]


@pytest.fixture(autouse=True)
def _double_by_default() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def build(problem_id: str) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """The model at double precision, every parameter drawn at a scale at which it matters, and one set of inputs."""
    module: dict[str, Any] = {"__name__": "problem"}
    exec(Catalog().get(problem_id).source, module)
    model: torch.nn.Module = module["Model"](*module["get_init_inputs"]())
    with torch.no_grad():
        for parameter in model.parameters():
            scale = (2 / parameter.shape[1]) ** 0.5 if parameter.dim() > 1 else 0.5
            parameter.copy_(scale * torch.randn_like(parameter))
    return model, module["get_inputs"]()


def relative(difference: torch.Tensor, of: torch.Tensor) -> float:
    return float(difference.square().mean().sqrt() / of.square().mean().sqrt())


@pytest.mark.parametrize("problem_id", IDS)
@torch.no_grad()
def test_float32_agrees_with_float64(problem_id: str) -> None:
    model, inputs = build(problem_id)
    expected = model(*inputs)
    assert expected.dtype == torch.float64
    torch.set_default_dtype(torch.float32)
    single = model.float()(*(x.float() for x in inputs))
    assert single.dtype == torch.float32
    assert relative(single.double() - expected, expected) < 2e-6


@pytest.mark.parametrize("problem_id", IDS)
@torch.no_grad()
def test_every_parameter_and_the_input_are_noticed(problem_id: str) -> None:
    model, inputs = build(problem_id)
    expected = model(*inputs)
    assert relative(model(*(torch.randn_like(x) for x in inputs)) - expected, expected) > 0.3
    for name, parameter in model.named_parameters():
        kept = parameter.clone()
        parameter.zero_()
        assert relative(model(*inputs) - expected, expected) > 0.03, name
        parameter.copy_(kept)
    assert torch.equal(model(*inputs), expected)


@pytest.mark.parametrize("problem_id", IDS)
@torch.no_grad()
def test_inputs_are_left_alone_and_weights_are_few(problem_id: str) -> None:
    model, inputs = build(problem_id)
    before = [x.clone() for x in inputs]
    assert len(inspect.signature(model.forward).parameters) == len(inputs)
    model(*inputs)
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))
    assert sum(p.numel() for p in model.parameters()) < 1_500_000
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}
