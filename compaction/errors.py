"""The one error class of the package."""

from __future__ import annotations


class CompactionError(Exception):
    """A strategy, a history or a budget that cannot be used; the message says what, where and the remedy."""
