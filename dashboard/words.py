"""Numbers, times and events in the words of the pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape

from kernel_agent.figures import style_of
from kernel_agent.model import Event, Improvement, Usage
from kernel_agent.plain_text import plain_line

EVENT_CHARACTERS = 240
"""An event is one line of a list; what a kernel printed can be pages."""


def count(number: int) -> str:
    """1234 as ``1,234``."""
    return f"{number:,}"


def short_count(number: int) -> str:
    """Tokens to three digits: 950, 12.3k, 1.25M."""
    value, unit = float(number), ""
    for unit in ("", "k", "M", "G"):  # noqa: B007 - the last unit tried is the answer
        if value < 999.5:
            break
        value /= 1000
    else:
        value *= 1000
    return f"{value:.3g}{unit}" if value < 999.5 else f"{value:,.0f}{unit}"


def usd(amount: float) -> str:
    """Dollars to the cent; small amounts to two digits that say something."""
    return f"${amount:,.2f}" if amount >= 0.1 or amount == 0 else f"${amount:.2g}"


def speedup(ratio: float) -> str:
    """``1.84×``; three digits."""
    return f"{ratio:.2f}×" if ratio < 100 else f"{ratio:.0f}×"


def interval(best: Improvement) -> str:
    """The 95% interval of a confirmed result."""
    return f"{best.speedup_low:.2f}–{best.speedup_high:.2f}"


def tokens(usage: Usage) -> int:
    """Tokens that went in and came out."""
    return usage.prompt_tokens + usage.completion_tokens


def cached_share(usage: Usage) -> str:
    """Share of prompt tokens read from the provider's cache."""
    return f"{usage.cached_tokens / usage.prompt_tokens:.0%}" if usage.prompt_tokens else "0%"


def clock(moment: datetime) -> str:
    """UTC, to the second."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def status_words(status: str) -> str:
    """``compile_error`` as ``compile error``."""
    return status.replace("_", " ")


def by_count(statuses: Mapping[str, int]) -> list[tuple[str, int]]:
    """Verdicts for reading: correct first, then the most frequent."""
    return sorted(statuses.items(), key=lambda item: (item[0] != "correct", -item[1], item[0]))


def swatch(position: int) -> str:
    """Style-sheet classes that give a table row the colour and dash of its curve."""
    colour, dash = style_of(position)
    return f"swatch-{colour} dash-{dash}"


def event_text(event: Event) -> str:
    """One line about an event; of a kind this page does not know, its data as they are."""
    data = event.data
    try:
        text = _TEXTS[event.kind](data) if event.kind in _TEXTS else ""
    except (KeyError, TypeError, ValueError):
        # The writer changed what it says about this kind: show that rather than no page.
        text = ""
    text = text or ", ".join(f"{key} {_value(value)}" for key, value in data.items())
    text = plain_line(text)
    return text if len(text) <= EVENT_CHARACTERS else text[: EVENT_CHARACTERS - 1] + "…"


def breakable(text: str) -> Markup:
    """A problem's id, escaped, that may be broken after each of its separators."""
    return Markup(re.sub(r"([/_.-])", r"\1<wbr>", str(escape(plain_line(text)))))


def _improvement(data: dict[str, Any]) -> str:
    return (
        f"new best {speedup(float(data['speedup']))} (95%: {float(data['low']):.2f}–{float(data['high']):.2f}) "
        f"by attempt {data['attempt']} of step {data['step']}"
    )


def _candidate(data: dict[str, Any]) -> str:
    hypothesis = data.get("hypothesis")
    return f"attempt {data['n']} of step {data['step']}" + (f": {hypothesis}" if hypothesis else "")


def _evaluation(data: dict[str, Any]) -> str:
    what = {"screen": "screened", "promote": "measured against the best", "final": "measured finally"}[data["purpose"]]
    ratio = data.get("speedup")
    said = status_words(data["status"]) + (f", {speedup(float(ratio))}" if ratio is not None else "")
    return f"attempt {data['n']} {what}: {said}"


def _compaction(data: dict[str, Any]) -> str:
    before, after = short_count(data["tokens_before"]), short_count(data["tokens_after"])
    return f"context cut from {before} to {after} tokens before step {data['from_step']}"


def _step(data: dict[str, Any]) -> str:
    return f"step {data['idx']}, {usd(float(data['cumulative_usd']))} so far"


def _state(data: dict[str, Any]) -> str:
    reason = data.get("reason")
    return f"{data['state']}: {reason}" if reason else str(data["state"])


def _created(data: dict[str, Any]) -> str:
    return f"waiting to start on {data['profile']}"


def _message(data: dict[str, Any]) -> str:
    return str(data["message"])


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


_TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "improvement": _improvement,
    "candidate": _candidate,
    "evaluation": _evaluation,
    "compaction": _compaction,
    "step": _step,
    "campaign.state": _state,
    "session.state": _state,
    "session.created": _created,
    "budget.warning": _message,
    "budget.exhausted": _message,
}

FILTERS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        count,
        short_count,
        usd,
        speedup,
        interval,
        tokens,
        cached_share,
        clock,
        status_words,
        by_count,
        swatch,
        event_text,
        breakable,
    )
}
