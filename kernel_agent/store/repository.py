"""The store's front door: one class, composed of a part per concern."""

from __future__ import annotations

from typing import Self

from kernel_agent.store.calls import Calls
from kernel_agent.store.campaigns import Campaigns
from kernel_agent.store.candidates import Candidates
from kernel_agent.store.database import DEFAULT_BUSY_SECONDS, Database
from kernel_agent.store.devices import Devices
from kernel_agent.store.errors import SessionOwnedError, StaleLeaseError
from kernel_agent.store.evaluations import Evaluations
from kernel_agent.store.outbox import Outbox
from kernel_agent.store.part import Clock, utc_now
from kernel_agent.store.progress import Progress
from kernel_agent.store.records import CallRecord, CallStart, Fence
from kernel_agent.store.sessions import Sessions

__all__ = ["CallRecord", "CallStart", "Fence", "SessionOwnedError", "StaleLeaseError", "Store"]


class Store(Campaigns, Sessions, Calls, Candidates, Evaluations, Progress, Outbox, Devices):
    """Everything a campaign leaves behind. Safe to share between threads; any number of processes may open it.

    Each method is one transaction. Writes of a session carry its ``Fence``; one that another owner has overtaken
    raises ``StaleLeaseError`` and writes nothing. Unknown ids raise ``NotFoundError``; everything the database
    itself refuses raises ``StoreError`` with the place and a remedy.
    """

    @classmethod
    def open(cls, url: str, *, busy_seconds: float = DEFAULT_BUSY_SECONDS, clock: Clock = utc_now) -> Self:
        """Open ``url`` (``sqlite:////absolute/path.db``), creating folder and tables as needed.

        :param busy_seconds: how long a write waits for another writer before it fails.
        :param clock: the current time, with its zone.
        """
        return cls(Database(url, busy_seconds), clock)

    def close(self) -> None:
        """Close every connection. The store cannot be used afterwards."""
        self._db.close()
