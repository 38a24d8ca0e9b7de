"""The judge's process: reads requests from one socket, answers each, ends when the socket closes.

    python -m evaluator.service FD ISOLATION CACHE_DIR

It ignores Ctrl-C (its owner decides when it ends) and dies with its owner.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from evaluator.model import Evaluation, EvaluationSpec, EvaluatorError
from evaluator.processes import PR_SET_CHILD_SUBREAPER, PR_SET_TIMERSLACK, prctl


class Reply(BaseModel):
    """Either a verdict or our own failure, in words."""

    model_config = ConfigDict(frozen=True)

    evaluation: Evaluation | None = None
    error: str = ""
    remediable: bool = False
    """The error is for the user to mend (no jail, no permission), not a fault of the judge."""


def serve(control: socket.socket, isolation: str, cache: Path) -> None:

    from evaluator.judge import Judge

    lines = control.makefile("r", encoding="utf-8")
    judge: Judge | None = None
    try:
        for line in lines:
            try:
                judge = judge or Judge(isolation, cache)
                reply = Reply(evaluation=judge.evaluate(EvaluationSpec.model_validate_json(line)))
            except EvaluatorError as error:
                reply = Reply(error=str(error), remediable=True)
            except Exception:
                reply = Reply(error=traceback.format_exc())
            try:
                control.sendall(reply.model_dump_json().encode() + b"\n")
            except OSError:
                return
            if judge is not None:
                with contextlib.suppress(EvaluatorError):  # the next request will say so
                    judge.idle(control.fileno())
    finally:
        if judge is not None:
            judge.close()


def end_with(owner: int) -> None:
    """End this process when process ``owner`` has: PR_SET_PDEATHSIG follows the *thread* that asked first."""
    select.select([os.pidfd_open(owner)], [], [])
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_TIMERSLACK, 1)  # sleeps of microseconds are meant as such
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    fd, isolation, cache = sys.argv[1:]
    serve(socket.socket(fileno=int(fd)), isolation, Path(cache))


if __name__ == "__main__":
    main()
