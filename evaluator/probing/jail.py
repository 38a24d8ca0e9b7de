"""The parent's handle on a jailed prober: start it, tell it, wait, read its report, end everything it started."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from evaluator import cgroup
from evaluator.cell import PACKAGES, Cell
from evaluator.channel import Buffer
from evaluator.model import Limits
from evaluator.soundness_model import Assignment, Findings

SCRIPT = Path(__file__).resolve().with_name("prober.py")
NEEDED = (PACKAGES / "evaluator", PACKAGES / "problems")
FINDINGS_BYTES = 16 << 20
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
    limits = Limits(memory_bytes=assignment.memory_bytes + RESERVED_BYTES, processes=PROCESSES)
    out = Buffer(FINDINGS_BYTES)
    prober = Cell(level, SCRIPT, assignment.threads, limits, shown=NEEDED, variables=MALLOC)
    try:
        prober.started()
        prober.channel.assign(assignment.model_dump(mode="json"), [out.fd])
        try:
            answer = prober.channel.receive(patience_seconds)
        except TimeoutError:
            return Findings(too_large=f"it did not finish in {patience_seconds:.0f} s")
        if answer == b"d":
            return _report(out)
        lines = prober.log_tail(600).splitlines()
        return Findings(error=f"its process ended while it ran: {lines[-1] if lines else 'it printed nothing'}")
    finally:
        prober.kill()
        out.close()
        cgroup.remove_emptied()


def _report(out: Buffer) -> Findings:
    try:
        return Findings.model_validate_json(out.text())
    except ValidationError as error:
        # Only the problem, whose code ran in that process, can have garbled it.
        return Findings(error=f"what it reported of itself cannot be read ({error.error_count()} errors)")


def memory_bytes(share: float) -> int:
    """``share`` of the memory that this machine has to spare at the moment."""
    with open("/proc/meminfo") as f:
        available = next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable"))
    return int(share * available)
