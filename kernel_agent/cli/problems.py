"""``problems list``, ``problems show`` and ``problems probe``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_agent.cli import invocation
from kernel_agent.cli.options import Isolation, Json, Lane, Sizes
from kernel_agent.cli.output import console, print_json, print_text

if TYPE_CHECKING:
    from evaluator.soundness_model import SoundnessReport
    from problems.catalog import Catalog
    from problems.model import Problem, SizeOverride


def list_problems(
    context: typer.Context,
    pattern: Annotated[
        str | None, typer.Argument(help="An id, a folder, a glob, a range (kernelbench/level3/1-10), or several.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the problems: bundled ones and those of a KernelBench checkout."""
    from kernel_agent.cli.documents import ProblemDocument, ProblemsDocument

    found = invocation.of(context).catalog().list(pattern)
    if as_json:
        print_json(ProblemsDocument(problems=tuple(ProblemDocument.of(problem) for problem in found)))
        return
    from rich.table import Table
    from rich.text import Text

    from kernel_agent.plain_text import plain_line

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("problem", overflow="fold", no_wrap=True)
    table.add_column("title", overflow="fold")
    for problem in found:
        table.add_row(Text(plain_line(problem.id)), Text(plain_line(problem.title)))
    console().print(table)


def show(
    context: typer.Context,
    problem: Annotated[str, typer.Argument(metavar="ID|FILE", help="A problem's id, or a file in its format.")],
    sizes: Sizes = None,
    as_json: Json = False,
) -> None:
    """Show a problem: its sizes, its hash and its source."""
    from kernel_agent.cli.documents import ProblemDocument, ProblemSourceDocument

    found = invocation.of(context).catalog().resolve(problem, invocation.overrides(sizes))
    document = ProblemDocument.of(found)
    if as_json:
        print_json(ProblemSourceDocument(problem=document, source=found.source))
        return
    changed = {override.name for override in found.overrides}
    sizes_text = ", ".join(f"{c.name}={c.value}{' (set)' if c.name in changed else ''}" for c in document.constants)
    head = f"{found.id}: {found.title}\nsha256     {found.sha256}\nconstants  {sizes_text or 'none'}\n"
    print_text(f"{head}\n{found.source}")


def probe(
    context: typer.Context,
    problem: Annotated[str, typer.Argument(metavar="ID|PATTERN|FILE", help="Problems as `problems list` names them.")],
    sizes: Sizes = None,
    lane: Lane = "fp32",
    isolation: Isolation = "jail",
    again: Annotated[bool, typer.Option("--again", help="Probe anew what was probed before.")] = False,
    as_json: Json = False,
) -> None:
    """Is a problem able to tell right from wrong? Exits with 0 whenever there is a verdict, whatever it says."""
    from evaluator.soundness import probe as probe_one
    from kernel_agent.cli.documents import SoundnessDocument
    from kernel_agent.cli.isolation import require_jail
    from kernel_agent.cli.soundness_text import report_line, report_text

    run = invocation.of(context)
    chosen = _named(run.catalog(), problem, invocation.overrides(sizes))
    require_jail(isolation)
    folder = run.prepared().soundness_cache
    reports: list[SoundnessReport] = []
    for one in chosen:
        if not as_json and sys.stderr.isatty():
            print(f"probing {one.id} …", file=sys.stderr)
        report = probe_one(one, folder, lane=lane, isolation=isolation, again=again)
        reports.append(report)
        if not as_json:
            # Each as soon as it is there: fifty of them take most of an hour.
            print_text(report_text(report) if len(chosen) == 1 else report_line(report))
            sys.stdout.flush()
    if as_json:
        print_json(SoundnessDocument(reports=tuple(reports)))


def _named(catalog: Catalog, text: str, overrides: tuple[SizeOverride, ...]) -> tuple[Problem, ...]:
    """What an id, a pattern or a file's path means, each at the sizes asked for. Raises ProblemError."""
    path = Path(text).expanduser()
    if text not in catalog.ids() and (path.suffix == ".py" or path.is_file()):
        return (catalog.from_file(path, overrides),)
    found = catalog.list(text)
    return found if not overrides else tuple(catalog.get(one.id, overrides) for one in found)
