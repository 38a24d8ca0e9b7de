"""Reading another process's memory, which that process can neither refuse nor notice."""

from __future__ import annotations

import ctypes
import errno
import os

import torch

from evaluator.model import EvaluatorError

MOST_BYTES = 1 << 30
"""A call; the kernel moves a little under 2 GiB at most."""


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _read(pid: int, address: int, into: int, n_bytes: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    here, there = _Part(into, n_bytes), _Part(address, n_bytes)
    done = int(libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return done


def read(pid: int, address: int, n_bytes: int) -> torch.Tensor:
    """``n_bytes`` (uint8) at ``address`` of process ``pid``. Raises OSError where it has nothing to read."""
    found = torch.empty(n_bytes, dtype=torch.uint8)
    done = 0
    while done < n_bytes:
        part = _read(pid, address + done, found.data_ptr() + done, min(n_bytes - done, MOST_BYTES))
        if part == 0:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        done += part
    return found


def require_readable(pid: int) -> None:
    """Raise EvaluatorError, with the remedy, where this host lets no process read its own child's memory."""
    byte = ctypes.c_char()
    try:
        _read(pid, 0, ctypes.addressof(byte), 1)
    except OSError as error:
        if error.errno == errno.EFAULT:  # nothing lies at 0; we were let as far as finding that out
            return
        raise EvaluatorError(
            f"this host does not let the judge read a worker's memory ({error.strerror}). Set sysctl "
            "kernel.yama.ptrace_scope to 0 or 1; in a container, allow process_vm_readv (--cap-add SYS_PTRACE)."
        ) from error
