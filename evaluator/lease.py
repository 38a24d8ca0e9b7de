"""The right to use a device, held by one process of this host at a time, whoever it belongs to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from evaluator.model import EvaluatorError

FOLDER = "kernel-agent-leases"


@contextmanager
def device_lease(device: str) -> Iterator[None]:
    """Wait for, hold and release ``device``. The lock ends with its holder, so a kill leaves none behind."""
    folder = Path(tempfile.gettempdir()) / FOLDER
    try:
        folder.mkdir(mode=0o1777, exist_ok=True)
        if folder.stat().st_uid == os.getuid():
            folder.chmod(0o1777)
        lock = FileLock(folder / f"{device}.lock", mode=0o666)
        with lock:
            yield
    except PermissionError as error:
        raise EvaluatorError(
            f"cannot lock device {device}: {error}; give this user write access to {folder}"
        ) from error
