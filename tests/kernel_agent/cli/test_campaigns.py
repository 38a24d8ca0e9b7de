"""status, stop, resume, report and export on campaigns as an engine leaves them in the store."""

from __future__ import annotations

import csv
import io
import sqlite3
from pathlib import Path

import pytest

from kernel_agent.cli.reopening import raise_caps
from kernel_agent.model import Budget
from kernel_agent.report import Report
from kernel_agent.store.repository import Store
from tests.dashboard.written_campaign import CampaignWriter
from tests.kernel_agent.cli.conftest import Run, refused
from tests.kernel_agent.cli.tiny import write_recording


@pytest.fixture
def written(store: Store) -> CampaignWriter:
    """A running campaign of two sessions: one with two bests, one without any."""
    campaign = CampaignWriter(store, "a first one", budget=Budget(steps=3))
    first = campaign.session("bundled/add")
    first.improve("first", 1.2)
    first.improve("second", 1.5)
    first.compact()
    first.attempt("third", "incorrect")
    first.finish("all 3 steps taken")
    campaign.session("bundled/mul").attempt("fourth", "compile_error")
    return campaign


def test_nothing_yet(run: Run) -> None:
    assert "kernel-agent demo" in run("status").out
    assert run("status", "--json").document == {"campaigns": []}


def test_all_campaigns(run: Run, written: CampaignWriter) -> None:
    second = CampaignWriter(written.store, "a second one")
    result = run("status")
    assert written.id in result.out
    assert "a second one" in result.out
    assert [c["id"] for c in run("status", "--json").document["campaigns"]] == [second.id, written.id]


def test_one_campaign(run: Run, written: CampaignWriter) -> None:
    result = run("status", written.id)
    assert result.code == 0
    for words in ("a first one", "running", "3/3", "1.50× (1.47–1.53)", "2 correct, 1 incorrect", "1 compile_error"):
        assert words in result.out
    document = run("status", written.id[:4], "--json").document
    assert document["campaign"]["id"] == written.id
    assert [session["candidates"] for session in document["sessions"]] == [3, 1]


def test_watching_ends_when_the_campaign_has(run: Run, written: CampaignWriter) -> None:
    written.finish()
    assert "finished" in run("status", "a first one", "--watch").out
    refused(run("status", "--watch"), "name the campaign")
    refused(run("status", written.id, "--watch", "--json"), "--json")


@pytest.mark.parametrize("command", [("status",), ("stop",), ("resume",), ("report",), ("export",)])
def test_an_unknown_campaign_suggests_near_ids(
    run: Run, written: CampaignWriter, tmp_path: Path, command: tuple[str, ...]
) -> None:
    mistyped = written.id[:-1] + "x"
    rest = (tmp_path / "export",) if command == ("export",) else ()
    refused(run(*command, mistyped, *rest), repr(mistyped), written.id)
    assert not (tmp_path / "export").exists()


def test_stopping_one_that_runs(run: Run, written: CampaignWriter) -> None:
    result = run("stop", written.id)
    assert result.code == 0
    assert "is stopping" in result.out
    assert written.store.campaign(written.id).state == "stopping"


def test_stopping_one_whose_engine_died(run: Run, store: Store) -> None:
    campaign = CampaignWriter(store)
    session = campaign.session("bundled/add")
    store.heartbeat(session.fence, -1.0)  # its lease ended a second ago
    result = run("stop", campaign.id)
    assert "Nothing ran" in result.out
    assert store.campaign(campaign.id).state == "stopped"
    assert store.session(session.session_id).state == "stopped"


def test_stopping_one_that_does_not_run(run: Run, written: CampaignWriter, store: Store) -> None:
    never = store.create_campaign(store.campaign(written.id).settings)
    refused(run("stop", never.id), "never started", "resume")
    written.finish()
    refused(run("stop", written.id), "not running", "finished")


def test_resuming_one_that_another_process_runs(run: Run, store: Store, tiny: Path, tmp_path: Path) -> None:
    recording = write_recording(tmp_path, tiny)
    campaign = CampaignWriter(store, model=f"replay:{recording}")
    campaign.session("bundled/add")
    refused(run("resume", campaign.id), "another process", "test")
    assert store.campaign(campaign.id).state == "running"


