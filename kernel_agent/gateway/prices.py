"""What a model costs, from the table that litellm ships, read as a file: litellm itself is not imported."""

from __future__ import annotations

import difflib
import importlib.util
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from kernel_agent.errors import KernelAgentError, UsageError
from kernel_agent.model import Price, Usage

PRICE_FILE = "model_prices_and_context_window_backup.json"
MILLION = 1_000_000
CHAT_MODES = frozenset({"chat", "responses"})


class UnknownPriceError(UsageError):
    """No price is known for a model; a campaign without one could not keep its budget."""


class ModelPrice(BaseModel):
    """A model's price and sizes."""

    model_config = ConfigDict(frozen=True)

    price: Price
    context_tokens: int | None
    """Prompt tokens for which ``price`` holds: the window, or the border above which the provider asks for more."""
    max_output_tokens: int | None


def model_price(model: str) -> ModelPrice:
    """Look up a LiteLLM model name, with or without its provider's prefix.

    :raises UnknownPriceError: the table lacks the model or its price.
    """
    table = _table()
    entry = _entry(table, model)
    if entry is None:
        near = difflib.get_close_matches(model.rpartition("/")[2], table, n=3, cutoff=0.6)
        hint = f"; near ones: {', '.join(near)}" if near else ""
        raise UnknownPriceError(f"no price is known for model {model!r}{hint}; {_REMEDY}")
    per_token = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    if entry.get("mode") not in CHAT_MODES or None in per_token:
        raise UnknownPriceError(f"model {model!r} has no price per token as a chat model; {_REMEDY}")
    cached = entry.get("cache_read_input_token_cost", entry["input_cost_per_token"])
    # 0 stands for "no separate price" in that table.
    written = entry.get("cache_creation_input_token_cost") or None
    price = Price(
        name=model,
        input_usd=_per_million(entry["input_cost_per_token"]),
        cached_usd=_per_million(cached),
        output_usd=_per_million(entry["output_cost_per_token"]),
        cache_write_usd=None if written is None else _per_million(written),
    )
    return ModelPrice(
        price=price, context_tokens=_one_price_window(entry), max_output_tokens=_whole(entry.get("max_output_tokens"))
    )


def parse_price(text: str, name: str) -> Price:
    """Read ``IN,CACHED,OUT``: US dollars per million tokens.

    :param name: whose price it is.
    :raises UsageError: it does not read as three numbers of at least 0.
    """
    try:
        input_usd, cached_usd, output_usd = (float(part) for part in text.split(","))
        price = Price(name=name, input_usd=input_usd, cached_usd=cached_usd, output_usd=output_usd)
    except (ValueError, ValidationError) as error:
        raise UsageError(
            f"--price {text!r} is not IN,CACHED,OUT: write three US dollar amounts per million tokens, such as 3,0.3,15"
        ) from error
    if not all(0 <= value < float("inf") for value in (input_usd, cached_usd, output_usd)):
        raise UsageError(f"--price {text!r}: each amount must be a number of at least 0")
    return price


def cost(usage: Usage, price: Price) -> float:
    """US dollars for one call."""
    written_usd = price.input_usd if price.cache_write_usd is None else price.cache_write_usd
    plain = max(0, usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens)
    total = (
        plain * price.input_usd
        + usage.cached_tokens * price.cached_usd
        + usage.cache_write_tokens * written_usd
        + usage.completion_tokens * price.output_usd
    )
    return total / MILLION


def worst_cost(prompt_tokens: int, completion_tokens: int, price: Price) -> float:
    """US dollars if nothing of the prompt is cached."""
    dearest = max(price.input_usd, price.cached_usd, price.cache_write_usd or 0.0)
    return (prompt_tokens * dearest + completion_tokens * price.output_usd) / MILLION


_REMEDY = "give one with `--price IN,CACHED,OUT` (US dollars per million tokens, such as 3,0.3,15)"


def _table() -> dict[str, dict[str, Any]]:
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        raise UnknownPriceError(f"litellm, whose price table is used, is not installed; {_REMEDY}")
    path = Path(spec.origin).parent / PRICE_FILE
    try:
        table: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KernelAgentError(f"the price table {path} cannot be read ({error}); reinstall litellm") from error
    return table


def _entry(table: dict[str, dict[str, Any]], model: str) -> dict[str, Any] | None:
    """The model's row; a prefix may be left out only if the row is of the provider it names."""
    if model in table:
        return table[model]
    provider, _, bare = model.partition("/")
    entry = table.get(bare)
    return entry if entry is not None and entry.get("litellm_provider") == provider else None


def _one_price_window(entry: dict[str, Any]) -> int | None:
    """The window, cut at the first ``…_above_200k_tokens`` price: one price then holds for every call."""
    window = _whole(entry.get("max_input_tokens", entry.get("max_tokens")))
    borders = [
        int(size.removesuffix("k")) * 1000
        for key in entry
        if key.startswith("input_cost_per_token_above_") and key.endswith("_tokens")
        for size in [key.removeprefix("input_cost_per_token_above_").removesuffix("_tokens")]
        if size.removesuffix("k").isdecimal()
    ]
    known = [size for size in (window, *borders) if size is not None]
    return min(known, default=None)


def _per_million(per_token: float) -> float:
    return round(float(per_token) * MILLION, 9)


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float | str) and str(value).isdecimal() else None
