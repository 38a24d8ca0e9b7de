"""Packaged files, and plotly.js as the installed plotly package ships it."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.resources
import re

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def static_router() -> APIRouter:
    """Files under /static. plotly.js carries its version in the path and may be kept; ours are asked for again."""
    router = APIRouter(include_in_schema=False)
    version = plotly_version()
    plotly = importlib.resources.files("plotly") / "package_data" / "plotly.min.js"
    ours = {
        file.name: file.read_bytes()
        for file in (importlib.resources.files("dashboard") / "static").iterdir()
        if suffix(file.name) in MEDIA_TYPES
    }

    @router.get(f"/static/plotly-{version}.min.js")
    def plotly_js() -> FileResponse:
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return FileResponse(str(plotly), media_type="text/javascript", headers=headers)

    @router.get("/static/{name}")
    def static_file(name: str) -> Response:
        if name not in ours:
            raise HTTPException(404, f"There is no file {name!r} among the dashboard's own.")
        headers = {"Cache-Control": "no-cache"}
        return Response(ours[name], media_type=MEDIA_TYPES[suffix(name)], headers=headers)

    return router


def plotly_version() -> str:
    """Version of the installed plotly package."""
    return importlib.metadata.version("plotly")


@functools.cache
def inline_style_ids() -> tuple[str, ...]:
    """Ids of the <style> elements that plotly.js inserts on loading, for maps, unless an element has the id already.

    The content policy refuses inline styles; pages carry placeholders with these ids, so that none is tried.
    """
    text = (importlib.resources.files("plotly") / "package_data" / "plotly.min.js").read_text("utf-8")
    return tuple(sorted(set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', text))))


def suffix(name: str) -> str:
    """``.js`` of ``campaign.js``."""
    return name[name.rfind(".") :]
