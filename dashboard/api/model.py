"""What the API returns beyond the service's own nouns."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from kernel_agent.model import Campaign, Candidate, Event


class Page(BaseModel):
    model_config = ConfigDict(frozen=True)

    next: str | None
    """Pass as ``cursor`` for what follows; null on the last page."""


class CampaignPage(Page):
    items: tuple[Campaign, ...]


class CandidatePage(Page):
    items: tuple[Candidate, ...]


class EventPage(Page):
    items: tuple[Event, ...]
