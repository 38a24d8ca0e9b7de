"""The packaged demo is what the tool makes of scripts and kernels, and each recording fits its bundled problem."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from openhands.tools.terminal.utils.command import split_bash_commands

import kernel_agent
from compaction.tokens import TokenCounter
from kernel_agent.gateway.recording import Recording, find_recordings, for_problem, load
from kernel_agent.gateway.replay import Script as Replay
from kernel_agent.recordings.script import Script, ScriptError
from problems.catalog import Catalog

ROOT = Path(__file__).parents[2]
RECORDINGS = Path(kernel_agent.__file__).parent / "recordings"
SUBMITTED = {
    "bundled/bias_gelu_residual": [
        "01_fused_serial",
        "02_undeclared_stride",
        "03_parallel_rows",
        "04_lost_residual",
        "05_vector_gelu",
        "06_remembered_answers",
        "08_packed_panels",
    ],
    "bundled/gated_recurrence": [
        "01_hoisted_projection",
        "02_undeclared_tanh",
        "04_fused_cell",
        "03_state_in_place",
        "05_whole_loop",
        "09_late_states",
        "07_slow_clock",
        "06_batch_over_cores",
        "08_register_tiles",
    ],
}
"""By problem: the kernels in the order in which the judge gets them. Of each, one is broken, one wrong, one a cheat."""

Call = tuple[str, dict[str, Any]]


def calls(recording: Recording) -> list[Call]:
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for turn in recording.turns
        for call in turn.message["tool_calls"]
    ]


def workspace_at_submissions(recording: Recording) -> list[str]:
    """What the judge is given, from the editor's own rules and ``cp``."""
    files: dict[str, str] = {}
    given = []
    for tool, a in calls(recording):
        if tool == "terminal" and a["command"].startswith("cp "):
            source, target = (f"/workspace/{name}" for name in a["command"].split()[1:])
            files[target] = files[source]
        elif tool == "evaluate_kernel":
            given.append(files[a["path"]])
        elif tool == "file_editor" and a["command"] == "create":
            assert a["path"] not in files
            files[a["path"]] = a["file_text"]
        elif tool == "file_editor" and a["command"] == "str_replace":
            assert files[a["path"]].count(a["old_str"]) == 1
            files[a["path"]] = files[a["path"]].replace(a["old_str"], a["new_str"])
    return given


@pytest.fixture(scope="module")
def demo() -> dict[str, Recording]:
    return find_recordings("replay:demo")


def test_the_packaged_files_are_what_the_tool_makes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, ROOT / "tools" / "make_demo_recordings.py", "--out", tmp_path], check=True, cwd=ROOT
    )
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in (RECORDINGS / "demo").iterdir()}


@pytest.mark.parametrize("problem_id", SUBMITTED)
def test_a_recording_fits_its_bundled_problem(problem_id: str, demo: dict[str, Recording]) -> None:
    problem = Catalog().get(problem_id)
    recording = for_problem(demo, problem)
    assert load(RECORDINGS / "demo" / f"{problem.slug}.jsonl") == recording
    assert recording.header.provenance == "scripted"
    assert recording.header.strategy == "cliff:12k"
    Replay(recording)


def test_nothing_else_is_in_the_demo(demo: dict[str, Recording]) -> None:
    assert set(demo) == set(SUBMITTED)


@pytest.mark.parametrize("problem_id", SUBMITTED)
def test_the_judge_is_given_the_kernels_word_for_word(problem_id: str, demo: dict[str, Recording]) -> None:
    folder = RECORDINGS / "kernels" / problem_id.rpartition("/")[2]
    assert workspace_at_submissions(demo[problem_id]) == [
        (folder / f"{name}.py").read_text(encoding="utf-8") for name in SUBMITTED[problem_id]
    ]


@pytest.mark.parametrize("problem_id", SUBMITTED)
def test_forty_answers_of_every_kind(problem_id: str, demo: dict[str, Recording]) -> None:
    recording = demo[problem_id]
    assert len(recording.turns) == 40
    tools = Counter(tool for tool, _ in calls(recording))
    assert set(tools) == {"terminal", "file_editor", "evaluate_kernel", "history"}
    assert tools["evaluate_kernel"] == len(SUBMITTED[problem_id])
    assert tools["history"] >= 3
    assert tools["terminal"] >= 6
    edits = Counter(a["command"] for tool, a in calls(recording) if tool == "file_editor")
    assert set(edits) == {"view", "create", "str_replace", "insert"}
    for turn in recording.turns:
        assert turn.message["content"]
        assert turn.message["tool_calls"]
        assert turn.finish_reason == "tool_calls"


@pytest.mark.parametrize("problem_id", SUBMITTED)
def test_the_answers_alone_outgrow_the_budget(problem_id: str, demo: dict[str, Recording]) -> None:
    """The head and the tools' answers come on top: a session of it is compacted for certain."""
    count = TokenCounter()
    assert sum(count.message(turn.message) for turn in demo[problem_id].turns) > 9_000


@pytest.mark.parametrize("problem_id", SUBMITTED)
def test_commands_fit_the_width_of_a_terminal(problem_id: str, demo: dict[str, Recording]) -> None:
    """A shell that echoes a longer line scrolls it sideways, and the agent sees a part of it."""
    for tool, a in calls(demo[problem_id]):
        if tool == "terminal":
            assert max(map(len, a["command"].splitlines())) <= 76, a["command"]


@pytest.mark.parametrize("problem_id", SUBMITTED)
def test_the_terminal_takes_each_command_as_one(problem_id: str, demo: dict[str, Recording]) -> None:
    """It refuses several at once, as lines that are not joined would be."""
    for tool, a in calls(demo[problem_id]):
        if tool == "terminal":
            assert len(split_bash_commands(a["command"])) == 1, a["command"]


def test_a_script_is_refused_where_its_session_would_fail() -> None:
    script = Script("reference", {"a": "one\n", "b": "two\n"})
    script.write("First.", "kernel.py", "a")
    with pytest.raises(ScriptError, match=r"answer 1: kernel\.py exists"):
        script.write("Again.", "kernel.py", "b")
    with pytest.raises(ScriptError, match=r"answer 1: kernel\.py is not b when it is submitted"):
        script.evaluate("Now.", "kernel.py", "b", "none")
    with pytest.raises(ScriptError, match="there is no kernel c; there are a, b"):
        script.edit_into("Now.", "kernel.py", "c")
    with pytest.raises(ScriptError, match=r"other\.py has not been written yet"):
        script.view("Look.", "other.py")
    with pytest.raises(ScriptError, match="has 1 lines, not 1 to 3"):
        script.view("Look.", "kernel.py", 1, 3)
    with pytest.raises(ScriptError, match="names an attempt not made yet"):
        script.history("Which?", "show 1")
    script.evaluate("Now.", "kernel.py", "a", "none")
    script.history("Which?", "show 1")
    assert script.submitted == ["a"]


def test_an_edit_takes_in_what_makes_its_place_the_only_one() -> None:
    before = "f:\n  x\n  end\ng:\n  x\n  end\nh\n"
    after = "f:\n  x\n  end\ng:\n  x\n  stop\nh\n"
    script = Script("", {"a": before, "b": after})
    script.write("First.", "kernel.py", "a")
    script.edit_into("Then.", "kernel.py", "b")
    script.evaluate("Now.", "kernel.py", "b", "none")
