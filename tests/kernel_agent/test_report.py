"""Reports on a real store: the numbers, and that every rendering says the same."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from kernel_agent.errors import NotFoundError
from kernel_agent.report import Report, campaign_report, geometric_mean
from kernel_agent.report_html import as_html, plotly_js
from kernel_agent.report_text import as_csv, as_json, as_markdown, as_table, duration
from kernel_agent.store.repository import Store
from tests.dashboard.written_campaign import CampaignWriter

COMPILED = {"speedup_compile": 0.41, "speedup_compile_low": 0.4, "speedup_compile_high": 0.42}
HOSTILE = "=cmd|'</script><script>alert(1)</script>[bold]*x*\x1b[31m"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'campaigns.db'}")
    yield opened
    opened.close()


@pytest.fixture
def writer(store: Store) -> CampaignWriter:
    """Two rollouts of one problem (4x and 2x at best), one problem at 0.5x, one unsolved."""
    made = CampaignWriter(store, "level 3", rollouts=2, provenance="recorded")
    first = made.session("a/fast", 0)
    first.improve("a = 1", 2.0)
    first.compact()
    first.improve("a = 2", 4.0)
    first.attempt("a = 3", "incorrect")
    first.finish()
    made.session("a/fast", 1).improve("b = 1", 2.0)
    made.session("b/slow").improve("c = 1", 0.5, **COMPILED, soundness="repaired")
    made.session("c/unsolved").attempt("d = 1", "compile_error")
    return made


def terminal(report: Report) -> str:
    console = Console(file=io.StringIO(), width=160, force_terminal=True, color_system="truecolor")
    console.print(as_table(report))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_problem_counts_once_with_its_best_rollout(store: Store, writer: CampaignWriter) -> None:
    report = campaign_report(store, writer.id)
    fast, slow, unsolved = report.problems
    assert (fast.problem, fast.sessions, fast.states) == ("a/fast", 2, {"finished": 1, "running": 1})
    assert (fast.speedup, fast.speedup_low, fast.speedup_high) == (4.0, 4.0 * 0.98, 4.0 * 1.02)
    assert fast.best_session == store.sessions(writer.id)[0].id
    assert fast.best_step == 1
    assert (fast.steps, fast.candidates, fast.compactions) == (4, 4, 1)
    assert fast.statuses == {"correct": 3, "incorrect": 1}
    assert (slow.speedup, unsolved.speedup) == (0.5, None)
    assert (slow.speedup_compile, slow.soundness) == (0.41, "repaired")
    assert (fast.speedup_compile, fast.soundness) == (None, "")
    assert unsolved.statuses == {"compile_error": 1}


def test_totals_are_sums_and_the_mean_is_over_the_solved(store: Store, writer: CampaignWriter) -> None:
    report = campaign_report(store, writer.id)
    totals = report.totals
    assert (totals.problems, totals.solved, totals.faster) == (3, 2, 1)
    assert (totals.steps, totals.candidates, totals.compactions) == (6, 6, 1)
    assert totals.tokens == 6 * (2000 + 100)
    assert totals.usage.cached_tokens == 6 * 1000
    assert math.isclose(totals.cost_usd, 0.06)
    assert math.isclose(totals.cost_usd, store.campaign(writer.id).spent_usd)
    assert report.geometric_mean_speedup is not None
    assert math.isclose(report.geometric_mean_speedup, math.sqrt(4.0 * 0.5))
    assert math.isclose(report.score.geometric_mean, 4.0 ** (1 / 3))
    assert (report.provenance, report.price_name) == ("recorded", "example")


def test_wall_time_runs_on_for_sessions_that_run(store: Store, writer: CampaignWriter) -> None:
    sessions = store.sessions(writer.id)
    starts = [session.started_at for session in sessions if session.started_at]
    later = max(starts) + timedelta(hours=1)
    ended = sessions[0]
    assert ended.started_at is not None
    assert ended.ended_at is not None
    expected = (ended.ended_at - ended.started_at).total_seconds() + sum(
        (later - start).total_seconds() for start in starts[1:]
    )
    assert math.isclose(campaign_report(store, writer.id, now=later).totals.wall_seconds, expected)


def test_curves_name_their_rollout(store: Store, writer: CampaignWriter) -> None:
    curves = campaign_report(store, writer.id).curves
    assert [curve.label for curve in curves] == ["a/fast #1", "a/fast #2", "b/slow #1", "c/unsolved #1"]
    assert [point.speedup for point in curves[0].points] == [2.0, 4.0]
    assert curves[0].last_step == 2


def test_the_geometric_mean_survives_extremes() -> None:
    assert geometric_mean([]) is None
    assert geometric_mean([1e200] * 10) == pytest.approx(1e200)
    assert geometric_mean([1e-200] * 10) == pytest.approx(1e-200)


def test_a_campaign_without_sessions_has_an_empty_report(store: Store) -> None:
    report = campaign_report(store, CampaignWriter(store).id)
    assert report.problems == ()
    assert report.geometric_mean_speedup is None
    assert "0 of 0 problems solved" in terminal(report)
    assert "0 of 0 problems solved" in as_html(report)
    with pytest.raises(NotFoundError):
        campaign_report(store, "unknown")


def test_every_rendering_has_the_numbers(store: Store, writer: CampaignWriter) -> None:
    report = campaign_report(store, writer.id)
    for text in (terminal(report), as_markdown(report), as_html(report)):
        assert "4.00×" in text
        assert "3.92–4.08" in text
        for said in ("0.41×", "repaired", "not measured", "not probed"):
            assert said in text
        assert "2 of 3 problems solved, 1 faster, geometric mean of the solved 1.41×" in text
        assert "recorded" in text
        assert "at example prices" in text
    assert Report.model_validate_json(as_json(report)) == report
    rows = list(csv.DictReader(io.StringIO(as_csv(report))))
    assert [row["problem"] for row in rows] == ["a/fast", "b/slow", "c/unsolved"]
    assert [row["speedup"] for row in rows] == ["4.0", "0.5", ""]
    assert [row["speedup_compile"] for row in rows] == ["", "0.41", ""]
    assert [row["soundness"] for row in rows] == ["", "repaired", ""]
    assert rows[0]["statuses"] == "correct=3 incorrect=1"
    assert rows[0]["campaign"] == writer.id


def test_markdown_is_a_table(store: Store, writer: CampaignWriter) -> None:
    lines = [line for line in as_markdown(campaign_report(store, writer.id)).splitlines() if line.startswith("|")]
    assert len(lines) == 5
    assert len({line.count("|") for line in lines}) == 1


def test_no_rendering_lets_a_name_act(store: Store) -> None:
    writer = CampaignWriter(store, HOSTILE)
    writer.session(HOSTILE).improve("a = 1", 2.0)
    report = campaign_report(store, writer.id)
    assert "\x1b[31m" not in terminal(report).replace("\x1b[1m", "")
    assert "[bold]*x*" in terminal(report)
    page = as_html(report)
    own = page.replace(plotly_js(), "")
    assert "<script>alert" not in own
    assert own.count("</script>") == 4
    assert "\x1b" not in own
    markdown = as_markdown(report)
    assert r"\|" in markdown
    assert r"\[bold\]\*x\*" in markdown
    (row,) = csv.DictReader(io.StringIO(as_csv(report)))
    assert row["problem"].startswith("'=cmd")


def test_the_page_needs_nothing_else(store: Store, writer: CampaignWriter) -> None:
    own = as_html(campaign_report(store, writer.id)).replace(plotly_js(), "")
    assert "src=" not in own
    assert "href=" not in own
    start = own.index('id="curves">') + len('id="curves">')
    figure = json.loads(own[start : own.index("</script>", start)])
    assert [trace["name"] for trace in figure["data"]] == ["a/fast #1", "a/fast #2", "b/slow #1", "c/unsolved #1"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (3599.7, "1 h 00 min"), (7500, "2 h 05 min")]
)
def test_durations_carry_over(seconds: float, words: str) -> None:
    assert duration(seconds) == words
