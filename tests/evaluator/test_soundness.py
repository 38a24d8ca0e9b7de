"""Problems that can tell right from wrong, and problems that cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from evaluator import gate
from evaluator.model import PROTOCOL_VERSION, EvaluatorError
from evaluator.probing.ladder import ladder, larger_batch
from evaluator.probing.trial import nulls
from evaluator.soundness import cached, judged, probe
from evaluator.soundness_model import SOUNDNESS_VERSION, Findings, SoundnessReport
from problems.catalog import Catalog
from problems.model import Problem, SizeOverride
from problems.sizes import override
from tests.evaluator.sources import HEAD, PROBLEM, changed, problem

SECONDS = 20.0


def probed(on: Problem, folder: Path, **more: float) -> SoundnessReport:
    return probe(on, folder, seconds=more.get("seconds", SECONDS), memory_bytes=int(more.get("memory_bytes", 4 << 30)))


@pytest.mark.parametrize("one", Catalog().list("bundled"), ids=lambda p: str(p.id))
def test_bundled_problems_are_sound(one: Problem, tmp_path: Path, level: str) -> None:
    report = probed(one, tmp_path)
    assert (report.verdict, report.reasons) == ("sound", ())
    assert report.unnoticed == ()
    assert report.reduced == ()
    assert report.isolation == level
    conditions = [t.conditions for t in report.findings.trials]
    assert conditions == ["initialised", "judged"]
    for trial in report.findings.trials:
        assert {"zeros", "replay", "constant", "batch mean", "input mean"} <= {n.name for n in trial.nulls}
        assert all(n.lane is None and n.rms > 10 * trial.rms_bound for n in trial.nulls)
        assert trial.float64
        assert 0 < trial.eager_rms < 1e-5
        assert trial.behaviour.random_rms == trial.behaviour.state_rms == 0
        assert trial.behaviour.changed == ()
        assert not trial.behaviour.changes_inputs
        assert not trial.behaviour.draws_random
    assert {a.change for a in report.findings.ablations} >= {"redrawn"}


DEAD = changed("super().__init__()", "super().__init__()\n        self.unused = nn.Linear(3, 3)")
SHIFTED = PROBLEM.replace("super().__init__()", "super().__init__()\n        self.shift = nn.Parameter(torch.ones(1))")
CANCELLED = problem(SHIFTED.replace("F.gelu(self.linear(x))", "F.layer_norm(self.linear(x) + self.shift, (64,))"))


@pytest.mark.parametrize(
    ("one", "names"),
    [(DEAD, {"unused.weight", "unused.bias"}), (CANCELLED, {"shift"})],
    ids=["never used", "cancelled by the norm"],
)
def test_parameters_without_effect_are_named(one: Problem, names: set[str], tmp_path: Path) -> None:
    report = probed(one, tmp_path)
    assert report.verdict == "sound"
    assert set(report.unnoticed) == names
    assert any(name in note for note in report.notes for name in names)


def test_a_residual_branch_without_effect_is_named(tmp_path: Path) -> None:
    source = PROBLEM.replace("super().__init__()", "super().__init__()\n        self.branch = Tiny()")
    source = source.replace("return F.gelu(self.linear(x))", "return F.gelu(self.linear(x)) + self.branch(x)")
    source = source.replace(
        "class Model", "class Tiny(nn.Module):\n    def forward(self, x):\n        return 1e-9 * x\n\n\nclass Model"
    )
    report = probed(problem(source), tmp_path)
    assert report.verdict == "sound"
    assert [(a.name, a.change) for a in report.findings.ablations if not a.noticed] == [("branch (Tiny)", "zeroed")]


FAULTY = {
    "constant": (changed("F.gelu(self.linear(x))", "F.gelu(self.linear(torch.ones_like(x)))"), "does not depend"),
    "random": (changed("F.gelu(self.linear(x))", "F.gelu(self.linear(x)) + torch.randn(64)"), "random"),
    "counting": (
        changed("return F.gelu(", "self.calls = getattr(self, 'calls', 0) + 1\n        return self.calls * F.gelu("),
        "stateful",
    ),
    "chaotic": (changed("F.gelu(self.linear(x))", "torch.sin(1e7 * self.linear(x))"), "chaotic"),
    "not a number": (changed("F.gelu(self.linear(x))", "self.linear(x).sqrt()"), "NaN"),
    "overflowing": (changed("F.gelu(self.linear(x))", "(3e38 * self.linear(x)) * 1e3"), "overflows"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_problem_that_cannot_tell_is_unsound(name: str, tmp_path: Path) -> None:
    one, words = FAULTY[name]
    report = probed(one, tmp_path)
    assert report.verdict == "unsound"
    assert any(words in reason for reason in report.reasons), report.reasons
    assert [t.conditions for t in report.findings.trials][:3] == ["initialised", "judged", "he weights"]
    assert any("larger batch" in reason for reason in report.findings.untried)


def test_state_is_named(tmp_path: Path) -> None:
    report = probed(FAULTY["counting"][0], tmp_path)
    assert "calls" in report.reasons[-1]


def test_what_forward_changes_is_noted_where_it_does_no_harm(tmp_path: Path) -> None:
    body = "self.last = x\n        y = F.gelu(self.linear(x))\n        x.add_(1)\n        return y"
    report = probed(changed("return F.gelu(self.linear(x))", body), tmp_path)
    assert report.verdict == "sound"
    assert "forward changes last" in report.notes
    assert "forward changes its inputs" in report.notes


DEEP = (
    HEAD
    + """
