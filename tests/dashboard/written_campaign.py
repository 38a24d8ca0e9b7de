"""Writes a campaign into a real store the way an engine does: calls, steps, candidates, verdicts, improvements."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from evaluator.baselines import Baseline, conditions_of
from evaluator.model import Evaluation, Evidence, Status
from kernel_agent.model import Campaign, CampaignSettings, Candidate, Improvement, Price, Usage
from kernel_agent.store.repository import Store
from problems.model import Problem

PRICE = Price(name="example", input_usd=3.0, cached_usd=0.3, output_usd=15.0)


def problem(name: str, source: str | None = None) -> Problem:
    text = source or f'"""{name}"""\nclass Model: ...\n'
    return Problem(id=name, title=name, origin="bundled", source=text)


def settings(name: str = "first", **changes: Any) -> CampaignSettings:
    values: dict[str, Any] = {"name": name, "problem_ids": (), "model": "example/model", "price": PRICE, **changes}
    return CampaignSettings(**values)


def verdict(
    problem_sha: str, source: str, status: Status, speedup: float | None = None, purpose: str = "screen", **more: Any
) -> Evaluation:
    """A verdict with an interval of 2% either side."""
    numbers: dict[str, Any] = {}
    if speedup is not None:
        numbers = {
            "speedup": speedup,
            "speedup_low": speedup * 0.98,
            "speedup_high": speedup * 1.02,
            "reference_ms": 4.0,
            "candidate_ms": 4.0 / speedup,
            "lane": "fp32",
        }
    values: dict[str, Any] = {
        "status": status,
        "reason": f"it is {status}",
        "source_sha": hashlib.sha256(source.encode()).hexdigest(),
        "problem_sha": problem_sha,
        "purpose": purpose,
        "target": "cpu",
        "gpu": "a CPU",
        "isolation": "jail",
        "evidence": Evidence(isolation="bubblewrap", threads=2, torch_version="2.9.0"),
        **numbers,
        **more,
    }
    return Evaluation(**values)


def baseline(of: Evaluation, age: timedelta = timedelta(0)) -> Baseline:
    """torch.compile at 1.25 times eager's speed, under the conditions of ``of``."""
    return Baseline(
        conditions=conditions_of(of),
        status="correct",
        reason="as told",
        eager_ms=of.reference_ms,
        ms=3.2,
        speedup=1.25,
        speedup_low=1.2,
        speedup_high=1.3,
        measured_at=datetime.now(UTC) - age,
    )


class SessionWriter:
    """One session under its lease."""

    def __init__(self, store: Store, campaign_id: str, of: Problem, rollout: int) -> None:
        self.store = store
        self.problem = of
        self.session_id = store.create_session(campaign_id, of, rollout, "cpu").id
        self.fence = store.acquire_session(self.session_id, "test", 600)
        store.set_session_state(self.fence, "running")
        self._calls = 0

    def step(self, usd: float = 0.01, prompt_tokens: int = 2000) -> int:
        """One answered call of the agent; its step's index."""
        self._calls += 1
        sha = hashlib.sha256(f"{self.session_id} {self._calls}".encode()).hexdigest()
        call = self.store.begin_call(self.session_id, sha, "agent", usd)
        assert call.outcome == "started", call.refusal
        usage = Usage(prompt_tokens=prompt_tokens, cached_tokens=prompt_tokens // 2, completion_tokens=100)
        step = self.store.finish_call(call.call_id, b"{}", usage, usd)
        assert step is not None
        return step.idx

    def attempt(
        self, source: str, status: Status = "correct", speedup: float | None = None, hypothesis: str = "fuse it"
    ) -> Candidate:
        """A candidate in a step of its own, screened."""
        step = self.step()
        candidate = self.store.add_candidate(self.fence, step, f"call_{step}", source, None, hypothesis)
        screened = verdict(self.problem.sha256, source, status, speedup)
        self.store.add_evaluation(self.fence, candidate.id, "spec", "screen", 0, screened)
        return candidate

    def improve(self, source: str, speedup: float, hypothesis: str = "fuse it", **confirmed_by: Any) -> Improvement:
        """A candidate that is promoted to the new best. Its screening looks 10% better than its confirmation."""
        candidate = self.attempt(source, "correct", speedup * 1.1, hypothesis)
        confirmed = verdict(self.problem.sha256, source, "correct", speedup, "promote", accepted=True, **confirmed_by)
        self.store.add_evaluation(self.fence, candidate.id, "spec-promote", "promote", 0, confirmed)
        return self.store.add_improvement(self.fence, candidate.id, confirmed)

    def compact(self) -> None:
        steps = self.store.session(self.session_id).steps
        self.store.add_compaction(self.fence, steps, 120_000, 30_000, "cliff:128k")

    def finish(self, reason: str = "all steps used") -> None:
        self.store.set_session_state(self.fence, "finished", reason)
        self.store.release_session(self.fence)


class CampaignWriter:
    """One running campaign."""

    def __init__(self, store: Store, name: str = "first", **changes: Any) -> None:
        self.store = store
        self.id = store.create_campaign(settings(name, **changes)).id
        store.set_campaign_state(self.id, "running")

    def session(self, of: Problem | str, rollout: int = 0) -> SessionWriter:
        return SessionWriter(self.store, self.id, of if isinstance(of, Problem) else problem(of), rollout)

    def finish(self) -> Campaign:
        return self.store.set_campaign_state(self.id, "finished", "every session ended")
