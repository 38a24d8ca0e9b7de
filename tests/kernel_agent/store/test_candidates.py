"""Candidates, verdicts, improvements and compactions: idempotent, immutable, found by content."""

from __future__ import annotations

import math

import pytest
from sqlalchemy import text

from evaluator.model import Evaluation, Evidence, GateResult
from kernel_agent.errors import NotFoundError, StoreError
from kernel_agent.store.repository import Store
from tests.kernel_agent.store.conftest import PROBLEM, Clock, evaluation, launch

SPEC = "a" * 64


def test_a_repeated_attempt_is_the_stored_one(store: Store) -> None:
    fence = launch(store)
    first = store.add_candidate(fence, 3, "call_1", "x = 1\n", None, "fuse")
    store.add_evaluation(fence, first.id, SPEC, "screen", 0, evaluation(first.source_sha))
    again = store.add_candidate(fence, 3, "call_1", "x = 1\n", None, "said otherwise")
    assert again == store.candidate(first.id)
    assert (again.n, again.hypothesis) == (1, "fuse")
    second = store.add_candidate(fence, 3, "call_2", "x = 1\n", first.id, "")
    assert (second.n, second.parent_id, second.source_sha) == (2, first.id, first.source_sha)
    assert [c.id for c in store.candidates(fence.session_id)] == [first.id, second.id]
    assert store.source(first.source_sha) == "x = 1\n"
    campaign_id = store.session(fence.session_id).campaign_id
    assert [e.data["n"] for e in store.events(campaign_id) if e.kind == "candidate"] == [1, 2]


def test_a_repeated_attempt_with_another_source_is_refused(store: Store) -> None:
    fence = launch(store)
    store.add_candidate(fence, 3, "call_1", "x = 1\n", None, "")
    with pytest.raises(StoreError, match="restore the workspace"):
        store.add_candidate(fence, 3, "call_1", "x = 2\n", None, "")


def test_a_parent_is_of_the_same_session(store: Store) -> None:
    other = store.add_candidate(launch(store), 0, "t", "x = 1\n", None, "")
    with pytest.raises(StoreError, match="cannot be a parent"):
        store.add_candidate(launch(store), 0, "t", "x = 1\n", other.id, "")


def test_a_verdict_comes_back_whole_and_only_once(store: Store) -> None:
    fence = launch(store)
    candidate = store.add_candidate(fence, 0, "t", "x = 1\n", None, "")
    verdict = evaluation(candidate.source_sha)
    first = store.add_evaluation(fence, candidate.id, SPEC, "screen", 0, verdict)
    assert first.evaluation == verdict
    luckier = evaluation(candidate.source_sha, speedup=9.0)
    assert store.add_evaluation(fence, candidate.id, SPEC, "screen", 0, luckier) == first
    assert store.evaluations(fence.session_id) == [first]
    campaign_id = store.session(fence.session_id).campaign_id
    (event,) = [e for e in store.events(campaign_id) if e.kind == "evaluation"]
    assert (event.data["candidate"], event.data["status"], event.data["speedup"]) == (candidate.id, "correct", 1.5)


def test_infinities_come_back_as_such(store: Store) -> None:
    fence = launch(store)
    candidate = store.add_candidate(fence, 0, "t", "x = 1\n", None, "")
    gates = (GateResult(gate="honest", lane="fp32", passed=False, rms=float("inf"), tail=float("nan")),)
    evidence = Evidence(isolation="bubblewrap", round_log_ratios=(float("-inf"), 0.5))
    verdict = evaluation(candidate.source_sha, status="non_finite")
    verdict = verdict.model_copy(update={"gates": gates, "evidence": evidence})
    back = store.add_evaluation(fence, candidate.id, SPEC, "screen", 0, verdict).evaluation
    assert back.gates[0].rms == float("inf")
    assert back.gates[0].tail is not None
    assert math.isnan(back.gates[0].tail)
    assert back.evidence.round_log_ratios == (float("-inf"), 0.5)


def test_text_that_is_no_unicode_is_said_so(store: Store) -> None:
    fence = launch(store)
    with pytest.raises(StoreError, match="no valid Unicode"):
        store.add_candidate(fence, 0, "t", "x = '\ud800'\n", None, "")
    with pytest.raises(StoreError, match="no valid Unicode"):
        store.add_candidate(fence, 0, "t", "x = 1\n", None, "because \ud800")


def test_resubmitting_is_no_lottery(store: Store, clock: Clock) -> None:
    fence = launch(store)
    first = store.add_candidate(fence, 0, "t", "x = 1\n", None, "")
    assert store.verdict(first.source_sha, SPEC, "screen") is None
    store.add_evaluation(fence, first.id, SPEC, "screen", 0, evaluation(first.source_sha, speedup=1.2))
    clock.advance(1)
    elsewhere = launch(store)
    second = store.add_candidate(elsewhere, 0, "t", "x = 1\n", None, "")
    store.add_evaluation(elsewhere, second.id, SPEC, "screen", 0, evaluation(second.source_sha, speedup=2.0))
    found = store.verdict(first.source_sha, SPEC, "screen")
    assert found is not None
    assert found.speedup == 1.2
    own = store.verdict(first.source_sha, SPEC, "screen", store.session(elsewhere.session_id).campaign_id)
    assert own is not None
    assert own.speedup == 2.0
    assert store.verdict(first.source_sha, "b" * 64, "screen") is None
    assert store.verdict(first.source_sha, SPEC, "promote") is None


