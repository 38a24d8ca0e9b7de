"""``demo``: a whole campaign on this machine's CPU, without a key and without the network."""

from __future__ import annotations

import time

import typer

from kernel_agent.cli import invocation
from kernel_agent.cli.options import Isolation, Json
from kernel_agent.cli.output import console, print_json

SECONDS_EXPECTED = "about four minutes on two cores"


def demo(context: typer.Context, isolation: Isolation = "jail", as_json: Json = False) -> None:
    """Optimize two bundled problems, without key or network.

    The answers are played from recordings; every measurement is real.
    """
    from kernel_agent.campaign import chosen_problems, create, resolve_settings
    from kernel_agent.cli.documents import DemoDocument
    from kernel_agent.cli.foreground import conclude, leave, run_watched
    from kernel_agent.cli.isolation import require_jail
    from kernel_agent.cli.launch import ENGINE_BUSY_SECONDS, check_recordings, plan
    from kernel_agent.cli.results import export_text
    from kernel_agent.demo import MODEL
    from kernel_agent.demo import demo as packaged_demo
    from kernel_agent.export import export_campaign
    from kernel_agent.models import resolve_model
    from problems.catalog import Catalog

    started = time.monotonic()
    run = invocation.of(context)
    settings = run.prepared()
    packaged = packaged_demo()
    request = packaged.request.model_copy(update={"isolation": isolation})
    problems = chosen_problems(Catalog(), request.problems, ())
    resolved = resolve_settings(request, problems, resolve_model(settings, MODEL, None, None))
    check_recordings(resolved, problems)
    require_jail(isolation)
    out = console(stderr=as_json)
    with run.store(ENGINE_BUSY_SECONDS) as store:
        campaign = create(store, resolved, problems)
        out.print(plan(resolved, campaign.id), soft_wrap=True)
        out.print("Where the answers come from; what is measured is measured now, on this machine:")
        for line in packaged.provenance:
            out.print(f"  {line}", soft_wrap=True)
        out.print(f"This takes {SECONDS_EXPECTED}.")
        campaign = run_watched(store, settings, campaign, 1, out)
        report = conclude(store, campaign, out, run.words())
        leave(campaign)
        exported = export_campaign(store, campaign.id, settings.home / "exports" / campaign.id)
    seconds = time.monotonic() - started
    out.print()
    for problem in report.problems:
        counts = ", ".join(f"{n} {status}" for status, n in sorted(problem.statuses.items()))
        out.print(f"{problem.problem}: {counts}", soft_wrap=True)
    out.print(export_text(exported), soft_wrap=True)
    out.print(f"{seconds:.0f} s in all. Open the dashboard with: {run.words()} serve", soft_wrap=True)
    if as_json:
        print_json(DemoDocument.of(report, exported.directory, seconds))
