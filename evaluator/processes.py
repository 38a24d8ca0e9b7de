"""Processes of a worker: find them all, stop them, prove it, count their CPU time, end them."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import time

PR_SET_PDEATHSIG, PR_SET_TIMERSLACK, PR_SET_CHILD_SUBREAPER = 1, 29, 36
STOP_POLL_SECONDS = 10e-6
STAT_BYTES = 96
"""Enough of a stat line to hold the thread's name and state."""


def prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))


def usable_cores() -> int:
    """Of this host, by this process."""
    return len(os.sched_getaffinity(0))


def newest_pid() -> str:
    """Number of the newest process or thread: while it stays the same, no tree has grown."""
    with open("/proc/loadavg") as f:
        return f.read().rsplit(None, 1)[-1]


def parents() -> dict[int, int]:
    """Every process's parent."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as f:  # a name may be any bytes
                found[int(name)] = int(f.read().rpartition(b")")[2].split()[1])
    return found


def descendants(root: int) -> list[int]:
    """Processes below ``root``, nearest first."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return found


def _tasks(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


class _Thread:
    """A thread's state, read through a file that stays open: opening it costs more than reading."""

    def __init__(self, pid: int, task: str) -> None:
        self.pid, self.first = pid, task == str(pid)
        self._stat = os.open(f"/proc/{pid}/task/{task}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def stopped(self) -> bool:
        """Stopped, or no more."""
        return self._state() in b"TtZX"

    def ended(self) -> bool:
        return self._state() in b"ZX"

    def _state(self) -> bytes:
        try:
            return os.pread(self._stat, STAT_BYTES, 0).rpartition(b")")[2][1:2]
        except ProcessLookupError:
            return b"X"

    def close(self) -> None:
        os.close(self._stat)


def cpu_seconds(pid: int) -> float | None:
    """CPU time of a process and all its threads, ended ones too, in nanosecond steps; None for one that is no more.

    The kernel's number for another process's clock: the inverted pid, shifted by 3, with 2 for the scheduler's account.
    """
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return None


def exit_text(process: subprocess.Popen[bytes]) -> str:
    """How ``process`` ended, in words, for one that closed its channel."""
    try:
        code = process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        return "the process closed its channel"
    number = code - 128 if code > 128 else -code
    try:
        return f"the process died of {signal.Signals(number).name}"
    except ValueError:
        return f"the process ended by itself with exit code {code}"


class Used(dict[int, float]):
    """CPU seconds of processes, by their numbers."""

    def since(self, before: Used) -> float:
        """Seconds used since ``before`` by those that are there now, and infinitely many if one of them ended.

        Whoever ends takes its account along; and nobody ends while it is stopped.
        """
        if before.keys() - self.keys():
            return math.inf
        return sum(seconds - before.get(pid, 0.0) for pid, seconds in self.items())


class Tree:
    """The processes of one worker. Of bubblewrap's own, the one outside the jail (``root``) is left running.

    Its init, inside, is a member like any other: it has the candidate's uid, so that a candidate may write its memory
    (ptrace, /proc/1/mem) and make it work while everything else is stopped.
    """

    def __init__(self, root: int, wrapped: bool) -> None:
        self.root, self.wrapped = root, wrapped
        self.pids: list[int] = []
        self._threads: list[_Thread] = []
        self._seen = ""

    def walk(self) -> None:
        """Find the members anew unless nothing was started anywhere since the last walk."""
        newest = newest_pid()
        if newest == self._seen:
            return
        below = descendants(self.root)
        self.pids = below if self.wrapped else [self.root, *below]
        self._forget_threads()
        for pid in self.pids:
            for task in _tasks(pid):
                with contextlib.suppress(OSError):
                    self._threads.append(_Thread(pid, task))
        self._seen = newest

    def _forget_threads(self) -> None:
        for thread in self._threads:
            thread.close()
        self._threads.clear()

    def _stopped(self) -> bool:
        return all(thread.stopped() for thread in self._threads)

    def signal(self, number: int) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop_known(self, seconds: float = 1.0) -> bool:
        """Stop the members known now and see every thread known of them stopped. This part is inside the clock.

        Asleep between looks: a thread that must run to be stopped may need the very core we would spin on.
        """
        self.signal(signal.SIGSTOP)
        deadline = time.monotonic() + seconds
        while not self._stopped():
            if time.monotonic() > deadline:
                return False
            time.sleep(STOP_POLL_SECONDS)
        return True

    def stop_all(self, seconds: float = 1.0) -> bool:
        """Stop whatever the tree has become: walk and stop until no new member appears."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            before = set(self.pids)
            self.walk()
            if set(self.pids) <= before and self._stopped():
                return True
            self.stop_known(max(0.01, deadline - time.monotonic()))
        return False

    def left_running(self, seconds: float = 0.05) -> bool:
        """Whether a member appeared since the last walk and is not stopped: begun during a call, it outlives it.

        A new thread of a known process was stopped with it, and is waited for: one that was joined may still be ending.
        """
        if not self.grew():
            return False
        known = set(self.pids)
        self.walk()
        if not all(thread.stopped() for thread in self._threads if thread.pid not in known):
            return True
        deadline = time.monotonic() + seconds
        while not self._stopped():
            if time.monotonic() > deadline:
                return True
            time.sleep(STOP_POLL_SECONDS)
        return False

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def grew(self) -> bool:
        """Whether a process or thread was started anywhere since the last walk."""
        return newest_pid() != self._seen

    def cpu(self, *, known: bool = False) -> Used:
        """CPU time of every member that has not ended, from the scheduler's own account.

        ``known``: of those of the last walk, at once.
        """
        if not known:
            self.walk()
        # A first thread may end before others do, and the process lives on.
        ended = {thread.pid for thread in self._threads if thread.first and thread.ended()}
        ended -= {thread.pid for thread in self._threads if thread.pid in ended and not thread.ended()}
        alive = {pid: cpu_seconds(pid) for pid in self.pids if pid not in ended}
        return Used({pid: seconds for pid, seconds in alive.items() if seconds is not None})

    def kill(self) -> None:
        """End every member. In a jail, killing its init takes the whole process namespace with it."""
        self._seen = ""
        self._forget_threads()
        for _ in range(100):
            below = descendants(self.root)
            for pid in [*below, self.root]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not below:
                return
            time.sleep(0.001)
