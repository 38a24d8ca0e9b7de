"""What an evaluation may and may not say."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from evaluator.model import Evaluation, EvaluationSpec, Evidence, Limits
from tests.evaluator.sources import EAGER, problem

BASE = {
    "reason": "as told",
    "source_sha": "s",
    "problem_sha": "p",
    "purpose": "screen",
    "target": "cpu",
    "isolation": "bubblewrap",
    "evidence": Evidence(isolation="bubblewrap"),
}
SPEEDUP = {"speedup": 1.5, "speedup_low": 1.4, "speedup_high": 1.6}


def made(**more: object) -> Evaluation:
    return Evaluation.model_validate(BASE | more)


def test_a_correct_evaluation_survives_its_text() -> None:
    evaluation = made(status="correct", **SPEEDUP)
    assert Evaluation.model_validate_json(evaluation.model_dump_json()) == evaluation


@pytest.mark.parametrize("status", ["incorrect", "unstable", "timeout", "compiled", "reference_error"])
def test_only_a_correct_one_carries_a_speedup(status: str) -> None:
    assert made(status=status).speedup is None
    for part in SPEEDUP:
        with pytest.raises(ValidationError, match="carries no speedup"):
            made(status=status, **{part: 1.5})


@pytest.mark.parametrize("missing", SPEEDUP)
def test_a_correct_one_needs_all_three(missing: str) -> None:
    with pytest.raises(ValidationError, match="carries speedup"):
        made(status="correct", **{k: v for k, v in SPEEDUP.items() if k != missing})


@pytest.mark.parametrize(("low", "high"), [(1.51, 1.6), (1.4, 1.49), (1.6, 1.4), (math.nan, 1.6)])
def test_a_speedup_lies_in_its_interval(low: float, high: float) -> None:
    with pytest.raises(ValidationError, match="outside its own interval"):
        made(status="correct", speedup=1.5, speedup_low=low, speedup_high=high)


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(ValidationError):
        made(status="probably correct")


def test_the_identity_of_a_request_follows_every_condition() -> None:
    base = EvaluationSpec(problem=problem(), source=EAGER)
    assert base.sha256 == EvaluationSpec(problem=problem(), source=EAGER).sha256
    others = [
        base.model_copy(update=change)
        for change in (
            {"source": EAGER + "\n"},
            {"lane": "bf16"},
            {"purpose": "final"},
            {"incumbent": EAGER},
            {"limits": Limits(search_seconds=1)},
            {"problem": problem(problem().source + "\n")},
        )
    ]
    assert len({base.sha256, *(o.sha256 for o in others)}) == 7
