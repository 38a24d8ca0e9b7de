"""``report``, ``export`` and ``serve``: what a campaign achieved, as text, as files, as pages."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kernel_agent.cli import invocation
from kernel_agent.cli.options import CampaignId, Json
from kernel_agent.cli.output import console, print_json, print_text

if TYPE_CHECKING:
    from kernel_agent.export import Exported
    from kernel_agent.report import Report

DASHBOARD_GROUP = "kernel_agent.dashboard"
Format = Literal["table", "md", "csv", "json", "html"]


def report(
    context: typer.Context,
    campaign: CampaignId,
    format: Annotated[Format, typer.Option(help="How it is written.")] = "table",
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to; stdout without.")] = None,
    as_json: Json = False,
) -> None:
    """Say what a campaign achieved and what it took."""
    from kernel_agent.report import campaign_report

    with invocation.of(context).store() as store:
        made = campaign_report(store, campaign)
    chosen: Format = "json" if as_json else format
    if output is not None:
        _write(output, _text(made, chosen))
        print(f"wrote {output}", file=sys.stderr)
    elif chosen == "table":
        from kernel_agent.report_text import as_table

        console().print(as_table(made))
    else:
        sys.stdout.write(_text(made, chosen).rstrip("\n") + "\n")


def export(
    context: typer.Context,
    campaign: CampaignId,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an earlier export of this one.")],
    as_json: Json = False,
) -> None:
    """Write each problem's best kernel as a folder that stands alone.

    With a script that checks and times it again.
    """
    from kernel_agent.export import export_campaign

    with invocation.of(context).store() as store:
        exported = export_campaign(store, campaign, directory)
    if as_json:
        print_json(exported)
    else:
        print_text(export_text(exported))


def export_text(exported: Exported) -> str:
    """The folders, and how to check them."""
    lines = [f"exported to {exported.directory}"]
    for kernel in exported.kernels:
        interval = f"{kernel.speedup_low:.2f} to {kernel.speedup_high:.2f}"
        lines.append(f"  {kernel.folder.name}  {kernel.speedup:.2f}× ({interval})")
    lines += [f"  not exported: {left.problem}: {left.reason}" for left in exported.not_exported]
    if exported.kernels:
        lines.append(f"check one (this runs generated code): python {exported.kernels[0].folder / 'check.py'}")
    return "\n".join(lines)


def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: any free one.")] = 8765,
) -> None:
    """Serve the dashboard and its API until interrupted.

    KERNEL_AGENT_TOKEN fixes the token, for programs.
    """
    from kernel_agent.errors import KernelAgentError

    found = importlib.metadata.entry_points(group=DASHBOARD_GROUP, name="serve")
    if not found:
        raise KernelAgentError(
            f"no dashboard is installed (entry point group {DASHBOARD_GROUP}); reinstall kernel-agent"
        )
    run = invocation.of(context)
    run_dashboard = next(iter(found)).load()
    with run.store() as store:
        run_dashboard(store, host, port, run.settings().token, say=_say_now)


def _say_now(text: str) -> None:
    """Flushed, since whoever started us through a pipe waits for the URL."""
    print(text, flush=True)


def _text(made: Report, format: Format) -> str:
    from kernel_agent import report_text

    if format == "html":
        from kernel_agent.report_html import as_html

        return as_html(made)
    if format == "table":
        from rich.console import Console

        from kernel_agent.cli.output import PIPE_WIDTH

        plain = Console(width=PIPE_WIDTH, highlight=False, markup=False, color_system=None)
        with plain.capture() as captured:
            plain.print(report_text.as_table(made))
        return captured.get()
    writers = {"md": report_text.as_markdown, "csv": report_text.as_csv, "json": report_text.as_json}
    return writers[format](made)


def _write(path: Path, text: str) -> None:
    from kernel_agent.errors import UsageError

    try:
        path.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); name another file with --output") from error
