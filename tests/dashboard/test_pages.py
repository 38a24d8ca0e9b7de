"""Pages say what the store says, and show untrusted text as text."""

from __future__ import annotations

import httpx

from dashboard.static_files import inline_style_ids, plotly_version
from kernel_agent.store.repository import Store
from tests.dashboard.written_campaign import CampaignWriter

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202e'\""


def test_an_empty_store_says_what_to_run(client: httpx.Client) -> None:
    page = client.get("/").text
    assert "No campaigns yet" in page
    assert "kernel-agent demo" in page


def test_the_list_shows_state_problems_bests_and_spend(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store, "first try", max_cost_usd=5.0, provenance="scripted")
    for n, name in enumerate(["p/a", "p/b", "p/c", "p/d"]):
        writer.session(name).improve(f"x = {n}", 2.0 + n)
    writer.session("p/unsolved")
    page = client.get("/").text
    assert f'href="/campaigns/{writer.id}"' in page
    for shown in ("first try", "running", "scripted", "4 of 5", "5.00×", "3.00×", "$0.04", "of $5.00"):
        assert shown in page
    assert "2.00×" not in page, "only the largest three"


def test_the_list_has_pages(client: httpx.Client, store: Store) -> None:
    for n in range(21):
        CampaignWriter(store, f"campaign number {n:02}")
    first, second = client.get("/").text, client.get("/?page=2").text
    assert first.count('class="card"') == 20
    assert second.count('class="card"') == 1
    assert 'href="/?page=2"' in first
    assert 'href="/?page=2"' not in second
    assert "no campaigns on this page" in client.get("/?page=9").text


def test_a_campaign_s_page_has_its_table_and_events(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store, "first try", provenance="recorded")
    session = writer.session("p/attention")
    session.improve("x = 1", 1.5, hypothesis="fuse the softmax")
    session.attempt("x = 2", "compile_error")
    session.compact()
    session.finish("target reached")
    page = client.get(f"/campaigns/{writer.id}").text
    for shown in (
        "1.50×",
        "1.47–1.53",
        "1&nbsp;correct",
        "1&nbsp;compile error",
        "target reached",
        "4.2k",
        "50% cached",
    ):
        assert shown in page, shown
    assert "replies are recorded; every measurement is real" in page
    assert "new best 1.50× (95%: 1.47–1.53) by attempt 1 of step 0" in page
    assert "fuse the softmax" in page
    assert "context cut from 120k to 30k tokens" in page
    assert f'data-seq="{store.campaign(writer.id).last_seq}"' in page
    assert f"/static/plotly-{plotly_version()}.min.js" in page


def test_a_live_campaign_names_no_provenance(client: httpx.Client, store: Store) -> None:
    page = client.get(f"/campaigns/{CampaignWriter(store).id}").text
    assert "state-provenance" not in page
    assert "every measurement is real" not in page


def test_the_live_part_is_the_page_s_own(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store)
    writer.session("p").improve("x = 1", 2.0)
    page, live = client.get(f"/campaigns/{writer.id}").text, client.get(f"/campaigns/{writer.id}/live").text
    assert "<html" not in live
    for part in live.split("</section>")[:-1]:
        assert part.strip() in page


def test_rollouts_are_told_apart(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store, rollouts=2)
    writer.session("attention", 0)
    writer.session("attention", 1)
    page = client.get(f"/campaigns/{writer.id}").text
    assert "attention #1" in page
    assert "attention #2" in page


def test_a_session_s_page_tells_screening_from_confirmation(client: httpx.Client, store: Store) -> None:
    session = CampaignWriter(store).session("p")
    session.improve("x = 1", 2.0, hypothesis="unroll")
    session.attempt("x = 2", "correct", 1.2)
    session.attempt("x = 3", "runtime_error")
    page = client.get(f"/sessions/{session.session_id}").text
    assert '2.00×</strong>\n        <span class="soft">confirmed' in page
    assert '1.20×</strong>\n        <span class="soft">screening only' in page
    for shown in ("unroll", "new best", "runtime error", f"/api/v1/candidates/{session.session_id}-k3/source"):
        assert shown in page


def test_untrusted_text_is_shown_as_text(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store, HOSTILE, model=HOSTILE)
    session = writer.session(HOSTILE)
    session.improve("x = 1", 2.0, hypothesis=HOSTILE)
    session.finish(HOSTILE)
    store.add_event(writer.id, HOSTILE, session.session_id, {HOSTILE: HOSTILE})
    for path in ("/", f"/campaigns/{writer.id}", f"/sessions/{session.session_id}"):
        page = client.get(path).text
        assert "<img" not in page
        assert "&lt;img" in page
        assert "\x1b" not in page
        assert "\u202e" not in page
    figure = client.get(f"/api/v1/campaigns/{writer.id}/curves").json()
    assert figure["data"][0]["name"].startswith("&lt;img")


def test_an_event_of_an_unknown_form_does_not_break_the_page(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store)
    store.add_event(writer.id, "improvement", None, {"changed": "its form"})
    store.add_event(writer.id, "novelty", None, {"ratio": 0.123456, "list": [1, 2], "long": "x" * 1000})
    page = client.get(f"/campaigns/{writer.id}").text
    assert "changed its form" in page
    assert "ratio 0.1235, list [1, 2], long xxx" in page
    assert "x" * 300 not in page


def test_a_browser_gets_errors_as_pages(client: httpx.Client) -> None:
    for path in ("/campaigns/nothing", "/sessions/nothing", "/nothing", "/static/nothing"):
        answer = client.get(path, headers={"Accept": "text/html,*/*"})
        assert answer.status_code == 404
        assert "<h1>Not Found</h1>" in answer.text


def test_a_browser_without_the_token_is_shown_the_way_in(stranger: httpx.Client) -> None:
    answer = stranger.get("/", headers={"Accept": "text/html"})
    assert answer.status_code == 401
    assert 'href="/login"' in answer.text


def test_packaged_files_are_served(client: httpx.Client) -> None:
    assert client.get("/static/style.css").headers["content-type"].startswith("text/css")
    assert client.get("/static/campaign.js").headers["content-type"].startswith("text/javascript")
    plotly = client.get(f"/static/plotly-{plotly_version()}.min.js")
    assert plotly.status_code == 200
    assert "immutable" in plotly.headers["cache-control"]
    assert "Plotly" in plotly.text[:400]
    for traversal in ("/static/..%2Fapp.py", "/static/%2e%2e/app.py", "/static/"):
        assert client.get(traversal).status_code == 404


def test_placeholders_stop_plotly_s_own_styles(client: httpx.Client, store: Store) -> None:
    page = client.get(f"/campaigns/{CampaignWriter(store).id}").text
    assert inline_style_ids()
    for id_ in inline_style_ids():
        assert f'<meta id="{id_}"' in page
