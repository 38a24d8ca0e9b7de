"""Shared memory and the socket, attacked from a real jail that holds their descriptors."""

from __future__ import annotations

import array
import json
import os
import socket
import subprocess
import sys

import pytest

from evaluator.channel import Buffer, Channel, TensorSpec
from evaluator.sandbox import Limits, Mounts, environment, jailed, python_trees

ATTACKS = """
import ctypes, errno, fcntl, json, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
fd, size = int(sys.argv[1]), int(sys.argv[2])
def tried(action):
    try:
        action()
    except (OSError, ValueError) as error:
        return errno.errorcode.get(getattr(error, "errno", None), "ValueError")
    return "ok"
def store(handle):
    memory = mmap.mmap(handle, size)
    memory[0] = 66
def punch(handle):
    if libc.fallocate(handle, 3, ctypes.c_long(0), ctypes.c_long(size)) < 0:
        raise OSError(ctypes.get_errno(), "fallocate")
def protect():
    libc.mmap.restype = ctypes.c_void_p
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    place = libc.mmap(None, ctypes.c_size_t(size), 1, 1, fd, ctypes.c_long(0))
    if libc.mprotect(place, size, 3) < 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    ctypes.memset(place, 66, 1)
again = f"/proc/self/fd/{fd}"
def reopened(action):
    handle = os.open(again, os.O_RDWR)
    action(handle)
print(json.dumps({
    "shrink": tried(lambda: os.ftruncate(fd, 1)),
    "grow": tried(lambda: os.ftruncate(fd, size + 4096)),
    "grow by writing": tried(lambda: os.pwrite(fd, b"x", size)),
    "truncate by path": tried(lambda: os.truncate(again, 0)),
    "open and truncate": tried(lambda: os.close(os.open(again, os.O_RDWR | os.O_TRUNC))),
    "more seals": tried(lambda: fcntl.fcntl(fd, 1033, 8)),
    "write": tried(lambda: os.pwrite(fd, b"B", 0)),
    "map": tried(lambda: store(fd)),
    "map what was reopened": tried(lambda: reopened(store)),
    "write what was reopened": tried(lambda: reopened(lambda h: os.pwrite(h, b"B", 0))),
    "punch a hole": tried(lambda: punch(fd)),
    "protect": tried(protect),
}))
"""
SIZES = ("shrink", "grow", "grow by writing", "truncate by path", "open and truncate", "more seals")


def attacked(level: str, buffer: Buffer) -> dict[str, str]:
    mounts = Mounts(read_only=tuple((t, t) for t in python_trees()))
    command = [sys.executable, "-I", "-c", ATTACKS, str(buffer.fd), str(buffer.size)]
    done = subprocess.run(
        jailed(level, mounts, Limits(), command),
        capture_output=True,
        text=True,
        pass_fds=[buffer.fd],
        env=environment(1),
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_a_frozen_buffer_cannot_be_changed_from_a_jail(level: str) -> None:
    buffer = Buffer.of(b"A" * 8192)
    found = attacked(level, buffer)
    assert "ok" not in found.values(), found
    assert bytes(buffer.memory) == b"A" * 8192
    assert os.fstat(buffer.fd).st_size == 8192
    buffer.memory[0:1] = b"C"  # the judge's own mapping stays writable
    assert os.pread(buffer.fd, 1, 0) == b"C"
    buffer.close()


def test_a_shared_buffer_keeps_its_size(level: str) -> None:
    buffer = Buffer(8192)
    found = attacked(level, buffer)
    assert "ok" not in {found[name] for name in SIZES}, found
    assert found["map"] == "ok", "the worker answers by writing here"
    assert len(bytes(buffer.memory)) == 8192
    buffer.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff\xfe\x00",
        b"{",
        b"[]",
        b"null",
        b'{"kind": 5}',
        b'{"message": "\\ud800"}',
        b"[" * 60000,
        b'{"a":' * 12000,
        b"x" * 70000,
        b'{"message": ' + b"9" * 60000 + b"}",
    ],
)
def test_a_report_of_garbage_is_survived(garbage: bytes) -> None:
    channel = Channel()
    try:
        n = min(len(garbage), channel.report.size - 8)
        channel.report.memory[8 : 8 + n] = garbage[:n]
        report = channel.failure()
        assert report.kind == "error"
        report.model_dump_json()
    finally:
        channel.close()


def test_a_report_cannot_carry_control_sequences() -> None:
    channel = Channel()
    try:
        text = json.dumps({"kind": "error", "message": "a\x1b[2Jb", "detail": "\x9b5n", "unused": ["\x07"]}).encode()
        channel.report.memory[8 : 8 + len(text)] = text
        report = channel.failure()
        assert (report.message, report.detail, report.unused) == ("a[2Jb", "5n", ("",))
    finally:
        channel.close()


def test_a_seed_and_a_report_do_not_overlap() -> None:
    channel = Channel()
    try:
        channel.seed(2**62)
        channel.report.memory[8:30] = b'{"message": "kept"}\0\0\0'
        channel.seed(-1)
        assert channel.failure().message == "kept"
    finally:
        channel.close()


def test_descriptors_that_a_worker_sends_are_not_kept() -> None:
    channel = Channel()
    try:
        before = len(os.listdir("/proc/self/fd"))
        with open("/dev/null") as f:
            rights = array.array("i", [f.fileno()] * 50)
            channel.theirs.sendmsg([b"d"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        assert channel.receive(1) == b"d"
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        channel.close()


def test_a_long_message_counts_as_its_first_byte() -> None:
    channel = Channel()
    try:
        channel.theirs.send(b"d" * 1000)
        channel.theirs.send(b"e")
        assert (channel.receive(1), channel.receive(1)) == (b"d", b"e")
        with pytest.raises(TimeoutError):
            channel.receive(0.05)
        channel.theirs.close()
        assert channel.receive(1) == b""
    finally:
        channel.close()


def test_a_buffer_lends_tensors() -> None:
    spec = TensorSpec(shape=(2, 3), dtype="float32")
    buffer = Buffer(spec.bytes + 64)
    view = buffer.tensor(spec, 64)
    view.fill_(2.5)
    assert os.pread(buffer.fd, 4, 64) == b"\x00\x00\x20\x40"
    assert buffer.tensor(TensorSpec(shape=(0, 3), dtype="int64")).shape == (0, 3)
    buffer.close()
    buffer.close()
    assert float(view.sum()) == 15.0, "a view outlives the descriptor"
