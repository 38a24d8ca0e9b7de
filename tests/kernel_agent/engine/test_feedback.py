"""What the agent reads of a verdict: short, whole and harmless."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from evaluator.model import Evaluation, Evidence, GateResult, Status
from kernel_agent.engine import feedback
from kernel_agent.model import Candidate, Improvement

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEFT = "23 of 40 steps left, $0.55 left"


def candidate(n: int = 7) -> Candidate:
    return Candidate(
        id="k7", session_id="s", step=12, n=n, tool_call_id="c", source_sha="x", parent_id=None, hypothesis="h", at=NOW
    )


def verdict(status: Status, reason: str = "", errors: tuple[str, ...] = (), **more: object) -> Evaluation:
    numbers = {"speedup": 1.84, "speedup_low": 1.8, "speedup_high": 1.88, "reference_ms": 1.1, "candidate_ms": 0.6}
    made: dict[str, object] = {
        "status": status,
        "reason": reason,
        "source_sha": "x",
        "problem_sha": "p",
        "purpose": "screen",
        "target": "cpu",
        "isolation": "bubblewrap",
        "errors": errors,
        "evidence": Evidence(isolation="bubblewrap"),
    }
    if status == "correct":
        gates = (GateResult(gate="honest", lane="fp32", passed=True, rms=3.1e-7, rms_bound=1e-5),)
        made |= numbers | {"lane": "fp32", "gates": gates}
    return Evaluation.model_validate(made | more)


def improvement(attempt: int = 7) -> Improvement:
    return Improvement(
        session_id="s",
        n=1,
        candidate_id="k7",
        step=12,
        attempt=attempt,
        speedup=1.82,
        speedup_low=1.79,
        speedup_high=1.85,
        reference_ms=1.1,
        candidate_ms=0.6,
        at=NOW,
    )


def test_a_new_best_is_told_by_its_confirmed_number() -> None:
    text = feedback.verdict(candidate(), verdict("correct"), None, improvement(), improvement(), LEFT, 0)
    assert text == (
        "#7 (step 12) correct NEW BEST: confirmed 1.820x [1.790, 1.850] (0.6 ms; eager 1.1 ms). "
        "23 of 40 steps left, $0.55 left."
    )


def test_a_correct_one_says_where_the_best_stands() -> None:
    text = feedback.verdict(candidate(), verdict("correct"), None, None, improvement(3), LEFT, 4)
    assert "1.840x [1.800, 1.880] of eager" in text
    assert "error 3.1e-07 (lane fp32)" in text
    assert "best #3 1.820x" in text
    assert "4 attempts since the last improvement" in text


def test_a_promotion_that_failed_is_told() -> None:
    lost = verdict("correct", purpose="promote", accepted=False, gain=0.004)
    text = feedback.verdict(candidate(), verdict("correct"), lost, None, improvement(3), LEFT, 1)
    assert "gain +0.4%, not beyond doubt" in text
    wrong = verdict("incorrect", "typical error 1", purpose="promote")
    assert "confirming it failed: incorrect" in feedback.verdict(
        candidate(), verdict("correct"), wrong, None, None, LEFT, 1
    )


@pytest.mark.parametrize("status", ["compile_error", "incorrect", "timeout", "crashed"])
def test_it_never_passes_the_limit_and_keeps_its_ending(status: Status) -> None:
    screen = verdict(status, "r" * 5000, ("e" * 5000, "f" * 5000))
    text = feedback.verdict(candidate(123456), screen, None, None, improvement(3), LEFT, 99)
    assert len(text) <= feedback.LIMIT
    assert text.endswith(f"{LEFT}.")
    assert status in text


def test_errors_carry_their_place_and_a_known_fix() -> None:
    error = "main.cpp:4:12: error: 'rows' was not declared in this scope\n    4 | for (; i < rows;)\n      |   ^~~~"
    screen = verdict("compile_error", "the build failed", (error,))
    text = feedback.verdict(candidate(), screen, None, None, None, LEFT, 1)
    assert "main.cpp:4:12" in text
    assert "i < rows" in text
    assert "try: declare it" in text


def test_control_sequences_of_a_candidate_do_not_reach_the_model() -> None:
    screen = verdict("runtime_error", "\x1b[2J\x07boom", ("\x1b]0;title\x07bad",))
    text = feedback.verdict(candidate(), screen, None, None, None, LEFT, 1)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "boom" in text
