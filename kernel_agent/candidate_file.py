"""A candidate's file, read with care: it may be anything that has a path."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kernel_agent.errors import UsageError

MOST_BYTES = 1 << 20


def read_candidate(path: Path) -> str:
    """The text of a regular file; raises UsageError for anything else, and waits for nothing."""
    try:
        # Without O_NONBLOCK a FIFO that nobody writes would hold the command for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}; name a candidate: a Python file that defines ModelNew") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise UsageError(f"{path} is {_kind(mode)}, not a file; name a Python file that defines ModelNew")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MOST_BYTES:
        raise UsageError(f"{path} is larger than {MOST_BYTES} bytes; a candidate is one source file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return next((name for test, name in kinds if test(mode)), "a device")
