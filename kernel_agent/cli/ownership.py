"""Is a campaign's engine alive? Told by its sessions' leases, which a dead engine lets expire."""

from __future__ import annotations

import os
import socket

from kernel_agent.errors import UsageError
from kernel_agent.model import Campaign
from kernel_agent.store.repository import SessionOwnedError, Store

LEASE_SECONDS = 10.0
"""Long enough for the few writes made under it."""


def require_free(store: Store, campaign: Campaign) -> None:
    """Raise UsageError when another engine runs it, or died so lately that its lease still stands."""
    try:
        _release_abandoned(store, campaign)
    except SessionOwnedError as error:
        raise UsageError(f"campaign {campaign.id} is being run by another process: {error}") from error


def settle_if_abandoned(store: Store, campaign: Campaign) -> bool:
    """When no engine is alive: mark the sessions it left running as stopped. False: one is alive."""
    try:
        _release_abandoned(store, campaign, stop=True)
    except SessionOwnedError:
        return False
    return True


def _release_abandoned(store: Store, campaign: Campaign, *, stop: bool = False) -> None:
    owner = f"{socket.gethostname()}:{os.getpid()}"
    for session in store.sessions(campaign.id):
        if session.state == "running":
            fence = store.acquire_session(session.id, owner, LEASE_SECONDS)
            if stop:
                store.set_session_state(fence, "stopped", "its engine had gone")
            store.release_session(fence)
