from __future__ import annotations

from pathlib import Path

import pytest

from kernel_agent.errors import NotFoundError, UsageError
from kernel_agent.gateway.app import Gateway
from kernel_agent.gateway.choice import upstream_for
from kernel_agent.gateway.replay import ReplayUpstream
from kernel_agent.gateway.upstream import HttpUpstream, LiteLLMUpstream
from kernel_agent.store.repository import Store
from tests.kernel_agent.gateway.conftest import KEY, Provider, chat, line, post
from tests.kernel_agent.gateway.test_replay import recording, say
from tests.kernel_agent.store.conftest import PROBLEM, settings


def test_a_recording_is_played(tmp_path: Path) -> None:
    recording(say("a")).save(tmp_path / "x.jsonl")
    assert isinstance(upstream_for(settings(model=f"replay:{tmp_path}"), PROBLEM), ReplayUpstream)
    with pytest.raises(UsageError, match="another version"):
        upstream_for(settings(model=f"replay:{tmp_path}"), PROBLEM.model_copy(update={"source": "changed"}))
    with pytest.raises(NotFoundError):
        upstream_for(settings(model=f"replay:{tmp_path}/nothing"), PROBLEM)


def test_a_server_of_ones_own_is_spoken_to_by_http(
    store: Store, gateway: Gateway, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    chosen = upstream_for(settings(model="openai/m", base_url=provider.url, api_key_env="SOME_KEY"), PROBLEM)
    assert isinstance(chosen, HttpUpstream)
    _, url = line(store, gateway, chosen)
    post(url, chat("a"))
    (request,) = provider.requests
    assert (request.body, request.headers["authorization"]) == (chat("a"), f"Bearer {KEY}")
    keyless = upstream_for(settings(model="openai/m", base_url=provider.url), PROBLEM)
    assert keyless.provider != chosen.provider


@pytest.mark.parametrize("base_url", [None, "http://127.0.0.1:9"])
def test_litellm_speaks_to_the_others(base_url: str | None) -> None:
    assert isinstance(upstream_for(settings(model="anthropic/x", base_url=base_url), PROBLEM), LiteLLMUpstream)


@pytest.mark.parametrize("model", ["openai/m", "anthropic/x"])
def test_a_missing_key_is_said_before_anything_is_sent(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(UsageError, match="SOME_KEY is not set"):
        upstream_for(settings(model=model, base_url="http://127.0.0.1:9/v1", api_key_env="SOME_KEY"), PROBLEM)
