"""Endurance: hundreds of verdicts in a row, honest, faulty and hostile, leave nothing behind. ``make soak`` runs it."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from evaluator.pool import LocalEvaluator
from tests.evaluator.conftest import Judged
from tests.evaluator.corpus import HONEST, HOSTILE, Entry
from tests.evaluator.processes import judge_of, rested

VERDICTS, WARM = 300, 60
GROWTH = 0.05


@dataclass(frozen=True)
class Footprint:
    judge: int
    processes: int
    descriptors: int
    mounts: int
    files: int
    memory_bytes: int


def footprint(evaluator: LocalEvaluator, scratch: Path) -> Footprint:
    judge = judge_of(evaluator)
    processes = rested(judge)
    return Footprint(
        judge.pid,
        processes,
        judge.num_fds(),
        len(Path("/proc/self/mountinfo").read_text().splitlines()),
        sum(1 for path in scratch.rglob("*") if path.is_file()),
        judge.memory_info().rss,
    )


def mixed() -> list[Entry]:
    """Honest, faulty and hostile ones of the usual problem, shuffled: one bench serves them all."""
    usual = HONEST[0].problem.sha256
    entries = [e for e in (*HONEST, *HOSTILE) if e.problem.sha256 == usual]
    random.Random(300).shuffle(entries)
    return entries


@pytest.mark.soak
def test_three_hundred_verdicts_leave_nothing_behind(
    judged: Judged, evaluator: LocalEvaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    wrong, before = [], None
    for n, entry in zip(range(VERDICTS), itertools.cycle(mixed()), strict=False):
        verdict = judged(f"{entry.source}\n# verdict {n}\n", entry.problem, lane=entry.lane)
        allowed = entry.statuses | ({"unstable"} if "correct" in entry.statuses else set())
        if verdict.status not in allowed:
            wrong.append((entry.name, verdict.status, verdict.reason))
        if n == WARM:
            before = footprint(evaluator, tmp_path)
    after = footprint(evaluator, tmp_path)
    assert not wrong
    assert before is not None
    assert (after.judge, after.processes, after.mounts) == (before.judge, before.processes, before.mounts)
    assert after.descriptors <= before.descriptors
    assert after.files == before.files
    assert after.memory_bytes <= (1 + GROWTH) * before.memory_bytes
