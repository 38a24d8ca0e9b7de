"""One provider's patience: how many calls at once, how many tokens a minute. First come, first served."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

WINDOW_SECONDS = 60.0


class ProviderLimits(BaseModel):
    """What the sessions of one provider key share."""

    model_config = ConfigDict(frozen=True)

    max_concurrency: int = Field(16, ge=1)
    tokens_per_minute: int | None = Field(None, ge=1)
    """Prompt and completion tokens in any 60 seconds. None: no limit."""


@dataclass
class Ticket:
    """A call's entry in the window; its tokens are an estimate until ``used`` says better."""

    at: float
    tokens: int

    def used(self, tokens: int) -> None:
        self.tokens = tokens


class Limiter:
    """Lets calls through within the limits, in the order they came. Belongs to one event loop."""

    def __init__(
        self,
        limits: ProviderLimits,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._sleep = sleep
        self._slots = asyncio.Semaphore(limits.max_concurrency)
        self._turn = asyncio.Lock()
        self._window: deque[Ticket] = deque()

    @asynccontextmanager
    async def slot(self, tokens: int) -> AsyncIterator[Ticket]:
        """Wait for a place among the concurrent calls, and for room for ``tokens`` in the minute."""
        async with self._slots:
            # Both locks queue their waiters in order, so that no session overtakes another.
            async with self._turn:
                await self._room(tokens)
                ticket = Ticket(self._clock(), tokens)
                self._window.append(ticket)
            yield ticket

    async def _room(self, tokens: int) -> None:
        limit = self._limits.tokens_per_minute
        while True:
            while self._window and self._window[0].at <= self._clock() - WINDOW_SECONDS:
                self._window.popleft()
            # A call above the whole limit goes out alone: waiting would not make it smaller.
            if limit is None or not self._window or sum(t.tokens for t in self._window) + tokens <= limit:
                return
            await self._sleep(max(0.001, self._window[0].at + WINDOW_SECONDS - self._clock()))
