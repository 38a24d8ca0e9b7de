"""``launch``: a campaign from words to its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_agent.cli import invocation
from kernel_agent.cli.options import (
    ApiKeyEnv,
    BaseUrl,
    Isolation,
    Json,
    Lane,
    MaxCost,
    MaxCostPerSession,
    MaxHours,
    Parallel,
    Price,
    Record,
    Sizes,
    above_zero,
)
from kernel_agent.cli.output import console, print_json

if TYPE_CHECKING:
    from kernel_agent.model import CampaignSettings
    from problems.model import Problem

ENGINE_BUSY_SECONDS = 30.0


def launch(
    context: typer.Context,
    problems: Annotated[
        list[str], typer.Option(metavar="PATTERN", help="Ids, folders, globs, ranges or files; repeatable.")
    ],
    model: Annotated[str, typer.Option(metavar="MODEL", help="LiteLLM name, a configured profile, or replay:NAME.")],
    base_url: BaseUrl = None,
    price: Price = None,
    api_key_env: ApiKeyEnv = None,
    steps: Annotated[int, typer.Option(min=1, help="Answered model calls per session.")] = 400,
    compaction: Annotated[str, typer.Option(metavar="STRATEGY", help="cliff:TOKENS, or none.")] = "cliff:128k",
    rollouts: Annotated[int, typer.Option(min=1, help="Sessions per problem.")] = 1,
    max_cost: MaxCost = None,
    max_cost_per_session: MaxCostPerSession = None,
    max_hours: MaxHours = None,
    target_speedup: Annotated[
        float | None, typer.Option(metavar="S", parser=above_zero, help="End a session once this is confirmed.")
    ] = None,
    lane: Lane = "fp32",
    sizes: Sizes = None,
    name: Annotated[str | None, typer.Option(help="What to call it; otherwise made from problem and model.")] = None,
    isolation: Isolation = "jail",
    parallel: Parallel = 1,
    record: Record = None,
    as_json: Json = False,
) -> None:
    """Start a campaign and watch it. Ctrl-C stops it with everything kept; `resume` goes on."""
    from kernel_agent.campaign import LaunchRequest, chosen_problems, create, resolve_settings
    from kernel_agent.cli.foreground import conclude, keep_recordings, leave, run_watched
    from kernel_agent.cli.isolation import require_jail
    from kernel_agent.model import Budget
    from kernel_agent.models import resolve_model

    run = invocation.of(context)
    settings = run.prepared()
    request = LaunchRequest(
        problems=tuple(problems),
        name=name,
        overrides=invocation.overrides(sizes),
        compaction=compaction,
        rollouts=rollouts,
        lane=lane,
        isolation=isolation,
        budget=Budget(steps=steps, max_cost_usd=max_cost_per_session, target_speedup=target_speedup),
        max_cost_usd=max_cost,
        max_hours=max_hours,
    )
    chosen = chosen_problems(run.catalog(), request.problems, request.overrides)
    resolved = resolve_settings(request, chosen, resolve_model(settings, model, base_url, price, api_key_env))
    check_recordings(resolved, chosen)
    check_recording_folder(record)
    require_jail(isolation)
    out = console(stderr=as_json)
    with run.store(ENGINE_BUSY_SECONDS) as store:
        campaign = create(store, resolved, chosen)
        out.print(plan(resolved, campaign.id), soft_wrap=True)
        campaign = run_watched(store, settings, campaign, parallel, out)
        if record is not None:
            keep_recordings(store, campaign, record, lambda text: out.print(text, soft_wrap=True))
        report = conclude(store, campaign, out, run.words())
    if as_json:
        print_json(report)
    leave(campaign)


def plan(settings: CampaignSettings, campaign_id: str) -> str:
    """What will run and what it can cost at most."""
    from kernel_agent.cli.estimate import worst_case_usd
    from kernel_agent.plain_text import plain_line

    count = len(settings.problem_ids) * settings.rollouts
    price = settings.price
    per_million = f"${price.input_usd:g} in, ${price.cached_usd:g} cached, ${price.output_usd:g} out per million tokens"
    lines = [
        f"campaign {campaign_id}: {plain_line(settings.name)}",
        f"  problems   {', '.join(map(plain_line, settings.problem_ids))}",
        f"  sessions   {count} of up to {settings.budget.steps} steps, compaction {settings.compaction}",
        f"  model      {plain_line(settings.model)} ({settings.provenance} replies), {plain_line(price.name)}: "
        f"{per_million}",
        f"  target     {settings.target}, lane {settings.lane}, isolation {settings.isolation}",
        f"  cost       at most ${worst_case_usd(settings):,.2f}, were every context full and nothing cached",
    ]
    return "\n".join(lines)


def check_recordings(settings: CampaignSettings, problems: Sequence[Problem]) -> None:
    """A recording that does not fit its problem is found before any session starts. Raises RecordingError."""
    from kernel_agent.gateway.recording import PREFIX, find_recordings, for_problem

    if settings.model.startswith(PREFIX):
        recordings = find_recordings(settings.model)
        for problem in problems:
            for_problem(recordings, problem)


def check_recording_folder(folder: Path | None) -> None:
    """A place that cannot be written is found before money is spent. Raises UsageError."""
    import tempfile

    from kernel_agent.errors import UsageError

    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"--record {folder}: it cannot be written ({error.strerror}); name another folder") from error
