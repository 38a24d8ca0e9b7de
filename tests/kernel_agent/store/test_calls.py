"""The journal: paid once, never past a cap, settled whatever happens."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel_agent.errors import NotFoundError, StoreError
from kernel_agent.model import Budget, Usage
from kernel_agent.store.repository import StaleLeaseError, Store
from tests.kernel_agent.store.conftest import PROBLEM, Clock, launch, settings

USAGE = Usage(prompt_tokens=10, completion_tokens=5)


def sha(n: int) -> str:
    return f"{n:064x}"


def kinds(store: Store, session_id: str) -> list[str]:
    return [event.kind for event in store.events(store.session(session_id).campaign_id)]


def test_an_answer_is_journaled_and_served_again(store: Store) -> None:
    id_ = launch(store).session_id
    started = store.begin_call(id_, sha(1), "agent", 1.0)
    step = store.finish_call(started.call_id, b"\x00 exactly these bytes \xff", USAGE, 0.25)
    assert step is not None
    assert (step.idx, step.usage, step.usd) == (0, USAGE, 0.25)
    again = store.begin_call(id_, sha(1), "agent", 1.0)
    assert (again.outcome, again.response, again.call_id) == (
        "journaled",
        b"\x00 exactly these bytes \xff",
        started.call_id,
    )
    assert store.response(started.call_id) == again.response
    assert store.session(id_).spent_usd == 0.25
    assert store.finish_call(started.call_id, b"\x00 exactly these bytes \xff", USAGE, 0.25) == step
    assert store.steps(id_) == [step] == [store.last_step(id_)]
    assert kinds(store, id_).count("step") == 1


def test_the_step_event_carries_the_running_total(store: Store) -> None:
    id_ = launch(store).session_id
    for n in range(2):
        store.finish_call(store.begin_call(id_, sha(n), "agent", 1.0).call_id, b"{}", USAGE, 0.1)
    events = [e for e in store.events(store.session(id_).campaign_id) if e.kind == "step"]
    assert [(e.data["idx"], e.data["usd"], e.data["cumulative_usd"]) for e in events] == [(0, 0.1, 0.1), (1, 0.1, 0.2)]
    assert events[0].data["usage"] == USAGE.model_dump()
    assert [step.idx for step in store.steps(id_, after=0)] == [1]
    assert [step.idx for step in store.steps(id_, limit=1)] == [0]


def test_summaries_and_probes_are_no_steps(store: Store) -> None:
    id_ = launch(store, budget=Budget(steps=1)).session_id
    for n, kind in enumerate(("summary", "probe")):
        call = store.begin_call(id_, sha(n), kind, 1.0)  # type: ignore[arg-type]
        assert store.finish_call(call.call_id, b"{}", USAGE, 0.1) is None
    assert store.begin_call(id_, sha(9), "agent", 0.0).outcome == "started"
    assert store.session(id_).spent_usd == 0.2


def test_another_answer_to_an_answered_call_is_refused(store: Store) -> None:
    id_ = launch(store).session_id
    call = store.begin_call(id_, sha(1), "agent", 1.0)
    store.finish_call(call.call_id, b"one", USAGE, 0.1)
    with pytest.raises(StoreError, match="first one stays"):
        store.finish_call(call.call_id, b"two", USAGE, 0.1)
    with pytest.raises(StoreError, match="cannot fail"):
        store.fail_call(call.call_id, "late")
    assert store.response(call.call_id) == b"one"


def test_a_failed_call_releases_its_reservation_and_may_go_out_again(store: Store) -> None:
    id_ = launch(store, max_cost_usd=1.0).session_id
    first = store.begin_call(id_, sha(1), "agent", 1.0)
    assert store.begin_call(id_, sha(2), "agent", 1.0).outcome == "refused"
    store.fail_call(first.call_id, "HTTP 500", usd=0.1)
    store.fail_call(first.call_id, "said twice", usd=0.1)
    with pytest.raises(StoreError, match="failed before"):
        store.finish_call(first.call_id, b"{}", USAGE, 0.1)
    again = store.begin_call(id_, sha(1), "agent", 0.9)
    assert again.outcome == "started"
    store.finish_call(again.call_id, b"{}", USAGE, 0.2)
    (record,) = store.calls(id_)
    assert (record.state, record.attempts, record.usd, record.reserved_usd) == ("answered", 2, 0.3, 0.0)
    campaign = store.campaign(store.session(id_).campaign_id)
    assert (campaign.spent_usd, campaign.reserved_usd) == (0.3, 0.0)


def test_the_same_call_is_not_out_twice(store: Store) -> None:
    id_ = launch(store).session_id
    store.begin_call(id_, sha(1), "agent", 1.0)
    refused = store.begin_call(id_, sha(1), "agent", 1.0)
    assert (refused.outcome, refused.code) == ("refused", "in_flight")
    assert "budget.exhausted" not in kinds(store, id_)


def test_a_call_of_an_earlier_life_is_charged_and_goes_out_again(store: Store, clock: Clock) -> None:
    fence = launch(store)
    id_ = fence.session_id
    dead = store.begin_call(id_, sha(1), "agent", 1.0)
    clock.advance(61)
    store.acquire_session(id_, "next", 60)
    (record,) = store.calls(id_)
    assert (record.state, record.usd, record.reserved_usd) == ("lost", 1.0, 0.0)
    again = store.begin_call(id_, sha(1), "agent", 1.0)
    assert again.outcome == "started"
    with pytest.raises(StaleLeaseError, match="newer one counts"):
        store.finish_call(dead.call_id, b"late", USAGE, 0.1)
    with pytest.raises(StaleLeaseError):
        store.fail_call(dead.call_id, "late")
    store.finish_call(again.call_id, b"{}", USAGE, 0.25)
    session = store.session(id_)
    campaign = store.campaign(session.campaign_id)
    assert (session.spent_usd, campaign.spent_usd, campaign.reserved_usd, session.steps) == (1.25, 1.25, 0.0, 1)


def test_an_answer_that_still_arrives_replaces_the_charge(store: Store, clock: Clock) -> None:
    id_ = launch(store).session_id
    call = store.begin_call(id_, sha(1), "agent", 1.0)
    clock.advance(61)
    store.acquire_session(id_, "next", 60)
    store.finish_call(call.call_id, b"{}", USAGE, 0.25)
    assert store.session(id_).spent_usd == 0.25
    assert store.begin_call(id_, sha(1), "agent", 1.0).response == b"{}"


def test_nothing_goes_out_unless_campaign_and_session_run(store: Store) -> None:
    fence = launch(store)
    id_ = fence.session_id
    campaign_id = store.session(id_).campaign_id
    done = store.begin_call(id_, sha(1), "agent", 0.0)
    store.finish_call(done.call_id, b"{}", USAGE, 0.0)
    store.set_campaign_state(campaign_id, "stopping", "asked to")
    refused = store.begin_call(id_, sha(2), "agent", 0.0)
    assert (refused.code, refused.refusal) == (
        "not_running",
        f"campaign {campaign_id} is stopping (asked to); no further model calls",
    )
    assert store.begin_call(id_, sha(1), "agent", 0.0).outcome == "journaled"
    store.set_campaign_state(campaign_id, "running")
    store.set_session_state(fence, "stopped")
    assert store.begin_call(id_, sha(2), "agent", 0.0).code == "not_running"


@pytest.mark.parametrize("whose", ["campaign", "session"])
def test_the_last_affordable_call_goes_out_and_no_other(store: Store, whose: str) -> None:
    """0.1 three times is 0.3 and not a hair more."""
    caps = {"max_cost_usd": 0.3} if whose == "campaign" else {"budget": Budget(max_cost_usd=0.3)}
    id_ = launch(store, **caps).session_id
    for n in range(3):
        call = store.begin_call(id_, sha(n), "agent", 0.1)
        assert call.outcome == "started"
        if n < 2:
            store.finish_call(call.call_id, b"{}", USAGE, 0.1)
    refused = store.begin_call(id_, sha(8), "agent", 0.000001)
    assert (refused.outcome, refused.code) == ("refused", f"{whose}_cost")
    for figure in ("$0.2000 of $0.3000", "holds $0.1000", "may need $0.0000"):
        assert figure in refused.refusal
    store.finish_call(call.call_id, b"{}", USAGE, 0.1)
    campaign = store.campaign(store.session(id_).campaign_id)
    assert (campaign.spent_usd, campaign.reserved_usd) == (0.3, 0.0)


def test_a_refusal_by_the_campaign_holds_nothing_on_the_session(store: Store) -> None:
    id_ = launch(store, max_cost_usd=0.2, budget=Budget(max_cost_usd=1.0)).session_id
    for n in range(5):
        assert store.begin_call(id_, sha(n), "agent", 0.5).code == "campaign_cost"
    assert store.begin_call(id_, sha(9), "agent", 0.2).outcome == "started"


def test_warned_once_and_exhausted_once(store: Store) -> None:
    id_ = launch(store, max_cost_usd=1.0).session_id
    for n in range(10):
        call = store.begin_call(id_, sha(n), "agent", 0.1)
        if n == 7:
            assert "budget.warning" not in kinds(store, id_)
        store.finish_call(call.call_id, b"{}", USAGE, 0.1)
        if n == 7:
            assert "budget.warning" in kinds(store, id_)
            assert "budget.exhausted" not in kinds(store, id_)
    for n in range(10, 13):
        assert store.begin_call(id_, sha(n), "agent", 0.1).outcome == "refused"
    said = kinds(store, id_)
    assert (said.count("budget.warning"), said.count("budget.exhausted")) == (1, 1)
    event = next(e for e in store.events(store.session(id_).campaign_id) if e.kind == "budget.warning")
    assert event.data == {
        "cap": "campaign_cost",
        "used": 0.8,
        "limit": 1.0,
        "unit": "USD",
        "message": "the campaign has used $0.8000 of $1.0000",
    }


def test_the_step_cap_counts_answers_and_calls_still_out(store: Store) -> None:
    id_ = launch(store, budget=Budget(steps=2)).session_id
    store.finish_call(store.begin_call(id_, sha(1), "agent", 0.0).call_id, b"{}", USAGE, 0.0)
    out = store.begin_call(id_, sha(2), "agent", 0.0)
    assert store.begin_call(id_, sha(3), "agent", 0.0).code == "session_steps"
    assert store.begin_call(id_, sha(4), "summary", 0.0).outcome == "started"
    store.finish_call(out.call_id, b"{}", USAGE, 0.0)
    refused = store.begin_call(id_, sha(3), "agent", 0.0)
    assert refused.code == "session_steps"
    assert "2 of 2 steps" in refused.refusal


def test_a_spent_budget_can_be_raised_and_is_announced_anew(store: Store) -> None:
    id_ = launch(store, max_cost_usd=1.0, budget=Budget(steps=1)).session_id
    campaign_id = store.session(id_).campaign_id
    store.finish_call(store.begin_call(id_, sha(0), "agent", 1.0).call_id, b"{}", USAGE, 1.0)
    assert store.begin_call(id_, sha(1), "agent", 0.5).outcome == "refused"
    raised = store.set_budget(campaign_id, Budget(steps=2), max_cost_usd=2.0)
    assert (raised.settings.budget.steps, raised.settings.max_cost_usd) == (2, 2.0)
    store.finish_call(store.begin_call(id_, sha(1), "agent", 1.0).call_id, b"{}", USAGE, 1.0)
    assert store.begin_call(id_, sha(2), "agent", 0.5).outcome == "refused"
    said = [e.data["cap"] for e in store.events(campaign_id) if e.kind == "budget.exhausted"]
    assert said == ["session_steps", "campaign_cost"] * 2
    assert kinds(store, id_).count("campaign.budget") == 1


def test_a_negative_reservation_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="negative"):
        store.begin_call(launch(store).session_id, sha(1), "agent", -1.0)


def test_unknown_ids(store: Store) -> None:
    with pytest.raises(NotFoundError):
        store.begin_call("nope", sha(1), "agent", 0.0)
    with pytest.raises(NotFoundError):
        store.response("nope")
    with pytest.raises(NotFoundError):
        store.calls("nope")


def test_eight_threads_never_pass_the_cap(store: Store) -> None:
    """Each call reserves more than it costs; at every moment spent plus reserved stays within the cap."""
    campaign = store.create_campaign(settings(max_cost_usd=1.0))
    store.set_campaign_state(campaign.id, "running")
    ids = []
    for rollout in range(8):
        session = store.create_session(campaign.id, PROBLEM, rollout, "cpu")
        store.set_session_state(store.acquire_session(session.id, f"engine-{rollout}", 600), "running")
        ids.append(session.id)
    seen: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            now = store.campaign(campaign.id)
            seen.append(now.spent_usd + now.reserved_usd)
            done.wait(0.002)

    def work(id_: str) -> int:
        answered = 0
        for n in range(20):
            call = store.begin_call(id_, sha(n), "agent", 0.03)
            if call.outcome == "started":
                store.finish_call(call.call_id, b"{}", USAGE, 0.01)
                answered += 1
        return answered

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(8) as pool:
        answered = sum(pool.map(work, ids))
    # Some were refused while others held reservations; alone, one goes on until no reservation fits.
    extra = 100
    while (call := store.begin_call(ids[0], sha(extra), "agent", 0.03)).outcome == "started":
        store.finish_call(call.call_id, b"{}", USAGE, 0.01)
        extra += 1
    answered += extra - 100
    done.set()
    watcher.join()
    end = store.campaign(campaign.id)
    assert max(seen) <= 1.0
    assert end.reserved_usd == 0.0
    assert end.spent_usd == pytest.approx(answered * 0.01)
    assert end.spent_usd == 0.98
