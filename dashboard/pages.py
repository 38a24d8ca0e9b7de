"""The pages: campaigns, one campaign, one session, and the way in."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, Response

from dashboard.problem_json import error_response
from dashboard.rendering import page
from dashboard.security import Access
from dashboard.static_files import inline_style_ids, plotly_version
from dashboard.views import campaign_card, campaign_view
from kernel_agent.report import session_label
from kernel_agent.store.repository import Store

CAMPAIGNS_PER_PAGE = 20
CANDIDATES_PER_PAGE = 100
FORM_BYTES = 4096


def page_router(store: Store) -> APIRouter:
    """Pages on ``store``; they are no part of the API's description."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def index(number: Annotated[int, Query(alias="page", ge=1)] = 1) -> HTMLResponse:
        campaigns = store.campaigns()
        start = (number - 1) * CAMPAIGNS_PER_PAGE
        shown = campaigns[start : start + CAMPAIGNS_PER_PAGE]
        more = start + CAMPAIGNS_PER_PAGE < len(campaigns)
        cards = [campaign_card(store, campaign) for campaign in shown]
        return page("index.html", cards=cards, number=number, more=more)

    @router.get("/campaigns/{campaign}")
    def campaign_page(campaign: str) -> HTMLResponse:
        return page(
            "campaign.html",
            view=campaign_view(store, campaign),
            plotly_version=plotly_version(),
            inline_style_ids=inline_style_ids(),
        )

    @router.get("/campaigns/{campaign}/live")
    def live_part(campaign: str) -> HTMLResponse:
        """The part of the campaign's page that changes; its script fetches it again after an event."""
        return page("_live.html", view=campaign_view(store, campaign))

    @router.get("/sessions/{session}")
    def session_page(session: str, after: Annotated[int, Query(ge=0)] = 0) -> HTMLResponse:
        found = store.session(session)
        campaign = store.campaign(found.campaign_id)
        rest = [candidate for candidate in store.candidates(found.id) if candidate.n > after]
        return page(
            "session.html",
            session=found,
            campaign=campaign,
            label=session_label(found, campaign.settings.rollouts),
            candidates=rest[:CANDIDATES_PER_PAGE],
            next=rest[CANDIDATES_PER_PAGE - 1].n if len(rest) > CANDIDATES_PER_PAGE else None,
        )

    return router


def login_router(access: Access) -> APIRouter:
    """The one-time URL and the login form."""
    router = APIRouter(include_in_schema=False)

    @router.get("/login")
    def login(request: Request, once: str | None = None) -> Response:
        if once is None:
            return page("login.html", failed=False)
        if not access.redeem(once):
            return error_response(
                request,
                410,
                "This link is not valid: it was used already, or is from an earlier start. A one-time link works once; "
                "start `kernel-agent serve` again for a new one, or log in with the value of KERNEL_AGENT_TOKEN. "
                "A browser that is logged in already needs neither.",
            )
        return _welcome()

    @router.post("/login")
    async def login_form(request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_BYTES:
                return error_response(request, 413, "The form is too large to hold a token.")
        token = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        return _welcome() if access.is_token(token.strip()) else page("login.html", 401, failed=True)

    def _welcome() -> Response:
        # Not a redirect: a link followed from another site (a web terminal) makes the whole chain cross-site, and the
        # browser would withhold the strict cookie it has just been given. This page moves on by itself.
        response = page("welcome.html")
        access.admit(response)
        return response

    return router
