"""Honest candidates, however unusual: each must be called correct."""

from __future__ import annotations

import pytest

from evaluator.model import LANES
from tests.evaluator.conftest import TRIES, Judged, accepted
from tests.evaluator.corpus import HONEST, Entry
from tests.evaluator.sources import EAGER

EACH_TIME = 22
"""Tried with every run of the tests, the rest in ``make soak``: a verdict takes seconds."""


def tried() -> list[object]:
    return [
        pytest.param(entry, id=entry.name, marks=[pytest.mark.soak] if n >= EACH_TIME else [])
        for n, entry in enumerate(HONEST)
    ]


@pytest.mark.parametrize("entry", tried())
def test_honest_work_is_correct(judged: Judged, entry: Entry) -> None:
    evaluation = judged(entry.source, entry.problem, lane=entry.lane)
    assert accepted(evaluation), (evaluation.status, evaluation.reason, evaluation.errors)
    if evaluation.status == "correct":
        assert evaluation.lane is not None
        assert LANES.index(evaluation.lane) <= LANES.index(entry.lane)
    if "load_inline" in entry.source:
        assert evaluation.build is not None
        assert evaluation.build.artifacts == 1


def test_there_are_honest_candidates_of_many_kinds() -> None:
    assert len({entry.name for entry in HONEST}) == len(HONEST) >= 22


def test_the_same_request_has_the_same_answer(judged: Judged) -> None:
    first = judged(EAGER, tries=TRIES)
    assert accepted(first), first.reason
    if first.status == "correct":
        assert first.speedup is not None
        assert 0.8 < first.speedup < 1.25
        assert first.evidence.checked_outputs > 8 * 3
        assert first.evidence.control is not None
        assert judged(EAGER).model_copy(update={"seconds": first.seconds}) == first
    refused = judged("raise ValueError('once')\n")
    assert judged("raise ValueError('once')\n").model_copy(update={"seconds": refused.seconds}) == refused


def test_twice_the_work_is_called_slower(judged: Judged) -> None:
    (entry,) = [e for e in HONEST if e.name == "twice the work"]
    evaluation = judged(entry.source, tries=TRIES)
    assert accepted(evaluation), evaluation.reason
    if evaluation.status == "correct":
        assert evaluation.speedup_high is not None
        assert evaluation.speedup_high < 1.0
