"""The jail, from inside: a jailed Python tries to get out, and each way is shut."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator import sandbox
from evaluator.model import EvaluatorError
from evaluator.sandbox import JailReport, Limits, Mounts, environment, jailed, python_trees

SECRET = "tests-evaluator-secret"
PRELUDE = """
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def tried(action):
    try:
        got = action()
    except OSError as error:
        return errno.errorcode.get(error.errno, "OSError")
    return "ok" if got is None else got
def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
def written(path):
    with open(path, "w") as f:
        f.write("x")
def text(path):
    with open(path) as f:
        return f.read()
"""


class Jail:
    def __init__(self, level: str, folder: Path) -> None:
        self.level, self.folder = level, folder
        (folder / "kept.txt").write_text("kept")

    def run(self, body: str, *words: str, scratch: int = 32 << 20, limits: Limits | None = None) -> object:
        """The jailed program's one line of JSON; ``/kept`` is a folder bound read-only."""
        mounts = Mounts(
            read_only=(*((t, t) for t in python_trees()), (str(self.folder), "/kept")), scratch_bytes=scratch
        )
        command = [sys.executable, "-I", "-c", PRELUDE + body, *words]
        done = subprocess.run(
            jailed(self.level, mounts, limits or Limits(), command),
            capture_output=True,
            text=True,
            timeout=30,
            env=environment(1),
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def jail(level: str, tmp_path: Path) -> Jail:
    return Jail(level, tmp_path)


def test_a_read_only_folder_stays_so(jail: Jail) -> None:
    found = jail.run("""
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096
print(json.dumps({
    "read": text("/kept/kept.txt"),
    "write": tried(lambda: written("/kept/kept.txt")),
    "remount": tried(lambda: call("mount", b"none", b"/kept", None, MS_REMOUNT | MS_BIND, None)),
    "remount root": tried(lambda: call("mount", b"none", b"/", None, MS_REMOUNT | MS_BIND, None)),
    "new mount": tried(lambda: call("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None)),
    "unmount": tried(lambda: call("umount2", b"/kept", 2)),
    "after": tried(lambda: written("/kept/kept.txt")),
}))""")
    assert isinstance(found, dict)
    assert found.pop("read") == "kept"
    assert set(found.values()) <= {"EROFS", "EPERM", "EACCES", "EINVAL"}, found
    assert (jail.folder / "kept.txt").read_text() == "kept"


def test_kernel_settings_cannot_be_written(jail: Jail) -> None:
    found = jail.run("""
paths = ["/proc/sys/vm/swappiness", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
         "/proc/sysrq-trigger", "/proc/sys/kernel/ns_last_pid"]
print(json.dumps({p: tried(lambda: os.close(os.open(p, os.O_WRONLY))) for p in paths}))""")
    assert isinstance(found, dict)
    assert set(found.values()) <= {"EROFS", "EPERM", "EACCES", "ENOENT"}, found


def test_no_network_is_there(jail: Jail) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind(f"\0kernel-agent-test-{os.getpid()}")
        abstract.listen()
        found = jail.run(
            """
def connect(family, address):
    s = socket.socket(family); s.settimeout(3); s.connect(address)
print(json.dumps({
    "loopback": tried(lambda: connect(socket.AF_INET, ("127.0.0.1", int(sys.argv[1])))),
    "outside": tried(lambda: connect(socket.AF_INET, ("192.0.2.1", 80))),
    "abstract": tried(lambda: connect(socket.AF_UNIX, "\\0" + sys.argv[2])),
    "raw": tried(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW) and None),
    "interfaces": [name for _, name in socket.if_nameindex()],
}))""",
            str(listener.getsockname()[1]),
            f"kernel-agent-test-{os.getpid()}",
        )
        abstract.close()
    assert isinstance(found, dict)
    assert found.pop("interfaces") == ["lo"]
    assert set(found.values()) <= {"ECONNREFUSED", "ENETUNREACH", "EPERM"}, found


def test_the_home_the_repository_and_secrets_are_out_of_sight(jail: Jail) -> None:
    home, repository = Path.home(), Path(__file__).resolve().parents[2]
    found = jail.run(
        """
print(json.dumps({
    "home": [n for n in (os.listdir(sys.argv[1]) if os.path.isdir(sys.argv[1]) else [])],
    "repository": tried(lambda: text(sys.argv[2]) and None),
    "shadow": tried(lambda: text("/etc/shadow") and None),
    "passwd": tried(lambda: text("/etc/passwd") and None),
    "sys": sorted({folder for folder, _, files in os.walk("/sys") if files}),
    "environment": dict(os.environ),
}))""",
        str(home),
        str(repository / "evaluator" / "judge.py"),
    )
    assert isinstance(found, dict)
    # Only folders on the way to the interpreter may show.
    on_the_way = {Path(t).relative_to(home).parts[0] for t in python_trees() if Path(t).is_relative_to(home)}
    assert set(found["home"]) <= on_the_way
    assert {found["repository"], found["shadow"], found["passwd"]} <= {"ENOENT", "EACCES"}, found
    # malloc asks there whether it may use huge pages; nothing else of the kernel's is shown.
    assert all(folder.startswith("/sys/kernel/mm/transparent_hugepage") for folder in found["sys"])
    assert found["environment"]["HOME"] == "/tmp"
    assert not {k for k in found["environment"] if "KEY" in k or "TOKEN" in k}


def test_our_environment_does_not_leak(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTS_EVALUATOR_KEY", SECRET)
    found = jail.run('print(json.dumps([dict(os.environ), text("/proc/1/environ") if 0 else ""]))')
    assert SECRET not in json.dumps(found)


def test_other_processes_are_out_of_sight_and_reach(jail: Jail) -> None:
    found = jail.run(
        """
print(json.dumps({
    "pids": len([n for n in os.listdir("/proc") if n.isdigit()]),
    "kill": tried(lambda: os.kill(int(sys.argv[1]), 9)),
    "trace": tried(lambda: call("ptrace", 16, int(sys.argv[1]), None, None)),
    "all": tried(lambda: os.kill(-1, 0)),
}))""",
        str(os.getpid()),
    )
    assert isinstance(found, dict)
    assert found["pids"] <= 3, "bubblewrap's init, Python, and nothing of the host"
    assert found["kill"] == "ESRCH"
    assert found["trace"] == "ESRCH"


def test_nothing_but_scratch_can_be_written(jail: Jail) -> None:
    found = jail.run("""
places = []
for folder, folders, _ in os.walk("/"):
    if folder == "/":
        folders[:] = [f for f in folders if f != "proc"]
    if tried(lambda: written(os.path.join(folder, "probe"))) == "ok":
        places.append(folder)
        folders[:] = []
devices = {d: tried(lambda: os.mknod("/tmp/" + d, 0o20666, os.makedev(1, 1))) for d in ("mem",)}
print(json.dumps([places, devices]))""")
    assert isinstance(found, list)
    assert set(found[0]) <= {"/tmp", "/dev/shm"}, "anything else could carry a result to a later jail"
    assert found[1] == {"mem": "EPERM"}


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_scratch_is_bounded(jail: Jail, folder: str) -> None:
    found = jail.run(
        """
total = 0
def fill():
    global total
    for n in range(64):
        with open(f"{sys.argv[1]}/{n}", "wb") as f:
            total += f.write(bytes(1 << 20)); f.flush()
print(json.dumps([tried(fill), total]))""",
        folder,
    )
    assert isinstance(found, list)
    assert found[0] == "ENOSPC"
    assert found[1] <= 34 << 20


def test_no_namespace_and_no_capability_can_be_gained(jail: Jail) -> None:
    found = jail.run("""
NEWUSER, NEWNS, NEWNET = 0x10000000, 0x20000, 0x40000000
status = dict(l.split(":\\t") for l in text("/proc/self/status").splitlines() if ":\\t" in l)
print(json.dumps({
    "user": tried(lambda: call("unshare", NEWUSER)),
    "mount": tried(lambda: call("unshare", NEWNS)),
    "net": tried(lambda: call("unshare", NEWNET)),
    "uid": tried(lambda: os.setuid(0)),
    "root": tried(lambda: os.chroot("/tmp")),
    "host": tried(lambda: socket.sethostname("x")),
    "time": tried(lambda: __import__("time").clock_settime(0, 1)),
    "nice": tried(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5)),
    "realtime": tried(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))),
    "caps": [status[c].strip() for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "new privileges": status["NoNewPrivs"].strip(),
}))""")
    assert isinstance(found, dict)
    assert set(found.pop("caps")) == {"0" * 16}
    assert found.pop("new privileges") == "1"
    assert set(found.values()) <= {"EPERM", "EACCES", "ENOSPC", "EINVAL"}, found


def test_limits_bind(jail: Jail) -> None:
    found = jail.run(
        """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def memory():
    try:
        bytearray(2 << 30)
    except MemoryError:
        return "MemoryError"
print(json.dumps({
    "memory": memory(),
    "file": tried(lambda: os.truncate(os.open("/tmp/f", os.O_CREAT | os.O_RDWR), 2 << 20)),
    "files": tried(lambda: [os.dup(0) for _ in range(200)] and None),
}))""",
        limits=Limits(address_space=1 << 30, file_size=1 << 20, open_files=100),
    )
    assert found == {"memory": "MemoryError", "file": "EFBIG", "files": "EMFILE"}


CROWD = """
import subprocess, sys
crowd = [subprocess.Popen(["sleep", "60"]) for _ in range(60)]
try:
    done = subprocess.run(sys.argv[1:], capture_output=True, text=True, timeout=30)
    print(done.stdout, done.stderr)
finally:
    for p in crowd:
        p.kill()
"""


def test_a_users_other_processes_do_not_use_up_the_jails(level: str) -> None:
    """An ordinary user has hundreds of threads on a desktop; the cap on a jail's is for the jail's own."""
    body = "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; echo all"
    command = jailed("bubblewrap", Mounts(), Limits(processes=40), ["/bin/sh", "-c", body + " 2>&1"])
    small = jailed("bubblewrap", Mounts(), Limits(processes=40), ["/bin/echo", "inside"])
    drop = ["setpriv", "--reuid=31337", "--regid=31337", "--clear-groups"] if os.getuid() == 0 else []
    found = [
        subprocess.run(
            [*drop, "/usr/bin/env", "python3", "-c", CROWD, *words],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": "/usr/bin:/bin"},
            check=False,
        ).stdout
        for words in (small, command)
    ]
    assert "inside" in found[0], (level, found)
    assert "all" not in found[1], "the cap holds inside"
    assert "fork" in found[1]


# -- finding a jail ---------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_detection() -> object:
    sandbox.detect.cache_clear()
    yield None
    sandbox.detect.cache_clear()


@pytest.mark.usefixtures("fresh_detection")
def test_a_host_that_refuses_namespaces_is_told_how_to_allow_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # The command's environment has a PATH of its own; prlimit looks bwrap up there.
    monkeypatch.setattr(
        sandbox, "environment", lambda threads: environment(threads, {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    )
    report = sandbox.detect()
    assert report.level is None
    assert any("Permission denied" in attempt for attempt in report.attempts)
    assert "--isolation none" in report.remedy
    assert "userns" in report.remedy
    with pytest.raises(EvaluatorError, match="--isolation none"):
        sandbox.require("jail")
    assert sandbox.require("none") == "none"


@pytest.mark.usefixtures("fresh_detection")
def test_a_missing_bubblewrap_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = sandbox.detect()
    assert report.level is None
    assert "bwrap" in report.attempts[0]
    assert "apt-get install bubblewrap" in report.remedy


def test_no_jail_is_never_chosen_unasked() -> None:
    assert sandbox.detect().level in ("uid+bubblewrap", "bubblewrap")
    assert JailReport(None, ("a: b",)).remedy.startswith("no jail works on this host: a: b")
