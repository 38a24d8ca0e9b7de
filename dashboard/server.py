"""Runs the dashboard: finds its port, prints the one-time URL, serves until interrupted."""

from __future__ import annotations

import errno
import ipaddress
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import uvicorn

from dashboard.app import LOOPBACK_HOSTS, create_app
from dashboard.security import Access
from kernel_agent.errors import UsageError
from kernel_agent.store.repository import Store

TOKEN_VARIABLE = "KERNEL_AGENT_TOKEN"
SHUTDOWN_SECONDS = 3


@dataclass(frozen=True)
class Dashboard:
    """A server that holds its port and can be run."""

    url: str
    """The one-time URL."""
    port: int
    server: uvicorn.Server
    listener: socket.socket

    def run(self) -> None:
        """Serves until interrupted, or until ``stop`` from another thread."""
        try:
            self.server.run(sockets=[self.listener])
        except KeyboardInterrupt:
            # uvicorn raises the signal again after an orderly end; the user asked for it and needs no traceback.
            return
        finally:
            self.listener.close()

    def stop(self) -> None:
        self.server.should_exit = True


def prepare(store: Store, host: str = "127.0.0.1", port: int = 8765, token: str | None = None) -> Dashboard:
    """Binds the port and builds the application.

    ``token`` None: KERNEL_AGENT_TOKEN, or a fresh random one. ``port`` 0: any free one.
    UsageError for a port in use, a host that is not this machine's, or a token too short.
    """
    # The application asks the server that is built around it whether it is stopping.
    servers: list[uvicorn.Server] = []
    app = create_app(
        store,
        token=token or os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(32),
        allowed_hosts=allowed_hosts(host),
        stopping=lambda: any(server.should_exit for server in servers),
    )
    access: Access = app.state.access
    listener = listen(host, port)
    bound_port = int(listener.getsockname()[1])
    config = uvicorn.Config(
        app,
        log_level="warning",
        # The access log would hold the one-time secret.
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    servers.append(uvicorn.Server(config))
    url = f"http://{in_url(display_host(host))}:{bound_port}/login?once={access.issue_once()}"
    return Dashboard(url=url, port=bound_port, server=servers[0], listener=listener)


def serve(
    store: Store,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    *,
    say: Callable[[str], None] = print,
) -> None:
    """Serves ``store`` until interrupted; ``say`` gets the one-time URL and what to know about it."""
    dashboard = prepare(store, host, port, token)
    say(f"Dashboard: {dashboard.url}")
    say("The link works once; the browser that opens it stays logged in. Stop with Ctrl-C.")
    if not is_loopback(host):
        say("This is plain HTTP on a network address: anyone on the path can read it. Prefer 127.0.0.1 with ssh -L.")
    dashboard.run()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; UsageError that names port and remedy."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        raise UsageError(_bind_message(host, port, error)) from error
    listener.set_inheritable(False)
    return listener


def allowed_hosts(host: str) -> tuple[str, ...]:
    """Names a browser may use for a server bound to ``host``."""
    if is_loopback(host):
        return tuple(dict.fromkeys((*LOOPBACK_HOSTS, host)))
    if not is_wildcard(host):
        return (host,)
    addresses = (a.address.partition("%")[0] for nic in psutil.net_if_addrs().values() for a in nic)
    local = [address for address in addresses if _is_ip(address)]
    return tuple(dict.fromkeys((*LOOPBACK_HOSTS, socket.gethostname(), socket.getfqdn(), *local)))


def display_host(host: str) -> str:
    """The name to print for ``host``: a wildcard address cannot be opened."""
    return socket.gethostname() if is_wildcard(host) else host


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")


def is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_ip(host) and ipaddress.ip_address(host).is_loopback)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _bind_message(host: str, port: int, error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use. Choose another with --port, or --port 0 for any free one."
    if number == errno.EACCES:
        return f"Port {port} needs privileges. Choose one above 1023 with --port."
    if isinstance(error, OverflowError):
        return f"Port {port} does not exist: --port takes 0 to 65535."
    return f"Cannot listen on {host} port {port}: {error}. Give an address of this machine with --host."
