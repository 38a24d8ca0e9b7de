from __future__ import annotations

from pathlib import Path

import pytest

from evaluator import soundness
from evaluator.baselines import save
from evaluator.model import Evaluation, EvaluationSpec
from kernel_agent.known import Informed
from kernel_agent.settings import Settings
from problems.model import Problem
from tests.dashboard.written_campaign import baseline, verdict
from tests.kernel_agent.cli.tiny import PROBLEM

TINY = Problem(id="file/tiny", title="tiny", origin="file", source=PROBLEM)
SPEC = EvaluationSpec(problem=TINY, source="source")


class Given:
    """Says what it was given to say."""

    def __init__(self, said: Evaluation) -> None:
        self.said, self.closed = said, False

    def evaluate(self, spec: EvaluationSpec) -> Evaluation:
        return self.said.model_copy(update={"purpose": spec.purpose})

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


def test_nothing_known_changes_nothing(settings: Settings) -> None:
    said = verdict(TINY.sha256, "source", "correct", 1.5)
    evaluator = Given(said)
    informed = Informed(evaluator, settings)
    assert informed.evaluate(SPEC) == said
    informed.close()
    assert evaluator.closed


def test_soundness_and_the_time_of_torch_compile_come_with_every_verdict(settings: Settings) -> None:
    said = verdict(TINY.sha256, "source", "correct", 1.5)
    soundness.probe(TINY, settings.soundness_cache)
    save(settings.baseline_cache, baseline(said))
    found = Informed(Given(said), settings).evaluate(SPEC)
    assert found.soundness == "sound"
    assert found.speedup_compile == pytest.approx(1.2)

    wrong = Informed(Given(verdict(TINY.sha256, "source", "incorrect")), settings).evaluate(SPEC)
    assert (wrong.soundness, wrong.speedup_compile) == ("sound", None)
    other_lane = SPEC.model_copy(update={"lane": "bf16"})
    assert Informed(Given(said), settings).evaluate(other_lane).soundness is None, "it was not probed in that lane"
