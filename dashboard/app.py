"""The dashboard as an ASGI application: pages, API and event streams on one store, behind one token."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

from fastapi import FastAPI
from starlette.responses import PlainTextResponse

from dashboard.api.routes import api_router
from dashboard.pages import login_router, page_router
from dashboard.problem_json import install_handlers
from dashboard.security import HEADERS, Access, Guard
from dashboard.static_files import static_router
from dashboard.views import Curves
from kernel_agent.store.repository import Store

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


def create_app(
    store: Store,
    *,
    token: str,
    allowed_hosts: tuple[str, ...] = LOOPBACK_HOSTS,
    stopping: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """The application on an open store, which the caller closes.

    ``allowed_hosts``: names it may be asked by, without port. ``stopping``: true once the server goes down, so that
    open streams end. ``app.state.access`` is the ``Access`` that issues one-time URLs.
    UsageError for a token too short.
    """
    access = Access(token)
    app = FastAPI(
        title="kernel-agent",
        version=importlib.metadata.version("kernel-agent"),
        description="Campaigns, sessions, candidates and their verdicts. Reading only; `Authorization: Bearer TOKEN`.",
        openapi_url="/api/v1/openapi.json",
        # The interactive pages load their scripts from elsewhere, which the content policy forbids.
        docs_url=None,
        redoc_url=None,
    )
    app.state.access = access
    app.add_middleware(Guard, access=access, allowed_hosts=allowed_hosts)
    install_handlers(app, HEADERS)

    @app.api_route("/healthz", methods=["GET", "HEAD"], include_in_schema=False)
    def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    app.include_router(login_router(access))
    app.include_router(static_router())
    app.include_router(page_router(store))
    app.include_router(api_router(store, Curves(store), stopping))
    return app
