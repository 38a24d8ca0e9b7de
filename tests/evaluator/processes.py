"""What the host sees of a judge's processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import psutil

from evaluator.pool import LocalEvaluator
from evaluator.processes import descendants


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; none when it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return list(process.cmdline())
    return []


def judge_of(evaluator: LocalEvaluator) -> psutil.Process:
    """The judge's process, found as anybody on the host would find it."""
    found = [p for p in psutil.Process().children() if str(evaluator.cache_dir) in words_of(p)]
    assert len(found) == 1, found
    return found[0]


def living(pids: Iterable[int]) -> list[int]:
    """Of ``pids`` those that are there and no zombies."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != "zombie":
                found.append(pid)
    return found


def below(pid: int) -> list[int]:
    """Live descendants, zombies left out."""
    return living(descendants(pid))


def alive(marker: str) -> list[int]:
    """Processes with ``marker`` among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if marker.encode() in words:
            found.append(int(path.parent.name))
    return found


def groups_of(pid: int) -> list[Path]:
    """Control groups that the judge ``pid`` made."""
    return [p for root in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup") for p in Path(root).glob(f"kernel-agent-{pid}-*")]
