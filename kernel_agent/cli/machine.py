"""``gpus`` and ``doctor``: what this machine has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from kernel_agent.cli import invocation
from kernel_agent.cli.failures import FAILED
from kernel_agent.cli.options import ApiKeyEnv, BaseUrl, Json, Model, Price
from kernel_agent.cli.output import console, print_json, print_text

if TYPE_CHECKING:
    from kernel_agent.doctor import Check, Probe

SAID_CHARACTERS = 300


def gpus(as_json: Json = False) -> None:
    """List this machine's GPUs and the known profiles."""
    from gpu_profiles.detect import devices
    from gpu_profiles.loader import profiles
    from kernel_agent.cli.documents import GpusDocument

    found, known = devices(), profiles()
    if as_json:
        print_json(GpusDocument(devices=found.devices, reason=found.reason, profiles=known))
        return
    from rich.table import Table

    for device in found.devices:
        gib = device.memory_bytes / (1 << 30)
        print_text(f"GPU {device.index}: {device.name}, {gib:.0f} GiB, compute capability {device.compute_capability}")
    if found.reason:
        print_text(f"GPUs: {found.reason}" if not found.devices else found.reason)
    table = Table("profile", "GPU", "arch", "SMs", "GiB", "GB/s", box=None, pad_edge=False, header_style="bold")
    for profile in known:
        gib = profile.memory_bytes / (1 << 30)
        bandwidth = f"{profile.memory_bandwidth_gb_s:.0f}"
        table.add_row(profile.id, profile.name, profile.arch, str(profile.sms), f"{gib:.0f}", bandwidth)
    console().print(table)


def doctor(
    context: typer.Context,
    model: Model = None,
    base_url: BaseUrl = None,
    price: Price = None,
    api_key_env: ApiKeyEnv = None,
    as_json: Json = False,
) -> None:
    """Say what works here and how to mend the rest.

    With --model: ask it for one cheap tool call, too. Exits with 1 when campaigns on this machine's CPU cannot run,
    or the model did not answer.
    """
    from kernel_agent.cli.documents import DoctorDocument
    from kernel_agent.doctor import examine
    from kernel_agent.errors import UsageError

    settings = invocation.of(context).settings()
    resolved = None
    if model is not None:
        from kernel_agent.models import resolve_model

        resolved = resolve_model(settings, model, base_url, price, api_key_env)
    elif base_url or price or api_key_env:
        raise UsageError("--base-url, --price and --api-key-env describe a model: name it with --model")
    diagnosis = examine(settings)
    asked = None
    if resolved is not None:
        from kernel_agent.probe import probe

        asked = probe(resolved)
    if as_json:
        print_json(DoctorDocument(checks=diagnosis.checks, healthy=diagnosis.healthy, model=asked))
    else:
        print_text("\n".join([*map(_line, diagnosis.checks), *(_probe_lines(asked) if asked else ())]))
    if not diagnosis.healthy or (asked is not None and not asked.answered):
        raise typer.Exit(FAILED)


def _line(check: Check) -> str:
    line = f"{check.state:<9}{check.name:<16}{check.found}"
    return f"{line}\n{'':<25}{check.remedy}" if check.remedy else line


def _probe_lines(asked: Probe) -> list[str]:
    said = " ".join(asked.said.split())[:SAID_CHARACTERS]
    if not asked.answered:
        return [f"{'failed':<9}{'model':<16}{asked.model} did not answer: {said}"]
    state = "ok" if asked.called_tool else "warning"
    what = "made the tool call" if asked.called_tool else "answered without the tool call that was asked for"
    tokens = f"{asked.prompt_tokens} + {asked.completion_tokens} tokens"
    return [
        f"{state:<9}{'model':<16}{asked.model} {what}: {said}",
        f"{'':<25}{tokens}, ${asked.cost_usd:.6f} at {asked.price_name} prices, {asked.seconds:.2f} s",
    ]
