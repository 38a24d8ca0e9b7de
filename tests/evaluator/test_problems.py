"""Problems of other kinds, and broken ones: what is the problem's fault is never charged to the candidate."""

from __future__ import annotations

import pytest

from tests.evaluator.conftest import Judged, accepted
from tests.evaluator.sources import HEAD, PROBLEM, changed, problem

MODEL = PROBLEM.replace("class Model(", "class ModelNew(")
WRONG = "raise ValueError('the candidate was reached')\n"

BROKEN = {
    "raises in forward": (changed("return F.gelu(self.linear(x))", "raise ValueError('its own')"), "its own"),
    "raises in get_inputs": (changed("return [torch.randn(512, 64)]", "raise ValueError('its own')"), "its own"),
    "raises in __init__": (changed("super().__init__()", "raise ValueError('its own')"), "its own"),
    "has no get_inputs": (changed("def get_inputs", "def get_other"), "get_inputs"),
    "does not parse": (problem("def (:\n"), "SyntaxError"),
    "dies": (changed("return F.gelu(self.linear(x))", "import os; os._exit(3)"), "exit code 3"),
    "returns text": (changed("return F.gelu(self.linear(x))", "return 'x'"), "str"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_reference_is_the_problems_fault(judged: Judged, name: str) -> None:
    broken, words = BROKEN[name]
    evaluation = judged(WRONG, broken)
    assert evaluation.status == "reference_error"
    assert words in evaluation.reason


def test_a_reference_that_does_not_fit_is_skipped(judged: Judged) -> None:
    huge = changed("return F.gelu(self.linear(x))", "return torch.zeros(1 << 36)")
    assert judged(WRONG, huge).status == "skipped_oom_reference"


STRUCTURED = (
    HEAD
    + """

class Model(nn.Module):
    def __init__(self, scale, options, activation):
        super().__init__()
        self.scale, self.options, self.activation = scale, options, activation
        self.table = nn.Embedding(50, 16)

    def forward(self, tokens, x, power):
        rows = self.table(tokens) * self.scale
        return {"sum": self.activation(rows + x), "pair": (rows.argmax(-1), (x ** power).float())}


def get_inputs():
    return [torch.randint(0, 50, (64, 8)), torch.randn(64, 8, 16), 2]


def get_init_inputs():
    return [1.5, {"k": [1, 2]}, nn.ReLU()]
"""
)


def renamed(change: tuple[str, str] | None = None) -> str:
    text = STRUCTURED.replace("class Model(", "class ModelNew(")
    if change is None:
        return text
    assert change[0] in text
    return text.replace(*change)


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (('"sum": self', '"total": self'), "wrong_shape", "total"),
        (("rows.argmax(-1)", "rows.argmin(-1)"), "incorrect", "typical error"),
        (("rows.argmax(-1)", "rows.argmax(-1).int()"), "wrong_dtype", "int32"),
        (('"pair": (', '"pair": (x, '), "wrong_shape", "(tensor, tensor, tensor)"),
    ],
)
def test_every_leaf_of_a_structure_is_compared(
    judged: Judged, change: tuple[str, str], status: str, words: str
) -> None:
    evaluation = judged(renamed(change), problem(STRUCTURED))
    assert evaluation.status == status, evaluation.reason
    assert words in evaluation.reason


def test_integers_dictionaries_tuples_and_objects_are_fine(judged: Judged) -> None:
    """Three inputs (one no tensor), nested outputs of two kinds, constructor arguments that are no literals."""
    evaluation = judged(renamed(), problem(STRUCTURED))
    assert accepted(evaluation), evaluation.reason


def test_two_inputs_are_both_checked(judged: Judged) -> None:
    text = PROBLEM.replace("forward(self, x)", "forward(self, x, y)").replace("self.linear(x)", "self.linear(x) + y")
    text = text.replace("return [torch.randn(512, 64)]", "return [torch.randn(128, 64), torch.randn(128, 64)]")
    only = text.replace("class Model(", "class ModelNew(").replace(" + y)", ")")
    assert judged(only, problem(text)).status == "incorrect"
    swapped = text.replace("class Model(", "class ModelNew(").replace(
        "return F.gelu(self.linear(x) + y)", "z = F.gelu(self.linear(x) + y); y.zero_(); return z"
    )
    assert judged(swapped, problem(text)).status == "mutated_input"


def test_a_reference_without_float64_is_flagged(judged: Judged) -> None:
    single = changed("return F.gelu(self.linear(x))", "return F.gelu(self.linear(x.float()))")
    evaluation = judged("raise ValueError\n", single)
    assert evaluation.status == "load_error"
    assert "float64_unavailable" in evaluation.flags


def test_dead_parameters_may_be_missing(judged: Judged) -> None:
    dead = changed("super().__init__()", "super().__init__()\n        self.unused = nn.Linear(3, 3)")
    evaluation = judged(MODEL, dead)
    assert accepted(evaluation), evaluation.reason
