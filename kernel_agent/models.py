"""From what the user calls a model to something a gateway can ask: price, window, key and endpoint settled first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

import httpx
from pydantic import SecretStr

from kernel_agent.errors import UsageError
from kernel_agent.gateway.prices import ModelPrice, UnknownPriceError, model_price, parse_price
from kernel_agent.gateway.recording import PREFIX, find_recordings, for_problem
from kernel_agent.gateway.replay import ReplayUpstream
from kernel_agent.gateway.upstream import HttpUpstream, LiteLLMUpstream, Upstream
from kernel_agent.model import CampaignSettings, Frozen, Price
from kernel_agent.settings import ModelProfile, Settings
from problems.model import Problem

DEFAULT_CONTEXT = 128_000
DEFAULT_OUTPUT = 16_000
REPLAY_PRICE = Price(name="nominal replay", input_usd=0.95, cached_usd=0.16, output_usd=4.00)
"""Played answers cost nothing; counted at the price of a typical large open model, so that costs have a shape."""
CONNECT_SECONDS = 5.0
KEYS: Mapping[str, str] = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "groq": "GROQ_API_KEY",
    "xai": "XAI_API_KEY",
    "moonshot": "MOONSHOT_API_KEY",
    "together_ai": "TOGETHERAI_API_KEY",
    "fireworks_ai": "FIREWORKS_API_KEY",
}
"""Where providers' keys are looked for, by LiteLLM prefix; others are left to LiteLLM."""


class ResolvedModel(Frozen):
    """A model as a campaign stores it. The key itself stays in the environment."""

    model: str
    base_url: str | None
    api_key_env: str | None
    price: Price
    context_tokens: int
    max_output_tokens: int
    provenance: Literal["live", "recorded", "scripted"]


def resolve_model(
    settings: Settings, name: str, base_url: str | None, price: str | None, api_key_env: str | None = None
) -> ResolvedModel:
    """Settle everything about ``name`` (a LiteLLM name, a profile of the TOML file, or ``replay:NAME``).

    Raises UsageError for a missing key, an unreachable endpoint, an unknown price or an unknown recording.
    """
    if name.startswith(PREFIX):
        recordings = find_recordings(name)
        scripted = any(r.header.provenance == "scripted" for r in recordings.values())
        return ResolvedModel(
            model=name,
            base_url=None,
            api_key_env=None,
            price=parse_price(price, "given") if price else REPLAY_PRICE,
            context_tokens=DEFAULT_CONTEXT,
            max_output_tokens=DEFAULT_OUTPUT,
            provenance="scripted" if scripted else "recorded",
        )
    profile = settings.models.get(name) or ModelProfile(model=name)
    base_url = base_url or profile.base_url
    resolved = _priced(profile, base_url, price or profile.price, api_key_env or profile.api_key_env)
    _check_key(resolved)
    _check_endpoint(resolved)
    return resolved


def _priced(profile: ModelProfile, base_url: str | None, price: str | None, api_key_env: str | None) -> ResolvedModel:
    known: ModelPrice | None = None
    try:
        known = model_price(profile.model)
    except UnknownPriceError:
        if price is None:
            raise
    chosen = known.price if known is not None else None
    if price is not None:
        chosen = parse_price(price, f"{profile.model} (as given)")
    assert chosen is not None
    prefix = profile.model.partition("/")[0] if "/" in profile.model else "openai"
    key = api_key_env or (KEYS.get(prefix) if base_url is None or os.environ.get(KEYS.get(prefix, "")) else None)
    return ResolvedModel(
        model=profile.model,
        base_url=base_url,
        api_key_env=key,
        price=chosen,
        context_tokens=profile.context_tokens or (known and known.context_tokens) or DEFAULT_CONTEXT,
        max_output_tokens=profile.max_output_tokens
        or min((known and known.max_output_tokens) or DEFAULT_OUTPUT, DEFAULT_OUTPUT),
        provenance="live",
    )


def _check_key(model: ResolvedModel) -> None:
    if model.api_key_env is not None and not os.environ.get(model.api_key_env):
        raise UsageError(
            f"no key for model {model.model}: the environment variable {model.api_key_env} is not set; "
            "export it, or name another one with --api-key-env"
        )


def _check_endpoint(model: ResolvedModel) -> None:
    if model.base_url is None:
        return
    try:
        httpx.get(model.base_url.rstrip("/") + "/models", timeout=CONNECT_SECONDS)
    except httpx.HTTPError as error:
        raise UsageError(f"the endpoint {model.base_url} cannot be reached ({error}); check --base-url") from error
    except httpx.InvalidURL as error:
        raise UsageError(f"--base-url {model.base_url!r} is no URL: {error}") from error


def upstream_for(settings: CampaignSettings, problem: Problem) -> Upstream:
    """Whom the gateway asks for a session on ``problem``."""
    if settings.model.startswith(PREFIX):
        return ReplayUpstream(for_problem(find_recordings(settings.model), problem))
    if settings.base_url is not None:
        key = os.environ.get(settings.api_key_env) if settings.api_key_env else None
        served = settings.model.removeprefix("openai/")
        return HttpUpstream(settings.base_url, SecretStr(key) if key else None, served)
    return LiteLLMUpstream(settings.model, settings.api_key_env)
