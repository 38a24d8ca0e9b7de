"""A model is settled before a session starts: price, key, endpoint, recording."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from kernel_agent.errors import UsageError
from kernel_agent.gateway.upstream import HttpUpstream, LiteLLMUpstream
from kernel_agent.model import CampaignSettings
from kernel_agent.models import resolve_model, upstream_for
from kernel_agent.settings import ModelProfile, Settings
from problems.catalog import Catalog


class Empty(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Empty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


def test_a_known_model_brings_price_window_and_key(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    model = resolve_model(settings, "anthropic/claude-sonnet-4-5", None, None)
    assert model.api_key_env == "ANTHROPIC_API_KEY"
    assert model.price.input_usd > 0
    assert model.context_tokens >= 128_000
    assert model.provenance == "live"


def test_a_missing_key_names_its_variable(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match="OPENAI_API_KEY is not set"):
        resolve_model(settings, "openai/gpt-4o", None, None)


def test_an_unknown_price_says_how_to_give_one(settings: Settings) -> None:
    with pytest.raises(UsageError, match="--price IN,CACHED,OUT"):
        resolve_model(settings, "openai/no-such-model-at-all", None, None)


def test_an_unreachable_endpoint_is_named(settings: Settings) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(UsageError, match=f"127.0.0.1:{port}/v1 cannot be reached"):
        resolve_model(settings, "own/model", f"http://127.0.0.1:{port}/v1", "1,0.1,4")


def test_a_model_of_ones_own_needs_only_address_and_price(settings: Settings, endpoint: str) -> None:
    model = resolve_model(settings, "own/model", endpoint, "1,0.1,4")
    assert model.api_key_env is None
    assert (model.price.input_usd, model.price.cached_usd, model.price.output_usd) == (1, 0.1, 4)
    campaign = CampaignSettings(name="n", problem_ids=("p",), model=model.model, base_url=endpoint, price=model.price)
    assert isinstance(upstream_for(campaign, Catalog().get("bundled/causal_attention")), HttpUpstream)


def test_a_profile_stands_for_all_that_it_names(tmp_path: Path, endpoint: str) -> None:
    profile = ModelProfile(model="own/model", base_url=endpoint, price="2,1,8", context_tokens=50_000)
    settings = Settings(home=tmp_path, models={"mine": profile})
    model = resolve_model(settings, "mine", None, None)
    assert (model.model, model.base_url, model.context_tokens) == ("own/model", endpoint, 50_000)
    assert model.price.output_usd == 8


def test_any_other_provider_is_asked_through_litellm(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    model = resolve_model(settings, "anthropic/claude-sonnet-4-5", None, None)
    campaign = CampaignSettings(
        name="n", problem_ids=("p",), model=model.model, api_key_env=model.api_key_env, price=model.price
    )
    assert isinstance(upstream_for(campaign, Catalog().get("bundled/causal_attention")), LiteLLMUpstream)


def test_an_unknown_recording_lists_the_known(settings: Settings) -> None:
    with pytest.raises(UsageError, match="demo"):
        resolve_model(settings, "replay:nothing", None, None)


def test_the_demo_says_that_it_is_scripted(settings: Settings) -> None:
    model = resolve_model(settings, "replay:demo", None, None)
    assert model.provenance == "scripted"
    assert "nominal" in model.price.name
