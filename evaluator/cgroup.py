"""A control group per worker, where this process may make one: a cap on processes that root's jail needs.

RLIMIT_NPROC does not bind a process whose real uid is root's, so a fork bomb in a root-owned jail is stopped here.
Where no group can be made (an ordinary user) the limit itself binds.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterable
from pathlib import Path

ROOTS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
REMOVE_TRIES = 100
NAME = "kernel-agent"
_serial = itertools.count()
_emptied: list[Group] = []
"""Left by processes that have ended; the kernel takes some 20 ms to forget the last one."""


class Group:
    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, processes: int) -> Group | None:
        """A group that holds at most ``processes`` processes and threads; None where that cannot be had."""
        for root in ROOTS:
            if not (root / "cgroup.procs").exists():
                continue
            path = root / f"{NAME}-{os.getpid()}-{next(_serial)}"
            try:
                path.mkdir()
            except OSError:
                continue
            try:
                (path / "pids.max").write_text(str(processes))
            except OSError:
                path.rmdir()
                continue
            return cls(path)
        return None

    def add(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(OSError):
                (self.path / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the emptied group, waiting until the kernel has forgotten its last process."""
        for _ in range(REMOVE_TRIES):
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.005)

    def remove_later(self) -> None:
        """Leave the emptied group to ``remove_emptied``."""
        _emptied.append(self)


def remove_emptied() -> None:
    """Call it when nobody waits."""
    while _emptied:
        _emptied.pop().remove()


def sweep() -> None:
    """Remove the emptied groups of owners that were killed: a later process of the same number needs the names."""
    for root in ROOTS:
        for path in root.glob(f"{NAME}-*-*"):
            owner = path.name.split("-")[2]
            if not Path(f"/proc/{owner}").exists():
                with contextlib.suppress(OSError):
                    path.rmdir()
