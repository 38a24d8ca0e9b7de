"""Nobody gets in without the token, from a strange name, or from another site."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi import APIRouter

from dashboard.api.routes import api_router
from dashboard.app import create_app
from dashboard.pages import login_router, page_router
from dashboard.security import HEADERS, Access, host_name
from dashboard.server import Dashboard, prepare
from dashboard.static_files import static_router
from dashboard.views import Curves
from kernel_agent.errors import UsageError
from kernel_agent.store.repository import Store
from tests.dashboard.conftest import TOKEN, running
from tests.dashboard.written_campaign import CampaignWriter


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One for all of these tests: none of them changes what another sees."""
    opened = Store.open(f"sqlite:///{tmp_path_factory.mktemp('security') / 'campaigns.db'}")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def dashboard(store: Store) -> Iterator[Dashboard]:
    with running(prepare(store, port=0, token=TOKEN)) as served:
        yield served


PAGES = [
    "/",
    "/campaigns/x",
    "/sessions/x",
    "/nothing",
    "/static/campaign.js",
    "/api/v1/campaigns",
    "/api/v1/openapi.json",
]


def access_of(dashboard: Dashboard) -> Access:
    access = dashboard.server.config.app.state.access  # type: ignore[union-attr]
    assert isinstance(access, Access)
    return access


@pytest.mark.parametrize("path", PAGES)
def test_everything_needs_the_token(stranger: httpx.Client, path: str) -> None:
    answer = stranger.get(path)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "kernel-agent serve" in answer.json()["detail"]


def test_every_route_but_the_open_ones_needs_the_token(
    stranger: httpx.Client, dashboard: Dashboard, store: Store
) -> None:
    routers: list[APIRouter] = [
        login_router(access_of(dashboard)),
        static_router(),
        page_router(store),
        api_router(store, Curves(store), lambda: False),
    ]
    paths = {re.sub(r"\{[^}]*\}", "x", route.path) for router in routers for route in router.routes}  # type: ignore[attr-defined]
    assert {"/", "/campaigns/x", "/api/v1/campaigns/x/events"} <= paths
    assert {path for path in paths if stranger.get(path).status_code != 401} == {"/login"}


@pytest.mark.parametrize(
    "header", ["Bearer wrong", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer", "Bearer \xff\xfe"]
)
def test_a_wrong_token_is_refused(stranger: httpx.Client, header: str) -> None:
    assert stranger.get("/", headers={b"Authorization": header.encode("latin-1")}).status_code == 401


def test_the_token_and_the_scheme_s_case(client: httpx.Client) -> None:
    assert client.get("/").status_code == 200
    assert client.get("/", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200


def test_health_says_nothing_else(stranger: httpx.Client) -> None:
    answer = stranger.get("/healthz")
    assert (answer.status_code, answer.text) == (200, "ok")


@pytest.mark.parametrize("path", ["/healthz", "/", "/login", "/static/style.css", "/api/v1/campaigns"])
def test_another_host_name_is_refused_even_with_the_token(client: httpx.Client, path: str) -> None:
    answer = client.get(path, headers={"Host": "attacker.example"})
    assert answer.status_code == 421
    assert "--host" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["127.0.0.1/healthz?", "127.0.0.1/static/style.css#", "[::1", "a@127.0.0.1", "::::"])
def test_a_host_header_cannot_forge_the_path(stranger: httpx.Client, host: str) -> None:
    assert stranger.get("/api/v1/campaigns", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("path", ["//healthz", "/healthz/", "/login/../", "/%68ealthz/../api/v1/campaigns", "/LOGIN"])
def test_near_misses_of_open_paths_are_closed(stranger: httpx.Client, path: str) -> None:
    assert stranger.get(path).status_code in (401, 421)


@pytest.mark.parametrize("host", ["127.0.0.1:1234", "localhost", "LOCALHOST:80", "[::1]:8765"])
def test_loopback_names_are_allowed(client: httpx.Client, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["", "localhost@evil", "localhost/evil", "evil#localhost", "[::1", "localhost.evil.example"]
)
def test_odd_host_headers_name_nothing_allowed(host: str) -> None:
    assert host_name(host) not in ("127.0.0.1", "localhost", "::1")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "own", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "own", "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "same-origin"},
        {},
    ],
)
def test_a_post_from_elsewhere_is_refused(stranger: httpx.Client, headers: dict[str, str]) -> None:
    if headers.get("Origin") == "own":
        headers = {**headers, "Origin": str(stranger.base_url).rstrip("/")}
    answer = stranger.post("/login", content=f"token={TOKEN}", headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_the_login_form_takes_the_token(stranger: httpx.Client) -> None:
    headers = {"Origin": str(stranger.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    wrong = stranger.post("/login", content="token=wrong", headers=headers)
    assert wrong.status_code == 401
    assert "not this dashboard" in wrong.text
    assert stranger.post("/login", content="token=" + "x" * 5000, headers=headers).status_code == 413
    assert stranger.get("/").status_code == 401
    assert stranger.post("/login", content=f"token={TOKEN}", headers=headers).status_code == 200
    assert stranger.get("/").status_code == 200


def test_the_one_time_url_works_once(stranger: httpx.Client, dashboard: Dashboard) -> None:
    access = access_of(dashboard)
    url = f"/login?once={access.issue_once()}"
    first = stranger.get(url)
    assert first.status_code == 200
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert stranger.get("/").status_code == 200
    stranger.cookies.clear()
    second = stranger.get(url)
    assert second.status_code == 410
    assert "set-cookie" not in second.headers
    assert stranger.get("/").status_code == 401


def test_a_guessed_one_time_secret_leaves_the_real_one_valid(stranger: httpx.Client, dashboard: Dashboard) -> None:
    access = access_of(dashboard)
    assert stranger.get("/login?once=").status_code == 410
    secret = access.issue_once()
    assert stranger.get("/login?once=guess").status_code == 410
    assert stranger.head(f"/login?once={secret}").status_code == 405
    assert stranger.get(f"/login?once={secret}").status_code == 200


def test_a_forged_cookie_is_refused_and_none_is_shared(stranger: httpx.Client, dashboard: Dashboard) -> None:
    access = access_of(dashboard)
    stranger.cookies.set(access.cookie_name, "forged")
    assert stranger.get("/").status_code == 401
    other = Access("another-token-for-tests")
    assert other.cookie_name != access.cookie_name
    stranger.cookies.set(access.cookie_name, other.cookie_value)
    assert stranger.get("/").status_code == 401
    assert Access(TOKEN).cookie_value == access.cookie_value


def test_a_short_token_is_no_token(store: Store) -> None:
    with pytest.raises(UsageError, match="at least 16"):
        create_app(store, token="short")


@pytest.mark.parametrize("path", ["/", "/login", "/healthz", "/nothing", "/static/style.css", "/api/v1/campaigns/none"])
def test_every_answer_carries_the_headers(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert "cache-control" in answer.headers
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_the_policy_allows_nothing_inline(client: httpx.Client) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_pages_hold_no_inline_script_or_style(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store)
    session = writer.session("p")
    session.improve("x = 1", 2.0)
    for path in ("/", f"/campaigns/{writer.id}", f"/sessions/{session.session_id}", "/login", "/nothing"):
        text = client.get(path, headers={"Accept": "text/html"}).text
        assert "<!doctype html>" in text
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|<script(?![^>]*\ssrc=)", text)


def test_a_preflight_is_not_answered(client: httpx.Client) -> None:
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "GET"}
    answer = client.options("/api/v1/campaigns", headers=headers)
    assert answer.status_code == 405
    assert "access-control-allow-origin" not in answer.headers
