"""One trial: answers that ignore the input, beside what the reference itself does. Runs in the jail only."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from evaluator import draws, gate
from evaluator.model import Lane
from evaluator.probing.subject import SEED, Subject, Tensors
from evaluator.soundness_model import Behaviour, Null, PaperShare, Range, Trial

INPUTS, CHECKED = 3, 2
"""Inputs drawn, and those of them whose answers are held against float64."""
SIMPLE = (bool, int, float, str, type(None))
MOST_NAMES = 40


def trial(subject: Subject, lane: Lane) -> tuple[Trial, gate.Yardstick]:
    """Measure a problem under the subject's conditions, and the yardstick found. All is float32 against float64.

    Of several outputs, the trial has the largest errors and the tightest bounds.
    """
    inputs = [subject.inputs(SEED + n) for n in range(INPUTS)]
    largest_inside = _Largest(subject.single)
    eager = [subject.answer(x) for x in inputs]
    inside = largest_inside.stop()
    truth = [subject.truth(x) for x in inputs[:CHECKED]]
    eager_errors: gate.Errors = ()
    for mine, right in zip(eager[:CHECKED], truth, strict=True):
        eager_errors = gate.worst(eager_errors, gate.measure(mine, right))
    noise_errors: gate.Errors = ()
    for x, right in zip(inputs[:CHECKED], truth, strict=True):
        noise_errors = gate.worst(noise_errors, gate.measure(subject.truth(_noisy(x, subject.rng)), right))
    yardstick = gate.Yardstick(eager_errors, noise_errors)
    error, noise = _largest(eager_errors), _largest(noise_errors)
    rms_bound, tail_bound = (min(bounds) for bounds in zip(*yardstick.bounds(lane, len(truth[0])), strict=True))
    measured = Trial(
        conditions=subject.conditions,
        input_rms=min((_distance([b], [a])[0].rms for a, b in zip(*eager[:2], strict=True)), default=0.0),
        nulls=nulls(inputs[0], eager, truth[0], yardstick),
        eager_rms=error.rms,
        eager_tail=error.tail,
        finite=error.finite,
        noise_rms=noise.rms,
        noise_tail=noise.tail,
        chaotic=max(noise.rms, error.rms) > gate.CHAOTIC_R,
        rms_bound=rms_bound,
        tail_bound=tail_bound,
        float64=subject.float64,
        range=_range([leaf for leaves in truth for leaf in leaves], inside),
        behaviour=behaviour(subject, inputs, lane),
    )
    return measured, yardstick


def _largest(errors: gate.Errors) -> gate.Error:
    return functools.reduce(gate.Error.worst, errors, gate.NO_ERROR)


def nulls(
    inputs: Sequence[Any], eager: Sequence[Tensors], truth: Tensors, yardstick: gate.Yardstick
) -> tuple[Null, ...]:
    """Candidates that did not look at the input, against ``truth``, the answer to ``inputs``.

    ``eager``: float32 answers, the first to ``inputs`` and the others to other inputs. Of several outputs each is
    replaced alone, since a candidate may be right on the others; the one where it comes nearest is kept.
    """
    found: dict[str, Null] = {}
    for n, right in enumerate(truth):
        if right.numel() == 0:
            continue
        mine = eager[0][n]
        for name, answer in _without_looking(inputs, [leaves[n] for leaves in eager]).items():
            (error,) = gate.measure([answer], [right])
            shares = gate.paper_shares([answer], [mine])
            null = Null(
                name=name,
                output=n,
                rms=error.rms,
                tail=error.tail,
                lane=gate.strictest((error,), yardstick.of(n)),
                papers=tuple(PaperShare(gate=g, share=s) for g, s in sorted(shares.items())),
            )
            if name not in found or null.rms < found[name].rms:
                found[name] = null
    return tuple(found.values())


def _without_looking(inputs: Sequence[Any], answers: Tensors) -> dict[str, torch.Tensor]:
    """Null answers by name, in the shape and dtype of the first of ``answers``."""
    own, other = answers[0], answers[1]
    found = {"zeros": torch.zeros_like(own), "replay": other}
    if own.is_floating_point() and own.dim() and all(y.shape == own.shape for y in answers):
        if own.shape[0] > 1:
            found["batch mean"] = own.mean(0, keepdim=True).expand_as(own)
        found["constant"] = other.mean(0, keepdim=True).expand_as(own)
        found["input mean"] = torch.stack(answers[1:]).mean(0)
    for x in inputs:
        if isinstance(x, torch.Tensor) and x.shape == own.shape and x.dtype == own.dtype:
            found.setdefault("identity", x)
    return {name: answer for name, answer in found.items() if answer.shape == own.shape}


def behaviour(subject: Subject, inputs: Sequence[list[Any]], lane: Lane) -> Behaviour:
    """Call with one input, another, the first again, and the first with another global seed; watch what changes.

    Held to the lane's own floors: chance and state are in eager's error too, and would excuse themselves.
    """
    first, second = inputs[0], inputs[1]
    given = [x.clone() if isinstance(x, torch.Tensor) else x for x in first]
    before = _state(subject.single)
    torch.manual_seed(SEED)
    generator = torch.get_rng_state()
    once = subject.run(subject.single, given, SEED)
    drew = not torch.equal(generator, torch.get_rng_state())
    changed = _changed(before, _state(subject.single))
    kept = all(torch.equal(a, b) for a, b in zip(given, first, strict=True) if isinstance(a, torch.Tensor))
    subject.answer(second)
    again = subject.answer(first)
    reseeded = subject.answer(first, seed=SEED + 1)
    state, chance = _distance(again, once), _distance(reseeded, again)
    return Behaviour(
        draws_random=drew,
        random_rms=_largest(chance).rms,
        random_passes=gate.passes(chance, gate.Yardstick(), lane),
        state_rms=_largest(state).rms,
        state_passes=gate.passes(state, gate.Yardstick(), lane),
        changed=tuple(changed[:MOST_NAMES]),
        changes_inputs=not kept,
    )


def _distance(answer: Tensors, reference: Tensors) -> gate.Errors:
    return gate.measure(answer, [r.double() if r.is_floating_point() else r for r in reference])


def _state(model: Any) -> dict[str, Any]:
    """Copies of buffers, parameters' versions, and attributes that are tensors or simple values, by name."""
    found: dict[str, Any] = {name: parameter._version for name, parameter in model.named_parameters()}
    found |= {name: buffer.clone() for name, buffer in model.named_buffers()}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                value = value.detach().clone()
            elif not isinstance(value, SIMPLE):
                continue
            found[f"{path}.{name}".lstrip(".")] = value
    return found


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [name for name, value in after.items() if name not in before or _differ(before[name], value)]


