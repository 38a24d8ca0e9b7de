"""One judge for the whole folder: starting one, and measuring its control, takes longer than most verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evaluator.model import Evaluation, EvaluationSpec, Limits
from evaluator.pool import LocalEvaluator
from evaluator.workers import Nursery
from problems.model import Problem
from tests.evaluator.sources import problem

LIMITS = Limits(
    build_seconds=90,
    load_seconds=8,
    first_call_seconds=5,
    call_seconds=5,
    search_seconds=3,
    processes=96,
    scratch_bytes=256 << 20,
)
TRIES = 3
"""For tests that need ``correct``."""

Judged = Callable[..., Evaluation]


@pytest.fixture(scope="session")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEvaluator]:
    with LocalEvaluator(Path(tmp_path_factory.mktemp("builds"))) as evaluator:
        yield evaluator


@pytest.fixture(scope="session")
def judged(evaluator: LocalEvaluator) -> Judged:
    """Judge a source; asked again, at most ``tries`` times in all, while the machine is too noisy for a verdict."""

    def judge(source: str, on: Problem | None = None, *, tries: int = 1, **more: object) -> Evaluation:
        spec = EvaluationSpec.model_validate(
            {"problem": on or problem(), "source": source, "limits": LIMITS, "isolation": "jail"} | more
        )
        for _ in range(tries):
            evaluation = evaluator.evaluate(spec)
            if evaluation.status != "unstable":
                break
        return evaluation

    return judge


@pytest.fixture(scope="session")
def nursery(level: str) -> Iterator[Nursery]:
    nursery = Nursery(level, 1, 0)
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def level() -> str:
    """The jail's level on this host; without a jail there is nothing to test here."""
    from evaluator.sandbox import require

    return require("jail")


def accepted(evaluation: Evaluation) -> bool:
    """Whether every output was right, on a machine quiet enough to time it or not: wrong ones never get that far."""
    return evaluation.status in ("correct", "unstable") and evaluation.evidence.checked_outputs > 6
