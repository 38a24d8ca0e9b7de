"""Options that several commands share, and readers for numbers that click's own let through (``nan``, ``inf``)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import typer

LaneName = Literal["fp32", "tf32", "fp16", "bf16"]
IsolationName = Literal["jail", "none"]
TargetName = Literal["cpu"]
"""What can be judged on this machine; the parts that need a GPU add theirs."""


def at_least_zero(text: str) -> float:
    """A finite number of at least 0."""
    value = _number(text)
    if value < 0:
        raise typer.BadParameter(f"{text!r} is below 0")
    return value


def above_zero(text: str) -> float:
    """A finite number above 0."""
    value = _number(text)
    if value <= 0:
        raise typer.BadParameter(f"{text!r} is not above 0")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no number") from error
    if not math.isfinite(value):
        raise typer.BadParameter(f"{text!r} is no finite number")
    return value


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Another value for a size constant of the problem; repeatable."),
]
Lane = Annotated[LaneName, typer.Option(help="Loosest precision in which a candidate may be called correct.")]
Isolation = Annotated[
    IsolationName, typer.Option(help="none runs generated code with your rights: for machines you can lose.")
]
CampaignId = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Id, a prefix of one, or a name.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Answered model calls per session.")]
MaxCost = Annotated[
    float | None, typer.Option(metavar="USD", parser=at_least_zero, help="Cap on the whole campaign's model calls.")
]
MaxCostPerSession = Annotated[
    float | None, typer.Option(metavar="USD", parser=at_least_zero, help="Cap on each session's model calls.")
]
MaxHours = Annotated[
    float | None, typer.Option(metavar="HOURS", parser=above_zero, help="Cap on the campaign's running time.")
]
Parallel = Annotated[int, typer.Option(min=1, help="Sessions at work at the same moment.")]
Record = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Keep the sessions' answers there, to be played as replay:FOLDER.")
]
Model = Annotated[
    str | None, typer.Option(metavar="MODEL", help="LiteLLM name, a profile of the configuration, or replay:NAME.")
]
BaseUrl = Annotated[str | None, typer.Option(metavar="URL", help="An OpenAI-compatible endpoint, up to and with /v1.")]
Price = Annotated[
    str | None, typer.Option(metavar="IN,CACHED,OUT", help="US dollars per million tokens, where none is known.")
]
ApiKeyEnv = Annotated[str | None, typer.Option(metavar="NAME", help="Environment variable that holds the key.")]
