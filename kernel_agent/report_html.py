"""A report as one HTML file that needs nothing else: plotly.js is inlined from the installed package."""

from __future__ import annotations

import html
import importlib.resources
import json

import plotly.graph_objects as go

from kernel_agent.figures import best_so_far, statuses
from kernel_agent.plain_text import plain_line
from kernel_agent.report import ProblemReport, Report
from kernel_agent.report_text import duration, headline, provenance_line, scored, sums

_STYLE = """
:root { color-scheme: light dark; --line: #d5d9df; --soft: #5b6470; --page: #ffffff; --ink: #1b1f24; }
@media (prefers-color-scheme: dark) { :root { --line: #3a414b; --soft: #a5afbb; --page: #14171b; --ink: #e8ebee; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 78rem; padding: 1rem;
  background: var(--page); color: var(--ink); }
.soft { color: var(--soft); }
.figure { height: 28rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; width: 100%; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .4rem .5rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; }
"""

_SCRIPT = """
const ink = getComputedStyle(document.body).color;
const line = getComputedStyle(document.documentElement).getPropertyValue("--line").trim();
for (const place of document.querySelectorAll(".figure")) {
  const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
  const axis = { gridcolor: line, zerolinecolor: line };
  figure.layout.font = { color: ink };
  Object.assign(figure.layout.xaxis, axis);
  Object.assign(figure.layout.yaxis, axis);
  Plotly.newPlot(place, figure.data, figure.layout, { responsive: true, displaylogo: false });
}
"""

_COLUMNS = (
    "problem",
    "speedup",
    "95% interval",
    "over torch.compile",
    "soundness",
    "sessions",
    "steps",
    "candidates",
    "compactions",
    "tokens",
    "cost",
    "time",
)


def as_html(report: Report) -> str:
    """A complete page: summary, curves, the table and the verdicts. About 5 MB, nearly all of it plotly.js."""
    counts = {problem.problem: problem.statuses for problem in report.problems}
    rows = "".join(f"<tr>{''.join(f'<td>{_text(c)}</td>' for c in _cells(p))}</tr>" for p in report.problems)
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(report.name)}</title><style>{_STYLE}</style></head><body><main>",
            f"<h1>{_text(report.name)}</h1><p>{_text(headline(report))}</p>",
            f'<p class="soft">{_text(provenance_line(report))}<br>{_text(sums(report))}</p>',
            "<h2>Best confirmed speedup</h2>",
            '<div class="figure" data-figure="curves"></div>',
            f'<div class="scroll"><table><thead><tr>{"".join(f"<th>{name}</th>" for name in _COLUMNS)}</tr></thead>',
            f"<tbody>{rows}</tbody></table></div>",
            "<h2>Candidates by verdict</h2>",
            '<div class="figure" data-figure="statuses"></div>',
            f'<p class="soft">Made {report.at:%Y-%m-%d %H:%M} UTC by kernel-agent.</p></main>',
            _data("curves", best_so_far(report.curves)),
            _data("statuses", statuses(counts)),
            f"<script>{plotly_js()}</script><script>{_SCRIPT}</script></body></html>",
        )
    )


def plotly_js() -> str:
    """plotly.js as the installed plotly package ships it."""
    return (importlib.resources.files("plotly") / "package_data" / "plotly.min.js").read_text("utf-8")


def _data(name: str, figure: go.Figure) -> str:
    # "</script>" inside a JSON string would end the element: "<" is written as its escape.
    text = json.dumps(json.loads(figure.to_json())).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def _cells(problem: ProblemReport) -> tuple[str, ...]:
    return (
        problem.problem,
        *scored(problem),
        f"{problem.sessions:,}",
        f"{problem.steps:,}",
        f"{problem.candidates:,}",
        f"{problem.compactions:,}",
        f"{problem.tokens:,}",
        f"${problem.cost_usd:,.2f}",
        duration(problem.wall_seconds),
    )


def _text(text: str) -> str:
    return html.escape(plain_line(text))
