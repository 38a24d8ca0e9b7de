from __future__ import annotations

from pathlib import Path

import pytest

from kernel_agent.errors import NotFoundError, StoreError
from kernel_agent.gateway.app import Gateway
from kernel_agent.gateway.recording import (
    RecordingError,
    Summary,
    find_recordings,
    for_problem,
    load,
    loads,
    packaged,
    packaged_names,
    record,
)
from kernel_agent.store.repository import Store
from tests.kernel_agent.gateway.conftest import Provider, chat, line, post, upstream
from tests.kernel_agent.gateway.test_replay import call, header, recording, say
from tests.kernel_agent.store.conftest import PROBLEM, launch


def test_a_recording_survives_its_file(tmp_path: Path) -> None:
    made = recording(call("ls"), say("line\none\u2028two \u00e9")).model_copy(
        update={"summaries": (Summary(request_sha="0" * 64, message=say("short")),)}
    )
    made.save(tmp_path / "folder" / "x.jsonl")
    assert load(tmp_path / "folder" / "x.jsonl") == made
    assert len((tmp_path / "folder" / "x.jsonl").read_text().split("\n")) == 5


HEADER = header().model_dump_json()
TURN = '{"n": 0, "kind": "agent", "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}'


@pytest.mark.parametrize(
    ("text", "line_number", "why"),
    [
        ("{}", 1, "name: Field required"),
        ("not json", 1, "Invalid JSON"),
        (HEADER.replace('"format":1', '"format":2'), 1, "format: Input should be 1"),
        (f"{HEADER}\nnot json", 2, "Expecting value"),
        (f"{HEADER}\n[1]", 2, "no attribute"),
        (f'{HEADER}\n{TURN}\n{{"kind": "summary"}}', 3, "request_sha: Field required"),
        (f"{HEADER}\n{TURN}\n{TURN}", 3, "answer 0 is out of order, 1 is expected"),
        (f"{HEADER}\n\n{TURN.replace('assistant', 'user')}", 3, "role is not `assistant`"),
        (f"{HEADER}\n{TURN.replace('agent', 'oracle')}", 2, "kind: Input should be 'agent'"),
    ],
)
def test_an_error_names_file_and_line(tmp_path: Path, text: str, line_number: int, why: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(RecordingError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}, line {line_number}: ")
    assert why in str(caught.value)


@pytest.mark.parametrize(("text", "why"), [("", "is empty"), (HEADER, "no answers")])
def test_nothing_to_play(text: str, why: str) -> None:
    with pytest.raises(RecordingError, match=why):
        loads(text, "x.jsonl")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot be read"):
        load(tmp_path / "nothing.jsonl")


def test_recordings_are_found_by_file_and_by_folder(tmp_path: Path) -> None:
    first, second = recording(say("a"), problem_id="p/1"), recording(say("b"), problem_id="p/2")
    first.save(tmp_path / "p_1.jsonl")
    second.save(tmp_path / "p_2.jsonl")
    assert find_recordings(f"replay:{tmp_path}") == {"p/1": first, "p/2": second}
    assert find_recordings(str(tmp_path / "p_2.jsonl")) == {"p/2": second}
    first.save(tmp_path / "p_3.jsonl")
    with pytest.raises(RecordingError, match="two recordings of problem p/1"):
        find_recordings(str(tmp_path))


def test_packaged_recordings_are_found_by_name(tmp_path: Path) -> None:
    made = recording(say("a"))
    made.save(tmp_path / "demo" / "bundled_add.jsonl")
    (tmp_path / "demo" / "notes.txt").write_text("not a recording")
    (tmp_path / "kernels").mkdir()
    assert packaged_names(tmp_path) == ["demo"]
    assert packaged("demo", tmp_path) == [made]
    assert packaged("kernels", tmp_path) == packaged("nothing", tmp_path) == []
    assert packaged("../" + tmp_path.name + "/demo", tmp_path) == []


@pytest.mark.parametrize("name", ["no-such-thing", "../gateway", "", ".", "replay:nope"])
def test_a_name_that_is_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError, match="packaged ones are"):
        find_recordings(name)


def test_a_recording_belongs_to_one_version_of_one_problem() -> None:
    made = recording(say("a"))
    assert for_problem({PROBLEM.id: made}, PROBLEM) == made
    with pytest.raises(RecordingError, match=r"another version of bundled/add"):
        for_problem({PROBLEM.id: made}, PROBLEM.model_copy(update={"source": "class Model: pass\n"}))
    with pytest.raises(RecordingError, match="these are: bundled/add"):
        for_problem({PROBLEM.id: made}, PROBLEM.model_copy(update={"id": "bundled/other"}))


def test_a_live_session_is_recorded_from_its_journal(store: Store, gateway: Gateway, provider: Provider) -> None:
    session_id, url = line(store, gateway, upstream(provider))
    post(url, chat("a"))
    post(url, chat("summarize"), x_kernel_agent_call="summary")
    post(url, chat("a", "b"))
    made = record(store, session_id)
    assert made.header.provenance == "recorded"
    assert [turn.message for turn in made.turns] == [say("hello 1 é"), say("hello 2 é")]
    assert [turn.finish_reason for turn in made.turns] == ["stop", "stop"]
    (summary,) = made.summaries
    assert summary.message == say("hello 1 é")
    assert loads(made.dumps(), "x") == made


def test_nothing_to_record(store: Store) -> None:
    with pytest.raises(StoreError, match="nothing to record"):
        record(store, launch(store).session_id)
