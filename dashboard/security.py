"""Who may ask, and from where. A loopback port is no authentication on a shared machine, so the token is always needed.

Three ways in, all resting on one token of at least ``MIN_TOKEN_CHARACTERS``: ``Authorization: Bearer``, a one-time
URL that sets a cookie, and the login form. The cookie is a MAC under the token: it survives a restart with the same
token and does not reveal it. Cookies know no ports, so its name is derived from the token: two dashboards on one host
do not overwrite each other's.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.problem_json import error_response
from kernel_agent.errors import UsageError

MIN_TOKEN_CHARACTERS = 16
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OPEN_PATHS = frozenset({"/healthz", "/login", "/static/style.css", "/static/icon.svg"})
"""Answered without the token: liveness, the login page, and the two packaged files that page shows."""

# No 'unsafe-inline' and no nonce anywhere. plotly.js writes element styles through the CSSOM, which a policy does not
# restrict, and inserts <style> elements only when no element with id "plotly.js-style-global" and class
# "no-inline-styles" exists: the pages give it one, a <link> to static/plot.css.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not "no-referrer": under it browsers send "Origin: null" with a form, and the origin check needs the truth.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Access:
    """Checks credentials; thread-safe."""

    def __init__(self, token: str) -> None:
        """UsageError when the token is too short to withstand guessing."""
        if len(token) < MIN_TOKEN_CHARACTERS:
            raise UsageError(
                f"The dashboard's token has {len(token)} characters; it needs at least {MIN_TOKEN_CHARACTERS}. "
                "Set KERNEL_AGENT_TOKEN to a longer one, or unset it to have one made."
            )
        self._token = token.encode()
        self._once: bytes | None = None
        self._lock = threading.Lock()
        self.cookie_name = "kernel_agent_" + self._mac(b"cookie name")[:12]
        self.cookie_value = self._mac(b"cookie value")

    def issue_once(self) -> str:
        """A new secret for the one-time URL; it replaces an unused older one."""
        secret = secrets.token_urlsafe(32)
        with self._lock:
            self._once = _digest(secret)
        return secret

    def redeem(self, secret: str) -> bool:
        """True for the issued secret, once."""
        with self._lock:
            if self._once is None or not hmac.compare_digest(self._once, _digest(secret)):
                return False
            self._once = None
            return True

    def is_token(self, text: str) -> bool:
        # Digests first: compare_digest tells the lengths of what it is given.
        return hmac.compare_digest(_digest(text), hashlib.sha256(self._token).digest())

    def bearer(self, headers: Headers) -> bool:
        """Whether the request carries the token in its Authorization header."""
        scheme, _, value = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(value.strip())

    def allows(self, connection: HTTPConnection) -> bool:
        """Whether the request carries the token or the cookie."""
        if "authorization" in connection.headers:
            return self.bearer(connection.headers)
        cookie = connection.cookies.get(self.cookie_name, "")
        return hmac.compare_digest(_digest(cookie), _digest(self.cookie_value))

    def admit(self, response: Response) -> None:
        """Sets the cookie on ``response``; it ends with the browser's session."""
        response.set_cookie(self.cookie_name, self.cookie_value, httponly=True, samesite="strict", path="/")

    def _mac(self, label: bytes) -> str:
        return hmac.new(self._token, b"kernel-agent dashboard: " + label, hashlib.sha256).hexdigest()


class Guard:
    """ASGI middleware: checks host, origin and credentials before anything else; sets headers on every answer."""

    def __init__(self, app: ASGIApp, access: Access, allowed_hosts: tuple[str, ...]) -> None:
        self._app = app
        self._access = access
        self._hosts = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        refusal = self._refusal(connection)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def _refusal(self, connection: HTTPConnection) -> Response | None:
        # The scope's own path: connection.url is put together with the Host header, which the client writes.
        method, path = connection.scope["method"], connection.scope["path"]
        host = connection.headers.get("host", "")
        if host_name(host) not in self._hosts:
            return error_response(
                connection,
                421,
                "This host name is not on the dashboard's list. Open it by the name it was started with, or start it "
                "with --host NAME.",
            )
        if method not in SAFE_METHODS and not self._access.bearer(connection.headers):
            # A browser always says where a form or fetch comes from; who does not say it has to show the token.
            origin = connection.headers.get("origin")
            site = connection.headers.get("sec-fetch-site", "same-origin")
            if origin is None or urlsplit(origin).netloc.lower() != host.lower() or site not in ("same-origin", "none"):
                return error_response(connection, 403, "This request comes from another site.")
        if path in OPEN_PATHS or self._access.allows(connection):
            return None
        return error_response(
            connection,
            401,
            "The dashboard needs its token: open the one-time URL that `kernel-agent serve` printed, or send "
            "Authorization: Bearer with the value of KERNEL_AGENT_TOKEN.",
            headers={"WWW-Authenticate": 'Bearer realm="kernel-agent"'},
        )


def host_name(host: str) -> str:
    """The name in a Host header: lower case, without its port, IPv6 without brackets; empty when malformed."""
    try:
        return (urlsplit("//" + host).hostname or "") if not set(host) & set("/?#@\\ ") else ""
    except ValueError:
        return ""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
