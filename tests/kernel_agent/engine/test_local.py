"""A played session from its first prompt to its last verdict."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from kernel_agent.model import Budget
from kernel_agent.session.workspace import INSIDE
from tests.kernel_agent.engine.played import (
    CACHED,
    RIGHT,
    SYNTAX,
    WRONG,
    Stage,
    look,
    shell,
    stage,
    submit,
    turn,
    write,
)

MESSAGES = [
    turn("Look around.", shell("pwd; ls; cat reference.py | head -1; id -u; env | grep -ci key; ls /home /root")),
    turn("A first try.", write(f"{INSIDE}/a.py", SYNTAX)),
    turn("Submit.", submit(f"{INSIDE}/a.py", "does not parse")),
    turn("Another.", write(f"{INSIDE}/b.py", WRONG), submit("b.py", "wrong sign")),
    turn("Cheat.", write(f"{INSIDE}/c.py", CACHED), submit("c.py", "remember the first answer")),
    turn("Links and pipes.", shell("ln -s /etc/passwd link.py; ln -s /etc etc; mkfifo fifo.py; echo made")),
    turn("Submit those.", submit("link.py", "a link"), submit("fifo.py", "a pipe"), submit("../x.py", "outside")),
    turn("Edit outside.", write("/etc/made.py", "x"), write(f"{INSIDE}/etc/made.py", "x")),
    turn("Right.", write(f"{INSIDE}/d.py", RIGHT), submit("d.py", "the same mathematics")),
    turn("Again.", submit("d.py", "resubmitted")),
    turn("Look back.", look("tried"), look("show 1"), look("diff 1 2"), look("nonsense"), look("show 99")),
]


def observations(at: Stage) -> list[str]:
    """What the model saw of its tools, in order."""
    folder = next((at.workspace.parent / "state" / "conversation").iterdir()) / "events"
    found = []
    for path in sorted(folder.glob("*.json")):
        event: dict[str, Any] = json.loads(path.read_text())
        if event["kind"] == "ObservationEvent":
            found.append("".join(part.get("text", "") for part in event["observation"]["content"]))
    return found


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    at = stage(tmp_path_factory.mktemp("played"), MESSAGES)
    os.environ["SOME_API_KEY"] = "must-not-leak"
    try:
        with at.evaluator() as evaluator:
            at.engine(evaluator).run(at.campaign.id)
    finally:
        del os.environ["SOME_API_KEY"]
    return at


def test_the_campaign_finishes_with_its_recording(played: Stage) -> None:
    campaign, (session,) = played.store.campaign(played.campaign.id), played.store.sessions(played.campaign.id)
    assert campaign.state == "finished"
    assert session.state == "finished"
    assert session.steps == len(MESSAGES)
    assert "recording ended" in session.reason


def test_every_attempt_has_its_verdict(played: Stage) -> None:
    candidates = played.store.candidates(played.session_id)
    verdicts = [c.screen.status if c.screen else None for c in candidates]
    assert verdicts[:3] == ["compile_error", "incorrect", "incorrect"]
    assert candidates[2].screen is not None
    assert "earlier input" in candidates[2].screen.reason
    assert [c.step for c in candidates] == [2, 3, 4, 8, 9]
    assert verdicts[3] in ("correct", "unstable")
    if verdicts[3] == "correct":
        best = played.store.best(played.session_id)
        assert best is not None
        assert best.attempt == 4
        # The same source is the same verdict: resubmitting is no lottery.
        assert candidates[4].screen == candidates[3].screen


def test_the_agent_sees_a_jail_and_short_verdicts(played: Stage) -> None:
    seen = observations(played)
    assert f"{INSIDE}\n" in seen[0]
    assert "reference.py" in seen[0]
    assert "Scale and shift" in seen[0]
    assert "65534" in seen[0]
    assert "\n0\n" in seen[0]  # no environment variable with a key
    assert "cannot access '/home'" in seen[0]
    verdicts = [text for text in seen if text.startswith("#")]
    assert len(verdicts) >= 5
    assert all(len(text) <= 500 for text in verdicts)
    assert "line" in verdicts[0]
    assert "must-not-leak" not in "".join(seen)


def test_links_pipes_and_the_outside_are_refused(played: Stage) -> None:
    seen = "\n".join(observations(played))
    assert "link.py is a link" in seen
    assert "fifo.py is no regular file" in seen
    assert "../x.py lies outside" in seen
    assert seen.count(f"lies outside {INSIDE}; only files inside it") == 2
    assert not Path("/etc/made.py").exists()


def test_history_answers_from_the_store(played: Stage) -> None:
    seen = observations(played)[-5:]
    assert "#1 (step 2) compile_error: does not parse" in seen[0]
    assert "def forward(self, x)\n" in seen[1]
    assert "-    def forward(self, x)" in seen[2]
    assert "history takes one of" in seen[3]
    assert "no attempt 99" in seen[4]


def test_money_is_counted_once(played: Stage) -> None:
    campaign = played.store.campaign(played.campaign.id)
    calls = played.store.calls(played.session_id)
    assert campaign.reserved_usd == 0
    assert campaign.spent_usd == pytest.approx(sum(c.usd for c in calls))
    assert sum(c.state == "answered" for c in calls) == len(MESSAGES)


def test_a_step_budget_ends_the_session_and_raising_it_resumes(tmp_path: Path) -> None:
    at = stage(tmp_path, [turn(f"Step {n}.", shell(f"echo {n} >> log; cat log")) for n in range(5)], Budget(steps=3))
    with at.evaluator() as evaluator:
        at.engine(evaluator).run(at.campaign.id)
        (session,) = at.store.sessions(at.campaign.id)
        assert (session.state, session.steps) == ("finished", 3)
        assert session.reason == "all 3 steps taken"


@pytest.mark.soak
def test_a_stop_from_elsewhere_ends_it_resumable(tmp_path: Path) -> None:
    at = stage(tmp_path, [turn(f"Step {n}.", shell(f"sleep 0.3; echo {n} >> log; cat log")) for n in range(30)])
    with at.evaluator() as evaluator:
        thread = threading.Thread(target=at.engine(evaluator).run, args=(at.campaign.id,))
        thread.start()
        wait_for_steps(at, 3)
        at.store.set_campaign_state(at.campaign.id, "stopping", "asked in a test")
        thread.join(30)
        assert not thread.is_alive()
        assert at.store.campaign(at.campaign.id).state == "stopped"
        (session,) = at.store.sessions(at.campaign.id)
        assert session.state == "stopped"
        assert session.steps < 30
        at.engine(evaluator).run(at.campaign.id)
    (session,) = at.store.sessions(at.campaign.id)
    assert session.steps == 30
    assert (at.workspace / "log").read_text().split() == [str(n) for n in range(30)]


@pytest.mark.soak
def test_an_interrupt_leaves_no_process_and_can_be_resumed(tmp_path: Path) -> None:
    at = stage(tmp_path, [turn(f"Step {n}.", shell(f"echo {n} >> log; sleep 0.5")) for n in range(8)])
    me = psutil.Process()
    before = {p.pid for p in me.children(recursive=True)}
    with at.evaluator() as evaluator:
        engine = at.engine(evaluator)
        thread = threading.Thread(target=engine.run, args=(at.campaign.id,))
        thread.start()
        wait_for_steps(at, 3)
        engine.interrupt()
        thread.join(30)
        assert not thread.is_alive()
    assert at.store.campaign(at.campaign.id).state == "stopped"
    left = [p for p in me.children(recursive=True) if p.pid not in before and p.status() != psutil.STATUS_ZOMBIE]
    assert left == []
    with at.evaluator() as evaluator:
        assert at.engine(evaluator).run(at.campaign.id).state == "finished"
    assert (at.workspace / "log").read_text().split() == [str(n) for n in range(8)]


def wait_for_steps(at: Stage, n: int, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while at.store.sessions(at.campaign.id)[0].steps < n:
        assert time.monotonic() < deadline, "the session made no progress"
        time.sleep(0.05)
