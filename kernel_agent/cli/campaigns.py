"""``status``, ``stop`` and ``resume``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_agent.cli import invocation
from kernel_agent.cli.options import CampaignId, Json, MaxCost, MaxCostPerSession, MaxHours, Parallel, Record, Steps
from kernel_agent.cli.output import console, print_json, print_text

if TYPE_CHECKING:
    from kernel_agent.model import Campaign
    from kernel_agent.settings import Settings
    from kernel_agent.store.repository import Store

WATCH_SECONDS = 0.5
UNDER_WAY = ("created", "running", "stopping")


def status(
    context: typer.Context,
    campaign: Annotated[
        str | None, typer.Argument(metavar="[CAMPAIGN]", help="Id, prefix or name; all without.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it until it ends.")] = False,
    as_json: Json = False,
) -> None:
    """Show how campaigns stand."""
    from kernel_agent.cli.documents import CampaignsDocument, StatusDocument
    from kernel_agent.errors import UsageError

    if watch and (as_json or campaign is None):
        raise UsageError("--watch shows one campaign to a person: name the campaign, and leave --json away")
    with invocation.of(context).store() as store:
        if campaign is None:
            found = store.campaigns()
            if as_json:
                print_json(CampaignsDocument(campaigns=tuple(found)))
            else:
                _print_campaigns(found)
            return
        chosen = store.campaign(campaign)
        if as_json:
            print_json(StatusDocument(campaign=chosen, sessions=tuple(store.sessions(chosen.id))))
            return
        if watch:
            _follow(store, chosen)
        from kernel_agent.watch import progress

        console().print(progress(store.campaign(chosen.id), store.sessions(chosen.id)))


def stop(context: typer.Context, campaign: CampaignId, as_json: Json = False) -> None:
    """Ask a running campaign to stop.

    No further model call is made, and everything so far is kept.
    """
    from kernel_agent.cli.documents import StatusDocument
    from kernel_agent.cli.ownership import settle_if_abandoned
    from kernel_agent.errors import UsageError

    run = invocation.of(context)
    with run.store() as store:
        chosen = store.campaign(campaign)
        if chosen.state == "created":
            raise UsageError(
                f"campaign {chosen.id} is not running: it never started; `{run.words()} resume {chosen.id}` starts it"
            )
        chosen = store.set_campaign_state(chosen.id, "stopping", "stopped on request")
        if settle_if_abandoned(store, chosen):
            chosen = store.set_campaign_state(chosen.id, "stopped", "its engine had gone")
        if as_json:
            print_json(StatusDocument(campaign=chosen, sessions=tuple(store.sessions(chosen.id))))
            return
    if chosen.state == "stopped":
        print_text(f"Nothing ran: the engine of {chosen.id} had gone. It is marked as stopped.")
    else:
        print_text(f"Campaign {chosen.id} is stopping: its sessions end before their next model call.")
    print_text(f"Go on with: {run.words()} resume {chosen.id}")


def resume(
    context: typer.Context,
    campaign: CampaignId,
    steps: Steps = None,
    max_cost: MaxCost = None,
    max_cost_per_session: MaxCostPerSession = None,
    max_hours: MaxHours = None,
    parallel: Parallel = 1,
    record: Record = None,
    as_json: Json = False,
) -> None:
    """Go on with a campaign that stopped, failed or was killed.

    Under its own caps, or under those given here.
    """
    from kernel_agent.cli.foreground import conclude, keep_recordings, leave, run_watched
    from kernel_agent.cli.isolation import require_jail
    from kernel_agent.cli.launch import ENGINE_BUSY_SECONDS, check_recording_folder, plan
    from kernel_agent.cli.ownership import require_free
    from kernel_agent.cli.reopening import raise_caps, require_work

    run = invocation.of(context)
    settings = run.prepared()
    check_recording_folder(record)
    out = console(stderr=as_json)
    with run.store(ENGINE_BUSY_SECONDS) as store:
        chosen = store.campaign(campaign)
        _check_model(settings, chosen)
        require_jail(chosen.settings.isolation)
        require_free(store, chosen)
        chosen = raise_caps(store, chosen, steps, max_cost, max_cost_per_session, max_hours)
        require_work(store, chosen, run.words())
        out.print(plan(chosen.settings, chosen.id), soft_wrap=True)
        chosen = run_watched(store, settings, chosen, parallel, out)
        if record is not None:
            keep_recordings(store, chosen, record, lambda text: out.print(text, soft_wrap=True))
        report = conclude(store, chosen, out, run.words())
    if as_json:
        print_json(report)
    leave(chosen)


def _check_model(settings: Settings, campaign: Campaign) -> None:
    """The key and the endpoint may have gone since the launch. Raises UsageError."""
    from kernel_agent.models import resolve_model

    s = campaign.settings
    price = f"{s.price.input_usd},{s.price.cached_usd},{s.price.output_usd}"
    resolve_model(settings, s.model, s.base_url, price, s.api_key_env)


def _follow(store: Store, campaign: Campaign) -> None:
    from kernel_agent.watch import watch

    with watch(store, campaign.id, console()) as view:
        while store.campaign(campaign.id).state in UNDER_WAY:
            time.sleep(WATCH_SECONDS)
            view.tick()


def _print_campaigns(campaigns: list[Campaign]) -> None:
    from rich.table import Table
    from rich.text import Text

    from kernel_agent.plain_text import plain_line

    if not campaigns:
        print_text("There are no campaigns yet. Start one with `kernel-agent launch`, or see `kernel-agent demo`.")
        return
    table = Table("campaign", "state", "created (UTC)", "spent", "name", box=None, pad_edge=False, header_style="bold")
    for campaign in campaigns:
        created = f"{campaign.created_at:%Y-%m-%d %H:%M}"
        name = plain_line(campaign.settings.name)
        table.add_row(*map(Text, (campaign.id, campaign.state, created, f"${campaign.spent_usd:,.4f}", name)))
    console().print(table)
