"""Trees of real processes: found, stopped, counted, ended."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from evaluator import cgroup
from evaluator.processes import Tree, Used, descendants, newest_pid
from evaluator.sandbox import Limits, Mounts, environment, jailed, python_trees
from tests.evaluator.processes import alive, living

BUSY = "while True: pass"
FAMILY = """
import os, sys, threading, time
def busy():
    while True: pass
os.fork()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
threading.Thread(target=busy, daemon=True).start()
print("up", flush=True)
time.sleep(1000)
"""
"""Four long-lived processes: a parent, its child, and an orphan of each in a session of its own."""
BOMB = """
import os
print("up", flush=True)
while True:
    try:
        os.fork()
    except OSError:
        pass
"""

Spawn = Callable[..., Tree]


@pytest.fixture
def spawn(level: str) -> Iterator[Spawn]:
    """Start Python text in a jail, and wait until it has said ``count`` words."""
    started: list[tuple[subprocess.Popen[bytes], Tree]] = []

    def start(body: str, count: int = 1, marker: str = "tests-evaluator") -> Tree:
        mounts = Mounts(read_only=tuple((t, t) for t in python_trees()))
        command = jailed(level, mounts, Limits(), [sys.executable, "-I", "-c", body, marker])
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(1), start_new_session=True)
        tree = Tree(process.pid, wrapped=True)
        started.append((process, tree))
        assert process.stdout is not None
        for _ in range(count):
            assert process.stdout.readline() == b"up\n"
        return tree

    yield start
    for process, tree in started:
        tree.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def states(pid: int) -> set[str]:
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return found


def test_a_tree_finds_orphans_in_sessions_of_their_own(spawn: Spawn) -> None:
    tree = spawn(FAMILY, count=4, marker="tests-family")
    tree.walk()
    members = set(alive("tests-family"))
    # bubblewrap's own two carry the command among their arguments too
    assert len(members - {tree.root}) == 5
    assert set(tree.pids) >= members - {tree.root}  # and perhaps those who have just ended


def test_every_thread_of_every_member_stops_and_goes_on(spawn: Spawn) -> None:
    tree = spawn(FAMILY, count=4)
    assert tree.stop_all()
    assert all(states(pid) <= {"T", "Z"} for pid in tree.pids), {p: states(p) for p in tree.pids}
    before = tree.cpu()
    time.sleep(0.3)
    assert tree.cpu() == before
    tree.resume()
    time.sleep(0.5)
    assert tree.cpu().since(before) > 0.1


def test_the_jails_init_is_stopped_too(spawn: Spawn) -> None:
    """It has the candidate's uid: what the candidate writes into its memory must not run between calls."""
    tree = spawn("import time; print('up', flush=True); time.sleep(1000)")
    assert tree.stop_all()
    (init,) = psutil.Process(tree.root).children()
    assert states(init.pid) == {"T"}


def test_the_time_of_a_busy_member_is_counted(spawn: Spawn) -> None:
    tree = spawn("print('up', flush=True)\n" + BUSY)
    tree.walk()
    before, start = tree.cpu(), time.monotonic()
    time.sleep(0.5)
    used, wall = tree.cpu().since(before), time.monotonic() - start
    assert 0.05 < used <= wall * 1.05


def test_a_process_without_its_first_thread_is_counted(spawn: Spawn) -> None:
    tree = spawn(
        f"""
import ctypes, platform, threading
def busy():
    print('up', flush=True)
    {BUSY}
threading.Thread(target=busy).start()
ctypes.CDLL(None).syscall({{"x86_64": 60, "aarch64": 93}}[platform.machine()], 0)
"""
    )
    time.sleep(0.2)
    tree.walk()
    before = tree.cpu()
    assert any(states(pid) == {"Z"} or states(pid) == {"Z", "R"} for pid in tree.pids)
    time.sleep(0.3)
    assert tree.cpu().since(before) > 0.1


def test_a_process_may_have_any_name(spawn: Spawn) -> None:
    tree = spawn(
        r"import ctypes, time; ctypes.CDLL(None).prctl(15, b'\xff\xfe)', 0, 0, 0); print('up', flush=True); "
        "time.sleep(1000)"
    )
    assert tree.stop_all()
    assert any(b"\xff\xfe" in Path(f"/proc/{pid}/stat").read_bytes() for pid in tree.pids)


