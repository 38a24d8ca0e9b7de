"""New caps for a campaign, and sessions that may go on under them."""

from __future__ import annotations

import os
import socket

from kernel_agent.engine.local import ENDED
from kernel_agent.errors import UsageError
from kernel_agent.model import Campaign
from kernel_agent.store.repository import Store

LEASE_SECONDS = 10.0
"""Long enough for the few writes made under it."""


def raise_caps(
    store: Store,
    campaign: Campaign,
    steps: int | None,
    max_cost_usd: float | None,
    max_cost_per_session_usd: float | None,
    max_hours: float | None,
) -> Campaign:
    """Replace the caps that are given; None keeps one. Sessions that ended at their last step go on under more steps.

    No engine may be running the campaign (``ownership.require_free``).
    """
    if steps is max_cost_usd is max_cost_per_session_usd is max_hours is None:
        return campaign
    before = campaign.settings
    changes: dict[str, float | int] = {}
    if steps is not None:
        changes["steps"] = steps
    if max_cost_per_session_usd is not None:
        changes["max_cost_usd"] = max_cost_per_session_usd
    changed = store.set_budget(
        campaign.id,
        before.budget.model_copy(update=changes),
        before.max_cost_usd if max_cost_usd is None else max_cost_usd,
        before.max_seconds if max_hours is None else max_hours * 3600,
    )
    for session in store.sessions(campaign.id):
        if session.state == "finished" and before.budget.steps <= session.steps < changed.settings.budget.steps:
            fence = store.acquire_session(session.id, f"{socket.gethostname()}:{os.getpid()}", LEASE_SECONDS)
            store.set_session_state(fence, "queued", "more steps were allowed")
            store.release_session(fence)
    return changed


def require_work(store: Store, campaign: Campaign, words: str) -> None:
    """Raise UsageError when every session has ended for good."""
    sessions = store.sessions(campaign.id)
    if all(session.state in ENDED for session in sessions):
        raise UsageError(
            f"nothing is left to do in campaign {campaign.id}: all {len(sessions)} sessions have ended. "
            f"`{words} resume {campaign.id} --steps N` gives those that used all their steps more than the "
            f"{campaign.settings.budget.steps} they had"
        )
