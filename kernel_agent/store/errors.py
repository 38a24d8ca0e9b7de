"""What the store refuses, beyond plain failure."""

from __future__ import annotations

from kernel_agent.errors import StoreError


class StaleLeaseError(StoreError):
    """The writer lost its lease: someone else owns the session now, so its write was not made."""


class SessionOwnedError(StoreError):
    """The session has a living owner; the message names it and when its lease ends."""
