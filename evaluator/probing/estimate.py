"""What a run of a model takes, counted on tensors without storage (``meta``). Runs in the jail only."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from evaluator.soundness_model import Estimate
from evaluator.worker import execute, flatten

LOOK_EVERY = 256
"""Operations between two looks at whether this fits at all."""
MOST_OPERATIONS = 24_000
"""Counted; each takes some 180 µs, and a recurrence has hundreds of thousands."""


class TooMuch(Exception):
    """Counting ended early."""


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of every new storage: all of them, and the most alive at once. Counts operations."""

    def __init__(self, enough: Callable[[Traffic], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.enough = enough
        self.alive = self.peak = self.total = self.operations = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for leaf in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf.untyped_storage())
        if self.operations % LOOK_EVERY == 0 and self.enough(self):
            raise TooMuch
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.alive += size
        self.total += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.alive -= size


def estimate(source: str, most_seconds: float, seconds: Callable[[Estimate], float]) -> Estimate:
    """One run of the model of ``source``. Ends early, marked so, once ``seconds`` of what was counted exceeds the most,
    or the counting itself takes too long.

    Raises whatever the problem's code raises; also for models that look at values, which ``meta`` tensors lack.
    """
    try:
        with torch.device("meta"):
            module = execute(source, "problem")
            model = module.Model(*module.get_init_inputs())
    except Exception:
        # A constructor that looks at values: let it have them.
        module = execute(source, "problem")
        model = module.Model(*module.get_init_inputs()).to("meta")
    with torch.device("meta"):
        inputs = list(module.get_inputs())
    state = [*model.parameters(), *model.buffers()]
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    flops = FlopCounterMode(display=False)
    outputs: list[torch.Tensor] = []

    def so_far(traffic: Traffic, exact: bool) -> Estimate:
        return Estimate(
            parameter_bytes=_bytes(state),
            input_bytes=_bytes(tensors),
            output_bytes=_bytes(outputs),
            peak_bytes=traffic.peak,
            total_bytes=traffic.total,
            flops=flops.get_total_flops(),
            operations=traffic.operations,
            exact=exact,
        )

    traffic = Traffic(lambda t: t.operations > MOST_OPERATIONS or seconds(so_far(t, False)) > most_seconds)
    exact = True
    try:
        with torch.device("meta"), torch.no_grad(), flops, traffic:
            outputs, _ = flatten(model(*inputs))
    except TooMuch:
        exact = False
    return so_far(traffic, exact)


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)
