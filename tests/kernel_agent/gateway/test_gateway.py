"""The gateway over real HTTP: paid once, within budget, keys apart, failures passed on."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from pydantic import SecretStr

from kernel_agent.errors import NotFoundError
from kernel_agent.gateway.app import Gateway, GatewayError
from kernel_agent.gateway.limits import ProviderLimits
from kernel_agent.gateway.upstream import HttpUpstream
from kernel_agent.model import Budget, Usage
from kernel_agent.store.repository import Store
from tests.kernel_agent.gateway.conftest import (
    COST,
    KEY,
    PRICE,
    Provider,
    Request,
    chat,
    completion,
    line,
    post,
    settings_of,
    upstream,
)


def test_a_call_is_forwarded_priced_and_journaled(store: Store, gateway: Gateway, provider: Provider) -> None:
    session_id, url = line(store, gateway, upstream(provider))
    body = b'{ "messages": [ {"role":"user","content":"\\u00e9"} ],\n "model":"m" }'
    said = post(url, body)
    assert said.status_code == 200
    assert said.content == completion(Request({}, body))[1]
    assert [request.body for request in provider.requests] == [body]
    (step,) = store.steps(session_id)
    assert step.usage == Usage(prompt_tokens=1000, cached_tokens=400, completion_tokens=100)
    assert step.usd == pytest.approx(COST)
    assert store.response(step.call_id) == said.content


def test_a_repeated_call_gets_the_same_bytes_and_is_paid_once(
    store: Store, gateway: Gateway, provider: Provider
) -> None:
    """Also by another gateway on the same store, as after a restart, and whatever the provider would say by now."""
    session_id, url = line(store, gateway, upstream(provider))
    first = post(url, chat("a"))
    provider.respond = lambda request: completion(request, "changed my mind")
    assert post(url, chat("a")).content == first.content
    gateway.stop()
    second = Gateway(store)
    second.start()
    url = second.register(session_id, upstream(provider), PRICE, settings_of(store, session_id))
    assert post(url, chat("a")).content == first.content
    assert len(provider.requests) == 1
    assert store.session(session_id).spent_usd == pytest.approx(COST)
    assert post(url, chat("b")).content != first.content
    second.stop()


def test_two_sessions_do_not_share_answers(store: Store, gateway: Gateway, provider: Provider) -> None:
    for _ in range(2):
        _, url = line(store, gateway, upstream(provider))
        assert post(url, chat("a")).status_code == 200
    assert len(provider.requests) == 2


def test_identical_calls_at_once_are_one_call(store: Store, gateway: Gateway, provider: Provider) -> None:
    session_id, url = line(store, gateway, upstream(provider))
    release = threading.Event()

    def slow(request: Request) -> tuple[int, bytes, dict[str, str]]:
        release.wait(10)
        return completion(request)

    provider.respond = slow
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(post, url, chat("a")) for _ in range(4)]
        time.sleep(0.3)
        release.set()
        said = [one.result() for one in waiting]
    assert {one.content for one in said} == {said[0].content}
    assert [one.status_code for one in said] == [200] * 4
    assert len(provider.requests) == 1
    assert store.session(session_id).steps == 1


def test_a_call_outlives_its_session_and_waits_for_it(store: Store, gateway: Gateway, provider: Provider) -> None:
    """The session is killed while its call is out: the answer is journaled, and the resumed session finds it."""
    session_id, url = line(store, gateway, upstream(provider))
    release = threading.Event()

    def slow(request: Request) -> tuple[int, bytes, dict[str, str]]:
        release.wait(10)
        return completion(request)

    provider.respond = slow
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/chat/completions", content=chat("a"), timeout=0.3, trust_env=False, verify=False)
    release.set()
    assert post(url, chat("a")).status_code == 200
    assert len(provider.requests) == 1
    assert store.session(session_id).spent_usd == pytest.approx(COST)


def test_the_sessions_header_stays_here_and_the_key_stays_there(
    store: Store, gateway: Gateway, provider: Provider
) -> None:
    _, url = line(store, gateway, upstream(provider))

    def tells(request: Request) -> tuple[int, bytes, dict[str, str]]:
        said = json.dumps({"error": {"message": f"Incorrect key {request.headers['authorization']}"}})
        return 401, said.encode(), {"x-echo": KEY, "set-cookie": "a=b"}

    provider.respond = tells
    said = post(url, chat("a"), x_api_key="sk-of-the-session", cookie="sk-of-the-session")
    assert said.status_code == 401
    assert "Incorrect key Bearer [key removed]" in said.text
    assert KEY not in said.text + str(said.headers)
    (request,) = provider.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert "sk-of-the-session" not in str(request)
    (record,) = store.calls(store.sessions(store.campaigns()[0].id)[0].id)
    assert KEY not in record.note


def test_without_a_key_no_authorization_is_sent(store: Store, gateway: Gateway, provider: Provider) -> None:
    _, url = line(store, gateway, HttpUpstream(provider.url))
    assert post(url, chat("a")).status_code == 200
    assert "authorization" not in provider.requests[0].headers


def test_only_the_models_name_is_mapped(store: Store, gateway: Gateway, provider: Provider) -> None:
    _, url = line(store, gateway, upstream(provider, model="provider/real-name"))
    post(url, chat("a", temperature=0.5))
    assert json.loads(provider.requests[0].body) == {
        **json.loads(chat("a", temperature=0.5)),
        "model": "provider/real-name",
    }
    post(url, chat("b", model="provider/real-name"))
    assert provider.requests[1].body == chat("b", model="provider/real-name")


def test_the_budget_refuses_before_anything_is_sent(store: Store, gateway: Gateway, provider: Provider) -> None:
    body = chat("x" * 350)
    reserve = (len(body) / 3.5 * 1.0 + 200 * 4.0) / 1e6
    session_id, url = line(store, gateway, upstream(provider), max_cost_usd=reserve + COST * 0.9)
    assert post(url, body).status_code == 200
    refused = post(url, chat("y" * 350))
    assert refused.status_code == 402
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("budget_exhausted", "campaign_cost")
    assert "raise the limit" in error["message"]
    assert refused.headers["x-should-retry"] == "false"
    assert len(provider.requests) == 1
    told = gateway.last_refusal(session_id)
    assert told is not None
    assert (told.status, told.kind, told.code) == (402, "budget_exhausted", "campaign_cost")
    assert post(url, body).status_code == 200  # what is paid for is served all the same
    assert store.campaign(store.session(session_id).campaign_id).reserved_usd == 0.0


def test_without_a_limit_of_its_own_a_request_reserves_the_settings(
    store: Store, gateway: Gateway, provider: Provider
) -> None:
    most = (60 / 3.5 + 16_000 * 4.0) / 1e6
    _, url = line(store, gateway, upstream(provider), budget=Budget(max_cost_usd=most / 2))
    body = json.dumps({"model": "m", "messages": []}).encode()
    assert post(url, body).json()["error"]["code"] == "session_cost"
    assert post(url, chat("a")).status_code == 200


def test_steps_are_counted_for_the_agent_only(store: Store, gateway: Gateway, provider: Provider) -> None:
    session_id, url = line(store, gateway, upstream(provider), budget=Budget(steps=1))
    assert post(url, chat("a"), x_kernel_agent_call="summary").status_code == 200
    assert post(url, chat("b"), x_kernel_agent_call="agent").status_code == 200
    assert post(url, chat("c")).json()["error"]["code"] == "session_steps"
    assert post(url, chat("d"), x_kernel_agent_call="probe").status_code == 200
    assert [call.kind for call in store.calls(session_id)] == ["summary", "agent", "probe"]
    assert post(url, chat("e"), x_kernel_agent_call="guess").status_code == 400


def test_a_stopped_campaign_lets_nothing_out(store: Store, gateway: Gateway, provider: Provider) -> None:
    session_id, url = line(store, gateway, upstream(provider))
    store.set_campaign_state(store.session(session_id).campaign_id, "stopping")
    said = post(url, chat("a"))
    assert (said.status_code, said.json()["error"]["type"]) == (402, "session_stopped")
    assert provider.requests == []


@pytest.mark.parametrize(("status", "retry_after"), [(429, "7"), (500, None), (503, "1"), (400, None), (404, None)])
def test_a_providers_refusal_is_passed_on_and_costs_nothing(
    store: Store, gateway: Gateway, provider: Provider, status: int, retry_after: str | None
) -> None:
    session_id, url = line(store, gateway, upstream(provider))
    body = b'{"error": {"message": "context window exceeded", "type": "invalid"}}'
    provider.respond = lambda _: (status, body, {"Retry-After": retry_after} if retry_after else {})
    said = post(url, chat("a"))
    assert (said.status_code, said.content, said.headers.get("retry-after")) == (status, body, retry_after)
    (record,) = store.calls(session_id)
    assert (record.state, record.usd, record.reserved_usd) == ("failed", 0.0, 0.0)
    assert record.note == f"HTTP {status}: {body.decode()}"
    told = gateway.last_refusal(session_id)
    assert told is not None
    assert (told.status, told.kind, told.message) == (status, "provider_error", "context window exceeded")
    provider.respond = completion
    assert post(url, chat("a")).status_code == 200
    assert gateway.last_refusal(session_id) is None
    assert store.session(session_id).steps == 1


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>please log in</html>", "no JSON"),
        (b'{"choices": []}', "holds no message"),
        (b'{"error": "200 with an error"}', "holds no message"),
        (b"[1]", "holds no message"),
        (b"", "no JSON"),
    ],
)
def test_an_answer_that_is_none_is_a_502(
    store: Store, gateway: Gateway, provider: Provider, body: bytes, why: str
) -> None:
    session_id, url = line(store, gateway, upstream(provider))
    provider.respond = lambda _: (200, body, {})
    said = post(url, chat("a"))
    assert said.status_code == 502
    assert why in said.json()["error"]["message"]
    assert store.calls(session_id)[0].state == "failed"
    assert store.session(session_id).steps == 0


def test_a_redirect_is_not_followed(store: Store, gateway: Gateway, provider: Provider) -> None:
    _, url = line(store, gateway, upstream(provider))
    provider.respond = lambda _: (307, b"", {"Location": "http://127.0.0.1:9/elsewhere"})
    said = post(url, chat("a"))
    assert said.status_code == 502
    assert "redirect" in said.json()["error"]["message"]


def test_a_provider_that_does_not_answer_is_a_504_and_counts(
    store: Store, gateway: Gateway, provider: Provider
) -> None:
    session_id, url = line(store, gateway, upstream(provider, answer_seconds=0.1))
    release = threading.Event()

    def hang(request: Request) -> tuple[int, bytes, dict[str, str]]:
        release.wait(10)
        return completion(request)

    provider.respond = hang
    said = post(url, chat("a"))
    release.set()
    assert said.status_code == 504
    (record,) = store.calls(session_id)
    assert record.state == "failed"
    assert record.usd > 800 / 1e6  # the whole reservation: it may have been billed
    assert record.reserved_usd == 0.0


def test_a_provider_that_is_not_there_is_a_502_and_costs_nothing(store: Store, gateway: Gateway) -> None:
    session_id, url = line(store, gateway, HttpUpstream("http://127.0.0.1:9/v1", SecretStr(KEY)))
    said = post(url, chat("a"))
    assert said.status_code == 502
    assert "check base_url" in said.json()["error"]["message"]
    assert store.session(session_id).spent_usd == 0.0


def test_unreported_usage_is_estimated_and_said_to_be(store: Store, gateway: Gateway, provider: Provider) -> None:
    session_id, url = line(store, gateway, upstream(provider))
    provider.respond = lambda _: (200, b'{"choices":[{"message":{"role":"assistant","content":"hi"}}]}', {})
    assert post(url, chat("a")).status_code == 200
    (record,) = store.calls(session_id)
    assert record.usage.prompt_tokens == -(-len(chat("a")) * 2 // 7)
    assert record.usd > 0
    assert "estimated" in record.note


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (chat("a", stream=True), "stream set to false"),
        (b"not json", "no JSON"),
        (b"[]", "no JSON object"),
        (b'{"messages": "hello"}', "no list of objects"),
        (b'{"messages": [], "tools": 3}', "no list"),
    ],
)
def test_what_cannot_be_forwarded_is_a_400(
    store: Store, gateway: Gateway, provider: Provider, body: bytes, why: str
) -> None:
    _, url = line(store, gateway, upstream(provider))
    said = post(url, body)
    assert said.status_code == 400
    assert why in said.json()["error"]["message"]
    assert provider.requests == []


def test_an_address_belongs_to_one_living_session(store: Store, gateway: Gateway, provider: Provider) -> None:
    session_id, url = line(store, gateway, upstream(provider))
    guessed = url.replace(url.split("/s/")[1], "guess/v1")
    assert post(guessed, chat("a")).status_code == 401
    again = gateway.register(session_id, upstream(provider), PRICE, settings_of(store, session_id))
    assert again != url
    assert post(url, chat("a")).status_code == 401
    assert post(again, chat("a")).status_code == 200
    gateway.revoke(session_id)
    assert post(again, chat("a")).json()["error"]["type"] == "unknown_session"
    with pytest.raises(NotFoundError):
        gateway.register("nobody", upstream(provider), PRICE, settings_of(store, session_id))


def test_the_gateway_listens_on_loopback_only_and_says_when_it_is_misused(
    store: Store, gateway: Gateway, provider: Provider
) -> None:
    session_id, url = line(store, gateway, upstream(provider))
    assert url.startswith("http://127.0.0.1:")
    with pytest.raises(GatewayError, match="running already"):
        gateway.start()
    idle = Gateway(store)
    with pytest.raises(GatewayError, match="start it before"):
        idle.register(session_id, upstream(provider), PRICE, settings_of(store, session_id))
    idle.stop()


def test_stopping_ends_calls_that_are_out_and_charges_them(store: Store, provider: Provider) -> None:
    gateway = Gateway(store)
    gateway.start()
    session_id, url = line(store, gateway, upstream(provider))
    release = threading.Event()

    def hang(request: Request) -> tuple[int, bytes, dict[str, str]]:
        release.wait(10)
        return completion(request)

    provider.respond = hang
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post, url, chat("a"))
        while not provider.requests:
            time.sleep(0.01)
        gateway.stop(0.1)
        release.set()
        assert isinstance(waiting.exception(), httpx.HTTPError) or waiting.result().status_code >= 500
    (record,) = store.calls(session_id)
    assert (record.state, record.reserved_usd) == ("failed", 0.0)
    assert record.usd > 0
    assert "the gateway stopped" in record.note


def test_concurrency_is_limited_per_key_across_sessions(store: Store, provider: Provider) -> None:
    gateway = Gateway(store, ProviderLimits(max_concurrency=2))
    gateway.start()

    def slow(request: Request) -> tuple[int, bytes, dict[str, str]]:
        time.sleep(0.05)
        return completion(request)

    provider.respond = slow
    urls = [line(store, gateway, upstream(provider))[1] for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        said = list(pool.map(lambda url: post(url, chat("a")).status_code, urls))
    assert said == [200] * 6
    assert provider.most == 2
    provider.most = 0
    others = [line(store, gateway, HttpUpstream(provider.url, SecretStr(f"key-{n}")))[1] for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda url: post(url, chat("b")), others))
    assert provider.most > 2
    gateway.stop()


def test_a_store_that_is_locked_is_a_503_and_nothing_is_sent(
    store: Store, gateway: Gateway, provider: Provider
) -> None:
    session_id, _ = line(store, gateway, upstream(provider))
    path = store._db.place
    patient = Store.open(f"sqlite:///{path}", busy_seconds=0.05)
    impatient = Gateway(patient)
    impatient.start()
    url = impatient.register(session_id, upstream(provider), PRICE, settings_of(store, session_id))
    with store._db.write():
        said = post(url, chat("a"))
    assert (said.status_code, said.json()["error"]["type"]) == (503, "store_error")
    assert said.headers["retry-after"] == "2"
    assert provider.requests == []
    assert post(url, chat("a")).status_code == 200
    impatient.stop()
    patient.close()


def test_a_stopped_gateway_can_start_again_with_the_same_upstream(store: Store, provider: Provider) -> None:
    gateway = Gateway(store)
    gateway.start()
    to = upstream(provider)
    session_id, url = line(store, gateway, to)
    assert post(url, chat("a")).status_code == 200
    gateway.stop()
    with pytest.raises(httpx.ConnectError):
        post(url, chat("b"))
    gateway.start()
    url = gateway.register(session_id, to, PRICE, settings_of(store, session_id))
    assert post(url, chat("b")).status_code == 200
    gateway.stop()
