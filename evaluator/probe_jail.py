"""The parent's handle on a jailed prober: start it, tell it, wait, read its report, end everything it started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pydantic import ValidationError

from evaluator import cgroup
from evaluator.channel import LOG_BYTES, Buffer, Channel
from evaluator.model import EvaluatorError
from evaluator.plain import sanitize
from evaluator.processes import Tree
from evaluator.sandbox import Limits, Mounts, environment, jailed, python_trees
from evaluator.soundness_model import Assignment, Findings

PACKAGES = Path(__file__).resolve().parent.parent
INSIDE = Path("/opt/kernel-agent")
NEEDED = ("evaluator", "problems")
FINDINGS_BYTES = 16 << 20
IMPORT_SECONDS = 120.0
PROCESSES = 256
RESERVED_BYTES = 6 << 30
"""Addresses that the interpreter, torch and its threads reserve and do not use."""
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "134217728",
    "MALLOC_TOP_PAD_": "0",
    "GLIBC_TUNABLES": "glibc.malloc.arena_max=4",
}
"""A worker keeps its memory, for speed; a prober gives it back, since it holds several models in turn."""


def run(assignment: Assignment, level: str, patience_seconds: float) -> Findings:
    """What a prober found, in a jail of ``level``. A problem that ends, hangs or garbles it makes findings too.

    Raises EvaluatorError when the prober itself did not start or failed.
    """
    channel, log, out = Channel(), Buffer(LOG_BYTES), Buffer(FINDINGS_BYTES)
    fd = channel.theirs.fileno()
    home = PACKAGES if level == "none" else INSIDE
    mounts = Mounts(read_only=tuple((t, t) for t in python_trees()) + tuple(_packages()))
    limits = Limits(assignment.memory_bytes + RESERVED_BYTES, PROCESSES)
    script = str(home / "evaluator" / "prober.py")
    process = subprocess.Popen(
        jailed(level, mounts, limits, [sys.executable, "-I", script, str(fd)]),
        stdin=subprocess.DEVNULL,
        stdout=log.fd,
        stderr=log.fd,
        env=environment(assignment.threads, MALLOC),
        pass_fds=[fd],
        cwd="/",
        start_new_session=True,
    )
    channel.theirs.close()
    tree, group = Tree(process.pid, wrapped=level != "none"), cgroup.Group.create(PROCESSES)
    try:
        if _answer(channel, IMPORT_SECONDS) != b"r":
            raise EvaluatorError(f"the prober did not start in the jail: {_tail(log) or 'it printed nothing'}")
        if group is not None:
            tree.walk()
            group.add(tree.pids)
        channel.assign(assignment.model_dump(mode="json"), [out.fd])
        answer = _answer(channel, patience_seconds)
        if answer == b"d":
            return _report(out)
        if answer is None:
            return Findings(too_large=f"it did not finish in {patience_seconds:.0f} s")
        return Findings(error=f"its process ended while it ran: {_tail(log) or 'it printed nothing'}")
    finally:
        tree.kill()
        process.wait()
        channel.close()
        log.close()
        out.close()
        if group is not None:
            group.remove()


def _report(out: Buffer) -> Findings:
    try:
        return Findings.model_validate_json(out.text())
    except ValidationError as error:
        # Only the problem, whose code ran in that process, can have garbled it.
        return Findings(error=f"what it reported of itself cannot be read ({error.error_count()} errors)")


def _packages() -> list[tuple[str, str]]:
    """Our own packages that the prober imports, where they lie and where it sees them."""
    return [(str(PACKAGES / name), str(INSIDE / name)) for name in NEEDED]


def _answer(channel: Channel, seconds: float) -> bytes | None:
    """Its byte, nothing when it is gone, None when it is late."""
    try:
        return channel.receive(seconds)
    except TimeoutError:
        return None


def _tail(log: Buffer) -> str:
    lines = sanitize(log.text(), 600).strip().splitlines()
    return lines[-1] if lines else ""


def memory_bytes(share: float) -> int:
    """``share`` of the memory that this machine has to spare at the moment."""
    with open("/proc/meminfo") as f:
        available = next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable"))
    return int(share * available)


def threads() -> int:
    return len(os.sched_getaffinity(0))
