"""A report as text: a terminal table, Markdown, CSV and JSON. Problem names are untrusted and cleaned for each."""

from __future__ import annotations

import csv
import io
import re

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_agent.plain_text import plain_line
from kernel_agent.report import ProblemReport, Report

COLUMNS = (
    "problem",
    "speedup",
    "95% interval",
    "over compile",
    "soundness",
    "steps",
    "candidates",
    "correct",
    "compactions",
    "tokens",
    "cost",
)


def as_table(report: Report) -> RenderableType:
    """For a terminal, through rich."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if number == 0 else "right", overflow="fold")
    for problem in report.problems:
        # Text, not str: a problem's name may look like rich's markup.
        table.add_row(*(Text(cell) for cell in _cells(problem)))
    return Group(Text(headline(report), style="bold"), Text(provenance_line(report)), "", table, "", Text(sums(report)))


def as_markdown(report: Report) -> str:
    """A heading, the summary and one table row per problem."""
    lines = [f"# {_markdown(report.name)}", "", *_paragraphs(report), "", _row(COLUMNS)]
    lines.append(_row(("---", *["---:"] * (len(COLUMNS) - 1))))
    lines += [_row(tuple(_markdown(cell) for cell in _cells(problem))) for problem in report.problems]
    return "\n".join(lines) + "\n"


def as_csv(report: Report) -> str:
    """One header line and one line per problem; numbers in full, verdict counts as ``status=n`` pairs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    fields = [
        "problem",
        "speedup",
        "speedup_low",
        "speedup_high",
        "speedup_compile",
        "speedup_lane",
        "soundness",
        "sessions",
        "steps",
        "candidates",
        "compactions",
        "tokens",
        "cost_usd",
        "wall_seconds",
    ]
    writer.writerow(["campaign", *fields, "statuses", "provenance", "price"])
    for problem in report.problems:
        values = [getattr(problem, field) for field in fields]
        counts = " ".join(f"{status}={n}" for status, n in sorted(problem.statuses.items()))
        row = [report.campaign_id, *values, counts, report.provenance, report.price_name]
        writer.writerow([_csv_cell(value) for value in row])
    return out.getvalue()


def as_json(report: Report) -> str:
    """The whole report, curves included."""
    return report.model_dump_json(indent=2)


def headline(report: Report) -> str:
    """Name, state and the figure of merit on one line."""
    totals = report.totals
    mean = report.geometric_mean_speedup
    score = f", geometric mean of the solved {mean:.2f}×" if mean is not None else ""
    return plain_line(
        f"{report.name} ({report.campaign_id}), {report.state}: "
        f"{totals.solved} of {totals.problems} problems solved, {totals.faster} faster{score}"
    )


def provenance_line(report: Report) -> str:
    """Conditions of the numbers; recorded or scripted replies are named as such."""
    text = f"model {report.model}, compaction {report.compaction}, target {report.target}, lane {report.lane}"
    if report.provenance != "live":
        text += f"; model replies are {report.provenance}, measurements are real"
    return plain_line(text)


def sums(report: Report) -> str:
    """What it took in all."""
    totals = report.totals
    return plain_line(
        f"{totals.steps:,} steps, {totals.candidates:,} candidates, {totals.compactions:,} compactions, "
        f"{totals.tokens:,} tokens, ${totals.cost_usd:,.2f} at {report.price_name} prices, "
        f"{duration(totals.wall_seconds)} of session time"
    )


def duration(seconds: float) -> str:
    """``2 h 05 min``, ``3 min 20 s`` or ``42 s``."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def _paragraphs(report: Report) -> list[str]:
    return [_markdown(headline(report)), "", _markdown(provenance_line(report)), "", _markdown(sums(report))]


def scored(problem: ProblemReport) -> tuple[str, str, str, str]:
    """Speedup, its interval, the speedup over torch.compile, and whether the problem can tell right from wrong."""
    if problem.speedup is None:
        return "–", "–", "–", "–"
    compiled = f"{problem.speedup_compile:.2f}×" if problem.speedup_compile is not None else "not measured"
    if problem.speedup_lane is not None:
        compiled += f", {problem.speedup_lane:.2f}× in the lane"
    interval = f"{problem.speedup_low:.2f}–{problem.speedup_high:.2f}"
    return f"{problem.speedup:.2f}×", interval, compiled, problem.soundness or "not probed"


def _cells(problem: ProblemReport) -> tuple[str, ...]:
    return (
        plain_line(problem.problem),
        *scored(problem),
        f"{problem.steps:,}",
        f"{problem.candidates:,}",
        f"{problem.statuses.get('correct', 0):,}",
        f"{problem.compactions:,}",
        f"{problem.tokens:,}",
        f"${problem.cost_usd:,.2f}",
    )


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*\[\]<>|#])", r"\\\1", plain_line(text))


def _csv_cell(value: object) -> object:
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    text = plain_line(value)
    # A spreadsheet runs a cell that starts like a formula.
    return "'" + text if text[:1] in ("=", "+", "-", "@") else text