def test_a_verdict_must_be_about_the_candidate(store: Store) -> None:
    fence = launch(store)
    candidate = store.add_candidate(fence, 0, "t", "x = 1\n", None, "")
    foreign = store.add_candidate(launch(store), 0, "t", "x = 2\n", None, "")
    with pytest.raises(StoreError, match="about source"):
        store.add_evaluation(fence, candidate.id, SPEC, "screen", 0, evaluation("0" * 64))
    wrong = evaluation(candidate.source_sha).model_copy(update={"problem_sha": "0" * 64})
    with pytest.raises(StoreError, match="about problem"):
        store.add_evaluation(fence, candidate.id, SPEC, "screen", 0, wrong)
    with pytest.raises(StoreError, match="made to promote"):
        store.add_evaluation(
            fence, candidate.id, SPEC, "screen", 0, evaluation(candidate.source_sha, purpose="promote")
        )
    with pytest.raises(StoreError, match="belongs to session"):
        store.add_evaluation(fence, foreign.id, SPEC, "screen", 0, evaluation(foreign.source_sha))
    with pytest.raises(NotFoundError, match=f"near ones: {candidate.id}"):
        store.add_evaluation(fence, candidate.id + "0", SPEC, "screen", 0, evaluation("0" * 64))


def test_a_candidate_shows_its_first_screening_and_newest_promotion(store: Store) -> None:
    fence = launch(store)
    c = store.add_candidate(fence, 0, "t", "x = 1\n", None, "")
    for repeat, speedup in enumerate((1.1, 1.9)):
        store.add_evaluation(fence, c.id, SPEC, "screen", repeat, evaluation(c.source_sha, speedup=speedup))
        promotion = evaluation(c.source_sha, purpose="promote", speedup=speedup, accepted=True)
        store.add_evaluation(fence, c.id, SPEC, "promote", repeat, promotion)
    store.add_evaluation(fence, c.id, SPEC, "final", 0, evaluation(c.source_sha, purpose="final", speedup=5.0))
    (shown,) = store.candidates(fence.session_id)
    assert shown.screen is not None
    assert shown.screen.speedup == 1.1
    assert shown.promotion is not None
    assert shown.promotion.speedup == 1.9


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("evaluation", "speedup = 99, speedup_low = 98, speedup_high = 100"),
        ("gate_result", "passed = true"),
        ("improvement", "speedup = 99, speedup_low = 98, speedup_high = 100"),
        ("event", "kind = 'nothing.happened'"),
    ],
)
def test_history_cannot_be_rewritten(store: Store, table: str, change: str) -> None:
    fence = launch(store)
    c = store.add_candidate(fence, 0, "t", "x = 1\n", None, "")
    promotion = evaluation(c.source_sha, purpose="promote", accepted=True)
    store.add_evaluation(fence, c.id, SPEC, "promote", 0, promotion)
    store.add_improvement(fence, c.id, promotion)
    with pytest.raises(StoreError, match="never changed"), store._db.write() as tx:
        tx.execute(text(f"UPDATE {table} SET {change}"))


NO_SPEEDUP = {"id": "e", "repeat": 1, "speedup": None, "speedup_low": None, "speedup_high": None}


def _row(store: Store, table: str, **changes: object) -> None:
    """Insert a copy of the table's first row with ``changes``, past every check but the database's own."""
    with store._db.write() as tx:
        row = dict(tx.execute(text(f"SELECT * FROM {table}")).mappings().first() or {})
        row.update(changes)
        names = ", ".join(f'"{name}"' for name in row)
        tx.execute(text(f"INSERT INTO {table} ({names}) VALUES ({', '.join(':' + n for n in row)})"), row)


