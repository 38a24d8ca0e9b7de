"""The local evaluator: one judge process per device, requests queued first come, first served."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from evaluator.model import Evaluation, EvaluationSpec, EvaluatorError, Isolation, PhaseSeconds

CLOSE_SECONDS = 5.0


class Evaluator(Protocol):
    """Whoever judges. ``evaluate`` blocks until there is a verdict and may be called from many threads.

    A candidate's failure is a status of the ``Evaluation``. Raises EvaluatorError for ours or the user's.
    """

    def evaluate(self, spec: EvaluationSpec) -> Evaluation: ...

    def close(self) -> None: ...


class _Turns:
    """A lock that serves its waiters in the order they came."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._next = self._serving = 0

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        with self._condition:
            mine = self._next
            self._next += 1
            self._condition.wait_for(lambda: self._serving == mine)
        try:
            yield
        finally:
            with self._condition:
                self._serving += 1
                self._condition.notify_all()

    @property
    def waiting(self) -> int:
        return max(0, self._next - self._serving - 1)


class LocalEvaluator:
    """A judge process on this host's CPU, started at the first request and again if it dies."""

    def __init__(self, cache_dir: Path, isolation: Isolation = "jail") -> None:
        self.cache_dir, self.isolation = cache_dir, isolation
        self._turns = _Turns()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def waiting(self) -> int:
        """Requests in the queue, the one being judged not counted."""
        return self._turns.waiting

    def evaluate(self, spec: EvaluationSpec) -> Evaluation:
        asked = time.monotonic()
        with self._turns.turn():
            waited = time.monotonic() - asked
            for attempt in (1, 2):
                if self._closed:
                    raise EvaluatorError("the evaluator was closed while a request waited")
                try:
                    evaluation = self._ask(spec)
                    break
                except ConnectionError as error:
                    self._reap()
                    if self._closed:
                        raise EvaluatorError("the evaluator was closed during an evaluation") from error
                    if attempt == 2:
                        raise EvaluatorError(f"the judge's process died twice on this request: {error}") from error
        seconds = evaluation.seconds.model_dump() | {"queue": evaluation.seconds.queue + waited}
        return evaluation.model_copy(update={"seconds": PhaseSeconds(**seconds)})

    def _ask(self, spec: EvaluationSpec) -> Evaluation:
        from evaluator.service import Reply

        control = self._start()
        control.sendall(spec.model_dump_json().encode() + b"\n")
        data = bytearray()
        while not data.endswith(b"\n"):
            part = control.recv(1 << 16)
            if not part:
                raise ConnectionResetError("it closed its socket without an answer")
            data += part
        reply = Reply.model_validate_json(bytes(data))
        if reply.evaluation is None:
            raise EvaluatorError(reply.error)
        return reply.evaluation

    def _start(self) -> socket.socket:
        if self._process is not None and self._process.poll() is None and self._control is not None:
            return self._control
        self._reap()
        mine, theirs = socket.socketpair()
        command = [sys.executable, "-m", "evaluator.service", str(theirs.fileno()), self.isolation, str(self.cache_dir)]
        env = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MALLOC_", "GOMP_"))}
        # Set before the interpreter starts: malloc reads its settings once, OpenMP when torch is imported.
        env |= {
            "OMP_WAIT_POLICY": "passive",
            "MALLOC_MMAP_THRESHOLD_": "2000000000",
            "MALLOC_TRIM_THRESHOLD_": "8000000000",
        }
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=env, stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()
        self._control = mine
        return mine

    def _reap(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the judge and every worker of its. Safe to call twice, and from another thread."""
        self._closed = True
        process = self._process
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)
        if process is not None:
            try:
                process.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
