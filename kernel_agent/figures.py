"""Figures as pure functions of data: the pages, the HTML report and the documentation draw the same ones.

Labels are untrusted text and plotly reads a small HTML inside text, so every label is escaped here.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from pydantic import BaseModel, ConfigDict

from kernel_agent.model import CurvePoint
from kernel_agent.plain_text import plain_line

PALETTE = (
    "#3b7dd8",
    "#d9731a",
    "#1f9d74",
    "#c2479e",
    "#8a6fd1",
    "#b08900",
    "#2a9fbf",
    "#d1495b",
    "#6b8e23",
    "#7f7f7f",
)
"""Curve colours, each at least 3:1 against the light and the dark page; colour n is also ``.swatch-n`` of the style
sheet."""
DASHES = ("solid", "dash", "dot", "dashdot")
"""A colour that comes round again comes with the next dash, so that no two of 40 curves look alike."""
LEGEND_LIMIT = 12
"""More curves than this and the legend would be larger than the plot; the table beside it names them."""

MIN_TICKS = 4
_LADDERS = ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
"""Rungs of one decade, coarse to fine."""
_STEPS = (0.5, 0.2, 0.1, 0.05)
"""Even steps, for less than a decade around 1."""

_HOVER = (
    "<b>%{fullData.name}</b><br>step %{x}: %{y:.2f}× "
    "(95%: %{customdata[0]:.2f}–%{customdata[1]:.2f})<br>"
    "attempt %{customdata[2]} of step %{customdata[3]}, $%{customdata[4]:.2f}<extra></extra>"
)


class NamedCurve(BaseModel):
    """Best-so-far of one session, ready to draw."""

    model_config = ConfigDict(frozen=True)

    label: str
    points: tuple[CurvePoint, ...]
    """Improvements in order of step; may be empty."""
    last_step: int
    """Newest step of the session: the last best holds up to here."""


def style_of(position: int) -> tuple[int, str]:
    """Palette index and dash of the curve at ``position``."""
    return position % len(PALETTE), DASHES[position // len(PALETTE) % len(DASHES)]


def best_so_far(curves: Sequence[NamedCurve]) -> go.Figure:
    """Best confirmed speedup over steps, one stair per curve, on a logarithmic axis.

    A stair starts at its first confirmed result and holds its last one up to ``last_step``; a curve without points
    draws nothing and keeps its colour. The interval of each result is in the hover text.
    """
    speedups = [point.speedup for curve in curves for point in curve.points]
    ticks = ratio_ticks(min([1.0, *speedups]), max([1.0, *speedups]))
    figure = go.Figure(
        layout=_layout(len(curves) <= LEGEND_LIMIT).update(
            xaxis={"title": {"text": "step"}, "rangemode": "tozero", "zeroline": False, "automargin": True},
            yaxis={
                "title": {"text": "speedup over the reference"},
                "type": "log",
                "tickvals": ticks,
                "ticktext": [f"{tick:g}×" for tick in ticks],
                "automargin": True,
            },
        )
    )
    for position, curve in enumerate(curves):
        figure.add_trace(_stair(curve, position))
    figure.add_hline(y=1, line={"color": "#808080", "width": 1, "dash": "dot"})
    if not speedups:
        # Without data plotly's own choice on a logarithmic axis runs from 0.1 to a million.
        figure.update_xaxes(range=[0, max([10, *(curve.last_step for curve in curves)])])
        figure.update_yaxes(range=[math.log10(0.8), math.log10(2.5)])
    return figure


def ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios for a logarithmic axis from ``low`` (0 < low <= 1) to ``high`` (>= 1), at least four of them.

    plotly's own choice labels most of them with a bare digit (0.9 as ``9``).
    """
    low, high = low / 1.1, high * 1.1
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices = [[rung * 10.0**decade for decade in decades for rung in ladder] for ladder in _LADDERS]
    choices += [[step * n for n in range(math.ceil(high / step) + 1)] for step in _STEPS]
    inside = [[round(tick, 12) for tick in ticks if low <= tick <= high] for ticks in choices]
    return next((ticks for ticks in inside if len(ticks) >= MIN_TICKS), inside[-1])


def statuses(counts: Mapping[str, Mapping[str, int]]) -> go.Figure:
    """Candidates by verdict, one horizontal bar per label: ``counts[label][status]``."""
    names = sorted({status for row in counts.values() for status in row}, key=lambda name: (name != "correct", name))
    labels = [_plain(label) for label in counts]
    figure = go.Figure(
        layout=_layout(legend=True).update(
            barmode="stack",
            legend={"traceorder": "normal"},
            xaxis={"title": {"text": "candidates"}, "rangemode": "tozero"},
            yaxis={"automargin": True, "autorange": "reversed", "type": "category"},
        )
    )
    for position, name in enumerate(names):
        # Correct is the green of the palette; the other verdicts take the rest in order.
        colour = PALETTE[2] if name == "correct" else [c for c in PALETTE if c != PALETTE[2]][position % 9]
        values = [row.get(name, 0) for row in counts.values()]
        figure.add_trace(
            go.Bar(name=_plain(name.replace("_", " ")), y=labels, x=values, orientation="h", marker={"color": colour})
        )
    return figure


def _stair(curve: NamedCurve, position: int) -> go.Scatter:
    colour, dash = style_of(position)
    points = list(curve.points)
    steps = [point.step for point in points]
    if points and curve.last_step > points[-1].step:
        points.append(points[-1])
        steps.append(curve.last_step)
    return go.Scatter(
        name=_plain(curve.label),
        x=steps,
        y=[point.speedup for point in points],
        customdata=[[p.speedup_low, p.speedup_high, p.attempt, p.step, p.usd] for p in points],
        mode="lines+markers",
        line={"shape": "hv", "width": 2, "color": PALETTE[colour], "dash": dash},
        # The held end is no result of its own: it gets no marker.
        marker={"line": {"width": 0}, "size": [6.0] * len(curve.points) + [0.0] * (len(points) - len(curve.points))},
        hovertemplate=_HOVER,
        showlegend=True,
        visible=True,
    )


def _layout(legend: bool) -> go.Layout:
    return go.Layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 56, "r": 16, "t": 16, "b": 48},
        hovermode="closest",
        showlegend=legend,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        # A constant revision keeps the reader's zoom when new data arrive.
        uirevision="keep",
    )


def _plain(text: str) -> str:
    """``text`` so that plotly shows it letter by letter: its pseudo-HTML escaped, control characters gone."""
    return html.escape(plain_line(text), quote=False)
