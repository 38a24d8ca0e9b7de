"""What a page shows, gathered from the store in few queries."""

from __future__ import annotations

import threading

from pydantic import BaseModel, ConfigDict

from kernel_agent.figures import NamedCurve
from kernel_agent.model import Campaign, CurvePoint, Event, Session
from kernel_agent.report import best_of, by_problem, geometric_mean, named_curves, session_label
from kernel_agent.store.repository import Store

EVENTS_SHOWN = 15
EVENTS_READ = 120
"""Steps are the most frequent events and say least: the list leaves them out, so it looks further back."""
BESTS_SHOWN = 3


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Best(Frozen):
    """A problem's best confirmed result."""

    problem: str
    speedup: float


class CampaignCard(Frozen):
    """One line of the list of campaigns."""

    campaign: Campaign
    bests: tuple[Best, ...]
    """The largest few."""
    solved: int
    problems: int
    steps: int
    geometric_mean: float | None


class SessionRow(Frozen):
    """One line of a campaign's table; ``position`` is that of its curve."""

    position: int
    label: str
    session: Session


class CampaignView(Frozen):
    campaign: Campaign
    rows: tuple[SessionRow, ...]
    events: tuple[Event, ...]
    """Newest first, without steps."""
    labels: dict[str, str]
    """Session id to its label, for the events."""


class Curves:
    """Curves of sessions, each read again only after a new best: improvements are append-only. Thread-safe."""

    def __init__(self, store: Store, capacity: int = 2000) -> None:
        self._store = store
        self._capacity = capacity
        self._known: dict[tuple[str, int], tuple[CurvePoint, ...]] = {}
        self._lock = threading.Lock()

    def of(self, campaign: Campaign) -> tuple[NamedCurve, ...]:
        """One curve per session of ``campaign``, in the order of the table."""
        return tuple(self._curve(campaign, session) for session in self._store.sessions(campaign.id))

    def _curve(self, campaign: Campaign, session: Session) -> NamedCurve:
        key = (session.id, session.best.n if session.best else -1)
        with self._lock:
            points = self._known.get(key)
        if points is None:
            (curve,) = named_curves(self._store, campaign, [session])
            points = curve.points
            with self._lock:
                while len(self._known) >= self._capacity:
                    self._known.pop(next(iter(self._known)))
                self._known[key] = points
        label = session_label(session, campaign.settings.rollouts)
        return NamedCurve(label=label, points=points, last_step=max(session.steps - 1, 0))


def campaign_card(store: Store, campaign: Campaign) -> CampaignCard:
    """The campaign's line in the list."""
    sessions = store.sessions(campaign.id)
    groups = by_problem(sessions)
    found = [best for group in groups if (best := best_of(group))]
    bests = [Best(problem=session.problem_id, speedup=best.speedup) for session, best in found]
    return CampaignCard(
        campaign=campaign,
        bests=tuple(sorted(bests, key=lambda best: -best.speedup)[:BESTS_SHOWN]),
        solved=len(bests),
        problems=len(groups) or len(campaign.settings.problem_ids),
        steps=sum(session.steps for session in sessions),
        geometric_mean=geometric_mean([best.speedup for best in bests]),
    )


def campaign_view(store: Store, campaign_id: str) -> CampaignView:
    """The campaign's page. Events are read up to the campaign's own count, so that the stream goes on from there."""
    campaign = store.campaign(campaign_id)
    sessions = store.sessions(campaign.id)
    rows = tuple(
        SessionRow(position=n, label=session_label(session, campaign.settings.rollouts), session=session)
        for n, session in enumerate(sessions)
    )
    events = store.events(campaign.id, after_seq=max(campaign.last_seq - EVENTS_READ, 0), limit=EVENTS_READ)
    told = [event for event in reversed(events) if event.kind != "step"]
    return CampaignView(
        campaign=campaign,
        rows=rows,
        events=tuple(told[:EVENTS_SHOWN]),
        labels={row.session.id: row.label for row in rows},
    )
