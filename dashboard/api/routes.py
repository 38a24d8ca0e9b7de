"""The API under /api/v1: what the pages show, for programs. Reading only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.responses import PlainTextResponse, Response

from dashboard.api.etag import conditional
from dashboard.api.model import CampaignPage, CandidatePage, EventPage
from dashboard.problem_json import ProblemDetail
from dashboard.stream import event_stream
from dashboard.views import Curves
from kernel_agent.errors import UsageError
from kernel_agent.figures import best_so_far
from kernel_agent.model import Campaign, Candidate, Session
from kernel_agent.report import Report, campaign_report
from kernel_agent.report_text import as_csv
from kernel_agent.store.repository import Store

Limit = Annotated[int, Query(ge=1, le=200, description="Items per page")]
Cursor = Annotated[str | None, Query(max_length=64, description="`next` of the page before")]
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"description": text, "content": {"application/problem+json": {"schema": ProblemDetail.model_json_schema()}}}
    for code, text in {
        400: "A parameter cannot be used",
        401: "The token is missing or wrong",
        404: "No such thing; the detail names near ones",
        422: "A parameter is malformed",
        503: "The store cannot be read",
    }.items()
}


def api_router(store: Store, curves: Curves, stopping: Callable[[], bool]) -> APIRouter:
    """The routes, on ``store``. ``stopping`` ends open streams when the server goes down."""
    router = APIRouter(prefix="/api/v1", responses=ERRORS, tags=["v1"])

    @router.get("/campaigns")
    def campaigns(limit: Limit = 50, cursor: Cursor = None) -> CampaignPage:
        """Newest first."""
        found = store.campaigns()
        start = 0
        if cursor is not None:
            ids = [campaign.id for campaign in found]
            if cursor not in ids:
                raise UsageError(f"cursor {cursor!r} is not a campaign of this store: start again without it.")
            start = ids.index(cursor) + 1
        items = tuple(found[start : start + limit])
        return CampaignPage(items=items, next=items[-1].id if start + limit < len(found) else None)

    @router.get("/campaigns/{campaign}")
    def campaign(campaign: str) -> Campaign:
        """By id, unique prefix of an id, or name."""
        return store.campaign(campaign)

    @router.get("/campaigns/{campaign}/sessions")
    def sessions(campaign: str) -> list[Session]:
        """All of a campaign, with their totals."""
        return store.sessions(store.campaign(campaign).id)

    @router.get(
        "/campaigns/{campaign}/curves",
        response_class=Response,
        responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
    )
    def curve_figure(campaign: str, request: Request) -> Response:
        """Best-so-far of every session, as a Plotly figure."""
        return conditional(request, best_so_far(curves.of(store.campaign(campaign))).to_json())

    @router.get("/campaigns/{campaign}/report")
    def report(campaign: str) -> Report:
        """Totals per problem and in all."""
        return campaign_report(store, campaign)

    @router.get(
        "/campaigns/{campaign}/report.csv",
        response_class=Response,
        responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
    )
    def report_csv(campaign: str) -> Response:
        """The report's table."""
        found = campaign_report(store, campaign)
        disposition = f'attachment; filename="campaign-{found.campaign_id}.csv"'
        return Response(as_csv(found), media_type="text/csv", headers={"Content-Disposition": disposition})

    @router.get(
        "/campaigns/{campaign}/events",
        response_model=EventPage,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    def events(
        campaign: str,
        request: Request,
        after: Annotated[int, Query(ge=0, description="Events after this sequence number")] = 0,
        limit: Limit = 100,
        last_event_id: Annotated[int | None, Header(ge=0)] = None,
    ) -> EventPage | StreamingResponse:
        """A page of JSON; with `Accept: text/event-stream`, a stream that goes on. Last-Event-ID wins over `after`."""
        found = store.campaign(campaign)
        start = after if last_event_id is None else last_event_id
        if "text/event-stream" in request.headers.get("accept", ""):
            stream = event_stream(store, found.id, start, request, stopping)
            return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        items = tuple(store.events(found.id, after_seq=start, limit=limit))
        return EventPage(items=items, next=str(items[-1].seq) if len(items) == limit else None)

    @router.get("/sessions/{session}")
    def session(session: str) -> Session:
        """One session with its totals."""
        return store.session(session)

    @router.get("/sessions/{session}/candidates")
    def candidates(session: str, limit: Limit = 50, cursor: Cursor = None) -> CandidatePage:
        """In order of submission, each with its verdicts."""
        if cursor is not None and not (cursor.isascii() and cursor.isdigit()):
            raise UsageError(f"cursor {cursor!r} is not a candidate's number: start again without it.")
        found = [c for c in store.candidates(store.session(session).id) if c.n > int(cursor or 0)]
        items = tuple(found[:limit])
        return CandidatePage(items=items, next=str(items[-1].n) if len(found) > limit else None)

    @router.get("/candidates/{candidate}")
    def candidate(candidate: str) -> Candidate:
        """One candidate with its verdicts."""
        return store.candidate(candidate)

    @router.get("/candidates/{candidate}/source", response_class=PlainTextResponse)
    def candidate_source(candidate: str) -> PlainTextResponse:
        """Its source as submitted: generated code, as text."""
        return PlainTextResponse(store.source(store.candidate(candidate).source_sha))

    return router