@pytest.mark.parametrize(
    ("table", "changes", "rule"),
    [
        ("evaluation", {"id": "e", "repeat": 1, "status": "incorrect"}, "speedup_only_when_correct"),
        ("evaluation", {"id": "e", "repeat": 1, "speedup": None}, "speedup_only_when_correct"),
        ("evaluation", {"id": "e", "repeat": 1, "speedup_low": 1.6}, "interval"),
        ("evaluation", {"id": "e", "repeat": 1, "speedup_high": 1.4}, "interval"),
        ("evaluation", {"id": "e", "repeat": 1, "speedup_low": None}, "interval_with_speedup"),
        ("evaluation", NO_SPEEDUP | {"status": "splendid"}, "status"),
        ("evaluation", {"id": "e", "repeat": 1, "purpose": "show"}, "purpose"),
        ("evaluation", {"id": "e", "repeat": 1, "candidate_id": "nobody"}, "FOREIGN KEY"),
        ("evaluation", {"id": "e"}, "UNIQUE"),
        ("gate_result", {"passed": False}, "UNIQUE"),
        ("gate_result", {"lane": "fp4"}, "lane"),
        ("improvement", {"n": 1, "candidate_id": "c"}, "UNIQUE"),
        ("improvement", {"n": 2}, "UNIQUE"),
        ("candidate", {"id": "k", "n": 9}, "UNIQUE"),
        ("candidate", {"id": "k", "step": 9}, "UNIQUE"),
        ("candidate", {"id": "k", "n": 9, "step": 9, "source_sha": "0" * 64}, "FOREIGN KEY"),
        ("session", {"id": "s", "n": 9}, "UNIQUE"),
        ("session", {"id": "s", "n": 9, "rollout": 9, "state": "asleep"}, "state"),
        ("session", {"id": "s", "n": 9, "rollout": 9, "lease_owner": None}, "lease"),
        ("session", {"id": "s", "n": 9, "rollout": 9, "reserved_nanousd": -1}, "money"),
        ("campaign", {"id": "c", "state": "asleep"}, "state"),
        ("campaign", {"id": "c", "spent_nanousd": -1}, "money"),
        ("event", {"kind": "other"}, "UNIQUE"),
        ("model_call", {"id": "m"}, "UNIQUE"),
        ("model_call", {"id": "m", "request_sha": "1" * 64, "state": "answered"}, "answered"),
        ("model_call", {"id": "m", "request_sha": "1" * 64, "state": "lost"}, "settled"),
        ("model_call", {"id": "m", "request_sha": "1" * 64, "kind": "prayer"}, "kind"),
        ("compaction", {"strategy": "other"}, "UNIQUE"),
    ],
)
def test_the_database_itself_refuses(store: Store, table: str, changes: dict[str, object], rule: str) -> None:
    fence = launch(store)
    c = store.add_candidate(fence, 0, "t", "x = 1\n", None, "")
    promotion = evaluation(c.source_sha, purpose="promote", accepted=True)
    store.add_evaluation(fence, c.id, SPEC, "promote", 0, promotion)
    store.add_improvement(fence, c.id, promotion)
    store.add_compaction(fence, 0, 10, 5, "cliff")
    store.begin_call(fence.session_id, "0" * 64, "agent", 0.5)
    with pytest.raises(StoreError, match=rf"breaks one of its rules: .*{rule}"):
        _row(store, table, **changes)


@pytest.mark.parametrize(
    "verdict",
    [
        {"purpose": "screen"},
        {"purpose": "promote", "accepted": False},
        {"purpose": "promote", "status": "unstable"},
    ],
)
def test_only_an_accepted_promotion_is_an_improvement(store: Store, verdict: dict[str, object]) -> None:
    fence = launch(store)
    c = store.add_candidate(fence, 0, "t", "x = 1\n", None, "")
    made: Evaluation = evaluation(c.source_sha, **verdict)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="no improvement"):
        store.add_improvement(fence, c.id, made)
    assert store.best(fence.session_id) is None


def test_improvements_are_numbered_and_the_newest_is_best(store: Store) -> None:
    fence = launch(store)
    made = []
    for n, speedup in enumerate((1.2, 1.5)):
        c = store.add_candidate(fence, n, "t", f"x = {n}\n", None, "")
        verdict = evaluation(c.source_sha, purpose="promote", speedup=speedup, accepted=True)
        made.append(store.add_improvement(fence, c.id, verdict))
        assert store.add_improvement(fence, c.id, verdict) == made[-1]
    assert store.improvements(fence.session_id) == made
    assert [(i.n, i.attempt, i.step, i.speedup) for i in made] == [(1, 1, 0, 1.2), (2, 2, 1, 1.5)]
    assert store.best(fence.session_id) == made[1]
    campaign_id = store.session(fence.session_id).campaign_id
    events = [e.data for e in store.events(campaign_id) if e.kind == "improvement"]
    assert [(e["n"], e["speedup"], e["low"], e["high"]) for e in events] == [
        (1, 1.2, 1.2 - 0.1, 1.2 + 0.1),
        (2, 1.5, 1.5 - 0.1, 1.5 + 0.1),
    ]


def test_a_repeated_compaction_is_the_stored_one(store: Store) -> None:
    fence = launch(store)
    first = store.add_compaction(fence, 5, 100, 30, "cliff:128k")
    assert store.add_compaction(fence, 5, 101, 31, "cliff:128k") == first
    second = store.add_compaction(fence, 9, 90, 30, "cliff:128k")
    assert store.compactions(fence.session_id) == [first, second]
    kinds = [e.kind for e in store.events(store.session(fence.session_id).campaign_id)]
    assert kinds.count("compaction") == 2


def test_the_problem_in_these_tests_is_the_sessions_own(store: Store) -> None:
    assert store.session(launch(store).session_id).problem_sha == PROBLEM.sha256
