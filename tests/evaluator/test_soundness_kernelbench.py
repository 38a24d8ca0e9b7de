"""Level 3 of KernelBench, all of it, against what is known of its problems. ``make soak`` runs it with a checkout."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from evaluator.soundness import probe
from problems.catalog import Catalog
from problems.kernelbench import PREFIX

CHECKOUT = os.environ.get("KERNEL_AGENT_KERNELBENCH")
COLLAPSING = (3, 11, 12, 18)
"""Default weights let the input vanish on the way to the output."""
ONLY_PAPERS = (5, 7, 35, 46, 47)
"""What varies with the input is large enough for our gate in fp32, which scales with the output, and not for theirs."""
MOST_SECONDS = 60.0


@pytest.mark.soak
@pytest.mark.skipif(not CHECKOUT, reason="KERNEL_AGENT_KERNELBENCH names no checkout of KernelBench")
def test_level_3(tmp_path: Path) -> None:
    assert CHECKOUT is not None
    problems = Catalog(kernelbench=Path(CHECKOUT)).list(f"{PREFIX}/level3")
    assert len(problems) == 50
    reports = {}
    for problem in problems:
        number = int(problem.id.rpartition("/")[2].partition("_")[0])
        reports[number] = report = probe(problem, tmp_path)
        print(number, report.verdict, report.repair, f"{report.seconds:.0f} s", report.reasons, file=sys.stderr)
    assert {n: reports[n].repair for n in COLLAPSING} == dict.fromkeys(COLLAPSING, "he weights")
    for number in ONLY_PAPERS:
        assert reports[number].verdict == "sound"
        assert any("papers' gates" in note and "cuda-1e-2" in note for note in reports[number].notes), number
    assert reports[28].verdict == "unsound"
    assert any("does not depend on the input" in reason for reason in reports[28].reasons)
    assert reports[24].verdict == "repaired"
    assert any("chaotic" in reason for reason in reports[24].reasons)
    assert {"fc.weight", "fc.bias"} <= set(reports[36].unnoticed) & set(reports[37].unnoticed)
    assert {"c_proj.weight", "c_proj.bias"} <= set(reports[50].unnoticed)
    slow = {n: r.seconds for n, r in reports.items() if r.seconds > MOST_SECONDS}
    assert not slow
