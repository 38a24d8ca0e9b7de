"""Limits on a clock of their own: no real waiting."""

from __future__ import annotations

import asyncio

from kernel_agent.gateway.limits import Limiter, ProviderLimits


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def run(limits: ProviderLimits, wanted: list[int], used: int | None = None) -> list[tuple[int, float]]:
    """Calls asking for ``wanted`` tokens at once; which went out in which order, and when."""
    time, went = Time(), []

    async def call(limiter: Limiter, n: int) -> None:
        async with limiter.slot(wanted[n]) as ticket:
            went.append((n, time.now))
            await asyncio.sleep(0)
            if used is not None:
                ticket.used(used)

    async def all_of_them() -> None:
        limiter = Limiter(limits, time.clock, time.sleep)
        await asyncio.gather(*(call(limiter, n) for n in range(len(wanted))))

    asyncio.run(all_of_them())
    return went


def test_without_a_limit_on_tokens_nobody_waits() -> None:
    assert run(ProviderLimits(max_concurrency=2), [10**9] * 4) == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_tokens_wait_for_the_minute_in_the_order_they_came() -> None:
    went = run(ProviderLimits(tokens_per_minute=100), [60, 60, 10, 60])
    # The small third call does not overtake the large second one.
    assert went == [(0, 0), (1, 60), (2, 60), (3, 120)]


def test_a_call_above_the_whole_limit_goes_out_alone() -> None:
    assert run(ProviderLimits(tokens_per_minute=100), [500, 500]) == [(0, 0), (1, 60)]


def test_what_was_really_used_replaces_the_estimate() -> None:
    assert run(ProviderLimits(tokens_per_minute=100, max_concurrency=1), [90, 90], used=5) == [(0, 0), (1, 0)]


def test_a_cancelled_call_gives_its_slot_back() -> None:
    async def scenario() -> None:
        limiter = Limiter(ProviderLimits(max_concurrency=1))

        async def hold() -> None:
            async with limiter.slot(1):
                await asyncio.sleep(3600)

        holder = asyncio.create_task(hold())
        await asyncio.sleep(0)
        holder.cancel()
        async with asyncio.timeout(5), limiter.slot(1):
            pass

    asyncio.run(scenario())
