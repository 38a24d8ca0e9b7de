from __future__ import annotations

import pytest

from kernel_agent.cli.estimate import worst_case_usd
from kernel_agent.cli.launch import plan
from kernel_agent.model import Budget, CampaignSettings, Price

SETTINGS = CampaignSettings(
    name="it",
    problem_ids=("a", "b"),
    model="m",
    price=Price(name="test", input_usd=2.0, cached_usd=0.2, output_usd=10.0),
    compaction="none",
    rollouts=3,
    budget=Budget(steps=10),
    context_tokens=100_000,
    max_output_tokens=1_000,
)
STEP_USD = (100_000 * 2 + 1_000 * 10) / 1e6


def test_without_caps_every_step_of_every_session_counts() -> None:
    assert worst_case_usd(SETTINGS) == pytest.approx(2 * 3 * 10 * STEP_USD)


def test_compaction_bounds_the_context() -> None:
    compacted = SETTINGS.model_copy(update={"compaction": "cliff:20k"})
    assert worst_case_usd(compacted) == pytest.approx(60 * (20_000 * 2 + 1_000 * 10) / 1e6)
    roomy = SETTINGS.model_copy(update={"compaction": "cliff:200k"})
    assert worst_case_usd(roomy) == worst_case_usd(SETTINGS)


def test_caps_bound_it() -> None:
    per_session = SETTINGS.model_copy(update={"budget": Budget(steps=10, max_cost_usd=0.5)})
    assert worst_case_usd(per_session) == pytest.approx(3.0)
    whole = per_session.model_copy(update={"max_cost_usd": 1.25})
    assert worst_case_usd(whole) == 1.25
    assert "at most $1.25" in plan(whole, "c1")
