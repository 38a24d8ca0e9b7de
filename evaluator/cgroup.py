"""A control group per worker, where this process may make one: caps on what all its processes use together.

RLIMIT_NPROC does not bind a process whose real uid is root's, so a fork bomb in a root-owned jail is stopped here; and
a limit on memory binds one process, of which a candidate may start many. Where no group can be made (an ordinary user)
the limits alone bind.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterable
from pathlib import Path

CONTROLLERS = Path("/sys/fs/cgroup")
ROOTS = (CONTROLLERS / "pids", CONTROLLERS / "memory", CONTROLLERS)
"""Of a hierarchy per controller (version 1), and the unified one (version 2)."""
REMOVE_TRIES = 100
ENDED_SECONDS = 10.0
"""Enough to clear away as much memory as an evaluation may have."""
NAME = "kernel-agent"
_serial = itertools.count()
_emptied: list[Group] = []
"""Left by processes that have ended; the kernel takes some 20 ms to forget the last one."""


class Group:
    """Folders of one group, one for each hierarchy that has a part in it."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self.paths = paths

    @classmethod
    def create(cls, processes: int, memory_bytes: int | None = None) -> Group | None:
        """At most so many processes and threads, and so much memory; None where processes cannot be capped.

        Memory goes uncapped where its controller cannot be had.
        """
        name = f"{NAME}-{os.getpid()}-{next(_serial)}"
        paths = []
        for root in ROOTS:
            if not (root / "cgroup.procs").exists():
                continue
            path = root / name
            try:
                path.mkdir()
            except OSError:
                continue
            capped = _write(path / "pids.max", processes)
            if memory_bytes is not None:
                for limit in ("memory.limit_in_bytes", "memory.max"):
                    capped = _write(path / limit, memory_bytes) or capped
            if capped:
                paths.append(path)
            else:
                path.rmdir()
        group = cls(tuple(paths))
        if any((path / "pids.max").exists() for path in paths):
            return group
        group.remove()
        return None

    def add(self, pids: Iterable[int]) -> None:
        for pid in pids:
            for path in self.paths:
                _write(path / "cgroup.procs", pid)

    def members(self) -> set[int]:
        """Processes in it that have not ended."""
        return {int(pid) for path in self.paths for pid in _members(path).split()}

    def out_of_memory(self) -> bool:
        """Whether the kernel ended a member for want of memory."""
        for path in self.paths:
            for file in ("memory.oom_control", "memory.events"):
                with contextlib.suppress(OSError):
                    lines = dict(line.split() for line in (path / file).read_text().splitlines())
                    if int(lines.get("oom_kill", 0)):
                        return True
        return False

    def wait_empty(self, seconds: float = ENDED_SECONDS) -> bool:
        """Whether the last member has ended by then; the kernel needs a moment after its signal."""
        deadline = time.monotonic() + seconds
        while self.members():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def remove(self) -> None:
        """Remove the emptied group, waiting until the kernel has forgotten its last process."""
        for path in self.paths:
            for _ in range(REMOVE_TRIES):
                try:
                    path.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.005)

    def remove_later(self) -> None:
        """Leave the emptied group to ``remove_emptied``."""
        _emptied.append(self)


def _members(path: Path) -> str:
    try:
        return (path / "cgroup.procs").read_text()
    except OSError:
        return ""


def _write(file: Path, value: int) -> bool:
    """False where there is no such file, or it takes no such value. No file is made: these are the kernel's."""
    try:
        with file.open("r+") as f:
            f.write(str(value))
    except OSError:
        return False
    return True


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
