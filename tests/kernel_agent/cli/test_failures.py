from __future__ import annotations

import pytest

from compaction.errors import CompactionError
from evaluator.model import LANES, EvaluatorError
from gpu_profiles.model import GpuProfileError
from kernel_agent.cli.failures import translated
from kernel_agent.cli.options import LaneName
from kernel_agent.errors import KernelAgentError, NotFoundError, StoreError, UsageError
from problems.model import ProblemError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KernelAgentError("it"), 1),
        (StoreError("it"), 1),
        (EvaluatorError("it"), 1),
        (UsageError("it"), 2),
        (NotFoundError("it"), 2),
        (ProblemError("it"), 2),
        (GpuProfileError("it"), 2),
        (CompactionError("it"), 2),
    ],
)
def test_each_family_has_its_exit_code(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left, translated():
        raise error
    assert left.value.code == code
    assert capsys.readouterr() == ("", "kernel-agent: it\n")


def test_a_bug_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), translated():
        _ = 1 / 0


def test_a_message_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), translated():
        raise UsageError("no \x1b[31mred\x1b[0m")
    assert capsys.readouterr().err == "kernel-agent: no red\n"


def test_the_lanes_offered_are_the_lanes_there_are() -> None:
    assert LaneName.__args__ == LANES  # type: ignore[attr-defined]
