from __future__ import annotations

from pathlib import Path

from kernel_agent.cli.documents import DemoDocument
from kernel_agent.demo import MODEL, STEPS, demo
from kernel_agent.gateway.recording import find_recordings
from kernel_agent.report import campaign_report
from kernel_agent.store.repository import Store
from problems.catalog import Catalog
from tests.dashboard.written_campaign import CampaignWriter
from tests.kernel_agent.cli.conftest import Run

KEYS = {
    "problem",
    "speedup",
    "speedup_low",
    "speedup_high",
    "statuses",
    "steps",
    "candidates",
    "compactions",
    "tokens",
    "cost_usd",
}


def test_it_is_two_bundled_problems_of_40_steps_at_a_small_budget() -> None:
    made = demo()
    assert made.request.problems == ("bundled/bias_gelu_residual", "bundled/gated_recurrence")
    assert made.request.budget.steps == STEPS == 40
    assert made.request.compaction.startswith("cliff:")
    assert len(made.provenance) == 2
    for line, problem in zip(made.provenance, made.request.problems, strict=True):
        assert line.startswith(f"{problem}: 40 answers, ")


def test_its_recordings_are_of_the_problems_as_they_are_now() -> None:
    for problem, recording in find_recordings(MODEL).items():
        assert recording.header.problem_sha == Catalog().get(problem).sha256
        assert len(recording.turns) >= STEPS


def test_its_document(store: Store) -> None:
    campaign = CampaignWriter(store)
    campaign.session("bundled/add").improve("good", 1.5)
    campaign.session("bundled/mul").attempt("bad", "compile_error")
    document = DemoDocument.of(campaign_report(store, campaign.id), Path("/there"), 12.5).model_dump(mode="json")
    assert set(document) == {"problems", "export", "seconds"}
    solved, unsolved = document["problems"]
    assert set(solved) == KEYS
    assert (solved["speedup"], solved["statuses"], solved["steps"]) == (1.5, {"correct": 1}, 1)
    assert (unsolved["speedup"], unsolved["statuses"]) == (None, {"compile_error": 1})
    assert (document["export"], document["seconds"]) == ("/there", 12.5)


def test_the_whole_demo(run: Run, home: Path) -> None:
    """Minutes, since everything in it is measured; on a busy machine a verdict may be ``unstable`` in the end."""
    result = run("demo", "--json")
    assert result.code == 0, result.err
    document = result.document
    assert [problem["problem"] for problem in document["problems"]] == list(demo().request.problems)
    for problem in document["problems"]:
        assert problem["steps"] == STEPS
        assert problem["compactions"] >= 1
        assert sum(problem["statuses"].values()) == problem["candidates"] >= 6
        assert problem["statuses"]["compile_error"] >= 1
        assert problem["statuses"]["incorrect"] >= 1
        assert set(problem["statuses"]) - {"compile_error", "incorrect"}
        assert problem["tokens"] > 0
        assert problem["cost_usd"] > 0
    export = Path(document["export"])
    assert export.parent == home / "exports"
    assert (export / "kernel-agent-export.json").is_file()
    assert "scripted" in result.err or "recorded" in result.err
