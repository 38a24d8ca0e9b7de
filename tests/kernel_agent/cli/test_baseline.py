from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from evaluator.baselines import Baseline, save
from evaluator.model import Evaluation, EvaluationSpec
from evaluator.pool import LocalEvaluator
from kernel_agent.cli.baseline import baseline_text, compared
from kernel_agent.cli.verdict_text import verdict_text
from kernel_agent.settings import Settings, load_settings
from tests.dashboard.written_campaign import baseline as kept
from tests.dashboard.written_campaign import problem, verdict
from tests.kernel_agent.cli.conftest import Run, refused
from tests.kernel_agent.cli.tiny import PROBLEM

FAILS = PROBLEM.replace("return x * 2.0", "return (x.view(7) if torch.compiler.is_compiling() else x) * 2.0")


@pytest.fixture
def measured() -> Evaluation:
    return verdict("0" * 64, "source", "correct", 1.5)


def beside(found: Evaluation, folder: Path) -> tuple[Evaluation, tuple[tuple[str, str], ...]]:
    """What ``evaluate`` makes of a verdict when it need not measure anything."""
    settings = Settings(home=folder)
    spec = EvaluationSpec(problem=problem("tiny"), source="source")
    evaluator = LocalEvaluator(folder)  # starts a judge only when it is asked
    return compared(found, spec, evaluator, settings, measuring=False, quiet=True)


def test_a_kept_baseline_is_shown_beside_the_verdict(measured: Evaluation, tmp_path: Path) -> None:
    save(Settings(home=tmp_path).baseline_cache, kept(measured))
    after, said = beside(measured, tmp_path)
    assert said == ()
    assert after.speedup_compile == pytest.approx(1.2)
    assert "beside    1.200× over torch.compile (95%: 1.1" in verdict_text(after, "file/tiny", said)


def test_a_stale_one_is_said_to_be_and_not_used(measured: Evaluation, tmp_path: Path) -> None:
    save(Settings(home=tmp_path).baseline_cache, kept(measured, timedelta(days=9)))
    after, said = beside(measured, tmp_path)
    text = verdict_text(after, "file/tiny", said)
    assert "stale baseline, not used: measured 9 days ago" in text
    assert "over torch.compile" not in text


def test_one_that_failed_says_how(measured: Evaluation, tmp_path: Path) -> None:
    nothing = {"ms": None, "speedup": None, "speedup_low": None, "speedup_high": None}
    save(
        Settings(home=tmp_path).baseline_cache,
        kept(measured).model_copy(update={"status": "runtime_error", "reason": "no such op", **nothing}),
    )
    after, said = beside(measured, tmp_path)
    assert after == measured
    assert "runtime_error: no such op" in verdict_text(after, "file/tiny", said)


def test_without_one_nothing_is_said(measured: Evaluation, tmp_path: Path) -> None:
    assert beside(measured, tmp_path) == (measured, ())
    assert "compile" not in verdict_text(measured, "file/tiny")


def test_a_baseline_in_words(measured: Evaluation) -> None:
    text = baseline_text(kept(measured), "file/tiny")
    assert text.startswith("torch.compile is 1.250× as fast as eager (95%: 1.200 to 1.300)\n")
    assert "eager     4 ms\ncompile   3.2 ms\n" in text


@pytest.mark.soak
def test_it_is_measured_once_and_again_when_asked(run: Run, tmp_path: Path) -> None:
    """A problem on which torch.compile fails: that is quickly found, and a baseline like any other."""
    path = tmp_path / "fails.py"
    path.write_text(FAILS)
    first = run("baseline", "--problem", path, "--json")
    assert first.code == 0, first.err
    found = Baseline.model_validate(first.document)
    assert found.status == "runtime_error"
    assert len(list(load_settings().baseline_cache.iterdir())) == 1
    second = run("baseline", "--problem", path, "--json")
    assert Baseline.model_validate(second.document) == found
    third = run("baseline", "--problem", path, "--again", "--json")
    assert Baseline.model_validate(third.document).measured_at > found.measured_at
    assert "torch.compile: runtime_error" in run("baseline", "--problem", path).out


def test_no_cpu_computes_in_tf32(run: Run) -> None:
    refused(run("baseline", "--problem", "bundled/layernorm_mlp", "--lane", "tf32"), "--lane tf32", "bf16")


def test_a_problem_that_is_not_there(run: Run) -> None:
    refused(run("baseline", "--problem", "bundled/nothing_like_it"), "bundled/nothing_like_it")
    refused(run("baseline", "--problem", "bundled/nothing_like_it", "--json"), "bundled/nothing_like_it")


def test_a_folder_that_cannot_be_made(run: Run, home: Path, tiny: Path) -> None:
    home.mkdir()
    (home / "cache").write_text("in the way")
    refused(run("baseline", "--problem", tiny, "--again"), "cache/baselines", "--home")


def test_a_folder_of_candidates_takes_no_baseline(run: Run, tmp_path: Path) -> None:
    refused(run("evaluate", tmp_path, "--problem", "bundled/layernorm_mlp", "--baseline"), "--baseline", "folder")
