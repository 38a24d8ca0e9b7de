from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kernel_agent.curves import best_per_problem, curve, score
from kernel_agent.model import CurvePoint, Improvement, Session, Step, Usage

START = datetime(2026, 1, 1, tzinfo=UTC)


def session(problem: str = "p", best: Improvement | None = None, started: bool = True) -> Session:
    return Session(
        id="s",
        campaign_id="c",
        problem_id=problem,
        problem_sha="0" * 64,
        rollout=0,
        profile="cpu",
        state="running",
        started_at=START if started else None,
        best=best,
    )


def improvement(n: int, step: int, speedup: float, width: float = 0.1) -> Improvement:
    return Improvement(
        session_id="s",
        n=n,
        candidate_id=f"k{n}",
        step=step,
        attempt=n + 1,
        speedup=speedup,
        speedup_low=speedup - width,
        speedup_high=speedup + width,
        reference_ms=1.0,
        candidate_ms=1.0 / speedup,
        at=START + timedelta(seconds=10 * step),
    )


def steps(*usd: float) -> list[Step]:
    return [
        Step(session_id="s", idx=i, call_id=f"m{i}", usage=Usage(), usd=paid, at=START) for i, paid in enumerate(usd)
    ]


def test_a_point_per_improvement_with_what_it_cost() -> None:
    points = curve(session(), [improvement(2, 3, 1.5), improvement(1, 1, 1.25)], steps(1, 2, 4, 8, 16))
    assert points == (
        CurvePoint(step=1, attempt=2, usd=3, seconds=10, speedup=1.25, speedup_low=1.15, speedup_high=1.35),
        CurvePoint(step=3, attempt=3, usd=15, seconds=30, speedup=1.5, speedup_low=1.4, speedup_high=1.6),
    )


def test_a_point_is_not_lifted_to_its_predecessor() -> None:
    assert [p.speedup for p in curve(session(), [improvement(1, 0, 1.5), improvement(2, 1, 1.49)], [])] == [1.5, 1.49]


def test_no_improvement_is_no_curve() -> None:
    assert curve(session(), [], steps(1)) == ()


def test_a_session_without_a_start_counts_no_seconds() -> None:
    (point,) = curve(session(started=False), [improvement(1, 5, 1.5)], [])
    assert (point.seconds, point.usd) == (0.0, 0.0)


def test_a_problems_best_is_its_surest() -> None:
    sure, lucky = improvement(1, 0, 1.9, width=0.1), improvement(1, 0, 2.5, width=1.0)
    best = best_per_problem([session("a", lucky), session("a", sure), session("b"), session("a")])
    assert best == {"a": sure, "b": None}


def test_score() -> None:
    made = score(
        [session("a", improvement(1, 0, 4.0)), session("b"), session("c", improvement(1, 0, 0.5)), session("b")]
    )
    assert (made.problems, made.improved) == (3, 1)
    assert made.geometric_mean == pytest.approx(4 ** (1 / 3))
    assert made.fast_1 == pytest.approx(1 / 3)
    assert made.fast_2 == pytest.approx(1 / 3)


def test_the_score_of_nothing() -> None:
    assert score([]).model_dump() == {
        "problems": 0,
        "improved": 0,
        "geometric_mean": 1.0,
        "fast_1": 0.0,
        "fast_2": 0.0,
    }
