"""Facts of the host that a CPU measurement rests on."""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path

import torch

SWEEP_CAP_BYTES = 1 << 30
DEFAULT_LLC_BYTES = 32 << 20


@lru_cache(maxsize=1)
def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model", "Hardware")):
            return line.partition(":")[2].strip()
    return "CPU"


@lru_cache(maxsize=1)
def last_level_cache_bytes() -> int:
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * unit)
    return max(sizes, default=DEFAULT_LLC_BYTES)


class Sweep:
    """Evicts the caches by reading: a flush that writes leaves dirty lines, whose write-back hits the next call."""

    def __init__(self) -> None:
        n_bytes = min(3 * last_level_cache_bytes(), SWEEP_CAP_BYTES)
        self._data = torch.ones(n_bytes // 4, dtype=torch.float32)

    def __call__(self) -> None:
        self._data.max()


@lru_cache(maxsize=1)
def write_bandwidth_bytes_per_s() -> float:
    """Fastest rate at which this host fills memory that sits in its caches: no output can be written faster.

    The best of several fills of 64 KB to 4 MB, all threads; a ceiling for the physical floor, hence generous.
    """
    best = 0.0
    for n_bytes in (1 << 16, 1 << 18, 1 << 20, 1 << 22):
        data = torch.zeros(n_bytes, dtype=torch.uint8)
        for _ in range(20):
            start = time.perf_counter_ns()
            data.fill_(1)
            best = max(best, n_bytes / (time.perf_counter_ns() - start) * 1e9)
    return best * torch.get_num_threads()


def steal_ticks() -> int:
    """Time that the hypervisor took from this host's cores, in clock ticks since boot."""
    with open("/proc/stat") as f:
        return int(f.readline().split()[8])
