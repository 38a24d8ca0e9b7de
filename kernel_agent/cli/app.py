"""The commands, put together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernel_agent.cli import baseline, campaigns, demo, evaluate, launch, machine, problems, results
from kernel_agent.cli.invocation import Invocation


def build() -> typer.Typer:
    """A fresh application with every command."""
    app = typer.Typer(
        name="kernel-agent",
        help="Optimize GPU kernels over long horizons, with a judge that candidates cannot talk to.",
        no_args_is_help=True,
        add_completion=False,
        # A bug of ours shows Python's own traceback; a user's mistake never gets that far.
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_globals)
    app.command()(demo.demo)
    listing = typer.Typer(name="problems", help="The problems there are.", no_args_is_help=True)
    listing.command("list")(problems.list_problems)
    listing.command("show")(problems.show)
    listing.command("probe")(problems.probe)
    app.add_typer(listing)
    for command in (
        evaluate.evaluate,
        baseline.baseline,
        machine.gpus,
        machine.doctor,
        launch.launch,
        campaigns.status,
        campaigns.stop,
        campaigns.resume,
        results.report,
        results.export,
        results.serve,
    ):
        app.command()(command)
    return app


def _version(asked: bool) -> None:
    if asked:
        import importlib.metadata

        print(f"kernel-agent {importlib.metadata.version('kernel-agent')}")
        raise typer.Exit


def _globals(
    context: typer.Context,
    home: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where everything is kept; otherwise KERNEL_AGENT_HOME.")
    ] = None,
    kernelbench: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A KernelBench checkout, for its problems.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Say the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    del version
    context.obj = Invocation(home, kernelbench)
