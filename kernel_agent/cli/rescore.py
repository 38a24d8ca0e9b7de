"""``evaluate`` on a folder: every candidate in it judged, beside what an in-process evaluator would have said."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kernel_agent.cli import invocation
from kernel_agent.cli.failures import INTERRUPTED
from kernel_agent.cli.output import console, print_json
from kernel_agent.plain_text import plain_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from evaluator.model import EvaluationSpec
    from kernel_agent.cli.options import IsolationName
    from kernel_agent.rescore import Candidate, Means, Rescored, Rescoring
    from problems.model import Problem

REASON_WIDTH = 60
NONE = "–"
NOT_PROBED = "not probed"


def rescore_folder(
    run: invocation.Invocation,
    folder: Path,
    problem: str | None,
    sizes: list[str] | None,
    isolation: IsolationName,
    request: Callable[[Problem, str], EvaluationSpec],
    *,
    as_json: bool,
) -> None:
    """Judge the folder's candidates and print the table. Exits with 130 after an interrupt, with what was judged."""
    from evaluator.pool import LocalEvaluator
    from kernel_agent.cli.isolation import require_jail
    from kernel_agent.known import Informed
    from kernel_agent.rescore import find, rescore, rescoring

    found = find(folder, run.catalog(), problem, invocation.overrides(sizes))
    require_jail(isolation)
    settings = run.prepared()

    def say(text: str) -> None:
        if not as_json:
            print(plain_line(text), file=sys.stderr, flush=True)

    def spec(candidate: Candidate) -> EvaluationSpec:
        return request(candidate.problem, candidate.source)

    with LocalEvaluator(settings.build_cache, isolation) as evaluator:
        rows = rescore(found.candidates, Informed(evaluator, settings), spec, say)
    made = rescoring(folder, found, rows)
    if as_json:
        print_json(made)
    else:
        out = console()
        out.print(table(made))
        for line in summary(made):
            out.print(plain_line(line), soft_wrap=True)
    if made.not_reached or any(row.claim is None for row in rows):
        raise typer.Exit(INTERRUPTED)


def table(made: Rescoring) -> RenderableType:
    """One row a file: the judge's verdict, the in-process loop's, and why."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("file", "problem", "status", "speedup", "soundness", "in-process", "its speedup", "reason"):
        shown.add_column(name, overflow="fold", justify="right" if "speedup" in name else "left")
    for row in made.rows:
        # Text, not str: a file's name may look like rich's markup.
        shown.add_row(*(Text(plain_line(cell)) for cell in _cells(row)))
    return shown


def summary(made: Rescoring) -> list[str]:
    """The counts, the means, the disagreements and what was not judged, a line each."""
    from evaluator.claim import TOLERANCES

    total = made.summary
    lines = [
        "",
        f"{total.judged} judged. Correct: {total.correct} by the judge, {total.claimed} by the in-process loop "
        f"({total.claimed_loosely} at {TOLERANCES[-1]:g}).",
        f"Geometric mean speedup: {_mean(total.speedup)} by the judge, {_mean(total.claimed_speedup)} by the loop; "
        f"over those that both call correct {_mean(total.agreed_speedup)} and {_mean(total.agreed_claimed_speedup)}.",
    ]
    lines += [f"differs: {row.file}: {_difference(row)}" for row in made.rows if row.differs]
    untransferable = sum(row.evaluation.status == "weights_not_transferable" for row in made.rows)
    if untransferable:
        lines.append(
            f"{untransferable} could not take the reference's weights by name. Kernels written for an evaluator that "
            "seeds both constructors alike are judged by --contract kernelbench."
        )
    lines += [f"left out: {left.file}: {left.reason}" for left in made.left_out]
    if made.not_reached:
        lines.append(f"interrupted; not judged: {', '.join(made.not_reached)}")
    return lines


def _cells(row: Rescored) -> tuple[str, ...]:
    verdict, claim = row.evaluation, row.claim
    speedup = NONE
    if verdict.speedup is not None:
        speedup = f"{verdict.speedup:.2f}× [{verdict.speedup_low:.2f}, {verdict.speedup_high:.2f}]"
    reason = verdict.reason if verdict.status != "correct" else claim.reason if claim is not None else ""
    said = NONE if claim is None else claim.status
    claimed = NONE if claim is None or claim.speedup is None else f"{claim.speedup:.2f}×"
    sound = verdict.soundness or NOT_PROBED
    return row.file, row.problem, verdict.status, speedup, sound, said, claimed, _shortened(reason)


def _difference(row: Rescored) -> str:
    claim = row.claim
    assert claim is not None
    claimed = "" if claim.speedup is None else f" at {claim.speedup:.2f}×"
    return (
        f"{claim.status}{claimed} in process ({claim.reason}); judged {row.evaluation.status}: {row.evaluation.reason}"
    )


def _mean(means: Means) -> str:
    return "none" if means.speedup is None else f"{means.speedup:.2f}× of {means.candidates}"


def _shortened(text: str) -> str:
    line = plain_line(text)
    return line if len(line) <= REASON_WIDTH else line[: REASON_WIDTH - 1] + "…"
