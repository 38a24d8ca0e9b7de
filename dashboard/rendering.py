"""Templates to pages. Everything a template prints is escaped, and stripped of control characters first."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from dashboard import words
from kernel_agent.plain_text import plain


@functools.cache
def environment() -> Environment:
    """The one template environment; built at the first page, not at import."""
    made = Environment(
        loader=PackageLoader("dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(words.FILTERS)
    return made


def page(
    template: str, status_code: int = 200, headers: Mapping[str, str] | None = None, **values: Any
) -> HTMLResponse:
    """``template`` filled with ``values``."""
    return HTMLResponse(environment().get_template(template).render(**values), status_code, headers)


def _finalize(value: Any) -> Any:
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value
