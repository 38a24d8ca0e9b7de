"""Seconds in state ``running``, kept across stops, resumes and deaths: pauses and downtime are not charged."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Timed(Protocol):
    ran_seconds: float
    running_since: datetime | None


def start(row: Timed, now: datetime) -> None:
    if row.running_since is None:
        row.running_since = now


def stop(row: Timed, now: datetime) -> None:
    """Close the running stretch at ``now``, or when its owner was last seen alive."""
    if row.running_since is not None:
        row.ran_seconds += max(0.0, (now - row.running_since).total_seconds())
        row.running_since = None


def seconds(row: Timed, now: datetime) -> float:
    running = 0.0 if row.running_since is None else max(0.0, (now - row.running_since).total_seconds())
    return row.ran_seconds + running
