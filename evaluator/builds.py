"""Extensions: built in a jail of their own, outside the measurement, capped, and cached by content.

The archive is opaque here: what a candidate's build left goes, unread, into a later jail of the same candidate only.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from evaluator.channel import Buffer
from evaluator.keeping import keep
from evaluator.machine import cpu_name
from evaluator.model import Build, Limits, Status
from evaluator.workers import Nursery, WorkerFailed

ARCHIVE_BYTES = 64 << 20
HINTS = ("cpp_extension", "load_inline")
"""A source without these builds nothing ahead; one that hides them builds when it is loaded, under that cap."""
ERROR_WORDS = ("error:", "Error:", "undefined reference", "undefined symbol")


@dataclass(frozen=True)
class Built:
    extensions: bytes | None
    facts: Build | None


class BuildFailed(Exception):
    def __init__(self, status: Status, reason: str, errors: tuple[str, ...], build: Build) -> None:
        super().__init__(reason)
        self.status, self.reason, self.errors, self.build = status, reason, errors, build


class BuildCache:
    """Archives of built extensions under ``folder``, named by what they depend on."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.folder, self.nursery = folder, nursery

    def key(self, source: str) -> str:
        parts = (source, torch.__version__, sys.version, platform.machine(), cpu_name())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def get(self, source: str, init: str | None, problem_source: str, limits: Limits) -> Built:
        """Build ``source``, or find it built. Raises BuildFailed."""
        if not any(hint in source for hint in HINTS):
            return Built(None, None)
        path = self.folder / f"{self.key(source)}.build"
        with contextlib.suppress(FileNotFoundError):
            found = path.read_bytes()
            return Built(found, Build(seconds=0.0, cached=True, artifacts=_count(found)))
        start = time.monotonic()
        data, log = self._build(source, init, problem_source, limits, start)
        if data is None:
            return Built(None, Build(seconds=time.monotonic() - start, cached=False, log=log))
        keep(path, data)
        return Built(data, Build(seconds=time.monotonic() - start, cached=False, log=log, artifacts=_count(data)))

    def _build(
        self, source: str, init: str | None, problem_source: str, limits: Limits, start: float
    ) -> tuple[bytes | None, str]:
        (worker,) = self.nursery.take(limits)
        text, archive = Buffer.of(source.encode()), Buffer(ARCHIVE_BYTES)
        meta = {
            "role": "build",
            "module": "candidate",
            "class": "ModelNew",
            "init": init,
            "problem_source": problem_source,
            "seed": 0,
            "fp32_precision": "ieee",
            "by_seed": False,
        }
        try:
            worker.assign(meta, [text.fd, archive.fd], limits.build_seconds)
            length = struct.unpack("<q", archive.memory[:8])[0]
            # The header is shared with the candidate: copy once, then check the copy.
            data = bytes(archive.memory[: 16 + length]) if 0 < length <= ARCHIVE_BYTES - 16 else None
            return data, worker.log_tail()
        except WorkerFailed as failure:
            log = worker.log_tail(20000)
            raise self._failure(
                failure, log, Build(seconds=time.monotonic() - start, cached=False, log=log[-4000:])
            ) from failure
        finally:
            worker.kill()
            text.close()
            archive.close()

    def _failure(self, failure: WorkerFailed, log: str, build: Build) -> BuildFailed:
        report = failure.report
        if failure.outcome == "timeout":
            return BuildFailed(
                "build_timeout",
                f"{report.message} while it was built or imported; everything it had started was ended",
                (),
                build,
            )
        if failure.outcome == "gone":
            return BuildFailed("crashed", f"{failure.exit_text} while it was built or imported", (), build)
        if failure.outcome == "unstoppable":
            return BuildFailed("background_work", f"{report.message}", (), build)
        errors = first_errors(report.message + "\n" + report.detail + "\n" + log)
        if report.kind == "compile_error":
            return BuildFailed("compile_error", errors[0] if errors else report.message, errors, build)
        if report.kind == "out_of_memory":
            return BuildFailed("out_of_memory", report.message, (report.detail,), build)
        return BuildFailed(
            "load_error",
            f"{report.message} (while it was imported or constructed)",
            (report.message, report.detail),
            build,
        )


def _count(data: bytes) -> int:
    return int(struct.unpack("<q", data[8:16])[0])


def first_errors(log: str, limit: int = 3) -> tuple[str, ...]:
    """The compiler's first errors, each with the lines that show the place."""
    lines, found = log.splitlines(), []
    for n, line in enumerate(lines):
        if any(word in line for word in ERROR_WORDS) and "Error building extension" not in line:
            found.append("\n".join(lines[n : n + 3]))
            if len(found) == limit:
                break
    return tuple(found)
