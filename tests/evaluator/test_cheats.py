"""Candidates that would rather be called fast than be fast. None may be; each is told why."""

from __future__ import annotations

import pytest

from evaluator.model import Evaluation
from tests.evaluator.conftest import Judged
from tests.evaluator.corpus import HOSTILE, Entry
from tests.evaluator.sources import HEAD

OPINIONS = 3
"""An interval lies above 1 by chance once in forty times; three in a row do not."""


def tried() -> list[object]:
    """One of each family with every run of the tests, the rest in ``make soak``: a verdict takes seconds."""
    seen: set[str] = set()
    parameters: list[object] = []
    for entry in HOSTILE:
        marks = [pytest.mark.soak] if entry.family in seen else []
        seen.add(entry.family)
        parameters.append(pytest.param(entry, marks=marks, id=entry.name))
    return parameters


def gains(evaluation: Evaluation) -> bool:
    return evaluation.speedup_low is not None and evaluation.speedup_low > 1.0


@pytest.mark.parametrize("entry", tried())
def test_a_cheat_gains_nothing(judged: Judged, entry: Entry) -> None:
    evaluation = judged(entry.source, entry.problem, lane=entry.lane)
    allowed = entry.statuses | ({"unstable"} if "correct" in entry.statuses else set())
    assert evaluation.status in allowed, (evaluation.status, evaluation.reason)
    assert entry.words in evaluation.reason, evaluation.reason
    more = (judged(f"{entry.source}# again {n}\n", entry.problem, lane=entry.lane) for n in range(1, OPINIONS))
    assert not (gains(evaluation) and all(map(gains, more))), evaluation.reason


def test_every_family_that_needs_no_gpu_and_no_build_is_tried() -> None:
    on_a_gpu = {"F01", "F02", "F10", "F13", "F19", "F23", "F24", "F25", "F34"}
    in_a_build = {"F32"}
    reported = {f"F{n:02}" for n in range(1, 38)}
    assert reported - on_a_gpu - in_a_build <= {entry.family for entry in HOSTILE}
    assert len({entry.name for entry in HOSTILE}) == len(HOSTILE) >= 36


def test_an_answer_kept_on_disk_is_gone_in_the_next_jail(judged: Judged) -> None:
    """F06 across evaluations: what one jail wrote, the next does not find."""
    text = (
        HEAD + "import os\nopen('/tmp/kept', 'w').write('x'); open('/dev/shm/kept', 'w').write('x')\nraise ValueError\n"
    )
    judged(text)
    again = judged(
        HEAD + "import os\nraise ValueError(str(os.path.exists('/tmp/kept') or os.path.exists('/dev/shm/kept')))\n"
    )
    assert "False" in again.reason
