"""How a candidate comes by its weights: by name, or by the seed that both constructors are given."""

from __future__ import annotations

import pytest

from tests.evaluator.conftest import Judged, accepted
from tests.evaluator.sources import HEAD

OTHER_NAMES = (
    HEAD
    + """
class ModelNew(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.other = Model(*sizes)

    def forward(self, x):
        return self.other(x)
"""
)
OTHER_ORDER = (
    HEAD
    + """
class ModelNew(Model):
    def __init__(self, *sizes):
        torch.rand(1)
        super().__init__(*sizes)
"""
)
KEPT = (
    HEAD
    + """
FIRST = []

class ModelNew(Model):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        FIRST.append(self)

    def forward(self, x):
        return Model.forward(FIRST[0], x)
"""
)


def with_model(source: str) -> str:
    from tests.evaluator.sources import problem

    return problem().source + "\n" + source


def test_other_names_pass_where_weights_go_by_seed(judged: Judged) -> None:
    source = with_model(OTHER_NAMES)
    assert judged(source).status == "weights_not_transferable"
    evaluation = judged(source, contract="kernelbench", tries=3)
    assert accepted(evaluation), evaluation.reason


@pytest.mark.soak
def test_another_order_of_draws_is_wrong_where_weights_go_by_seed(judged: Judged) -> None:
    source = with_model(OTHER_ORDER)
    assert accepted(judged(source, tries=3))
    evaluation = judged(source, contract="kernelbench")
    assert evaluation.status == "incorrect"


def test_weights_go_by_a_new_seed_each_round(judged: Judged) -> None:
    evaluation = judged(with_model(KEPT), contract="kernelbench")
    assert evaluation.status == "incorrect", evaluation.reason
    assert evaluation.evidence.checked_outputs >= 5
