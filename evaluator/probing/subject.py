"""A problem's model held twice, in float32 and in float64, with the same weights. Runs in the jail only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from evaluator import draws
from evaluator.soundness_model import Conditions
from evaluator.worker import execute, flatten

Tensors = list[torch.Tensor]

HE_RECURRENT_STD = 0.15
HE_BIAS_STD = 0.1
SEED = 42


class Subject:
    """The model of ``source`` under some conditions. Constructing it runs the problem's code; so does every method."""

    def __init__(self, source: str, conditions: Conditions, rng: torch.Generator) -> None:
        self.conditions, self.rng = conditions, rng
        self.module = execute(source, "problem")
        arguments = self.module.get_init_inputs()
        self.single = self._construct(arguments)
        self.float64 = True
        with default_dtype(torch.float64):
            self.double = self._construct(arguments).double()
        for model in (self.single, self.double):
            model.train(conditions != "eval mode")
        self.draw_weights(conditions)

    def _construct(self, arguments: Sequence[Any]) -> Any:
        torch.manual_seed(SEED)
        return self.module.Model(*arguments).requires_grad_(False)

    def draw_weights(self, conditions: Conditions) -> None:
        """Parameters as the conditions want them, in both precisions."""
        self.conditions = conditions
        if conditions == "he weights":
            he_weights(self.single, self.rng)
        elif conditions != "initialised":
            for parameter in self.single.parameters():
                self.redraw(parameter)
        self.share_weights()

    def redraw(self, parameter: torch.Tensor) -> None:
        """Other values, drawn as the judge draws them."""
        parameter.copy_(draws.fresh_parameter(parameter, self.rng))

    def share_weights(self) -> None:
        """Load the float32 model's parameters and buffers into the float64 one, by name."""
        self.double.load_state_dict(self.single.state_dict())

    def inputs(self, seed: int) -> list[Any]:
        """As the problem draws them; standard normal ones for the repair by He weights."""
        torch.manual_seed(seed)
        drawn = list(self.module.get_inputs())
        if self.conditions == "he weights":
            drawn = [torch.randn_like(x) if _floating(x) else x for x in drawn]
        return drawn

    def answer(self, inputs: Sequence[Any], seed: int = SEED) -> Tensors:
        """The float32 model's outputs, as copies; the inputs stay as they are."""
        return self.run(self.single, [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs], seed)

    def truth(self, inputs: Sequence[Any], seed: int = SEED) -> Tensors:
        """The float64 model's outputs; where it has none, the float32 model's, in float64."""
        if self.float64:
            try:
                with default_dtype(torch.float64):
                    return self.run(self.double, [x.double() if _floating(x) else _copy(x) for x in inputs], seed)
            except (RuntimeError, TypeError) as error:
                if "memory" in str(error):
                    raise
                self.float64 = False
        return [y.double() if y.is_floating_point() else y for y in self.answer(inputs, seed)]

    @staticmethod
    def run(model: Any, inputs: Sequence[Any], seed: int) -> Tensors:
        """Outputs of ``model``, which gets the very tensors that are given."""
        torch.manual_seed(seed)
        with torch.no_grad():
            leaves, _ = flatten(model(*inputs))
        return [leaf.detach().clone() for leaf in leaves]


def he_weights(model: torch.nn.Module, rng: torch.Generator) -> None:
    """Parameters that carry the input's variance through the model.

    Matrices and kernels of linear and convolutional layers: N(0, 2 / fan_in), after He et al. 2015 (for ReLU).
    Recurrent layers: N(0, 0.15). Biases: N(0, 0.1). Others as the judge draws them.
    """
    recurrent = (torch.nn.RNNBase, torch.nn.RNNCellBase)
    norms = (torch.nn.LayerNorm, torch.nn.GroupNorm, torch.nn.modules.batchnorm._NormBase)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            normal = torch.randn(parameter.shape, generator=rng)
            if isinstance(module, norms):
                parameter.copy_(draws.fresh_parameter(parameter, rng))
            elif name.startswith("bias") or name.endswith("_bias"):
                parameter.copy_(HE_BIAS_STD * normal)
            elif isinstance(module, recurrent):
                parameter.copy_(HE_RECURRENT_STD * normal)
            elif name.endswith("weight") and parameter.dim() > 1 and not isinstance(module, torch.nn.Embedding):
                fan_in, _ = torch.nn.init._calculate_fan_in_and_fan_out(parameter)
                parameter.copy_((2 / fan_in) ** 0.5 * normal)
            else:
                parameter.copy_(draws.fresh_parameter(parameter, rng))


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _floating(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def _copy(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x
