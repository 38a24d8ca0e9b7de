"""The agent's folder is hostile ground: what is read from it, kept of it, and reached from its shell."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from evaluator.sandbox import detect
from kernel_agent.session.workspace import (
    INSIDE,
    SOURCE_LIMIT_BYTES,
    Snapshots,
    WorkspaceError,
    read_source,
    session_command,
    write_shell,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("path", ["kernel.py", f"{INSIDE}/kernel.py", "{root}/kernel.py", "./kernel.py"])
def test_reads_a_file_by_any_of_its_names(workspace: Path, path: str) -> None:
    (workspace / "kernel.py").write_text("x = 1\n")
    assert read_source(str(workspace), path.format(root=workspace)) == "x = 1\n"


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside.py", f"{INSIDE}/../outside.py", INSIDE, ""])
def test_refuses_paths_outside(workspace: Path, path: str) -> None:
    (workspace.parent / "outside.py").write_text("secret")
    with pytest.raises(WorkspaceError, match="outside"):
        read_source(str(workspace), path)


def test_follows_no_link_to_a_file_or_through_a_folder(workspace: Path) -> None:
    (workspace.parent / "secret").mkdir()
    (workspace.parent / "secret" / "kernel.py").write_text("secret")
    (workspace / "kernel.py").symlink_to(workspace.parent / "secret" / "kernel.py")
    (workspace / "folder").symlink_to(workspace.parent / "secret")
    with pytest.raises(WorkspaceError, match="link"):
        read_source(str(workspace), "kernel.py")
    with pytest.raises(WorkspaceError, match="link"):
        read_source(str(workspace), "folder/kernel.py")


def test_a_fifo_neither_blocks_nor_passes(workspace: Path) -> None:
    os.mkfifo(workspace / "kernel.py")
    found: list[BaseException] = []

    def read() -> None:
        try:
            read_source(str(workspace), "kernel.py")
        except WorkspaceError as error:
            found.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert "no regular file" in str(found[0])


def test_says_what_is_wrong_with_a_file(workspace: Path) -> None:
    with pytest.raises(WorkspaceError, match="does not exist"):
        read_source(str(workspace), "nothing.py")
    (workspace / "large.py").write_bytes(b"#" * (SOURCE_LIMIT_BYTES + 1))
    with pytest.raises(WorkspaceError, match="bytes"):
        read_source(str(workspace), "large.py")
    (workspace / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkspaceError, match="UTF-8"):
        read_source(str(workspace), "binary.py")
    (workspace / "folder").mkdir()
    with pytest.raises(WorkspaceError, match="no regular file"):
        read_source(str(workspace), "folder")


def test_a_snapshot_brings_back_exactly_what_was(tmp_path: Path, workspace: Path) -> None:
    snapshots = Snapshots(tmp_path / "snapshots.git", workspace)
    (workspace / "kept.py").write_text("one")
    (workspace / "removed.py").write_text("here")
    (workspace / "folder").mkdir()
    (workspace / "folder" / "deep.txt").write_text("deep")
    snapshots.take("a")
    (workspace / "kept.py").write_text("two")
    (workspace / "removed.py").unlink()
    (workspace / "later.py").write_text("later")
    (workspace / ".gitignore").write_text("*\n")
    snapshots.take("b")
    snapshots.restore("a")
    assert (workspace / "kept.py").read_text() == "one"
    assert (workspace / "removed.py").read_text() == "here"
    assert (workspace / "folder" / "deep.txt").read_text() == "deep"
    assert not (workspace / "later.py").exists()
    snapshots.restore("b")
    assert (workspace / "later.py").read_text() == "later"  # ignored by the agent's own rules, kept by ours
    assert snapshots.has("a")
    assert not snapshots.has("c")


def test_snapshots_run_nothing_that_the_workspace_configures(tmp_path: Path, workspace: Path) -> None:
    mark = tmp_path / "ran"
    (workspace / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (workspace / ".git").mkdir()
    (workspace / ".git" / "config").write_text(
        f'[filter "evil"]\n\tclean = touch {mark}\n[core]\n\tfsmonitor = touch {mark}\n'
    )
    (workspace / "link").symlink_to("/etc/passwd")
    os.mkfifo(workspace / "fifo")
    snapshots = Snapshots(tmp_path / "snapshots.git", workspace)
    (workspace / "kernel.py").write_text("x")
    snapshots.take("a")
    (workspace / "kernel.py").unlink()
    snapshots.restore("a")
    assert (workspace / "kernel.py").read_text() == "x"
    assert (workspace / "link").is_symlink()
    assert not mark.exists()


def test_the_shell_is_jailed_inside_the_session(tmp_path: Path, workspace: Path) -> None:
    """Run the agent's shell as a session would, inside the session's own jail."""
    assert detect().level is not None, detect().remedy
    state = tmp_path / "state"
    state.mkdir()
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    write_shell(state / "shell", "bubblewrap", INSIDE, 1)
    probe = (
        f"cat {secret} {state}/shell /etc/shadow; touch /etc/x /usr/x {INSIDE}/made;"
        "echo 1 > /proc/sys/vm/swappiness; env; pwd; id -u;"
        "python -c \"import socket; socket.create_connection(('127.0.0.1', 22), 1)\" 2>&1 | tail -1;"
        "mount -o remount,rw /usr; unshare -U true"
    )
    command = session_command("bubblewrap", workspace, state, (), 0)
    inside = [*command[: command.index("--") + 1], str(state / "shell"), "-c", probe]
    env = {"PATH": os.environ["PATH"], "SECRET_KEY": "hidden"}
    done = subprocess.run(inside, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert "secret" not in done.stdout
    assert "hidden" not in done.stdout
    assert "bwrap" not in done.stdout  # its own script is out of sight
    assert f"\n{INSIDE}\n" in done.stdout
    assert "65534" in done.stdout
    assert "Network is unreachable" in done.stdout or "Connection refused" in done.stdout
    assert (workspace / "made").exists()
    assert not Path("/etc/x").exists()
    assert not Path("/usr/x").exists()
    for refused in ("/etc/x", "/usr/x", "swappiness", "unshare"):
        assert refused in done.stderr


def test_a_session_sees_no_home_and_no_host_processes(tmp_path: Path, workspace: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    command = session_command("bubblewrap", workspace, state, (), 0)
    code = (
        "import os; print(sorted(os.listdir('/'))); print(len([p for p in os.listdir('/proc') if p.isdigit()]));"
        "print(os.path.exists('/home'))"
    )
    inside = [*command[: command.index("--") + 1], sys.executable, "-c", code]
    done = subprocess.run(inside, capture_output=True, text=True, timeout=60, check=True)
    folders, processes, home = done.stdout.splitlines()
    assert "workspace" in folders
    assert int(processes) <= 3
    assert home == "False"
