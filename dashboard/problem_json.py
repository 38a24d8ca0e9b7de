"""Errors as the asker can read them: problem+json (RFC 9457) for programs, a page for browsers."""

from __future__ import annotations

import http
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response

from dashboard.rendering import page
from kernel_agent.errors import KernelAgentError, NotFoundError, UsageError
from kernel_agent.plain_text import plain


class ProblemDetail(BaseModel):
    """Body of every error of the API, as ``application/problem+json``."""

    model_config = ConfigDict(frozen=True)

    type: str = "about:blank"
    title: str
    status: int
    detail: str


class ProblemResponse(Response):
    media_type = "application/problem+json"


def error_response(
    connection: HTTPConnection, status: int, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    """The error in the form the asker reads: a page only where a browser asked for one outside the API."""
    title = http.HTTPStatus(status).phrase
    detail = plain(detail)
    if "text/html" in connection.headers.get("accept", "") and not connection.scope["path"].startswith("/api/"):
        return page("error.html", status, headers=headers, title=title, detail=detail, status=status)
    problem = ProblemDetail(title=title, status=status, detail=detail)
    return ProblemResponse(problem.model_dump_json(), status, headers)


def install_handlers(app: FastAPI, extra_headers: Mapping[str, str]) -> None:
    """Every error leaves in the form above. ``extra_headers``: for the last resort, which no middleware passes."""

    def ours(request: Request, error: Exception) -> Response:
        return error_response(request, _status_of(error), str(error))

    def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return error_response(request, error.status_code, error.detail, error.headers)

    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = "; ".join(f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors())
        return error_response(request, 422, faults)

    def unexpected(request: Request, error: Exception) -> Response:  # noqa: ARG001 - the traceback goes to the log
        detail = "The dashboard failed on this request; its log has the traceback."
        return error_response(request, 500, detail, headers=extra_headers)

    app.add_exception_handler(KernelAgentError, ours)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, unexpected)


def _status_of(error: Exception) -> int:
    if isinstance(error, NotFoundError):
        return 404
    return 400 if isinstance(error, UsageError) else 503
