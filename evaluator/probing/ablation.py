"""Is every part of a model needed for its answer? Each is changed alone, the weakest first. Runs in the jail only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from evaluator import gate
from evaluator.model import Lane
from evaluator.probing.clock import Clock
from evaluator.probing.subject import SEED, Subject, Tensors
from evaluator.soundness_model import Ablation
from evaluator.worker import flatten

GRADIENT_SEED = 7
BRANCH_SHARE = 0.4
"""Share of the time that is left for branches when there are many parameters."""


class Ablations:
    """All ablations of a subject, until ``clock`` shows ``deadline``, in seconds."""

    def __init__(self, subject: Subject, lane: Lane, yardstick: gate.Yardstick, clock: Clock, deadline: float) -> None:
        self.subject, self.lane, self.clock, self.deadline = subject, lane, clock, deadline
        self.inputs = subject.inputs(SEED)
        self.truth = subject.truth(self.inputs)
        self.yardstick = yardstick
        self.found: list[Ablation] = []
        self.not_reached = 0

    def run(self, gradient: bool) -> None:
        """Parameters, then branches. ``gradient``: there is memory for a backward pass, which orders the parameters."""
        now = self.clock.seconds()
        self._parameters(now + (self.deadline - now) * (1 - BRANCH_SHARE), gradient)
        self._branches(self.deadline)

    def _parameters(self, deadline: float, gradient: bool) -> None:
        named = dict(self.subject.single.named_parameters())
        order = influence(self.subject.single, self.inputs) if gradient else {}
        names = sorted(named, key=lambda name: order.get(name, 0.0))
        for done, name in enumerate(names):
            if self.clock.seconds() > deadline:
                self.not_reached += len(names) - done
                return
            parameter = named[name]
            if not parameter.is_floating_point() or parameter.numel() == 0:
                continue
            kept = parameter.clone()
            self.subject.redraw(parameter)
            self._look(name, "redrawn")
            parameter.copy_(kept)

    def _branches(self, deadline: float) -> None:
        """Submodules that return the shape they were given: passed over, and with nothing to add."""
        names = same_shape(self.subject.single, self.inputs)
        modules = dict(self.subject.single.named_modules())
        names.sort(key=lambda name: name.count("."))  # whole branches before their parts
        for done, name in enumerate(names):
            if self.clock.seconds() > deadline:
                self.not_reached += len(names) - done
                return
            with hooked(modules[name], lambda given, _: given):
                self._look(f"{name} ({type(modules[name]).__name__})", "bypassed")
            with hooked(modules[name], lambda _, result: torch.zeros_like(result)):
                self._look(f"{name} ({type(modules[name]).__name__})", "zeroed")

    def _look(self, name: str, change: Any) -> None:
        answer: Tensors = self.subject.answer(self.inputs)
        errors = gate.measure(answer, self.truth)
        noticed = not gate.passes(errors, self.yardstick, self.lane)
        _, error, _ = gate.nearest(errors, self.yardstick, self.lane)
        self.found.append(Ablation(name=name, change=change, rms=error.rms, tail=error.tail, noticed=noticed))


def influence(model: torch.nn.Module, inputs: Sequence[Any]) -> dict[str, float]:
    """First-order effect of each parameter, |gradient| |parameter|, on a random projection of the outputs.

    Unitless, and zero for a parameter that takes no part. Empty where there is no gradient to be had; it orders the
    work, and decides nothing.
    """
    named = {n: p for n, p in model.named_parameters() if p.is_floating_point()}
    try:
        for parameter in named.values():
            parameter.requires_grad_(True)
        torch.manual_seed(SEED)
        with torch.enable_grad():
            leaves, _ = flatten(model(*[x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]))
            rng = torch.Generator().manual_seed(GRADIENT_SEED)
            projected = [
                (y * torch.randn(y.shape, generator=rng, dtype=y.dtype)).sum() for y in leaves if y.requires_grad
            ]
            if not projected:
                return {}
            gradients = torch.autograd.grad(sum(projected[1:], projected[0]), list(named.values()), allow_unused=True)
    except RuntimeError:
        return {}
    finally:
        for parameter in named.values():
            parameter.requires_grad_(False)
    return {
        name: 0.0 if g is None else float(g.norm() * p.detach().norm())
        for (name, p), g in zip(named.items(), gradients, strict=True)
    }


def same_shape(model: torch.nn.Module, inputs: Sequence[Any]) -> list[str]:
    """Submodules that return one tensor of the shape of their first argument, and not that very tensor's values."""
    found: dict[str, bool] = {}
    handles = []

    def watch(name: str) -> Callable[[Any, Any, Any], None]:
        def see(module: Any, arguments: Any, result: Any) -> None:
            del module
            given = arguments[0] if arguments else None
            found[name] = found.get(name, True) and _changed_alike(given, result)

        return see

    for name, module in model.named_modules():
        if name:
            handles.append(module.register_forward_hook(watch(name)))
    try:
        with torch.no_grad():
            torch.manual_seed(SEED)
            model(*[x.clone() if isinstance(x, torch.Tensor) else x for x in inputs])
    finally:
        for handle in handles:
            handle.remove()
    return [name for name, fits in found.items() if fits]


def _changed_alike(given: Any, result: Any) -> bool:
    if not (isinstance(given, torch.Tensor) and isinstance(result, torch.Tensor) and given.shape == result.shape):
        return False
    return result.is_floating_point() and given.dtype == result.dtype and not torch.equal(given, result)


@contextmanager
def hooked(module: torch.nn.Module, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """While inside, ``module`` returns ``change(its first argument, its result)``."""
    handle = module.register_forward_hook(lambda _, arguments, result: change(arguments[0], result))
    try:
        yield
    finally:
        handle.remove()
