"""The API: complete, paged, conditional, and errors as problem+json."""

from __future__ import annotations

import csv
import io

import httpx

from kernel_agent.model import Campaign, Candidate, Session
from kernel_agent.report import Report
from kernel_agent.store.repository import Store
from tests.dashboard.written_campaign import CampaignWriter

API = "/api/v1"


def test_campaigns_are_paged_newest_first(client: httpx.Client, store: Store) -> None:
    made = [CampaignWriter(store, f"number {n}").id for n in range(5)]
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = client.get(f"{API}/campaigns", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        seen += [Campaign.model_validate(item).id for item in page["items"]]
        cursor = page["next"]
    assert sorted(seen) == sorted(made)
    assert seen == [campaign.id for campaign in store.campaigns()]
    assert client.get(f"{API}/campaigns", params={"cursor": "gone"}).status_code == 400


def test_a_campaign_by_id_prefix_or_name(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store, "first-try")
    for name in (writer.id, writer.id[:5], "first-try"):
        assert Campaign.model_validate(client.get(f"{API}/campaigns/{name}").json()).id == writer.id


def test_sessions_come_with_their_totals(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store)
    writer.session("p/a").improve("x = 1", 2.0)
    writer.session("p/b")
    listed = client.get(f"{API}/campaigns/{writer.id}/sessions").json()
    assert [Session.model_validate(item) for item in listed] == store.sessions(writer.id)
    assert client.get(f"{API}/sessions/{listed[0]['id']}").json() == listed[0]


def test_candidates_are_paged_in_order(client: httpx.Client, store: Store) -> None:
    session = CampaignWriter(store).session("p")
    for n in range(5):
        session.attempt(f"x = {n}", "incorrect")
    path = f"{API}/sessions/{session.session_id}/candidates"
    first = client.get(path, params={"limit": 3}).json()
    rest = client.get(path, params={"limit": 3, "cursor": first["next"]}).json()
    found = [Candidate.model_validate(item) for item in first["items"] + rest["items"]]
    assert found == store.candidates(session.session_id)
    assert rest["next"] is None
    assert client.get(path, params={"cursor": "-1"}).status_code == 400
    assert client.get(path, params={"limit": 0}).status_code == 422


def test_a_source_is_plain_text(client: httpx.Client, store: Store) -> None:
    session = CampaignWriter(store).session("p")
    candidate = session.attempt("<script>alert(1)</script>", "incorrect")
    answer = client.get(f"{API}/candidates/{candidate.id}/source")
    assert answer.text == "<script>alert(1)</script>"
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get(f"{API}/candidates/{candidate.id}").json()["n"] == 1


def test_curves_are_a_figure_and_conditional(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store)
    session = writer.session("p")
    session.improve("x = 1", 1.5)
    path = f"{API}/campaigns/{writer.id}/curves"
    first = client.get(path)
    assert first.json()["data"][0]["y"] == [1.5]
    assert client.get(path, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    session.step()
    grown = client.get(path, headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    assert grown.status_code == 200
    assert grown.json()["data"][0]["x"] == [0, 1]
    session.improve("x = 2", 1.9)
    assert client.get(path).json()["data"][0]["y"] == [1.5, 1.9]


def test_the_report_as_json_and_csv(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store)
    writer.session("p").improve("x = 1", 1.5)
    report = Report.model_validate(client.get(f"{API}/campaigns/{writer.id}/report").json())
    assert report.problems[0].speedup == 1.5
    answer = client.get(f"{API}/campaigns/{writer.id}/report.csv")
    assert answer.headers["content-disposition"] == f'attachment; filename="campaign-{writer.id}.csv"'
    assert next(csv.DictReader(io.StringIO(answer.text)))["speedup"] == "1.5"


def test_events_as_pages(client: httpx.Client, store: Store) -> None:
    writer = CampaignWriter(store)
    session = writer.session("p")
    for _ in range(5):
        session.step()
    path = f"{API}/campaigns/{writer.id}/events"
    first = client.get(path, params={"limit": 4}).json()
    assert [item["seq"] for item in first["items"]] == [1, 2, 3, 4]
    rest = client.get(path, params={"limit": 200, "after": first["next"]}).json()
    assert [item["seq"] for item in rest["items"]] == list(range(5, store.campaign(writer.id).last_seq + 1))
    assert rest["next"] is None
    assert client.get(path, params={"after": -1}).status_code == 422
    assert client.get(path, headers={"Last-Event-ID": "nonsense"}).status_code == 422


def test_what_is_not_there_is_a_problem(client: httpx.Client) -> None:
    for path in (
        "campaigns/none",
        "campaigns/none/sessions",
        "campaigns/none/curves",
        "campaigns/none/report",
        "campaigns/none/events",
        "sessions/none",
        "sessions/none/candidates",
        "candidates/none",
        "candidates/none/source",
        "none",
    ):
        answer = client.get(f"{API}/{path}", headers={"Accept": "text/html"})
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert (problem["status"], problem["title"]) == (404, "Not Found")


def test_the_api_only_reads(client: httpx.Client) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        answer = client.request(method, f"{API}/campaigns")
        assert answer.status_code == 405
        assert answer.headers["content-type"] == "application/problem+json"


def test_the_description_names_every_route_and_error(client: httpx.Client) -> None:
    description = client.get(f"{API}/openapi.json").json()
    assert {path.removeprefix(API) for path in description["paths"]} == {
        "/campaigns",
        "/campaigns/{campaign}",
        "/campaigns/{campaign}/sessions",
        "/campaigns/{campaign}/curves",
        "/campaigns/{campaign}/report",
        "/campaigns/{campaign}/report.csv",
        "/campaigns/{campaign}/events",
        "/sessions/{session}",
        "/sessions/{session}/candidates",
        "/candidates/{candidate}",
        "/candidates/{candidate}/source",
    }
    for path in description["paths"].values():
        responses = path["get"]["responses"]
        assert {"200", "401", "404", "503"} <= set(responses)
        assert "application/problem+json" in responses["404"]["content"]
