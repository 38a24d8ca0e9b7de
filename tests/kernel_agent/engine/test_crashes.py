"""Sessions killed at random moments end as if nobody had: attempts, money, best, workspace."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
import pytest

from kernel_agent.session.workspace import INSIDE
from tests.kernel_agent.engine.played import CACHED, SYNTAX, WRONG, Stage, shell, stage, submit, turn, write

KILLS = 10
NOTES = [shell(f"echo {n} >> NOTES.md; wc -l < NOTES.md") for n in range(40)]
REPAIR = (
    "file_editor",
    {"command": "str_replace", "path": f"{INSIDE}/a.py", "old_str": "(self, x)", "new_str": "(self, x):"},
)
MESSAGES = [
    turn("Note 0.", NOTES[0]),
    turn("Write.", write(f"{INSIDE}/a.py", SYNTAX)),
    turn("Submit.", submit("a.py", "does not parse")),
    turn("Note 1.", NOTES[1], NOTES[2]),
    turn("Mend.", REPAIR),
    turn("Note 3.", NOTES[3]),
    turn("Write wrong.", write(f"{INSIDE}/b.py", WRONG)),
    turn("Submit both.", submit("b.py", "wrong sign"), submit("b.py", "once more")),
    turn("Note 4.", NOTES[4], shell("sleep 0.5; echo done")),
    turn("Append.", shell("cat b.py >> c.py; wc -c c.py")),
    turn("Cheat.", write(f"{INSIDE}/d.py", CACHED), NOTES[5]),
    turn("Submit.", submit("d.py", "remembers")),
    turn("Note 6.", NOTES[6]),
    turn("Note 7.", NOTES[7], NOTES[8], NOTES[9]),
    turn("Note 10.", NOTES[10]),
    *(turn(f"Note {n}.", NOTES[n], shell("sleep 0.1")) for n in range(11, 40)),
]


def kill_at_random(at: Stage, pids: Callable[[], Iterable[int]], done: threading.Event, kills: list[int]) -> None:
    """SIGKILL the session's process (all of its jail goes with it), ten times, each soon after some step."""
    chance = random.Random(os.environ.get("KERNEL_AGENT_TEST_SEED", "kills"))
    steps = 0
    while len(kills) < KILLS and not done.wait(0.01):
        now = at.store.sessions(at.campaign.id)[0].steps
        if now == steps:
            continue
        done.wait(chance.uniform(0, 0.3))
        steps = at.store.sessions(at.campaign.id)[0].steps
        for pid in pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                kills.append(steps)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stage, list[int]]:
    at = stage(tmp_path_factory.mktemp("killed"), MESSAGES)
    kills: list[int] = []
    done = threading.Event()
    with at.evaluator() as evaluator:
        engine = at.engine(evaluator)
        # Deaths without a step in between are what this test is about, not a reason to give up.
        engine.fruitless_starts = KILLS + 1
        killer = threading.Thread(target=kill_at_random, args=(at, lambda: engine.session_pids().values(), done, kills))
        killer.start()
        try:
            engine.run(at.campaign.id)
        finally:
            done.set()
            killer.join()
    return at, kills


def test_it_was_really_killed_and_still_finished(killed: tuple[Stage, list[int]]) -> None:
    at, kills = killed
    assert len(kills) >= 8, f"only {len(kills)} kills before the session was through"
    assert len(set(kills)) >= 6, f"killed at too few different steps: {kills}"
    (session,) = at.store.sessions(at.campaign.id)
    assert (session.state, session.steps) == ("finished", len(MESSAGES))


def test_attempts_are_those_of_an_undisturbed_run(killed: tuple[Stage, list[int]]) -> None:
    at, _ = killed
    candidates = at.store.candidates(at.session_id)
    assert [(c.step, c.screen.status if c.screen else None) for c in candidates] == [
        (2, "compile_error"),
        (7, "incorrect"),
        (7, "incorrect"),
        (11, "incorrect"),
    ]
    evaluations = at.store.evaluations(at.session_id)
    assert len(evaluations) == len({(e.candidate_id, e.purpose, e.repeat) for e in evaluations}) == len(candidates)


def test_each_answer_was_paid_for_once(killed: tuple[Stage, list[int]]) -> None:
    at, _ = killed
    calls = at.store.calls(at.session_id)
    # The last one asked for an answer that the recording does not have.
    assert [c.state for c in calls] == ["answered"] * len(MESSAGES) + ["failed"]
    assert [c.attempts for c in calls if c.state == "answered"] == [1] * len(MESSAGES)
    assert at.store.campaign(at.campaign.id).spent_usd == pytest.approx(
        sum(s.usd for s in at.store.steps(at.session_id))
    )
    assert at.store.campaign(at.campaign.id).reserved_usd == 0


def test_the_workspace_is_as_if_each_command_ran_once(killed: tuple[Stage, list[int]]) -> None:
    at, _ = killed
    assert (at.workspace / "NOTES.md").read_text().split() == [str(n) for n in range(40)]
    assert (at.workspace / "c.py").read_text() == WRONG
    assert "def forward(self, x):" in (at.workspace / "a.py").read_text()


def test_nothing_is_left_behind(killed: tuple[Stage, list[int]]) -> None:
    at, _ = killed
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        left = [p for p in psutil.Process().children(recursive=True) if _belongs(p, at.home)]
        if not left:
            break
        time.sleep(0.1)
    assert left == []


def _belongs(process: psutil.Process, home: Path) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and str(home) in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