def test_resuming_one_with_nothing_left(run: Run, store: Store, tiny: Path, tmp_path: Path) -> None:
    campaign = CampaignWriter(store, model=f"replay:{write_recording(tmp_path, tiny)}")
    session = campaign.session("bundled/add")
    session.step()
    session.finish()
    campaign.finish()
    refused(run("resume", campaign.id), "nothing is left to do", "--steps")


def test_resuming_without_the_key_it_had(run: Run, store: Store) -> None:
    campaign = CampaignWriter(store, model="openai/m", api_key_env="ABSENT_KEY")
    refused(run("resume", campaign.id), "ABSENT_KEY")


def test_more_steps_reopen_the_sessions_that_used_theirs(written: CampaignWriter) -> None:
    store = written.store
    before = store.campaign(written.id)
    same = raise_caps(store, before, None, None, None, None)
    assert same == before
    changed = raise_caps(store, before, 3, 5.0, 0.5, 2.0)
    assert changed.settings.budget == Budget(steps=3, max_cost_usd=0.5)
    assert (changed.settings.max_cost_usd, changed.settings.max_seconds) == (5.0, 7200.0)
    assert [s.state for s in store.sessions(written.id)] == ["finished", "running"]
    changed = raise_caps(store, changed, 9, None, None, None)
    assert changed.settings.budget == Budget(steps=9, max_cost_usd=0.5)
    assert changed.settings.max_cost_usd == 5.0
    assert [s.state for s in store.sessions(written.id)] == ["queued", "running"]


def test_a_session_that_ended_before_its_last_step_stays_ended(store: Store) -> None:
    campaign = CampaignWriter(store, budget=Budget(steps=3))
    session = campaign.session("bundled/add")
    session.step()
    session.finish("the target speedup is confirmed")
    raise_caps(store, store.campaign(campaign.id), 9, None, None, None)
    assert store.session(session.session_id).state == "finished"


def test_the_report_in_every_format(run: Run, written: CampaignWriter, tmp_path: Path) -> None:
    table = run("report", written.id)
    assert "bundled/add" in table.out
    assert "1.50×" in table.out
    assert run("report", written.id, "--format", "md").out.startswith("# a first one\n")
    rows = list(csv.DictReader(io.StringIO(run("report", written.id, "--format", "csv").out)))
    assert [row["problem"] for row in rows] == ["bundled/add", "bundled/mul"]
    for arguments in (("--format", "json"), ("--json",)):
        assert Report.model_validate(run("report", written.id, *arguments).document).campaign_id == written.id
    page = tmp_path / "report.html"
    result = run("report", written.id, "--format", "html", "--output", page)
    assert (result.code, result.out) == (0, "")
    assert "Plotly.newPlot" in page.read_text()
    plain = tmp_path / "report.txt"
    run("report", written.id, "--output", plain)
    assert plain.read_text().splitlines()[:4] == [line.rstrip() for line in table.out.splitlines()[:4]]
    refused(run("report", written.id, "--output", tmp_path), "--output")


def test_the_export(run: Run, written: CampaignWriter, tmp_path: Path) -> None:
    result = run("export", written.id, tmp_path / "best")
    assert result.code == 0
    assert "check.py" in result.out
    assert "bundled/mul: none of 1 candidates was correct" in result.out
    assert (tmp_path / "best" / "bundled_add" / "kernel.py").read_text() == "second"
    document = run("export", written.id, tmp_path / "best", "--json").document
    assert [kernel["problem"] for kernel in document["kernels"]] == ["bundled/add"]
    refused(run("export", written.id, tmp_path), "not empty")


def test_a_store_that_another_process_holds(run: Run, written: CampaignWriter, home: Path) -> None:
    written.store.close()
    holder = sqlite3.connect(home / "kernel-agent.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    refused(run("status"), "locked", "kernel-agent.db", code=1)
    holder.close()


def test_a_home_below_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for command in (("status",), ("demo",), ("serve", "--port", "0")):
        refused(run("--home", tmp_path / "file" / "home", *command), "cannot be used", "KERNEL_AGENT_HOME")