def test_a_member_that_keeps_forking_is_reported_or_stopped(spawn: Spawn) -> None:
    chain = "import os\nprint('up', flush=True)\nwhile True:\n    if os.fork(): os._exit(0)\n"
    tree = spawn(f"import os, time\nif os.fork():\n    time.sleep(1000)\n{chain}")
    start = time.monotonic()
    if tree.stop_all():
        known = newest_pid()
        time.sleep(0.2)
        tree.walk()
        assert all(states(pid) <= {"T", "Z"} for pid in tree.pids), known
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("stopped", [False, True])
def test_a_tree_ends_within_two_seconds(spawn: Spawn, stopped: bool) -> None:
    tree = spawn(
        "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n" + FAMILY, count=4, marker="tests-end"
    )
    if stopped:
        assert tree.stop_all()
    start = time.monotonic()
    tree.kill()
    while living(alive("tests-end")):
        assert time.monotonic() - start < 2
        time.sleep(0.01)


def test_a_fork_bomb_is_capped_and_ends() -> None:
    group = cgroup.Group.create(64)
    body = "import sys\nprint('up', flush=True)\nsys.stdin.readline()\n"
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", body + BOMB, "tests-bomb"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    if group is None:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        assert os.getuid() != 0, "root may make groups; a user has the limit on processes instead"
        return
    tree = Tree(process.pid, wrapped=False)
    group.add([process.pid])
    process.stdin.write(b"\n")
    process.stdin.flush()
    time.sleep(0.5)
    assert len(descendants(process.pid)) <= 63
    start = time.monotonic()
    # Outside a jail, members may be re-parented away from the root: the group knows them all.
    while procs := (group.paths[0] / "cgroup.procs").read_text().split():
        tree.kill()
        for pid in procs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        process.poll()
        assert time.monotonic() - start < 2
    process.wait()
    process.stdin.close()
    process.stdout.close()
    group.remove()
    assert not any(path.exists() for path in group.paths)


def test_a_jailed_fork_bomb_ends_with_its_jail(spawn: Spawn) -> None:
    group = cgroup.Group.create(64)
    tree = spawn("import sys, time\nprint('up', flush=True)\ntime.sleep(0.5)\n" + BOMB, marker="tests-jailed-bomb")
    tree.walk()
    if group is not None:
        group.add(tree.pids)
    time.sleep(1.0)
    start = time.monotonic()
    tree.kill()
    while living(alive("tests-jailed-bomb")):
        assert time.monotonic() - start < 2
        time.sleep(0.01)
    if group is not None:
        group.remove()
        assert not any(path.exists() for path in group.paths)


HOARD = """
import os, sys
sys.stdin.readline()
children = [os.fork() for _ in range(2)]
hoard = b"1" * (90 << 20)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


def test_memory_is_capped_for_all_processes_together() -> None:
    group = cgroup.Group.create(64, 200 << 20)
    caps = () if group is None else [p / f for p in group.paths for f in ("memory.limit_in_bytes", "memory.max")]
    if group is None or not any(cap.exists() for cap in caps):
        pytest.skip("this user may make no control group with a cap on memory")
    process = subprocess.Popen([sys.executable, "-I", "-c", HOARD], stdin=subprocess.PIPE)
    group.add([process.pid])
    assert not group.out_of_memory()
    process.communicate(b"\n", timeout=60)
    assert group.out_of_memory()
    group.remove()


def test_signals_to_what_is_gone_are_harmless(spawn: Spawn) -> None:
    tree = spawn("print('up', flush=True)")
    tree.walk()
    deadline = time.monotonic() + 2
    while psutil.Process(tree.root).status() != "zombie" and time.monotonic() < deadline:
        time.sleep(0.01)
    tree.resume()
    assert tree.stop_all()
    assert tree.cpu() == {}
    tree.kill()


def test_whoever_ended_since_a_look_took_its_account_along() -> None:
    before = Used({10: 1.0, 11: 0.5})
    assert Used({10: 1.25, 11: 0.5, 12: 0.25}).since(before) == 0.5
    assert Used({10: 1.0}).since(before) == math.inf
