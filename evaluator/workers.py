"""The judge's handle on a jailed worker, and the nursery that keeps unused ones ready."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from evaluator import cgroup, memory
from evaluator.cell import Cell
from evaluator.channel import Buffer, Description, Report, TensorSpec
from evaluator.model import Limits
from evaluator.processes import Used, exit_text

SCRIPT = Path(__file__).resolve().with_name("worker.py")
APPEARS_SECONDS = 0.5
OUT_OF_MEMORY = "all its processes together took more memory than an evaluation may"

Outcome = Literal["done", "failed", "gone", "timeout", "unstoppable"]


class WorkerFailed(Exception):
    """The worker did not do what it was told: the outcome, and its own untrusted account where it gave one."""

    def __init__(self, outcome: Outcome, report: Report, exit_text: str = "") -> None:
        super().__init__(f"{outcome}: {report.message or exit_text}")
        self.outcome, self.report, self.exit_text = outcome, report, exit_text


class Worker(Cell):
    """One jailed ``worker.py``. Spawned unassigned; it imports torch and waits stopped until it is needed."""

    def __init__(self, level: str, threads: int, limits: Limits) -> None:
        super().__init__(level, SCRIPT, threads, limits)
        self._cores = os.sched_getaffinity(0)
        self._first_core = {min(self._cores)}
        self.inputs: list[torch.Tensor] = []
        self.outputs: list[TensorSpec] = []
        self._buffers: list[Buffer] = []
        self.answer_bytes = 0
        """From the first to the last of each output, as captured: a view may repeat what was written once."""
        self.used_by_end: Used | None = None
        """CPU time of its processes when the clock of its last timed call stopped; None after another call."""
        self.is_ready = False
        self._paused = False

    # -- life ---------------------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Wait until torch is imported, then stop the process. Raises EvaluatorError: no candidate ran yet."""
        if self.is_ready:
            return
        self.started()
        # Nothing has run here yet: below bubblewrap there is its init, and below that the worker.
        self.pid = self.tree.pids[-1]
        memory.require_readable(self.pid)
        self.tree.stop_all()
        self.is_ready = True

    def pause(self) -> None:
        """Stop it in the middle of its import, so that it takes no core from who is measured."""
        if self.is_ready or self._paused:
            return
        deadline = time.monotonic() + APPEARS_SECONDS
        while not self.tree.pids and time.monotonic() < deadline:  # bubblewrap has not made its jail yet
            self.tree.walk()
            time.sleep(0.001)
        self.tree.stop_all()
        self._paused = True

    def wake(self) -> None:
        if self._paused:
            self._paused = False
            self.tree.resume()

    def kill(self) -> None:
        super().kill()
        for buffer in self._buffers:
            buffer.close()

    # -- talking ------------------------------------------------------------------------------------------------

    def expect(self, answer: bytes, seconds: float) -> None:
        """Wait for ``answer``; anything else raises WorkerFailed."""
        try:
            byte = self.channel.receive(seconds)
        except TimeoutError:
            raise WorkerFailed("timeout", Report(message=f"no answer within {seconds:g} s")) from None
        if byte == answer:
            return
        if byte == b"e":
            raise WorkerFailed("failed", self.channel.failure())
        if byte == b"":
            raise self._gone()
        raise WorkerFailed("failed", Report(message="the worker sent a byte outside the protocol"))

    def tell(self, byte: bytes, answer: bytes, seconds: float) -> None:
        """Let it run until it answers, then stop it again. Outside the clock."""
        self.ask(byte)
        self.answered(answer, seconds)

    def ask(self, byte: bytes) -> None:
        self.used_by_end = None
        self.tree.resume()
        try:
            self.channel.send(byte)
        except OSError:
            raise self._gone() from None

    def answered(self, answer: bytes, seconds: float) -> None:
        self.expect(answer, seconds)
        if not self.tree.stop_all():
            raise WorkerFailed("unstoppable", Report(message="processes kept starting after the answer"))

    def assign(self, meta: dict[str, Any], fds: list[int], seconds: float) -> None:
        self.ready()
        self.tree.resume()
        self.channel.assign(meta | {"threads": self.threads}, fds)
        self.expect(b"l", seconds)
        if not self.tree.stop_all():
            raise WorkerFailed("unstoppable", Report(message="processes kept starting while the candidate was loaded"))

    def make_buffers(self, description: Description, *, double: bool = False) -> tuple[list[int], list[TensorSpec]]:
        """Inputs of this worker alone; returns their descriptors in order and what the outputs will be."""
        self.outputs = [
            s.model_copy(update={"dtype": "float64"}) if double and s.floating else s for s in description.outputs
        ]
        buffers = [Buffer(s.bytes) for s in description.input_tensors]
        self._buffers += buffers
        self.inputs = [b.tensor(s) for b, s in zip(buffers, description.input_tensors, strict=True)]
        return [b.fd for b in buffers], self.outputs

    def _gone(self) -> WorkerFailed:
        if self.group is not None and self.group.out_of_memory():
            return WorkerFailed("failed", Report(kind="out_of_memory", message=OUT_OF_MEMORY))
        return WorkerFailed("gone", Report(), exit_text(self.process))

    # -- one call -----------------------------------------------------------------------------------------------

    def write_inputs(self, inputs: Sequence[torch.Tensor]) -> None:
        for mine, x in zip(self.inputs, inputs, strict=True):
            mine.copy_(x)
        self.channel.forget_answer(self.outputs)

    def timed_call(self, seconds: float) -> float:
        """Resume, compute, answer, stopped: the wall time of all that in seconds. The answer is then final.

        The judge waits on the core of the worker's first thread, which so need not be woken from idling: where it
        waited by chance, that made processes differ by 3% for as long as they lived, and by 1% so.
        """
        os.sched_setaffinity(0, self._first_core)
        try:
            return self._timed_call(seconds)
        finally:
            os.sched_setaffinity(0, self._cores)

    def _timed_call(self, seconds: float) -> float:
        start = time.perf_counter_ns()
        self.tree.resume()
        try:
            self.channel.send(b"g")
            byte = self.channel.receive(seconds)
        except TimeoutError:
            raise WorkerFailed("timeout", Report(message=f"a call took longer than {seconds:g} s")) from None
        except OSError:
            byte = b""
        stopped = self.tree.stop_known()
        elapsed = (time.perf_counter_ns() - start) / 1e9
        if byte == b"d" and stopped:
            self.used_by_end = self.tree.cpu(known=True)
            if self._outlived():
                raise WorkerFailed("unstoppable", Report(message="a process that it started ran on after the answer"))
            return elapsed
        if byte == b"e":
            raise WorkerFailed("failed", self.channel.failure())
        if byte == b"":
            raise self._gone()
        if byte != b"d":
            raise WorkerFailed("failed", Report(message="the worker sent a byte outside the protocol"))
        raise WorkerFailed("unstoppable", Report(message="its threads could not be stopped after the answer"))

    def _outlived(self) -> bool:
        """Whether a process begun during the call is still there: it could go on writing the answer until it is read.

        The group knows such a process at once; to find it by a walk takes as long as it may need.
        """
        if self.tree.grew() and self.group is not None and self.group.members() - set(self.tree.pids):
            return True
        return self.tree.left_running()

    def captured(self) -> list[torch.Tensor]:
        """The answer, read out of the stopped worker's memory: nobody copies on the clock. Raises WorkerFailed.

        Where it lies is the worker's own claim, and needs no belief: whatever is read there is what is compared.
        """
        found = []
        ranges: list[tuple[int, int]] = []
        for n, (spec, place) in enumerate(zip(self.outputs, self.channel.answer(self.outputs), strict=True)):
            if place is None:
                raise WorkerFailed("failed", Report(message=f"the call ended with no output {n} in memory"))
            try:
                raw = memory.read(self.pid, place.address, place.elements * spec.torch_dtype.itemsize)
            except OSError as error:
                message = f"output {n} cannot be read where it is said to lie ({error.strerror})"
                raise WorkerFailed("failed", Report(message=message)) from error
            ranges.append((place.address, place.address + raw.numel()))
            found.append(raw.view(spec.torch_dtype).as_strided(spec.shape, place.strides).contiguous())
        self.answer_bytes = covered(ranges)
        return found

    def inputs_equal(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Bit for bit, eight bytes at a time where they allow it."""
        for mine, given in zip(self.inputs, inputs, strict=True):
            n_bytes = mine.numel() * mine.itemsize
            word = torch.int64 if n_bytes % 8 == 0 else torch.uint8
            if n_bytes and not torch.equal(mine.flatten().view(word), given.contiguous().flatten().view(word)):
                return False
        return True


def covered(ranges: Sequence[tuple[int, int]]) -> int:
    """Bytes that lie in any of these (start, end): outputs may share memory."""
    total = reached = 0
    for start, end in sorted(ranges):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


class Nursery:
    """Unused workers with torch imported, so that an evaluation starts at once. None has ever run a candidate."""

    def __init__(self, level: str, threads: int, size: int) -> None:
        self.level, self.threads, self.size = level, threads, size
        self._limits: Limits | None = None
        self._spares: list[Worker] = []
        """All under the same limits; the ready ones first."""

    def take(self, limits: Limits, count: int = 1) -> list[Worker]:
        """``count`` ready workers; those that must be started import torch side by side."""
        self._keep_for(limits)
        taken, self._spares = self._spares[:count], self._spares[count:]
        taken += [Worker(self.level, self.threads, limits) for _ in range(count - len(taken))]
        for worker in taken:
            worker.wake()
        for worker in taken:
            worker.ready()
        return taken

    def tend(self, limits: Limits, until: int) -> None:
        """Start what is missing, as many at a time as there are cores, until descriptor ``until`` can be read.

        For the time when nobody is waiting; raises EvaluatorError when a worker does not start.
        """
        cgroup.remove_emptied()
        self._keep_for(limits)
        while True:
            growing = [w for w in self._spares if not w.is_ready]
            while len(self._spares) < self.size and len(growing) < self.threads:
                growing.append(Worker(self.level, self.threads, limits))
                self._spares.append(growing[-1])
            for worker in growing:
                worker.wake()
            channels = {w.channel.mine.fileno(): w for w in growing}
            readable, _, _ = select.select([until, *channels], [], [])
            if until in readable or not growing:
                return
            for descriptor in readable:
                channels[descriptor].ready()
            self._spares.sort(key=lambda w: not w.is_ready)

    def settle(self) -> None:
        """Stop every spare where it is: call this before a clock starts."""
        for worker in self._spares:
            worker.pause()

    def close(self) -> None:
        for worker in self._spares:
            worker.kill()
        self._spares.clear()
        cgroup.remove_emptied()

    def _keep_for(self, limits: Limits) -> None:
        if limits != self._limits:
            for worker in self._spares:
                worker.kill()
            self._spares.clear()
            self._limits = limits
