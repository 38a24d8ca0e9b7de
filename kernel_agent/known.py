"""What is kept about a problem, set beside every verdict on it: is it sound, and how fast are its other baselines."""

from __future__ import annotations

from evaluator import baselines, soundness
from evaluator.model import Evaluation, EvaluationSpec
from evaluator.pool import Evaluator
from kernel_agent.settings import Settings


class Informed:
    """An evaluator whose verdicts say what is known of their problem. Reads what was kept, measures nothing."""

    def __init__(self, evaluator: Evaluator, settings: Settings) -> None:
        self._evaluator, self._settings = evaluator, settings

    def evaluate(self, spec: EvaluationSpec) -> Evaluation:
        verdict = with_soundness(self._evaluator.evaluate(spec), spec, self._settings)
        for way in baselines.ways(verdict):
            kept = baselines.cached(self._settings.baseline_cache, baselines.conditions_of(verdict), way)
            if kept is not None:
                verdict = baselines.with_baseline(verdict, kept)
        return verdict

    def close(self) -> None:
        self._evaluator.close()


def with_soundness(verdict: Evaluation, spec: EvaluationSpec, settings: Settings) -> Evaluation:
    """Unchanged for a problem that was not probed at these sizes and in this lane."""
    probed = soundness.cached(spec.problem, settings.soundness_cache, spec.lane)
    return verdict if probed is None else verdict.model_copy(update={"soundness": probed.verdict})
