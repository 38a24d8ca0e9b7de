"""Conditional answers: what has not changed is not sent again."""

from __future__ import annotations

import hashlib

from starlette.requests import Request
from starlette.responses import Response


def conditional(request: Request, body: str, media_type: str = "application/json") -> Response:
    """``body`` with its ETag, or 304 when the asker has it already."""
    content = body.encode()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    known = {part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")}
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)
