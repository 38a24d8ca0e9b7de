"""The local evaluator: a queue, a judge that may die, and nothing left when it is closed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluator.model import Evaluation, EvaluationSpec, EvaluatorError, Limits
from evaluator.pool import LocalEvaluator
from tests.evaluator.conftest import LIMITS
from tests.evaluator.processes import alive, below, groups_of, judge_of, living, words_of
from tests.evaluator.sources import candidate, problem


def spec(source: str, limits: Limits = LIMITS) -> EvaluationSpec:
    return EvaluationSpec(problem=problem(), source=source, limits=limits)


def gone(pids: list[int]) -> bool:
    """Whether none of ``pids`` lives on for two seconds."""
    deadline = time.monotonic() + 2
    while living(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not living(pids)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[LocalEvaluator]:
    evaluator = LocalEvaluator(tmp_path)
    yield evaluator
    evaluator.close()


def test_requests_are_served_in_the_order_they_came(evaluator: LocalEvaluator) -> None:
    evaluator.evaluate(spec("raise ValueError('warm')\n"))
    done: list[int] = []
    answers: dict[int, Evaluation] = {}

    def ask(n: int) -> None:
        answers[n] = evaluator.evaluate(spec(f"raise ValueError('request {n}')\n"))
        done.append(n)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
        time.sleep(0.1)
    assert evaluator.waiting >= 1
    for t in threads:
        t.join(60)
    assert done == [0, 1, 2, 3]
    assert all(f"request {n}" in answers[n].reason for n in range(4))
    assert answers[3].seconds.queue > answers[1].seconds.queue
    assert evaluator.waiting == 0


def test_a_killed_judge_is_replaced_and_nothing_stays(one: LocalEvaluator) -> None:
    answers: list[Evaluation] = []
    source = "import time, sys\ntime.sleep(1.5)\nraise ValueError('answered')\n"
    asking = threading.Thread(target=lambda: answers.append(one.evaluate(spec(source))))
    asking.start()
    deadline = time.monotonic() + 60
    first = None
    while first is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        try:
            judge = judge_of(one)
        except AssertionError:
            continue
        first = judge if len(below(judge.pid)) > 6 else None
    workers = below(first.pid)
    first.kill()
    asking.join(90)
    assert "answered" in answers[0].reason
    second = judge_of(one)
    assert second.pid != first.pid
    assert gone(workers), "the killed judge's workers die with it"
    assert groups_of(first.pid) == [], "its successor removes the groups it left"
    pids = [second.pid, *below(second.pid)]
    one.close()
    assert gone(pids)
    assert groups_of(second.pid) == []
    one.close()
    with pytest.raises(EvaluatorError, match="closed"):
        one.evaluate(spec(source))


def test_a_judge_that_dies_twice_is_an_error_of_ours(one: LocalEvaluator) -> None:
    stop = threading.Event()

    def killer() -> None:
        while not stop.is_set():
            with contextlib.suppress(AssertionError):
                judge_of(one).kill()
            time.sleep(0.05)

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        with pytest.raises(EvaluatorError, match="died twice"):
            one.evaluate(spec("raise ValueError\n"))
    finally:
        stop.set()
        thread.join()


def test_the_oracles_death_costs_one_bench_and_no_verdict(one: LocalEvaluator) -> None:
    """The kernel may end any process for want of memory, the long-lived one first."""
    one.evaluate(spec("raise ValueError('before')\n"))
    judge = judge_of(one)
    workers = [p for p in judge.children(recursive=True) if words_of(p)[2:3] == ["/opt/evaluator/worker.py"]]
    min(workers, key=lambda p: p.create_time()).kill()  # the spares are younger
    source = candidate("return torch.zeros_like(x)  # after the oracle's death")
    first, second = one.evaluate(spec(source)), one.evaluate(spec(source))
    assert first.status == "unstable"
    assert "own worker" in first.reason
    assert second.status == "incorrect"
    assert judge_of(one).pid == judge.pid


def test_closing_ends_an_evaluation_under_way(one: LocalEvaluator) -> None:
    errors: list[EvaluatorError] = []

    def ask() -> None:
        try:
            one.evaluate(spec("import sys, time\ntime.sleep(1000)\n", LIMITS.model_copy(update={"load_seconds": 60})))
        except EvaluatorError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(3)
    pids = [judge_of(one).pid, *below(judge_of(one).pid)]
    start = time.monotonic()
    one.close()
    thread.join(20)
    assert time.monotonic() - start < 10
    assert "closed" in str(errors[0])
    assert gone(pids)


def test_a_judge_ends_with_its_owner(tmp_path: Path) -> None:
    """A session that is killed must not leave a judge behind that holds the device."""
    theirs, mine = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        evaluator = LocalEvaluator(tmp_path)
        evaluator._start()
        mine.send(b"x")
        time.sleep(1000)
        os._exit(0)
    assert theirs.recv(1) == b"x"
    time.sleep(0.5)
    assert alive(str(tmp_path))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    deadline = time.monotonic() + 5
    while alive(str(tmp_path)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    theirs.close()
    mine.close()