def _differ(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return not torch.equal(a, b)
    return type(a) is not type(b) or bool(a != b)


def _noisy(inputs: Sequence[Any], rng: torch.Generator) -> list[Any]:
    """``inputs`` with every floating tensor moved by one ulp."""
    moved = iter(draws.one_ulp_noise([x for x in inputs if isinstance(x, torch.Tensor)], rng))
    return [next(moved) if isinstance(x, torch.Tensor) else x for x in inputs]


def _range(outputs: Tensors, largest_inside: float) -> Range:
    """Magnitudes over all outputs."""
    largest, smallest, zeros, count, nan, infinite = 0.0, float("inf"), 0, 0, False, False
    for y in outputs:
        if not y.is_floating_point() or y.numel() == 0:
            continue
        size = y.abs()
        nan, infinite = nan or bool(size.isnan().any()), infinite or bool(size.isinf().any())
        finite = size[torch.isfinite(size)]
        positive = finite[finite > 0]
        if positive.numel():
            largest, smallest = max(largest, float(positive.max())), min(smallest, float(positive.min()))
        zeros, count = zeros + finite.numel() - positive.numel(), count + y.numel()
    return Range(
        largest=largest,
        smallest=smallest if largest else 0.0,
        zeros=zeros / max(count, 1),
        nan=nan,
        infinite=infinite,
        largest_inside=largest_inside,
    )


class _Largest:
    """Watches the largest finite magnitude that any submodule returns."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.value = 0.0
        self._handles = [m.register_forward_hook(self._see) for m in model.modules() if m is not model]

    def _see(self, module: Any, arguments: Any, result: Any) -> None:
        del module, arguments
        if isinstance(result, torch.Tensor) and result.is_floating_point() and result.numel():
            self.value = max(self.value, float(result.detach().abs().nan_to_num(0, 0, 0).max()))

    def stop(self) -> float:
        for handle in self._handles:
            handle.remove()
        return self.value
