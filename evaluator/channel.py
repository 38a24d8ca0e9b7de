"""What judge and worker share: sealed memory and one socket. Nothing else crosses."""

from __future__ import annotations

import array
import fcntl
import json
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from evaluator.plain import sanitize

F_ADD_SEALS = 1033
SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, SEAL_FUTURE_WRITE = 0x1, 0x2, 0x4, 0x10
REPORT_BYTES = 1 << 16
LOG_BYTES = 8 << 20
MOST_SPREAD = 4
"""Elements read for one of an answer's; a worker packs what is spread wider (see ``worker.checked``)."""


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class TensorSpec(Frozen):
    shape: tuple[int, ...]
    dtype: str

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    @property
    def count(self) -> int:
        n = 1
        for size in self.shape:
            n *= size
        return n

    @property
    def bytes(self) -> int:
        return self.count * self.torch_dtype.itemsize

    @property
    def floating(self) -> bool:
        return self.torch_dtype.is_floating_point


class Literal(Frozen):
    """An input that is no tensor, as Python text."""

    literal: str


class StateSpec(TensorSpec):
    name: str
    offset: int
    parameter: bool


class Description(Frozen):
    """What one run of the reference showed."""

    init: str | None
    inputs: tuple[TensorSpec | Literal, ...]
    outputs: tuple[TensorSpec, ...]
    structure: str
    state: tuple[StateSpec, ...]
    state_bytes: int

    @property
    def input_tensors(self) -> tuple[TensorSpec, ...]:
        return tuple(s for s in self.inputs if isinstance(s, TensorSpec))


@dataclass(frozen=True)
class Place:
    """Where a worker says that an output lies in its memory."""

    address: int
    strides: tuple[int, ...]
    elements: int
    """From the first to the last, both included."""


class Report(Frozen):
    """A worker's own account of a failure: untrusted, for the author only."""

    kind: str = "error"
    message: str = ""
    detail: str = ""
    unused: tuple[str, ...] = ()


class Buffer:
    """Shared memory that a worker cannot shrink under us. ``frozen`` ones a worker can only read.

    The seal against future writable mappings leaves this process's own mapping writable, so the judge alone writes.
    """

    def __init__(self, n_bytes: int, *, frozen: bool = False) -> None:
        self.size = max(n_bytes, 64)
        self.fd = os.memfd_create("kernel-agent", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.size)
        self.memory = mmap.mmap(self.fd, self.size)
        seals = SEAL_SHRINK | SEAL_GROW | SEAL_SEAL | (SEAL_FUTURE_WRITE if frozen else 0)
        fcntl.fcntl(self.fd, F_ADD_SEALS, seals)

    @classmethod
    def of(cls, data: bytes) -> Buffer:
        """A frozen buffer that holds ``data``."""
        buffer = cls(len(data), frozen=True)
        buffer.memory[: len(data)] = data
        return buffer

    def tensor(self, spec: TensorSpec, offset: int = 0) -> torch.Tensor:
        if spec.count == 0:
            return torch.empty(spec.shape, dtype=spec.torch_dtype)
        return torch.frombuffer(self.memory, dtype=spec.torch_dtype, count=spec.count, offset=offset).view(spec.shape)

    def text(self, start: int = 0) -> str:
        end = self.memory.find(b"\0", start)
        return self.memory[start : end if end >= 0 else self.size].decode(errors="replace")

    def close(self) -> None:
        # Tensors may still view the mapping; it goes when they do.
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Channel:
    """One byte each way, descriptors at the start."""

    def __init__(self) -> None:
        self.mine, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.report = Buffer(REPORT_BYTES)

    def assign(self, meta: dict[str, Any], fds: list[int]) -> None:
        description = Buffer.of(json.dumps(meta).encode())
        rights = array.array("i", [description.fd, self.report.fd, *fds])
        self.mine.sendmsg([b"asgn"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        description.close()

    def send(self, byte: bytes) -> None:
        """Raises OSError when the worker is gone."""
        self.mine.send(byte)

    def receive(self, seconds: float) -> bytes:
        """The worker's byte; b"" when it is gone. Raises TimeoutError."""
        self.mine.settimeout(seconds)
        try:
            return self.mine.recv(1)
        except ConnectionError:
            return b""

    def failure(self) -> Report:
        """The worker's account, safe to show: a candidate may have written it."""
        try:
            said = Report.model_validate_json(self.report.text(8))
        except ValidationError:
            return Report(message="the worker gave no readable account")
        return Report(
            kind=said.kind,
            message=sanitize(said.message),
            detail=sanitize(said.detail, 12000),
            unused=tuple(sanitize(name) for name in said.unused),
        )

    def forget_answer(self, outputs: Sequence[TensorSpec]) -> None:
        n_bytes = sum(8 * (1 + len(spec.shape)) for spec in outputs)
        self.report.memory[8 : 8 + n_bytes] = bytes(n_bytes)

    def answer(self, outputs: Sequence[TensorSpec]) -> list[Place | None]:
        """Where each output lies; None for one with no place, or none that may be read."""
        places: list[Place | None] = []
        at = 8
        for spec in outputs:
            address, *strides = struct.unpack_from(f"<{1 + len(spec.shape)}q", self.report.memory, at)
            at += 8 * (1 + len(spec.shape))
            elements = 0 if spec.count == 0 else 1 + sum((n - 1) * s for n, s in zip(spec.shape, strides, strict=True))
            fits = min(strides, default=0) >= 0 and 0 <= elements <= MOST_SPREAD * spec.count
            given = 0 < address < 1 << 63 or spec.count == 0
            places.append(Place(address, tuple(strides), elements) if fits and given else None)
        return places

    def seed(self, value: int) -> None:
        self.report.memory[:8] = struct.pack("<q", value)

    def close(self) -> None:
        self.mine.close()
        self.theirs.close()
        self.report.close()
