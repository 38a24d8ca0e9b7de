"""Campaigns, sessions, leases, time and devices."""

from __future__ import annotations

import pytest

from kernel_agent.errors import NotFoundError, StoreError, UsageError
from kernel_agent.model import Budget, Usage
from kernel_agent.store.repository import Fence, SessionOwnedError, StaleLeaseError, Store
from problems.model import Problem, SizeOverride
from tests.kernel_agent.store.conftest import PROBLEM, Clock, evaluation, launch, settings


def test_a_campaign_comes_back_whole(store: Store, clock: Clock) -> None:
    made = store.create_campaign(settings(max_cost_usd=2.5))
    assert made.settings == settings(max_cost_usd=2.5)
    assert (made.state, made.created_at, made.last_seq) == ("created", clock.now, 1)
    assert store.campaign(made.id) == made
    assert [event.kind for event in store.events(made.id)] == ["campaign.created"]


def test_a_campaign_is_found_by_prefix_and_newest_name(store: Store, clock: Clock) -> None:
    old = store.create_campaign(settings("night"))
    clock.advance(1)
    new = store.create_campaign(settings("night"))
    assert store.campaign("night") == new
    unique = next(n for n in range(1, 7) if not new.id.startswith(old.id[:n]))
    assert store.campaign(old.id[:unique]) == old
    assert [campaign.id for campaign in store.campaigns()] == [new.id, old.id]
    with pytest.raises(NotFoundError, match="fits several campaigns"):
        store.campaign("c")


def test_an_unknown_campaign_suggests_a_near_one(store: Store) -> None:
    store.create_campaign(settings("attention"))
    with pytest.raises(NotFoundError, match="near ones: attention"):
        store.campaign("atention")
    with pytest.raises(NotFoundError):
        store.campaign("")
    with pytest.raises(NotFoundError):
        store.events("nope")


def test_campaign_states_are_events_and_keep_their_times(store: Store, clock: Clock) -> None:
    id_ = store.create_campaign(settings()).id
    clock.advance(5)
    started = store.set_campaign_state(id_, "running")
    assert started.started_at == clock.now
    store.set_campaign_state(id_, "running")
    clock.advance(5)
    stopped = store.set_campaign_state(id_, "stopped", "asked to")
    assert (stopped.ended_at, stopped.reason) == (clock.now, "asked to")
    with pytest.raises(UsageError, match=f"kernel-agent resume {id_}"):
        store.set_campaign_state(id_, "stopping")
    resumed = store.set_campaign_state(id_, "running")
    assert (resumed.started_at, resumed.ended_at) == (started.started_at, None)
    states = [event.data["state"] for event in store.events(id_) if event.kind == "campaign.state"]
    assert states == ["running", "stopped", "running"]


def test_a_session_is_unique_by_problem_rollout_and_profile(store: Store) -> None:
    campaign = store.create_campaign(settings())
    first = store.create_session(campaign.id, PROBLEM, 0, "cpu")
    with pytest.raises(StoreError, match=f"session {first.id} .*another rollout"):
        store.create_session(campaign.id, PROBLEM, 0, "cpu")
    store.create_session(campaign.id, PROBLEM, 1, "cpu")
    store.create_session(campaign.id, PROBLEM, 0, "l40s")
    assert [(s.rollout, s.profile) for s in store.sessions(campaign.id)] == [(0, "cpu"), (1, "cpu"), (0, "l40s")]


def test_a_sessions_problem_comes_back_whole(store: Store) -> None:
    problem = Problem(
        id="file/x", title="X", origin="file", source="N = 3\n", overrides=(SizeOverride(name="N", value=3),)
    )
    campaign = store.create_campaign(settings())
    session = store.create_session(campaign.id, problem, 0, "cpu")
    assert store.problem(session.id) == problem
    assert store.problem_source(session.problem_sha) == problem.source == store.source(problem.sha256)
    with pytest.raises(NotFoundError):
        store.source("0" * 64)
    with pytest.raises(NotFoundError, match=f"near ones: {session.id}"):
        store.session(session.id[:-1])


def test_a_lease_has_one_owner(store: Store, clock: Clock) -> None:
    fence = launch(store)
    with pytest.raises(SessionOwnedError, match="belongs to engine until 2026-01-01T00:01:00"):
        store.acquire_session(fence.session_id, "other", 60)
    clock.advance(59)
    store.heartbeat(fence, 60)
    clock.advance(59)
    with pytest.raises(SessionOwnedError):
        store.acquire_session(fence.session_id, "other", 60)
    clock.advance(1)
    taken = store.acquire_session(fence.session_id, "other", 60)
    assert taken.epoch == fence.epoch + 1
    store.release_session(taken)
    assert store.acquire_session(fence.session_id, "third", 60).epoch == taken.epoch + 1


def test_every_write_of_an_overtaken_owner_is_refused(store: Store, clock: Clock) -> None:
    old = launch(store)
    candidate = store.add_candidate(old, 0, "t1", "x = 1\n", None, "")
    clock.advance(61)
    store.acquire_session(old.session_id, "other", 60)
    before = store.session(old.session_id)
    seen = store.events(before.campaign_id)
    verdict = evaluation(candidate.source_sha, purpose="promote", accepted=True)
    for write in (
        lambda: store.heartbeat(old, 60),
        lambda: store.release_session(old),
        lambda: store.set_session_state(old, "finished"),
        lambda: store.add_candidate(old, 1, "t2", "x = 2\n", None, ""),
        lambda: store.add_evaluation(old, candidate.id, "a" * 64, "promote", 0, verdict),
        lambda: store.add_improvement(old, candidate.id, verdict),
        lambda: store.add_compaction(old, 0, 10, 5, "cliff"),
    ):
        with pytest.raises(StaleLeaseError, match=r"other holds it at epoch 2.*nothing was written"):
            write()
    assert store.session(old.session_id) == before
    assert store.events(before.campaign_id) == seen


