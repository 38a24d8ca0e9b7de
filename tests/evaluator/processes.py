"""What the host sees of a judge's processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from evaluator.judge import SPARES
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


def rested(judge: psutil.Process, seconds: float = 90.0) -> int:
    """Processes below the judge, once all its spares are up and wait."""
    deadline, seen = time.monotonic() + seconds, 0
    while seen < 3:
        assert time.monotonic() < deadline, "spares are still being started"
        time.sleep(0.2)
        workers = [p for p in judge.children(recursive=True) if words_of(p)[2:3] == ["/opt/evaluator/worker.py"]]
        idle = len(workers) >= SPARES and all(_is_stopped(p) for p in workers)
        seen = seen + 1 if idle else 0
    return len(below(judge.pid))


def _is_stopped(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return str(process.status()) == psutil.STATUS_STOPPED
    return False
