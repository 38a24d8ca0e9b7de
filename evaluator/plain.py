"""Untrusted text made safe to show."""

from __future__ import annotations


def sanitize(text: str, limit: int = 4000) -> str:
    """No control sequences, a bounded tail."""
    kept = "".join(c for c in text if c in "\n\t" or c.isprintable())
    return kept if len(kept) <= limit else "…" + kept[-limit:]
