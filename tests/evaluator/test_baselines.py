"""torch.compile through the judge; and the baseline's arithmetic, its cache, and when it is no longer believed."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from evaluator import baselines
from evaluator.baselines import (
    Baseline,
    Conditions,
    cached,
    doubt,
    measure,
    model_as_candidate,
    save,
    ways,
    with_baseline,
)
from evaluator.model import ON_THE_PROBLEM, Evaluation, Evidence
from evaluator.pool import LocalEvaluator
from tests.evaluator.conftest import LIMITS, TRIES, Judged
from tests.evaluator.sources import EAGER, changed, problem

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
COMPILING = LIMITS.model_copy(
    update={"load_seconds": 60, "first_call_seconds": 240, "confirm_seconds": 6, "scratch_bytes": 2 << 30}
)
NEVER_ANEW = changed(
    "import torch.nn as nn\n",
    "import torch.nn as nn\nimport torch._dynamo\n\ntorch._dynamo.config.error_on_recompile = True\n",
)
"""Fails when it is compiled a second time, for instance for new weights."""
FAILS = changed(
    "return F.gelu(self.linear(x))",
    "x = x.view(-1, 7) if torch.compiler.is_compiling() else x\n        return F.gelu(self.linear(x))",
)


def verdict(**more: object) -> Evaluation:
    values: dict[str, object] = {
        "status": "correct",
        "reason": "as told",
        "source_sha": "s",
        "problem_sha": "p",
        "purpose": "screen",
        "target": "cpu",
        "gpu": "a CPU",
        "isolation": "bubblewrap",
        "speedup": 2.0,
        "speedup_low": 2.0 * math.exp(-0.03),
        "speedup_high": 2.0 * math.exp(0.03),
        "reference_ms": 4.0,
        "candidate_ms": 2.0,
        "evidence": Evidence(isolation="bubblewrap", threads=2, torch_version="2.9.0"),
    }
    return Evaluation.model_validate(values | more)


def failed() -> Evaluation:
    return verdict(status="incorrect", speedup=None, speedup_low=None, speedup_high=None)


def kept(**more: object) -> Baseline:
    values: dict[str, object] = {
        "conditions": baselines.conditions_of(verdict()),
        "status": "correct",
        "reason": "as told",
        "eager_ms": 4.0,
        "ms": 3.2,
        "speedup": 1.25,
        "speedup_low": 1.25 * math.exp(-0.04),
        "speedup_high": 1.25 * math.exp(0.04),
        "measured_at": NOW - timedelta(days=1),
    }
    return Baseline.model_validate(values | more)


# -- through the judge ------------------------------------------------------------------------------------------


def test_a_compiled_model_is_judged_as_a_candidate_and_compiled_once(evaluator: LocalEvaluator, judged: Judged) -> None:
    found = measure(evaluator, NEVER_ANEW, purpose="screen", limits=COMPILING)
    assert found.status in ("correct", "unstable"), found.reason
    assert found.conditions == baselines.conditions_here(evaluator, NEVER_ANEW, COMPILING)
    assert found.conditions.device
    assert found.conditions.torch_version.split(".")[0].isdigit()
    if found.status == "correct":
        assert found.eager_ms is not None
        assert found.ms is not None
        assert found.speedup == pytest.approx(found.eager_ms / found.ms, rel=0.15)
        eager = judged(EAGER, NEVER_ANEW, tries=TRIES)
        after = with_baseline(eager, found)
        if eager.status == "correct" and not doubt(found, eager):
            assert after.speedup_compile == pytest.approx(1 / found.speedup, rel=0.1)


def test_a_model_that_cannot_be_compiled_still_has_eagers_time(evaluator: LocalEvaluator) -> None:
    found = measure(evaluator, FAILS, limits=COMPILING)
    assert found.status == "runtime_error"
    assert "in forward" in found.reason
    assert (found.ms, found.speedup) == (None, None)
    # On a machine too noisy to time, eager has none either.
    assert found.eager_ms is None or 0 < found.eager_ms < 1e3


def test_the_problems_own_failure_is_the_baselines_too(evaluator: LocalEvaluator) -> None:
    broken = changed("return F.gelu(self.linear(x))", "raise RuntimeError('never works')")
    found = measure(evaluator, broken, limits=COMPILING)
    assert found.status == "reference_error"
    assert "never works" in found.reason
    assert found.eager_ms is None


def test_the_candidate_is_the_problem_and_no_other() -> None:
    for way in ("compile", "fp16", "bf16"):
        assert model_as_candidate(problem(), way).startswith(problem().source)
        assert "ModelNew = Model\n" not in model_as_candidate(problem(), way)


@pytest.mark.soak
def test_a_cast_model_is_judged_in_its_own_lane(evaluator: LocalEvaluator) -> None:
    found = measure(evaluator, problem(), "bf16", "screen", limits=LIMITS)
    assert found.status in ("correct", "unstable"), found.reason
    assert (found.way, found.ms is None) == ("bf16", found.status == "unstable")


STATEFUL = changed(
    "return F.gelu(self.linear(x))",
    "return F.gelu(self.linear(x) @ self.mixing)",
).source.replace(
    "self.linear = nn.Linear(features, features)",
    "self.linear = nn.Linear(features, features)\n        self.mixing = torch.ones(features, features) / features",
)


@pytest.mark.soak
def test_a_reference_that_cannot_be_cast_is_not_charged_to_anybody(evaluator: LocalEvaluator) -> None:
    """A tensor that is neither parameter nor buffer stays in single precision, as in level 3's recurrent networks."""
    found = measure(evaluator, problem(STATEFUL), "bf16", "screen", limits=LIMITS)
    assert found.status == "reference_unsupported_in_precision"
    assert found.status in ON_THE_PROBLEM
    assert "not in bf16: runtime_error" in found.reason
    assert found.speedup is None


