"""The jail: which kind this host allows, found by trying, and the command line that enters it.

Two ways that hold (a plain ``bwrap`` as root does not: it keeps every capability, and a read-only bind was remounted):

``uid+bubblewrap``
    an unprivileged uid first (``setpriv``), then bubblewrap. Needs an interpreter that this uid can read.
``bubblewrap``
    bubblewrap with a user namespace of its own, no capabilities, and ``/proc/sys`` read-only.

``none`` is never chosen here: the user must ask for it by name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from evaluator.model import EvaluatorError

NOBODY = 65534
SYSTEM_TREES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
SYSTEM_FILES = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/sys/kernel/mm/transparent_hugepage",
)
"""Of /etc only what the linker and compiler need: as root, a mapped uid may still read root's files."""


@dataclass(frozen=True)
class Mounts:
    """What a jail sees beside the system: host path to path inside."""

    read_only: tuple[tuple[str, str], ...] = ()
    read_write: tuple[tuple[str, str], ...] = ()
    scratch_bytes: int = 1 << 30
    """Size of the private /tmp, in bytes; held in memory."""
    folder: str = "/"
    """Working directory inside."""
    nested: bool = False
    """Started inside another jail, where /proc cannot be mounted again: that jail's own is shown, read-only. Its end is
    that jail's end, not its parent's: a parent counts as dead when the *thread* that started the jail ends."""
    terminal: bool = False
    """Keep the controlling terminal, so that an interactive shell can be interrupted. Only for a pseudo-terminal of
    ours: in a person's terminal a jailed process could type commands."""


@dataclass(frozen=True)
class Limits:
    """Resource limits, in the units of setrlimit; None leaves one alone."""

    address_space: int | None = None
    processes: int | None = None
    file_size: int | None = 1 << 30
    open_files: int = 1024

    def outside(self) -> list[str]:
        words = ["prlimit", "--core=0", f"--nofile={self.open_files}"]
        for flag, value in (("as", self.address_space), ("fsize", self.file_size)):
            if value is not None:
                words.append(f"--{flag}={value}")
        return [*words, "--"]

    def inside(self) -> list[str]:
        """Set in the jail's own user namespace, where nothing else counts: outside, every process and thread that
        this user has on the host does, and a desktop's few hundred would leave none to start the jail with."""
        return [] if self.processes is None else ["prlimit", f"--nproc={self.processes}", "--"]


@dataclass(frozen=True)
class JailReport:
    """The level achieved, or why none was."""

    level: str | None
    attempts: tuple[str, ...] = field(default=())

    @property
    def remedy(self) -> str:
        return (
            "no jail works on this host: "
            + "; ".join(self.attempts)
            + ". Install bubblewrap (apt-get install bubblewrap) and allow user namespaces "
            "(sysctl kernel.unprivileged_userns_clone=1; on Ubuntu 24.04 also "
            "kernel.apparmor_restrict_unprivileged_userns=0), "
            "or pass --isolation none to run candidates without a jail."
        )


def python_trees() -> tuple[str, ...]:
    """Folders that an interpreter of this environment reads, outermost first."""
    trees = {os.path.realpath(sys.prefix), sys.prefix, os.path.realpath(sys.base_prefix), sys.base_prefix}
    # the interpreter is reached through links: name the folder of each one on the way
    link = Path(sys.executable)
    while link.is_symlink():
        link = Path(os.path.normpath(link.parent / os.readlink(link)))
        trees.add(str(link.parent.parent))
    return tuple(sorted(t for t in trees if not any(t == s or t.startswith(s + "/") for s in SYSTEM_TREES)))


def bubblewrap(mounts: Mounts) -> list[str]:
    """bubblewrap's arguments up to the command to run."""
    words = ["bwrap", "--unshare-all", "--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    words += ["--cap-drop", "ALL", "--disable-userns"]
    if not mounts.nested:
        words.append("--die-with-parent")
    words += [] if mounts.terminal else ["--new-session"]
    if mounts.nested:
        words += ["--ro-bind", "/proc", "/proc", "--dev", "/dev"]
    else:
        words += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    words += ["--size", str(mounts.scratch_bytes), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    words += ["--size", str(mounts.scratch_bytes), "--tmpfs", "/tmp"]
    for tree in SYSTEM_TREES:
        if os.path.islink(tree):
            words += ["--symlink", os.readlink(tree), tree]
        elif os.path.isdir(tree):
            words += ["--ro-bind", tree, tree]
    for path in SYSTEM_FILES:
        # A jail within a jail may find less there than this process does.
        words += ["--ro-bind-try", path, path]
    for host, inside in mounts.read_only:
        words += ["--ro-bind", host, inside]
    for host, inside in mounts.read_write:
        words += ["--bind", host, inside]
    words += ["--chdir", mounts.folder]
    return [*words, "--remount-ro", "/"]


def environment(threads: int, extra: dict[str, str] | None = None) -> dict[str, str]:
    """A worker's whole environment: nothing of ours leaks in.

    Explicit places keep both sides' OpenMP threads on the same cores (``OMP_PLACES=cores`` reads /sys, which a jail
    lacks, and is then silently ignored); passive waiting keeps an idle side off the cores; the malloc settings keep
    page faults out of the clock.
    """
    cores = sorted(os.sched_getaffinity(0))[:threads]
    env = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": str(threads),
        "OMP_PROC_BIND": "close",
        "OMP_PLACES": ",".join(f"{{{c}}}" for c in cores),
        "OMP_WAIT_POLICY": "passive",
        "MALLOC_MMAP_THRESHOLD_": "2000000000",
        "MALLOC_TRIM_THRESHOLD_": "8000000000",
        "MALLOC_TOP_PAD_": "268435456",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    }
    return env | (extra or {})


def jailed(level: str, mounts: Mounts, limits: Limits, command: Sequence[str]) -> list[str]:
    """The whole command line that runs ``command`` at ``level``."""
    if level == "none":
        return [*limits.outside(), *command]
    words = [*limits.outside(), *bubblewrap(mounts), "--", *limits.inside(), *command]
    if level == "uid+bubblewrap":
        words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", *words]
    return words


@lru_cache(maxsize=1)
def detect() -> JailReport:
    """Try each way with this interpreter; the first that starts it wins. Costs about 0.1 s, once a process."""
    missing = [tool for tool in ("bwrap", "prlimit") if shutil.which(tool) is None]
    if missing:
        return JailReport(None, (f"{' and '.join(missing)} not found on PATH",))
    mounts = Mounts(read_only=tuple((t, t) for t in python_trees()))
    attempts = []
    for level in ("uid+bubblewrap", "bubblewrap") if os.getuid() == 0 else ("bubblewrap",):
        command = jailed(level, mounts, Limits(), [sys.executable, "-I", "-c", "print('in')"])
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, env=environment(1), check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            attempts.append(f"{level}: {error}")
            continue
        if done.returncode == 0 and done.stdout.strip() == "in":
            return JailReport(level, tuple(attempts))
        attempts.append(f"{level}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    return JailReport(None, tuple(attempts))


def require(isolation: str) -> str:
    """The level to run at: ``none`` only when asked for; otherwise the best there is, or an error with the remedy."""
    if isolation == "none":
        return "none"
    report = detect()
    if report.level is None:
        raise EvaluatorError(report.remedy)
    return report.level
