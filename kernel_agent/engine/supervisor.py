"""One session under supervision: its process is started, answered, restarted when it dies, and accounted for."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import evaluator
import gpu_profiles
import kernel_agent
import problems
from evaluator import cgroup, sandbox
from evaluator.model import EvaluatorError
from evaluator.processes import usable_cores
from kernel_agent.engine import history
from kernel_agent.engine.attempts import Attempts
from kernel_agent.errors import KernelAgentError, UsageError
from kernel_agent.gateway.journal import Refusal
from kernel_agent.model import Campaign, Session, SessionState
from kernel_agent.session import prompt
from kernel_agent.session.protocol import (
    REQUESTS,
    Answer,
    ChannelClosed,
    Compacted,
    Ended,
    Evaluate,
    Hello,
    History,
    Line,
    SessionConfig,
)
from kernel_agent.session.workspace import INSIDE, session_command
from kernel_agent.store.repository import Fence, Store

LEASE_SECONDS = 60.0
HEARTBEAT_SECONDS = 15.0
FRUITLESS_STARTS = 3
"""A session that dies this often without a step in between is given up, resumable."""
EXIT_SECONDS = 10.0
CALL_ATTEMPTS = 5
SHELL_PROCESSES = 512


@dataclass(frozen=True)
class Outcome:
    state: SessionState
    reason: str


class SessionSupervisor:
    """Runs one session to its end. ``stop`` may be called from another thread."""

    def __init__(
        self,
        store: Store,
        campaign: Campaign,
        session: Session,
        fence: Fence,
        attempts: Attempts,
        home: Path,
        base_url: str,
        last_refusal: Callable[[], Refusal | None],
        fruitless_starts: int = FRUITLESS_STARTS,
    ) -> None:
        self._store, self._campaign, self._session, self._fence = store, campaign, session, fence
        self._attempts, self._base_url, self._last_refusal = attempts, base_url, last_refusal
        self.folder = home / "campaigns" / campaign.id / session.id
        self.workspace, self.state = self.folder / "workspace", self.folder / "state"
        self._fruitless_starts = fruitless_starts
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._ended: Ended | None = None

    @property
    def pid(self) -> int | None:
        """Of the session's process now; it changes when the session is restarted."""
        return self._process.pid if self._process is not None else None

    def run(self) -> Outcome:
        """Until the session ends, is stopped, or dies too often. Whatever happened before is in the store."""
        self._prepare_folders()
        fruitless, steps = 0, self._store.session(self._session.id).steps
        with self._heartbeat():
            while fruitless < self._fruitless_starts:
                code = self._live()
                if self._ended is not None:
                    return self._outcome(self._ended)
                if self._stopped.is_set():
                    return Outcome("stopped", "stopped on request")
                now = self._store.session(self._session.id).steps
                fruitless = 0 if now > steps else fruitless + 1
                steps = now
                self._store.add_event(
                    self._campaign.id, "session.restarted", self._session.id, {"exit_code": code, "steps": steps}
                )
        log = self._log_tail()
        return Outcome("failed", f"its process died {self._fruitless_starts} times without a step in between: {log}")

    def stop(self) -> None:
        """End the process at once. Everything up to its last complete step is kept."""
        self._stopped.set()
        self._end_process()

    # -- one life -------------------------------------------------------------------------------------------------

    def _live(self) -> int:
        """Start the process and answer it until it is gone; its exit code."""
        mine, theirs = socket.socketpair()
        level = sandbox.require(self._campaign.settings.isolation)
        command = session_command(level, self.workspace, self.state, _packages(), theirs.fileno())
        group = cgroup.Group.create(SHELL_PROCESSES)
        with open(self.folder / "session.log", "ab") as log:
            process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                cwd=self.state,
                start_new_session=True,
            )
        self._process = process
        theirs.close()
        if group is not None:
            group.add([process.pid])
        line = Line(mine)
        try:
            if self._stopped.is_set():
                return 0
            self._answer_all(line)
        finally:
            line.close()
            self._end_process(EXIT_SECONDS)
            if group is not None:
                group.remove()
        return process.returncode

    def _answer_all(self, line: Line) -> None:
        while (text := line.receive()) is not None:
            try:
                line.send(self._answer(text))
            except ChannelClosed:
                return

    def _answer(self, text: str) -> Answer:
        request = REQUESTS.validate_json(text)
        if isinstance(request, Hello):
            return Answer(config=self._config())
        if isinstance(request, Evaluate):
            return self._evaluate(request)
        if isinstance(request, History):
            try:
                return Answer(text=history.answer(self._store, self._session.id, request.query))
            except UsageError as error:
                return Answer(text=str(error), is_error=True)
        if isinstance(request, Compacted):
            self._store.add_compaction(
                self._fence,
                request.from_step,
                request.tokens_before,
                request.tokens_after,
                self._campaign.settings.compaction,
            )
            return Answer()
        self._ended = request
        return Answer()

    def _evaluate(self, request: Evaluate) -> Answer:
        try:
            text = self._attempts.submit(request.tool_call_id, request.source, request.hypothesis)
        except EvaluatorError as error:
            if self._stopped.is_set():
                raise ChannelClosed("stopped during an evaluation") from error
            return Answer(text=f"not evaluated, through no fault of the candidate: {str(error)[-300:]}", is_error=True)
        if self._attempts.target_reached():
            self._store.set_session_state(self._fence, "finished", "the target speedup is confirmed")
        return Answer(text=text)

    # -- what it is given ---------------------------------------------------------------------------------------

    def _prepare_folders(self) -> None:
        for folder in (self.workspace, self.state):
            folder.mkdir(parents=True, exist_ok=True)
        # Written once: what the agent makes of it afterwards is its own, and part of its snapshots.
        if not (self.state / "conversation").exists():
            (self.workspace / "reference.py").write_text(self._attempts.problem.source)

    def _config(self) -> SessionConfig:
        s = self._campaign.settings
        level = sandbox.require(s.isolation)
        baseline = None
        if not (self.state / "conversation").exists():
            baseline = self._attempts.baseline()
        return SessionConfig(
            session_id=self._session.id,
            model=s.model,
            base_url=self._base_url,
            compaction=s.compaction,
            context_tokens=s.context_tokens,
            max_output_tokens=s.max_output_tokens,
            call_attempts=CALL_ATTEMPTS if s.provenance == "live" else 1,
            system_prompt=prompt.system_prompt(s),
            task=prompt.task(self._attempts.problem, s, baseline),
            workspace=str(self.workspace) if level == "none" else INSIDE,
            state_dir=str(self.state),
            # The shell's jail lies inside the session's, where only one uid exists.
            jail_level="none" if level == "none" else "bubblewrap",
            threads=usable_cores(),
        )

    def _environment(self) -> dict[str, str]:
        """No key and nothing of the user's: the gateway holds what is secret."""
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "TZ")}
        path = os.pathsep.join(dict.fromkeys(str(p.parent) for p in _packages()))
        return kept | {"HOME": str(self.state), "TMPDIR": "/tmp", "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}

    # -- ends ---------------------------------------------------------------------------------------------------

    def _outcome(self, ended: Ended) -> Outcome:
        """What an end means. Why a call got no answer the gateway knows, not the process."""
        session, campaign = self._store.session(self._session.id), self._store.campaign(self._campaign.id)
        budget = campaign.settings.budget
        if session.state == "finished":
            return Outcome("finished", session.reason)
        if ended.why == "stalled":
            return Outcome("stalled", ended.detail)
        refusal = self._last_refusal() if ended.why == "no_answer" else None
        if refusal is None:
            return Outcome("failed", _last_line(ended.detail))
        if refusal.kind == "recording_ended":
            return Outcome("finished", refusal.message)
        if refusal.kind == "session_stopped":
            return Outcome("stopped", campaign.reason or "stopped on request")
        if refusal.kind == "budget_exhausted":
            done = session.steps >= budget.steps
            return (
                Outcome("finished", f"all {budget.steps} steps taken") if done else Outcome("stopped", refusal.message)
            )
        return Outcome("failed", f"the model gave no answer (HTTP {refusal.status}): {refusal.message[:500]}")

    def _end_process(self, grace_seconds: float = 0.0) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        try:
            process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _log_tail(self) -> str:
        try:
            return _last_line((self.folder / "session.log").read_text(errors="replace")[-4000:])
        except OSError:
            return "it left no log"

    def _heartbeat(self) -> _Heartbeat:
        return _Heartbeat(lambda: self._store.heartbeat(self._fence, LEASE_SECONDS), self.stop)


class _Heartbeat:
    """Keeps the lease alive; when it is lost, ends the session rather than let two owners write."""

    def __init__(self, beat: Callable[[], None], lost: Callable[[], None]) -> None:
        self._beat, self._lost = beat, lost
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._done.wait(HEARTBEAT_SECONDS):
            try:
                self._beat()
                last = time.monotonic()
            except KernelAgentError:
                if time.monotonic() - last > LEASE_SECONDS / 2:
                    self._lost()
                    return


def _packages() -> tuple[Path, ...]:
    """Folders of our own packages that a session imports."""
    import compaction

    return tuple(Path(m.__path__[0]) for m in (problems, gpu_profiles, compaction, evaluator, kernel_agent))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:500] if lines else "no account was left"