# -- arithmetic -------------------------------------------------------------------------------------------------


def test_the_two_intervals_add_in_quadrature() -> None:
    both = with_baseline(verdict(), kept(), NOW)
    assert both.speedup_compile == pytest.approx(1.6)
    assert both.speedup_compile_low == pytest.approx(1.6 * math.exp(-0.05))
    assert both.speedup_compile_high == pytest.approx(1.6 * math.exp(0.05))
    assert (both.speedup, both.flags) == (2.0, ())
    assert Evaluation.model_validate_json(both.model_dump_json()) == both


def test_each_end_follows_the_ends_that_push_it() -> None:
    """A candidate at its slowest beside a compiled model at its fastest makes the low end."""
    lopsided = verdict(speedup_low=2.0 * math.exp(-0.12))
    compiled = kept(speedup_high=1.25 * math.exp(0.05), speedup_low=1.25)
    both = with_baseline(lopsided, compiled, NOW)
    assert both.speedup_compile_low == pytest.approx(1.6 * math.exp(-0.13))
    assert both.speedup_compile_high == pytest.approx(1.6 * math.exp(0.03))


def test_nothing_is_said_without_two_speedups() -> None:
    nothing = kept(status="runtime_error", ms=None, speedup=None, speedup_low=None)
    assert with_baseline(verdict(), nothing, NOW) == verdict()
    assert with_baseline(failed(), kept(), NOW) == failed()


def test_a_kernel_in_half_precision_is_set_beside_eager_in_half_precision() -> None:
    half = verdict(lane="bf16")
    assert ways(half) == ("compile", "bf16")
    assert ways(verdict(lane="fp32")) == ("compile",)
    assert ways(failed()) == ()
    slower = kept(way="bf16", speedup=0.5, speedup_low=0.4, speedup_high=0.6)
    both = with_baseline(with_baseline(half, kept(), NOW), slower, NOW)
    assert both.speedup_compile == pytest.approx(1.6)
    assert both.speedup_lane == pytest.approx(4.0)
    assert both.speedup_lane_low == pytest.approx(4.0 * math.exp(-math.hypot(0.03, math.log(0.6 / 0.5))))


# -- trust ------------------------------------------------------------------------------------------------------


def test_a_week_and_a_tenth_are_the_limits() -> None:
    for good in (
        kept(measured_at=NOW - timedelta(days=7)),
        kept(eager_ms=4.0 / 1.09),
        kept(eager_ms=4.0 / 0.91),
    ):
        assert doubt(good, verdict(), NOW) == ""
    for bad, said in (
        (kept(measured_at=NOW - timedelta(days=8)), "8 days ago"),
        (kept(eager_ms=4.0 / 1.11), "takes 4 ms now"),
        (kept(eager_ms=4.0 / 0.89), "takes 4 ms now"),
    ):
        assert said in doubt(bad, verdict(), NOW)
        after = with_baseline(verdict(flags=("overhead_limited",)), bad, NOW)
        assert after.flags == ("overhead_limited", "baseline_stale")
        assert (after.speedup_compile, after.speedup_compile_low, after.speedup_compile_high) == (None, None, None)


@pytest.mark.parametrize("name", sorted(Conditions.model_fields))
def test_each_condition_counts(tmp_path: Path, name: str) -> None:
    mine = baselines.conditions_of(verdict())
    other = mine.model_copy(update={name: 3 if name == "threads" else "another"})
    save(tmp_path, kept())
    assert cached(tmp_path, mine) == kept()
    assert cached(tmp_path, other) is None
    assert cached(tmp_path, mine, "bf16") is None
    assert name.replace("_", " ") in doubt(kept(conditions=other), verdict(), NOW)


def test_the_newest_of_the_same_conditions_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "when needed"
    save(folder, kept())
    save(folder, kept(ms=3.1))
    assert cached(folder, kept().conditions) == kept(ms=3.1)
    assert len(list(folder.iterdir())) == 1


def test_what_cannot_be_read_or_is_another_ones_counts_as_none(tmp_path: Path) -> None:
    save(tmp_path, kept())
    (path,) = tmp_path.iterdir()
    other = kept().conditions.model_copy(update={"threads": 64})
    path.write_text(kept(conditions=other).model_dump_json())
    assert cached(tmp_path, kept().conditions) is None
    path.write_text("{")
    assert cached(tmp_path, kept().conditions) is None
    path.unlink()
    path.mkdir()
    assert cached(tmp_path, kept().conditions) is None


# -- the verdict's own fields -----------------------------------------------------------------------------------


def test_a_verdict_written_before_there_were_baselines_loads() -> None:
    text = json.loads(verdict().model_dump_json())
    for name in ("speedup_compile", "speedup_compile_low", "speedup_compile_high"):
        del text[name]
    assert Evaluation.model_validate(text) == verdict()


def test_a_speedup_over_compile_needs_its_interval_and_a_correct_verdict() -> None:
    three = {"speedup_compile": 1.6, "speedup_compile_low": 1.5, "speedup_compile_high": 1.7}
    assert verdict(**three).speedup_compile == 1.6
    for missing in three:
        with pytest.raises(ValidationError, match="both ends"):
            verdict(**{k: v for k, v in three.items() if k != missing})
    with pytest.raises(ValidationError, match="outside its own interval"):
        verdict(**three | {"speedup_compile_low": 1.65})
    nothing = {"status": "unstable", "speedup": None, "speedup_low": None, "speedup_high": None}
    with pytest.raises(ValidationError, match="no speedup over"):
        verdict(**nothing, **three)
