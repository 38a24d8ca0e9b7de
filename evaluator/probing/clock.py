"""Time as a probe plans it: by the processor time it used, so that a busy machine changes no finding."""

from __future__ import annotations

import time

BUSY_SHARE = 0.75
"""Of the threads' time that a probe works, on average: parts of it are one thread's."""


class Clock:
    """Seconds that the work so far would have taken with the machine to itself; made and asked by the main thread.

    All threads' processor time tells it of work that they share, the main thread's own of work that it does alone
    (a recurrence, step by step).
    """

    def __init__(self, threads: int) -> None:
        self._threads, self._started, self._own = threads, time.process_time(), time.thread_time()

    def cpu_seconds(self) -> float:
        return time.process_time() - self._started

    def seconds(self) -> float:
        return max(self.cpu_seconds() / max(1.0, BUSY_SHARE * self._threads), time.thread_time() - self._own)
