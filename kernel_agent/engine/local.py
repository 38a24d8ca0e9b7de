"""The local engine: runs a campaign's sessions on this machine and alone writes the store."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from evaluator.model import EvaluatorError
from evaluator.pool import Evaluator
from kernel_agent.engine.attempts import Attempts
from kernel_agent.engine.supervisor import FRUITLESS_STARTS, LEASE_SECONDS, Outcome, SessionSupervisor
from kernel_agent.errors import KernelAgentError, UsageError
from kernel_agent.gateway.app import Gateway
from kernel_agent.model import Campaign, CampaignState, Session
from kernel_agent.models import upstream_for
from kernel_agent.store.repository import SessionOwnedError, Store
from problems.model import ProblemError

ENDED = ("finished", "stalled")


class LocalEngine:
    """Owns the gateway, the evaluator and the sessions of one campaign at a time.

    ``run`` blocks; ``interrupt`` (from another thread or a signal handler) ends it soon, with everything kept.
    """

    def __init__(self, store: Store, home: Path, evaluator: Evaluator, parallel: int = 1) -> None:
        self._store, self._home, self._evaluator, self._parallel = store, home, evaluator, parallel
        self.fruitless_starts = FRUITLESS_STARTS
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._gateway = Gateway(store)
        self._interrupted = threading.Event()
        self._lock = threading.Lock()
        self._supervisors: dict[str, SessionSupervisor] = {}

    def run(self, campaign_id: str) -> Campaign:
        """Run, or resume, every session that has not ended. Returns the campaign as it then is.

        Raises UsageError when another engine runs it.
        """
        campaign = self._store.campaign(campaign_id)
        todo = [s for s in self._store.sessions(campaign.id) if s.state not in ENDED]
        self._store.set_campaign_state(campaign.id, "running")
        self._gateway.start()
        try:
            with ThreadPoolExecutor(self._parallel, thread_name_prefix="session") as threads:
                futures = [threads.submit(self._session, campaign, s) for s in todo]
            for future in futures:
                future.result()
        except SessionOwnedError as error:
            raise UsageError(f"{error}; stop that engine first, or wait until its lease ends") from error
        finally:
            self._gateway.stop()
            state, reason = self._final(campaign.id)
            result = self._store.set_campaign_state(campaign.id, state, reason)
        return result

    def interrupt(self) -> None:
        """Ctrl-C: end every session now. What they had is kept and can be resumed."""
        self._interrupted.set()
        with self._lock:
            supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            supervisor.stop()
        self._evaluator.close()

    def session_pids(self) -> dict[str, int]:
        """Process of each session that is alive now."""
        with self._lock:
            return {sid: s.pid for sid, s in self._supervisors.items() if s.pid is not None}

    # -- sessions -----------------------------------------------------------------------------------------------

    def _session(self, campaign: Campaign, session: Session) -> None:
        if self._interrupted.is_set() or self._store.campaign(campaign.id).state != "running":
            return
        fence = self._store.acquire_session(session.id, self._owner, LEASE_SECONDS)
        self._store.set_session_state(fence, "running")
        try:
            attempts = Attempts(self._store, self._evaluator, campaign, session, fence)
            upstream = upstream_for(campaign.settings, attempts.problem)
            base_url = self._gateway.register(session.id, upstream, campaign.settings.price, campaign.settings)
            refusal = partial(self._gateway.last_refusal, session.id)
            supervisor = SessionSupervisor(
                self._store, campaign, session, fence, attempts, self._home, base_url, refusal, self.fruitless_starts
            )
            with self._lock:
                self._supervisors[session.id] = supervisor
            if self._interrupted.is_set():
                supervisor.stop()
            outcome = supervisor.run()
        except (KernelAgentError, EvaluatorError, ProblemError) as error:
            interrupted = self._interrupted.is_set()
            outcome = Outcome("stopped", "interrupted") if interrupted else Outcome("failed", str(error))
        finally:
            self._gateway.revoke(session.id)
            with self._lock:
                self._supervisors.pop(session.id, None)
        self._store.set_session_state(fence, outcome.state, outcome.reason)
        self._store.release_session(fence)

    def _final(self, campaign_id: str) -> tuple[CampaignState, str]:
        campaign, sessions = self._store.campaign(campaign_id), self._store.sessions(campaign_id)
        if self._interrupted.is_set():
            return "stopped", "interrupted"
        if campaign.state == "stopping":
            return "stopped", campaign.reason or "stopped on request"
        failed = [s for s in sessions if s.state == "failed"]
        if failed:
            return "failed", f"{len(failed)} of {len(sessions)} sessions failed; first: {failed[0].reason}"
        stopped = [s for s in sessions if s.state not in ENDED]
        if stopped:
            return "stopped", stopped[0].reason
        return "finished", ""
