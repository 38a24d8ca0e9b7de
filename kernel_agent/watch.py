"""Watching a campaign in a terminal: a table that is redrawn, or a line per event where there is no terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kernel_agent.model import Campaign, Event, Session
from kernel_agent.plain_text import plain_line
from kernel_agent.report import session_label
from kernel_agent.store.repository import Store

PAGE = 500
HYPOTHESIS_CHARACTERS = 100


class Watch(Protocol):
    """Shows what is new whenever ``tick`` is called; used as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def tick(self) -> None: ...


def watch(store: Store, campaign_id: str, console: Console) -> Watch:
    """The table on a terminal, lines elsewhere. Lines begin with what happens from now on."""
    if console.is_terminal:
        return _TableWatch(store, campaign_id, console)
    return _LineWatch(store, campaign_id, console)


class _TableWatch:
    def __init__(self, store: Store, campaign_id: str, console: Console) -> None:
        self._store, self._id = store, campaign_id
        self._seen = -1
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        self.tick()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def tick(self) -> None:
        campaign = self._store.campaign(self._id)
        # Every change is an event: without a new one there is nothing to draw.
        if campaign.last_seq != self._seen:
            self._seen = campaign.last_seq
            self._live.update(progress(campaign, self._store.sessions(self._id)), refresh=True)


class _LineWatch:
    def __init__(self, store: Store, campaign_id: str, console: Console) -> None:
        self._store, self._id, self._console = store, campaign_id, console
        self._seen = store.campaign(campaign_id).last_seq

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tick()

    def tick(self) -> None:
        while events := self._store.events(self._id, self._seen, PAGE):
            self._seen = events[-1].seq
            for event in events:
                if (line := event_line(event)) is not None:
                    self._console.print(Text(line), soft_wrap=True)


def progress(campaign: Campaign, sessions: list[Session]) -> RenderableType:
    """A campaign as it is now: a row per session."""
    settings = campaign.settings
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("session", "problem", "state", "steps", "candidates", "best", "compactions", "cost"):
        table.add_column(name, justify="left" if name in ("session", "problem", "state") else "right", overflow="fold")
    for session in sessions:
        cells = (
            session.id,
            plain_line(session_label(session, settings.rollouts)),
            session.state,
            f"{session.steps}/{settings.budget.steps}",
            _statuses(session),
            _best(session),
            str(session.compactions),
            _money(session.spent_usd, settings.budget.max_cost_usd),
        )
        table.add_row(*map(Text, cells))
    reason = f" ({plain_line(campaign.reason)})" if campaign.reason else ""
    head = f"{plain_line(settings.name)} ({campaign.id}): {campaign.state}{reason}"
    spent = f"spent {_money(campaign.spent_usd, settings.max_cost_usd)} at {plain_line(settings.price.name)} prices"
    why = [
        Text(f"{s.id} {s.state}: {plain_line(s.reason)}")
        for s in sessions
        if s.state in ("failed", "stalled", "stopped")
    ]
    return Group(Text(head, style="bold"), table, *why, Text(spent))


def event_line(event: Event) -> str | None:
    """What happened, on one line; None for what only counts (steps, sessions created)."""
    data, where = event.data, f"[{event.session_id or event.campaign_id}]"
    match event.kind:
        case "candidate":
            words = plain_line(str(data["hypothesis"]))[:HYPOTHESIS_CHARACTERS]
            text = f"step {data['step']}: candidate #{data['n']}{': ' if words else ''}{words}"
        case "evaluation":
            number = "" if data["speedup"] is None else f" {data['speedup']:.2f}×"
            text = f"candidate #{data['n']} {data['purpose']}: {data['status']}{number}"
            if data["status"] != "correct":
                text += f", {plain_line(str(data['reason']))}"
        case "improvement":
            interval = f"{data['low']:.2f} to {data['high']:.2f}"
            text = f"new best: candidate #{data['attempt']} {data['speedup']:.2f}× ({interval})"
        case "compaction":
            tokens = f"{data['tokens_before']:,} to {data['tokens_after']:,} tokens"
            text = f"context compacted at step {data['from_step']}: {tokens}"
        case "session.state" | "campaign.state":
            reason = plain_line(str(data["reason"]))
            text = f"{event.kind.partition('.')[0]} {data['state']}{': ' if reason else ''}{reason}"
        case "session.restarted":
            text = f"its process died (exit code {data['exit_code']}) and was started again"
        case "budget.warning" | "budget.exhausted":
            text = plain_line(str(data["message"]))
        case _:
            return None
    return f"{where} {text}"


def _statuses(session: Session) -> str:
    counts = ", ".join(f"{n} {status}" for status, n in sorted(session.statuses.items(), key=lambda pair: -pair[1]))
    return f"{session.candidates}" + (f" ({counts})" if counts else "")


def _best(session: Session) -> str:
    best = session.best
    return "–" if best is None else f"{best.speedup:.2f}× ({best.speedup_low:.2f}–{best.speedup_high:.2f})"


def _money(spent: float, cap: float | None) -> str:
    return f"${spent:,.4f}" if cap is None else f"${spent:,.4f} of ${cap:,.2f}"
