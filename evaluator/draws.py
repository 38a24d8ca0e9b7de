"""Fresh weights and near-duplicate inputs, drawn by the judge from a generator that no worker can predict."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import torch

from evaluator.channel import Buffer, StateSpec

PERMUTED_ELEMENTS = 1 << 22
"""Larger tensors are rolled by a random offset instead: the same values elsewhere, at the cost of a copy."""


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(secrets.randbits(62))


def seed() -> int:
    return secrets.randbits(62)


def fresh_parameter(initial: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """A draw that keeps a parameter's own distribution (its values, reordered and jittered by 10%).

    Constant ones (norm scales, zero biases) become non-trivial, so that a candidate that leaves them out is seen:
    c (1 + 0.3 z) for c != 0, and 0.1 z for zeros.
    """
    if not initial.is_floating_point() or initial.numel() == 0:
        return initial.clone()
    z = torch.randn(initial.shape, generator=rng, dtype=torch.float32).to(initial.dtype)
    if bool((initial == initial.flatten()[0]).all()):
        value = float(initial.flatten()[0])
        return value * (1 + 0.3 * z) if value else 0.1 * z
    flat = initial.flatten()
    if flat.numel() <= PERMUTED_ELEMENTS:
        flat = flat[torch.randperm(flat.numel(), generator=rng)]
    else:
        flat = flat.roll(int(torch.randint(1, flat.numel(), (1,), generator=rng)))
    return flat.view(initial.shape) * (1 + 0.1 * z)


def fresh_statistic(name: str, initial: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """A buffer as the reference made it, but running means and variances drawn: m + 0.1 z, and v exp(0.3 z).

    As made they are 0 and 1, and a normalization that leaves them out would be right. Other buffers are constants of
    the problem (masks, frequencies), which a candidate may know.
    """
    if not initial.is_floating_point():
        return initial
    z = torch.randn(initial.shape, generator=rng, dtype=torch.float32).to(initial.dtype)
    if name.endswith("running_mean"):
        return initial + 0.1 * z
    return initial * torch.exp(0.3 * z) if name.endswith("running_var") else initial


class Weights:
    """The state that all workers load: parameters and running statistics drawn anew, other buffers as they were made.

    One frozen buffer serves every worker; only the judge can write it.
    """

    def __init__(self, state: Sequence[StateSpec], n_bytes: int) -> None:
        self.state = tuple(state)
        self.buffer = Buffer(n_bytes, frozen=True)
        self.initial = Buffer(n_bytes)
        """Written once by the problem's own worker."""

    def draw(self, rng: torch.Generator) -> None:
        for s in self.state:
            initial = self.initial.tensor(s, s.offset)
            drawn = fresh_parameter(initial, rng) if s.parameter else fresh_statistic(s.name, initial, rng)
            self.buffer.tensor(s, s.offset).copy_(drawn)

    def close(self) -> None:
        self.buffer.close()
        self.initial.close()


def near_duplicate(inputs: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor] | None:
    """The same inputs with one element of one floating tensor changed by several times its scale."""
    floating = [n for n, x in enumerate(inputs) if x.is_floating_point() and x.numel()]
    if not floating:
        return None
    copies = [x.clone() for x in inputs]
    chosen = floating[int(torch.randint(len(floating), (1,), generator=rng))]
    flat = copies[chosen].view(-1)
    where = int(torch.randint(flat.numel(), (1,), generator=rng))
    scale = float(flat.pow(2).mean().sqrt()) or 1.0
    flat[where] = flat[where] + (3 if float(flat[where]) <= 0 else -3) * scale
    return copies


def one_ulp_noise(inputs: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Every element of every floating tensor moved up or down by one unit in the last place."""
    moved = []
    for x in inputs:
        if x.is_floating_point():
            direction = torch.where(torch.rand(x.shape, generator=rng) < 0.5, -torch.inf, torch.inf).to(x.dtype)
            moved.append(torch.nextafter(x, direction))
        else:
            moved.append(x.clone())
    return moved
