"""litellm as an upstream, for real: it speaks to a provider on a loopback port."""

from __future__ import annotations

import json
import threading

import pytest
from pydantic import SecretStr

from kernel_agent.errors import UsageError
from kernel_agent.gateway.app import Gateway
from kernel_agent.gateway.upstream import HttpUpstream, LiteLLMUpstream
from kernel_agent.model import Usage
from kernel_agent.store.repository import Store
from tests.kernel_agent.gateway.conftest import KEY, Provider, chat, completion, line, post


def test_litellm_answers_in_openais_form(
    store: Store, gateway: Gateway, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    session_id, url = line(store, gateway, LiteLLMUpstream("openai/real-name", "SOME_KEY", provider.url))
    said = post(url, chat("a"))
    assert said.status_code == 200, said.text
    assert said.json()["choices"][0]["message"]["content"] == "hello 1 é"
    (request,) = provider.requests
    sent = json.loads(request.body)
    assert (sent["model"], sent["messages"]) == ("real-name", [{"role": "user", "content": "a"}])
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert store.steps(session_id)[0].usage == Usage(prompt_tokens=1000, cached_tokens=400, completion_tokens=100)

    error = json.dumps({"error": {"message": f"slow down, {KEY}", "type": "rate_limit"}}).encode()
    provider.respond = lambda _: (429, error, {"Retry-After": "3"})
    said = post(url, chat("b"))
    assert said.status_code == 429
    assert "slow down" in said.json()["error"]["message"]
    assert KEY not in said.text
    assert len(provider.requests) == 2  # retries are the session's business

    release = threading.Event()

    def hang(_: object) -> tuple[int, bytes, dict[str, str]]:
        release.wait(10)
        return completion(provider.requests[0])

    provider.respond = hang
    slow = LiteLLMUpstream("openai/real-name", "SOME_KEY", provider.url, answer_seconds=0.2)
    _, url = line(store, gateway, slow)
    said = post(url, chat("c"))
    release.set()
    assert said.status_code == 504


def test_a_key_that_is_not_set_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(UsageError, match="SOME_KEY is not set"):
        LiteLLMUpstream("openai/x", "SOME_KEY")


def test_a_provider_is_an_account_and_shows_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    same = HttpUpstream("http://h/v1/", SecretStr("one")).provider
    assert same == HttpUpstream("http://h/v1", SecretStr("one"), "m").provider
    assert same != HttpUpstream("http://h/v1", SecretStr("two")).provider
    assert "one" not in str(same)
    monkeypatch.setenv("SOME_KEY", "secret-value")
    assert "secret-value" not in str(LiteLLMUpstream("openai/x", "SOME_KEY").provider)
