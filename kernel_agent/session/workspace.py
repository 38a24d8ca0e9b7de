"""The agent's folder: read with care, snapshotted after each step, entered through a jailed shell.

Whatever lies in it was made by a model. It is read with no link followed, regular files only, without blocking, and
up to a size.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path, PurePosixPath

from evaluator.sandbox import Limits, Mounts, environment, jailed, python_trees
from kernel_agent.errors import KernelAgentError

INSIDE = "/workspace"
SOURCE_LIMIT_BYTES = 1 << 20
GIT = (
    "git",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "gc.auto=0",
    "-c",
    "safe.directory=*",
)
EXCLUDED = "__pycache__/\n*.pyc\n"
SHELL_FILE_BYTES = 1 << 30


class WorkspaceError(KernelAgentError):
    """A file of the workspace that cannot be taken as it is; the message is for the agent."""


def read_source(root: str, path: str, limit: int = SOURCE_LIMIT_BYTES) -> str:
    """Text of a regular file below ``root``, opened component by component so that no link is ever followed.

    ``path`` is absolute under ``root`` (or under ``/workspace``) or relative to it. Raises WorkspaceError.
    """
    parts = _inside(root, path)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(root, flags | os.O_DIRECTORY)
    try:
        for n, part in enumerate(parts):
            last = n == len(parts) - 1
            try:
                below = os.open(part, flags | os.O_NONBLOCK | (0 if last else os.O_DIRECTORY), dir_fd=folder)
            except FileNotFoundError:
                raise WorkspaceError(f"{path} does not exist") from None
            except OSError as error:
                what = (
                    "is a link, which is not followed"
                    if _is_link(part, folder)
                    else f"cannot be opened: {error.strerror}"
                )
                raise WorkspaceError(f"{'/'.join(parts[: n + 1])} {what}") from None
            os.close(folder)
            folder = below
        facts = os.fstat(folder)
        if not stat.S_ISREG(facts.st_mode):
            raise WorkspaceError(f"{path} is no regular file; write the kernel's source into one")
        if facts.st_size > limit:
            raise WorkspaceError(f"{path} has {facts.st_size:,} bytes; a kernel's source may have {limit:,}")
        data = bytearray()
        while len(data) <= limit and (part_read := os.read(folder, 1 << 16)):
            data += part_read
        if len(data) > limit:
            raise WorkspaceError(f"{path} grew past {limit:,} bytes while it was read")
    finally:
        os.close(folder)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise WorkspaceError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def _inside(root: str, path: str) -> tuple[str, ...]:
    pure = PurePosixPath(path)
    for top in (INSIDE, root):
        if pure.is_absolute() and pure.is_relative_to(top):
            pure = pure.relative_to(top)
            break
    parts = pure.parts
    if pure.is_absolute() or ".." in parts or not parts:
        raise WorkspaceError(f"{path} lies outside {INSIDE}")
    return parts


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


class Snapshots:
    """The workspace's states, one a step, in a git directory that the agent cannot reach. Hooks and filters are off."""

    def __init__(self, git_dir: Path, workspace: Path) -> None:
        self.git_dir, self.workspace = git_dir, workspace
        if not (git_dir / "HEAD").exists():
            self._git("init", "-q", "--initial-branch=main")
            (git_dir / "info").mkdir(exist_ok=True)
            (git_dir / "info" / "exclude").write_text(EXCLUDED)

    def take(self, label: str) -> None:
        """Keep the workspace as it is now under ``label``."""
        self._git("add", "-A", "--force", "--ignore-errors", ".", ":(exclude,glob)**/__pycache__/**", check=False)
        tree = self._git("write-tree").strip()
        commit = self._git("commit-tree", tree, "-m", label).strip()
        self._git("update-ref", f"refs/steps/{label}", commit)

    def has(self, label: str) -> bool:
        return self._run("rev-parse", "--verify", "-q", f"refs/steps/{label}").returncode == 0

    def restore(self, label: str) -> None:
        """Make the workspace what it was under ``label``; what came later is removed."""
        self._git("read-tree", f"refs/steps/{label}")
        self._git("checkout-index", "-a", "-f", "-q")
        self._git("clean", "-f", "-d", "-x", "-q")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self.git_dir.parent),
            "GIT_DIR": str(self.git_dir),
            "GIT_WORK_TREE": str(self.workspace),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "kernel-agent",
            "GIT_AUTHOR_EMAIL": "kernel-agent@localhost",
            "GIT_COMMITTER_NAME": "kernel-agent",
            "GIT_COMMITTER_EMAIL": "kernel-agent@localhost",
        }
        return subprocess.run(
            [*GIT, *arguments], capture_output=True, text=True, env=env, cwd=self.workspace, check=False
        )

    def _git(self, *arguments: str, check: bool = True) -> str:
        done = self._run(*arguments)
        if check and done.returncode != 0:
            raise KernelAgentError(f"git {arguments[0]} failed on the workspace's snapshots: {done.stderr.strip()}")
        return done.stdout


def write_shell(path: Path, level: str, workspace: str, threads: int) -> None:
    """An executable that the terminal tool starts as its shell.

    In a jail: no network, no home, no secrets, the system read-only, the workspace at ``/workspace``.
    """
    mounts = Mounts(
        read_only=tuple((t, t) for t in python_trees()),
        read_write=((workspace, INSIDE),),
        folder=INSIDE,
        nested=True,
        terminal=True,
    )
    home = INSIDE if level != "none" else workspace
    env = environment(
        threads, {"HOME": home, "TORCH_EXTENSIONS_DIR": "/tmp/extensions", "TERM": "dumb", "HISTFILE": "/dev/null"}
    )
    command = jailed(
        level,
        mounts,
        Limits(file_size=SHELL_FILE_BYTES),
        ["env", "-i", *(f"{k}={v}" for k, v in env.items()), "bash", "--noediting"],
    )
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    path.chmod(0o755)


def session_command(level: str, workspace: Path, state: Path, packages: tuple[Path, ...], fd: int) -> list[str]:
    """The command line of a session process.

    In a jail of its own it sees the system read-only, its packages, its state and the workspace, so that a link made
    by the agent's shell leads the editor nowhere. It keeps the network: the gateway is on the loopback.
    """
    command = [sys.executable, "-m", "kernel_agent.session.main", str(fd)]
    if level == "none":
        return command
    words = [
        "bwrap",
        "--die-with-parent",
        "--new-session",
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
    ]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for tree in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", *python_trees()):
        if os.path.islink(tree):
            words += ["--symlink", os.readlink(tree), tree]
        elif os.path.isdir(tree):
            words += ["--ro-bind", tree, tree]
    for package in packages:
        words += ["--ro-bind", str(package), str(package)]
    words += [
        "--bind",
        str(state),
        str(state),
        "--bind",
        str(workspace),
        INSIDE,
        "--remount-ro",
        "/",
        "--chdir",
        str(state),
    ]
    return [*words, "--", *command]
