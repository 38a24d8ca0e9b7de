"""``problems list`` and ``problems show``."""

from __future__ import annotations

from typing import Annotated

import typer

from kernel_agent.cli import invocation
from kernel_agent.cli.options import Json, Sizes
from kernel_agent.cli.output import console, print_json, print_text


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
