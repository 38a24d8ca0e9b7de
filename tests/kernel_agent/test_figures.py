"""Figures: what is drawn is what the data say."""

from __future__ import annotations

import json

import pytest

from kernel_agent.figures import LEGEND_LIMIT, PALETTE, NamedCurve, best_so_far, ratio_ticks, statuses, style_of
from kernel_agent.model import CurvePoint


def point(step: int, speedup: float) -> CurvePoint:
    return CurvePoint(
        step=step,
        attempt=step + 1,
        usd=0.25,
        seconds=60.0,
        speedup=speedup,
        speedup_low=speedup * 0.98,
        speedup_high=speedup * 1.02,
    )


def test_a_curve_is_a_stair_that_holds_its_last_result() -> None:
    figure = best_so_far([NamedCurve(label="attention", points=(point(3, 1.2), point(9, 1.9)), last_step=20)])
    (trace,) = figure.data
    assert trace.line.shape == "hv"
    assert list(trace.x) == [3, 9, 20]
    assert list(trace.y) == [1.2, 1.9, 1.9]
    assert list(trace.marker.size) == [6.0, 6.0, 0.0]
    assert trace.customdata[1][:2] == [1.9 * 0.98, 1.9 * 1.02]
    assert "95%" in trace.hovertemplate
    assert figure.layout.yaxis.type == "log"


def test_a_result_of_the_newest_step_is_drawn_once() -> None:
    (trace,) = best_so_far([NamedCurve(label="a", points=(point(3, 1.2),), last_step=3)]).data
    assert list(trace.x) == [3]


def test_a_session_without_a_result_keeps_its_place() -> None:
    figure = best_so_far(
        [NamedCurve(label="a", points=(), last_step=40), NamedCurve(label="b", points=(), last_step=2)]
    )
    assert [trace.name for trace in figure.data] == ["a", "b"]
    assert list(figure.layout.xaxis.range) == [0, 40]
    assert figure.layout.yaxis.range is not None


def test_labels_cannot_speak_plotly_s_html() -> None:
    label = "<a href='https://x'>\x1b[31mred\x1b[0m\u202e</a>"
    (trace,) = best_so_far([NamedCurve(label=label, points=(point(1, 2.0),), last_step=1)]).data
    assert trace.name == "&lt;a href='https://x'&gt;red&lt;/a&gt;"


def test_forty_curves_all_look_different() -> None:
    assert len({style_of(n) for n in range(40)}) == 40
    curves = [NamedCurve(label=str(n), points=(point(n, 1.5),), last_step=50) for n in range(40)]
    figure = best_so_far(curves)
    assert len({(trace.line.color, trace.line.dash) for trace in figure.data}) == 40
    assert figure.layout.showlegend is False
    assert best_so_far(curves[:LEGEND_LIMIT]).layout.showlegend is True


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1.0, 1.0, [0.95, 1.0, 1.05, 1.1]),
        (1.0, 1.5, [1.0, 1.2, 1.4, 1.6]),
        (0.6, 6.3, [0.7, 1.0, 1.5, 2.0, 3.0, 5.0]),
        (1.0, 20.0, [1.0, 2.0, 5.0, 10.0, 20.0]),
        (0.01, 1000.0, [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]),
    ],
)
def test_ticks_are_few_and_round(low: float, high: float, ticks: list[float]) -> None:
    assert ratio_ticks(low, high) == ticks


def test_a_figure_is_json() -> None:
    figure = best_so_far([NamedCurve(label="a", points=(point(1, 2.0),), last_step=5)])
    assert json.loads(figure.to_json())["data"][0]["y"] == [2.0, 2.0]


def test_statuses_stack_and_put_correct_first() -> None:
    figure = statuses({"one": {"incorrect": 2, "correct": 5}, "two": {"compile_error": 1}})
    assert [trace.name for trace in figure.data] == ["correct", "compile error", "incorrect"]
    assert [list(trace.x) for trace in figure.data] == [[5, 0], [0, 1], [2, 0]]
    colours = [trace.marker.color for trace in figure.data]
    assert colours[0] == PALETTE[2]
    assert len(set(colours)) == 3
