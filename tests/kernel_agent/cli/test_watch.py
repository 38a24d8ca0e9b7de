from __future__ import annotations

import io

from rich.console import Console

from kernel_agent.model import Event
from kernel_agent.store.repository import Store
from kernel_agent.watch import event_line, progress, watch
from tests.dashboard.written_campaign import CampaignWriter

HOSTILE = "\x1b[31m[bold]red\x1b[0m\u202e"


def screen(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=160, highlight=False, markup=False)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_lines_tell_what_happens_from_now_on(store: Store) -> None:
    campaign = CampaignWriter(store)
    session = campaign.session("bundled/add")
    session.attempt("before", "incorrect")
    console = screen(terminal=False)
    with watch(store, campaign.id, console) as view:
        view.tick()
        assert shown(console) == ""
        session.attempt("broken", "compile_error", hypothesis="unroll it")
        view.tick()
        session.improve("good", 1.5)
        session.compact()
        session.finish()
    lines = shown(console).splitlines()
    where = f"[{session.session_id}]"
    assert f"{where} step 1: candidate #2: unroll it" in lines
    assert f"{where} candidate #2 screen: compile_error, it is compile_error" in lines
    assert f"{where} new best: candidate #3 1.50× (1.47 to 1.53)" in lines
    assert f"{where} context compacted at step 3: 120,000 to 30,000 tokens" in lines
    assert lines[-1] == f"{where} session finished: all steps used"


def test_a_terminal_gets_a_table_that_is_redrawn(store: Store) -> None:
    campaign = CampaignWriter(store)
    session = campaign.session("bundled/add")
    console = screen(terminal=True)
    with watch(store, campaign.id, console) as view:
        before = len(shown(console))
        view.tick()
        assert len(shown(console)) == before
        session.improve("good", 1.5)
        view.tick()
        assert "1.50× (1.47–1.53)" in shown(console)[before:]


def test_what_the_model_wrote_cannot_steer_the_terminal(store: Store) -> None:
    campaign = CampaignWriter(store, name=HOSTILE)
    session = campaign.session(f"bundled/{HOSTILE}")
    session.attempt("source", "incorrect", hypothesis=HOSTILE)
    session.finish(HOSTILE)
    console = screen(terminal=False)
    console.print(progress(store.campaign(campaign.id), store.sessions(campaign.id)))
    text = shown(console) + "\n".join(filter(None, map(event_line, store.events(campaign.id))))
    assert "[bold]red" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_what_only_counts_is_not_told(store: Store) -> None:
    campaign = CampaignWriter(store)
    campaign.session("bundled/add").step()
    kinds = {event.kind: event_line(event) for event in store.events(campaign.id)}
    assert kinds["step"] is None
    assert kinds["session.created"] is None
    assert kinds["campaign.state"] == f"[{campaign.id}] campaign running"


def test_a_death_is_told(store: Store) -> None:
    campaign = CampaignWriter(store)
    event: Event = store.add_event(campaign.id, "session.restarted", None, {"exit_code": -9, "steps": 4})
    assert "died (exit code -9)" in str(event_line(event))
