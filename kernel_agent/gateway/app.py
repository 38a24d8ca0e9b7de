"""The gateway's server: a loopback port in the engine's process, with an unguessable address for each session."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import get_args

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kernel_agent.errors import KernelAgentError
from kernel_agent.gateway.journal import Journal, Line, Refusal, Reply, refusal
from kernel_agent.gateway.limits import ProviderLimits
from kernel_agent.gateway.upstream import Upstream
from kernel_agent.model import CallKind, CampaignSettings, Price
from kernel_agent.store.repository import Store

CALL_HEADER = "x-kernel-agent-call"
"""Says what a call is for: ``agent`` (the default), ``summary`` or ``probe``."""
MAX_BODY_BYTES = 64 << 20
START_SECONDS = 20.0


class GatewayError(KernelAgentError):
    """The gateway cannot serve."""


@dataclass
class _Running:
    server: uvicorn.Server
    thread: threading.Thread
    base_url: str


class Gateway:
    """Serves models to sessions. Register a session to get its base URL; revoke it when the session has ended.

    Its methods may be called from any thread. A call that is out when its session dies goes on, and is journaled.
    """

    def __init__(self, store: Store, limits: ProviderLimits | None = None) -> None:
        """
        :param limits: what the sessions of one provider key share.
        """
        self._store = store
        self._limits = limits or ProviderLimits()
        self._lines: dict[str, Line] = {}
        self._refusals: dict[str, Refusal] = {}
        self._lock = threading.Lock()
        self._running: _Running | None = None

    def start(self) -> str:
        """Listen on a free port of 127.0.0.1; returns ``http://127.0.0.1:PORT``.

        :raises GatewayError: it is running already, or the server does not come up.
        """
        if self._running is not None:
            raise GatewayError(f"the gateway is running already, at {self._running.base_url}")
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            self.app(), log_config=None, log_level="warning", access_log=False, lifespan="on", ws="none"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), name="gateway", daemon=True)
        thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                server.should_exit = True
                listener.close()
                raise GatewayError(f"the gateway's server did not start in {START_SECONDS:g} s; see the log")
            time.sleep(0.005)
        self._running = _Running(server, thread, f"http://127.0.0.1:{listener.getsockname()[1]}")
        return self._running.base_url

    def stop(self, grace_seconds: float = 5.0) -> None:
        """Stop listening. Calls that are out get ``grace_seconds``, then are ended and charged their reservations."""
        running, self._running = self._running, None
        if running is None:
            return
        running.server.config.timeout_graceful_shutdown = grace_seconds  # type: ignore[assignment]  # any number does
        running.server.should_exit = True
        running.thread.join()

    def register(self, session_id: str, upstream: Upstream, price: Price, settings: CampaignSettings) -> str:
        """Open a session's line; returns its base URL, up to and including ``/v1``. An earlier one of it is closed.

        :raises GatewayError: the gateway is not running.
        :raises NotFoundError: the store has no such session.
        """
        if self._running is None:
            raise GatewayError("the gateway is not running; start it before sessions are registered")
        self._store.session(session_id)
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._close(session_id)
            self._lines[token] = Line(session_id, upstream, price, settings.max_output_tokens)
        return f"{self._running.base_url}/s/{token}/v1"

    def revoke(self, session_id: str) -> None:
        """Close a session's line. A call that is out is still journaled."""
        with self._lock:
            self._close(session_id)

    def last_refusal(self, session_id: str) -> Refusal | None:
        """Why the session's newest call got no answer; None when it got one, or there was no call.

        The way to tell a spent budget from an ended recording: a session sees its client library's exception only.
        """
        return self._refusals.get(session_id)

    def _close(self, session_id: str) -> None:
        self._lines = {token: line for token, line in self._lines.items() if line.session_id != session_id}

    def app(self) -> Starlette:
        """The ASGI application, to be served by one event loop."""
        journal = Journal(self._store, self._limits)

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            await journal.close()

        async def complete(request: Request) -> Response:
            line = self._lines.get(request.path_params["token"])
            if line is None:
                said = "this address belongs to no session, or its session has ended"
                return _response(refusal(401, "unknown_session", said))
            kind = _kind(request)
            if kind is None:
                known = ", ".join(get_args(CallKind))
                return _response(refusal(400, "invalid_request_error", f"{CALL_HEADER} must be one of {known}"))
            body = await _body(request)
            if body is None:
                said = f"the request is larger than {MAX_BODY_BYTES} bytes"
                return _response(refusal(413, "invalid_request_error", said))
            reply = await journal.answer(line, body, kind)
            if reply.refusal is None:
                self._refusals.pop(line.session_id, None)
            else:
                self._refusals[line.session_id] = reply.refusal
            return _response(reply)

        return Starlette(
            routes=[Route("/s/{token}/v1/chat/completions", complete, methods=["POST"])], lifespan=lifespan
        )


def _kind(request: Request) -> CallKind | None:
    said = request.headers.get(CALL_HEADER, "agent")
    kinds: tuple[CallKind, ...] = get_args(CallKind)
    return next((kind for kind in kinds if kind == said), None)


async def _body(request: Request) -> bytes | None:
    """The whole body; None when it is too large to hold."""
    chunks = bytearray()
    async for chunk in request.stream():
        chunks += chunk
        if len(chunks) > MAX_BODY_BYTES:
            return None
    return bytes(chunks)


def _response(reply: Reply) -> Response:
    return Response(reply.body, reply.status, reply.headers, media_type="application/json")