batch_size = 8

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        layers = [m for _ in range(17) for m in (nn.Linear(width, width), nn.ReLU())]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x):
        return self.layers(x)

def get_inputs():
    return [torch.rand(batch_size, 128)]

def get_init_inputs():
    return [128]
"""
)
NORMED = DEEP.replace("batch_size = 8", "batch_size = 2").replace(
    "layers = [m for _ in range(17) for m in (nn.Linear(width, width), nn.ReLU())]",
    "layers = [m for _ in range(30) for m in (nn.Linear(width, width), nn.BatchNorm1d(width))] + [0]",
)


def test_a_deep_network_with_default_weights_is_repaired_by_he_weights(tmp_path: Path) -> None:
    report = probed(problem(DEEP), tmp_path)
    assert (report.verdict, report.repair) == ("repaired", "he weights")
    assert any("answers that ignore the input pass" in reason for reason in report.reasons)


def test_dropout_is_repaired_by_eval_mode(tmp_path: Path) -> None:
    report = probed(changed("self.linear(x)", "F.dropout(self.linear(x), 0.5, self.training)"), tmp_path)
    assert (report.verdict, report.repair) == ("repaired", "eval mode")
    assert any(reason.startswith("random") for reason in report.reasons)


def test_batch_statistics_over_two_are_repaired(tmp_path: Path) -> None:
    """Normalized over two rows almost every value becomes +1 or -1, and rounding decides those that do not.

    Without statistics of the batch, so deep a network of default weights forgets its input.
    """
    report = probed(problem(NORMED), tmp_path)
    assert report.verdict == "repaired"
    assert report.repair in ("he weights", "larger batch")  # other weights suffice for about one draw in three
    assert any(reason.startswith("chaotic") for reason in report.reasons)


BROKEN = {
    "raises": (changed("return F.gelu(self.linear(x))", "raise ValueError('its own')"), "its own"),
    "exits": (changed("return F.gelu(self.linear(x))", "import os; os._exit(3)"), "process ended"),
    "imports what is not there": (problem("import no_such_package\n" + PROBLEM), "no_such_package"),
    "returns text": (changed("return F.gelu(self.linear(x))", "return 'x'"), "str"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_problem_that_does_not_run_is_unsound(name: str, tmp_path: Path) -> None:
    one, words = BROKEN[name]
    report = probed(one, tmp_path)
    assert report.verdict == "unsound"
    assert words in report.reasons[0]


def test_a_problem_that_hangs_is_ended(tmp_path: Path) -> None:
    report = probed(changed("return F.gelu", "while True: pass\n        return F.gelu"), tmp_path, seconds=1)
    assert report.verdict == "too_large"
    assert "did not finish" in report.reasons[0]


WIDE = PROBLEM.replace("torch.randn(512, 64)", "torch.randn(batch, 64)") + "\nbatch = 1 << 0\n"


def test_what_does_not_fit_is_reduced_and_says_so(tmp_path: Path) -> None:
    source = WIDE.replace("1 << 0", str(1 << 22))
    report = probed(problem(source), tmp_path, memory_bytes=1 << 30)
    assert report.verdict == "sound"
    (reduced,) = report.reduced
    assert (reduced.name, reduced.was) == ("batch", 1 << 22)
    assert reduced.now < 1 << 20
    assert [s.value for s in report.sizes] == [reduced.now]
    assert report.findings.full is not None
    assert report.findings.full.needed_bytes > 1 << 30
    assert report.findings.estimate is not None
    assert report.findings.estimate.needed_bytes <= 1 << 30


def test_what_cannot_be_reduced_is_too_large(tmp_path: Path) -> None:
    one = changed("torch.randn(512, 64)", f"torch.randn({1 << 24}, 64)")
    report = probed(one, tmp_path, memory_bytes=1 << 30)
    assert report.verdict == "too_large"
    assert str(1 << 30) in report.reasons[0]


def test_the_problem_runs_in_the_jail(tmp_path: Path) -> None:
    seen = f"import torch\nimport os\nassert not os.path.exists({str(tmp_path)!r}) and os.getuid() != 0\n"
    assert probed(changed("import torch\n", seen), tmp_path).verdict == "sound"


def test_reports_are_kept_by_source_sizes_and_protocol(tmp_path: Path) -> None:
    one = problem()
    assert cached(one, tmp_path) is None
    report = probed(one, tmp_path)
    assert cached(one, tmp_path) == report == probed(one, tmp_path)
    assert (report.protocol_version, report.soundness_version) == (PROTOCOL_VERSION, SOUNDNESS_VERSION)
    assert cached(changed("512", "256"), tmp_path) is None
    assert cached(one, tmp_path, "bf16") is None
    (path,) = tmp_path.iterdir()
    again = probe(one, tmp_path, again=True, seconds=SECONDS)
    assert again.seconds != report.seconds
    path.write_text(path.read_text().replace(f'"soundness_version":"{SOUNDNESS_VERSION}"', '"soundness_version":"0"'))
    assert cached(one, tmp_path) is None
    path.write_text("{")
    assert cached(one, tmp_path) is None


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EvaluatorError, match="cannot keep"):
        probed(problem(), tmp_path / "file" / "below")


# -- parts, without a jail ------------------------------------------------------------------------------------------


def test_findings_of_nothing_are_no_verdict_of_soundness() -> None:
    report = judged(problem(), Findings(), "fp32", 1, "none", 0.0)
    assert report.verdict == "unsound"
    assert "nothing was measured" in report.reasons[0]


def test_null_answers_have_the_distance_they_should() -> None:
    rng = torch.Generator().manual_seed(3)
    answers = [[torch.randn(64, 64, generator=rng), torch.full((64, 64), 2.0)] for _ in range(3)]
    truth = [y.double() for y in answers[0]]
    found = {n.name: n for n in nulls([answers[0][0]], answers, truth, gate.Yardstick())}
    # The second output is the same for every input: whatever replays it is right there.
    assert (found["replay"].output, found["replay"].rms, found["replay"].lane) == (1, 0.0, "fp32")
    assert (found["zeros"].rms, found["zeros"].lane) == (1.0, None)
    first = {n.name: n for n in nulls([answers[0][0]], [a[:1] for a in answers], truth[:1], gate.Yardstick())}
    assert first["replay"].rms == pytest.approx(2**0.5, rel=0.1)
    assert first["zeros"].rms == pytest.approx(1, rel=1e-6)
    assert first["identity"].rms == 0
    assert first["input mean"].rms == pytest.approx(1.5**0.5, rel=0.1)
    assert {n.fools("bf16") for n in first.values()} == {True, False}


def test_the_ladder_lowers_batches_first_and_to_one_only_at_the_end() -> None:
    text = "batch_size = 8\nheight, width = 64, 128\nheads = 4\n" + PROBLEM
    rungs = [{o.name: o.value for o in rung} for rung in ladder(problem(text))]
    assert rungs == [
        {},
        {"batch_size": 4},
        {"batch_size": 2},
        {"batch_size": 2, "width": 64},
        {"batch_size": 2, "height": 32, "width": 64},
        {"batch_size": 2, "height": 32, "width": 32},
        {"batch_size": 1, "height": 32, "width": 32},
    ]
    for rung in ladder(problem(text)):
        override(text, rung)


def test_a_larger_batch_grows_from_the_rung() -> None:
    one = problem("batch_size = 8\nwidth = 64\n" + PROBLEM)
    small = (SizeOverride(name="batch_size", value=2), SizeOverride(name="width", value=32))
    larger = larger_batch(one, small)
    assert larger is not None
    assert {o.name: o.value for o in larger} == {"batch_size": 16, "width": 32}
    assert larger_batch(problem(), ()) is None
