"""The in-process loop says what an evaluator of its kind would say, and ends whatever it started."""

from __future__ import annotations

import pytest

from evaluator.claim import Claim
from evaluator.inprocess import claim_of
from evaluator.model import Limits
from tests.evaluator.conftest import LIMITS, Judged, accepted
from tests.evaluator.processes import alive
from tests.evaluator.sources import ANSWER, EAGER, HEAD, candidate, problem

QUICK = Limits(search_seconds=1, memory_bytes=LIMITS.memory_bytes, processes=96, scratch_bytes=256 << 20)
SLEEPER = "tests-evaluator-loop-sleeper"

KEPT = candidate(
    f"""
    if self.kept is None or self.kept[0].data_ptr() != x.data_ptr():
        self.kept = x, {ANSWER}
    return self.kept[1]
    """,
    init="self.kept = None",
)
"""An answer kept by the input's address, with a reference to the input, so that nothing else gets that address."""


def claimed(source: str, **more: object) -> Claim:
    options = {"limits": QUICK, "seconds": 60.0} | more
    return claim_of(problem(), source, **options)  # type: ignore[arg-type]


def test_an_honest_candidate() -> None:
    claim = claimed(EAGER)
    assert (claim.status, claim.passed, claim.largest_error) == ("correct", (1e-4, 1e-2), 0.0)
    assert 3 <= claim.calls <= 100
    assert claim.candidate_ms is not None
    assert claim.reference_ms is not None
    assert claim.speedup == pytest.approx(claim.reference_ms / claim.candidate_ms)


def test_an_error_between_the_tolerances_depends_on_the_lane() -> None:
    source = candidate(f"return {ANSWER} + 3e-3")
    strict, loose = claimed(source), claimed(source, lane="bf16")
    assert (strict.status, strict.tolerance, strict.passed) == ("incorrect", 1e-4, (1e-2,))
    assert "0.003" in strict.reason
    assert (loose.status, loose.tolerance) == ("correct", 1e-2)


def test_a_wrong_candidate_is_not_timed() -> None:
    claim = claimed(candidate("return torch.zeros_like(x)"))
    assert (claim.status, claim.passed, claim.speedup, claim.calls) == ("incorrect", (), None, 0)


def test_another_shape_is_incorrect_and_another_dtype_is_not_noticed() -> None:
    assert "(512, 5)" in claimed(candidate(f"return {ANSWER}[:, :5]")).reason
    assert claimed(candidate(f"return {ANSWER}.double()")).status == "correct"


def test_the_loop_believes_a_kept_answer_and_the_judge_does_not(judged: Judged) -> None:
    claim, verdict = claimed(KEPT), judged(KEPT)
    assert claim.status == "correct"
    assert claim.speedup is not None
    assert claim.speedup > 3
    assert (verdict.status, verdict.speedup) == ("incorrect", None)


def test_the_loop_believes_a_candidate_that_hides_its_time_from_the_clock(judged: Judged) -> None:
    source = candidate(
        f"""
        begin = real()
        y = {ANSWER}
        hidden[0] += real() - begin
        return y
        """,
        top="""
        import time
        real, hidden = time.perf_counter, [0.0]
        time.perf_counter = lambda: real() - hidden[0]
        """,
    )
    claim, verdict = claimed(source), judged(source, tries=3)
    assert claim.status == "correct"
    assert claim.speedup is not None
    assert claim.speedup > 3
    assert accepted(verdict)
    assert verdict.speedup is None or verdict.speedup < 1.5


@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        ("class Other: pass\n", "error", "ModelNew"),
        ("def forward(:\n", "error", "SyntaxError"),
        (candidate("raise ValueError('in forward')"), "error", "in forward"),
        (candidate("raise SystemExit(0)"), "error", "SystemExit"),
        (candidate("import os; print('correct', flush=True); os._exit(0)"), "crashed", "exit code 0"),
        (candidate("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), "crashed", "SIGKILL"),
        (candidate("import ctypes; ctypes.string_at(0)"), "crashed", "SIGSEGV"),
    ],
)
def test_a_candidate_that_fails(source: str, status: str, words: str) -> None:
    claim = claimed(source)
    assert (claim.status, claim.speedup) == (status, None)
    assert words in claim.reason


def test_a_candidate_that_hangs_is_ended_with_what_it_started() -> None:
    source = candidate(
        f"""
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", "{SLEEPER}"])
        while True: pass
        """
    )
    claim = claimed(source, seconds=4.0)
    assert claim.status == "timeout"
    assert "4 s" in claim.reason
    assert not alive(SLEEPER)


def test_a_forged_answer_is_read_with_care() -> None:
    forge = HEAD + (
        "import os, socket, stat\n"
        "for name in os.listdir('/proc/self/fd'):\n"
        "    try:\n"
        "        if stat.S_ISSOCK(os.fstat(int(name)).st_mode): socket.socket(fileno=int(name)).send(b'd')\n"
        "    except OSError: pass\n"
        "while True: pass\n"
    )
    assert claimed(forge).status == "unreadable"
