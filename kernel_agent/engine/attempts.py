"""One attempt from submission to best: stored, screened, promoted, told. Repeating it after a crash changes nothing."""

from __future__ import annotations

from evaluator.model import Evaluation, EvaluationSpec, Purpose, reference_candidate
from evaluator.pool import Evaluator
from kernel_agent.engine import feedback
from kernel_agent.model import Campaign, Candidate, Improvement, Session
from kernel_agent.store.repository import Fence, Store
from problems.model import Problem

UNSTABLE_TRIES = 3
WORTH_CONFIRMING = 1.01
"""A screening result this far above the confirmed best is confirmed; the best of many noisy ones would flatter."""


class Attempts:
    """The attempts of one session. The verdict is in the store before anybody hears it."""

    def __init__(self, store: Store, evaluator: Evaluator, campaign: Campaign, session: Session, fence: Fence) -> None:
        self._store, self._evaluator = store, evaluator
        self._campaign, self._session, self._fence = campaign, session, fence
        self._problem = store.problem(session.id)

    @property
    def problem(self) -> Problem:
        return self._problem

    def baseline(self) -> Evaluation:
        """The reference against itself: what eager takes here."""
        return self._evaluator.evaluate(self._spec(reference_candidate(self._problem), "screen", None))

    def submit(self, tool_call_id: str, source: str, hypothesis: str) -> str:
        """Judge ``source`` and say how it went. The same tool call of the same step gets the stored verdict."""
        step = self._store.last_step(self._session.id)
        best = self._store.best(self._session.id)
        candidate = self._store.add_candidate(
            self._fence,
            step.idx if step is not None else 0,
            tool_call_id,
            source,
            best.candidate_id if best is not None else None,
            hypothesis,
        )
        screen = candidate.screen or self._judge(candidate, source, "screen", None)
        promotion, improved = candidate.promotion, self._improvement_of(candidate)
        if improved is None and promotion is None and self._worth_confirming(screen, best):
            incumbent = (
                self._store.source(self._store.candidate(best.candidate_id).source_sha) if best is not None else None
            )
            promotion = self._judge(candidate, source, "promote", incumbent)
        if improved is None and promotion is not None and promotion.status == "correct" and promotion.accepted:
            improved = self._store.add_improvement(self._fence, candidate.id, promotion)
        best = self._store.best(self._session.id)
        since = candidate.n - best.attempt if best is not None else candidate.n
        return feedback.verdict(candidate, screen, promotion, improved, best, self._left(), max(0, since))

    def target_reached(self) -> bool:
        target, best = self._campaign.settings.budget.target_speedup, self._store.best(self._session.id)
        return target is not None and best is not None and best.speedup_low >= target

    # -- judging ------------------------------------------------------------------------------------------------

    def _spec(self, source: str, purpose: Purpose, incumbent: str | None) -> EvaluationSpec:
        s = self._campaign.settings
        return EvaluationSpec(
            problem=self._problem,
            source=source,
            target=s.target,
            profile=s.profile,
            purpose=purpose,
            incumbent=incumbent,
            lane=s.lane,
            isolation=s.isolation,
        )

    def _judge(self, candidate: Candidate, source: str, purpose: Purpose, incumbent: str | None) -> Evaluation:
        """Judge and store; an unstable measurement is repeated, then stored as what it is."""
        spec = self._spec(source, purpose, incumbent)
        found = self._store.verdict(spec.source_sha, spec.sha256, purpose, self._campaign.id)
        if found is None or found.status == "unstable":
            for _ in range(UNSTABLE_TRIES):
                found = self._evaluator.evaluate(spec)
                if found.status != "unstable":
                    break
        assert found is not None
        return self._store.add_evaluation(self._fence, candidate.id, spec.sha256, purpose, 0, found).evaluation

    def _worth_confirming(self, screen: Evaluation, best: Improvement | None) -> bool:
        if screen.status != "correct" or screen.speedup is None:
            return False
        return best is None or screen.speedup >= best.speedup * WORTH_CONFIRMING

    def _improvement_of(self, candidate: Candidate) -> Improvement | None:
        return next((i for i in self._store.improvements(self._session.id) if i.candidate_id == candidate.id), None)

    def _left(self) -> str:
        session, budget = self._store.session(self._session.id), self._campaign.settings.budget
        text = f"{max(0, budget.steps - session.steps)} of {budget.steps} steps left"
        if budget.max_cost_usd is not None:
            text += f", ${max(0.0, budget.max_cost_usd - session.spent_usd):.2f} left"
        return text
