"""Endurance: the demo's campaign, killed again and again, ends as an undisturbed one does. ``make soak`` runs it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from pathlib import Path

import pytest

from evaluator.pool import LocalEvaluator
from kernel_agent.campaign import chosen_problems, create, resolve_settings
from kernel_agent.demo import demo
from kernel_agent.engine.local import LocalEngine
from kernel_agent.models import resolve_model
from kernel_agent.settings import Settings
from kernel_agent.store.repository import Store
from problems.catalog import Catalog

KILLS = 20
ATTEMPTS = {"bundled/bias_gelu_residual": 7, "bundled/gated_recurrence": 9}
CERTAIN = ("compile_error", "incorrect")
"""Verdicts that no noise can change."""


@pytest.mark.soak
def test_the_demo_survives_twenty_kills(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    request = demo().request
    problems = chosen_problems(Catalog(), request.problems, request.overrides)
    model = resolve_model(settings, "replay:demo", None, None)
    store = Store.open(settings.database_url)
    campaign = create(store, resolve_settings(request, problems, model), problems)
    chance, done, kills = random.Random(), threading.Event(), 0
    with LocalEvaluator(settings.build_cache) as evaluator:
        engine = LocalEngine(store, tmp_path, evaluator)
        engine.fruitless_starts = KILLS + 1
        runner = threading.Thread(target=lambda: (engine.run(campaign.id), done.set()))
        runner.start()
        while kills < KILLS and not done.wait(chance.uniform(6, 14)):
            for pid in engine.session_pids().values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
        runner.join()
    assert kills >= KILLS / 2
    for session in store.sessions(campaign.id):
        assert (session.state, session.steps) == ("finished", 40)
        candidates = store.candidates(session.id)
        assert len(candidates) == ATTEMPTS[session.problem_id]
        assert sum(session.statuses.values()) == len(candidates)
        assert all(session.statuses.get(status, 0) >= 1 for status in CERTAIN)
        answered = [c for c in store.calls(session.id) if c.state == "answered"]
        assert len(answered) == 40
        assert [c.attempts for c in answered] == [1] * 40
        bests = store.improvements(session.id)
        assert [i.n for i in bests] == list(range(1, len(bests) + 1))
        assert len({i.candidate_id for i in bests}) == len(bests)
    found = store.campaign(campaign.id)
    steps = [s for session in store.sessions(campaign.id) for s in store.steps(session.id)]
    assert found.spent_usd == pytest.approx(sum(s.usd for s in steps))
    assert found.reserved_usd == 0