def test_a_released_or_foreign_fence_is_refused(store: Store) -> None:
    fence = launch(store)
    with pytest.raises(StaleLeaseError):
        store.heartbeat(Fence(fence.session_id, "impostor", fence.epoch), 60)
    store.release_session(fence)
    with pytest.raises(StaleLeaseError, match="nobody holds it"):
        store.set_session_state(fence, "finished")


def test_session_states_are_events_and_keep_their_times(store: Store, clock: Clock) -> None:
    fence = launch(store)
    clock.advance(7)
    store.set_session_state(fence, "stalled", "three replies without a tool call")
    session = store.session(fence.session_id)
    assert session.started_at is not None
    assert session.ended_at == clock.now
    assert (session.state, session.reason) == ("stalled", "three replies without a tool call")
    store.set_session_state(fence, "running")
    assert store.session(fence.session_id).ended_at is None


def test_seconds_count_running_only_and_end_with_the_lease(store: Store, clock: Clock) -> None:
    fence = launch(store, budget=Budget(max_seconds=100))
    clock.advance(50)
    store.heartbeat(fence, 10)
    clock.advance(1000)  # the engine died; its lease ended 10 s after its last heartbeat
    fence = store.acquire_session(fence.session_id, "next", 60)
    assert store.begin_call(fence.session_id, "1" * 64, "agent", 0.0).outcome == "started"
    store.set_session_state(fence, "stopped")
    clock.advance(1000)
    store.set_session_state(fence, "running")
    clock.advance(39)
    assert store.begin_call(fence.session_id, "2" * 64, "agent", 0.0).outcome == "started"
    clock.advance(1)
    refused = store.begin_call(fence.session_id, "3" * 64, "agent", 0.0)
    assert (refused.outcome, refused.code) == ("refused", "session_seconds")
    assert "100 s of 100 s" in refused.refusal


def test_a_campaigns_downtime_is_not_charged(store: Store, clock: Clock) -> None:
    fence = launch(store, max_seconds=100.0)
    campaign_id = store.session(fence.session_id).campaign_id
    clock.advance(30)
    store.add_event(campaign_id, "note")  # the last sign of life
    clock.advance(5000)
    store.set_campaign_state(campaign_id, "running")
    fence = store.acquire_session(fence.session_id, "next", 1000)
    clock.advance(69)
    assert store.begin_call(fence.session_id, "1" * 64, "agent", 0.0).outcome == "started"
    clock.advance(1)
    assert store.begin_call(fence.session_id, "2" * 64, "agent", 0.0).code == "campaign_seconds"


def test_totals(store: Store) -> None:
    fence = launch(store)
    session_id = fence.session_id
    usage = Usage(prompt_tokens=100, cached_tokens=40, cache_write_tokens=2, completion_tokens=10)
    for n, kind in enumerate(("agent", "summary", "agent")):
        call = store.begin_call(session_id, f"{n}" * 64, kind, 0.5)  # type: ignore[arg-type]
        store.finish_call(call.call_id, b"{}", usage, 0.25)
    for n, status in enumerate(("correct", "incorrect", "correct")):
        candidate = store.add_candidate(fence, n, "t", f"x = {n}\n", None, "")
        store.add_evaluation(
            fence,
            candidate.id,
            "a" * 64,
            "screen",
            0,
            evaluation(candidate.source_sha, status=status),  # type: ignore[arg-type]
        )
    store.add_evaluation(
        fence, candidate.id, "a" * 64, "screen", 1, evaluation(candidate.source_sha, status="unstable")
    )
    promotion = evaluation(candidate.source_sha, purpose="promote", accepted=True)
    store.add_improvement(fence, candidate.id, promotion)
    store.add_compaction(fence, 1, 100, 20, "cliff")
    other = store.create_session(store.session(session_id).campaign_id, PROBLEM, 1, "cpu")

    session = store.session(session_id)
    assert (session.steps, session.candidates, session.compactions, session.spent_usd) == (2, 3, 1, 0.75)
    assert session.statuses == {"correct": 2, "incorrect": 1}
    assert session.usage == Usage(prompt_tokens=300, cached_tokens=120, cache_write_tokens=6, completion_tokens=30)
    assert session.best is not None
    assert session.best == store.best(session_id)
    assert session.best.attempt == 3
    assert store.sessions(session.campaign_id) == [session, other]
    assert (other.steps, other.statuses, other.best) == (0, {}, None)


def test_a_device_has_one_owner(store: Store, clock: Clock) -> None:
    first = store.acquire_device("GPU-1", "engine-a", 10)
    assert first == 1
    assert store.acquire_device("GPU-1", "engine-b", 10) is None
    assert store.acquire_device("GPU-2", "engine-b", 10) == 1
    clock.advance(9)
    store.renew_device("GPU-1", 1, 10)
    clock.advance(9)
    assert store.acquire_device("GPU-1", "engine-b", 10) is None
    clock.advance(1)
    assert store.acquire_device("GPU-1", "engine-b", 10) == 2
    store.release_device("GPU-1", 1)  # overtaken: the new owner keeps it
    assert store.acquire_device("GPU-1", "engine-c", 10) is None
    with pytest.raises(StaleLeaseError, match="stop using"):
        store.renew_device("GPU-1", 1, 10)
    store.release_device("GPU-1", 2)
    assert store.acquire_device("GPU-1", "engine-c", 10) == 3
