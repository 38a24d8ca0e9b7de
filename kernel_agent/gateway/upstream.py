"""Where calls go: an OpenAI-compatible server over HTTP, or any other provider through litellm."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import os
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import httpx
from pydantic import SecretStr

from kernel_agent.errors import UsageError
from kernel_agent.model import CallKind

CONNECT_SECONDS = 15.0
ANSWER_SECONDS = 900.0
REDACTED = "[key removed]"


@dataclass(frozen=True)
class Answer:
    """What a provider said: a status of 200 with a completion, or its own error."""

    status: int
    body: bytes
    retry_after: str | None = None
    """The provider's wish for when to come back."""


class UpstreamTimeoutError(Exception):
    """The request went out and no answer came in time; the provider may bill it all the same."""


class UpstreamUnreachableError(Exception):
    """No provider at that address: nothing that could be billed."""


class Upstream(Protocol):
    """A provider as the gateway sees it. Its methods run in the gateway's event loop."""

    @property
    def provider(self) -> str | None:
        """Which account is used: sessions with equal values share its limits. None: nothing to limit."""

    async def complete(self, body: bytes, kind: CallKind) -> Answer:
        """Send one chat request.

        :raises UpstreamTimeoutError: see there.
        :raises UpstreamUnreachableError: see there.
        """

    async def aclose(self) -> None:
        """Close connections. Called once, when the gateway stops."""


class HttpUpstream:
    """An OpenAI-compatible server. Bytes pass both ways as they are; headers of the session never do."""

    def __init__(
        self,
        base_url: str,
        api_key: SecretStr | None = None,
        model: str | None = None,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """
        :param base_url: up to and including ``/v1``.
        :param model: what the server calls the model; None leaves the request's own name.
        """
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._key = api_key
        self._model = model
        self._timeout = httpx.Timeout(answer_seconds, connect=connect_seconds)
        self._answer_seconds = answer_seconds
        self._client: httpx.AsyncClient | None = None

    @property
    def provider(self) -> str | None:
        return f"{self._url}#{_key_mark(self._key)}"

    async def complete(self, body: bytes, kind: CallKind) -> Answer:  # noqa: ARG002 (a provider does not care)
        if self._client is None:
            # Here, since a client belongs to the event loop it is made in.
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
            self._client = httpx.AsyncClient(timeout=self._timeout, limits=limits)
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "kernel-agent"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key.get_secret_value()}"
        try:
            said = await self._client.post(self._url, content=with_model(body, self._model), headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.PoolTimeout) as error:
            raise UpstreamUnreachableError(f"no connection to {self._url} ({error}); check base_url") from error
        except httpx.TimeoutException as error:
            raise UpstreamTimeoutError(f"{self._url} did not answer in {self._answer_seconds:g} s") from error
        except httpx.HTTPError as error:
            raise UpstreamTimeoutError(f"the connection to {self._url} broke off ({error})") from error
        if said.is_redirect:
            raise UpstreamUnreachableError(
                f"{self._url} answers with a redirect to {said.headers.get('location')}; set base_url to that place"
            )
        if said.status_code == 200:
            return Answer(200, said.content)
        if said.status_code < 400:
            raise UpstreamUnreachableError(f"{self._url} answers HTTP {said.status_code}, which is no completion")
        return Answer(said.status_code, redacted(said.content, self._key), said.headers.get("retry-after"))

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None


class LiteLLMUpstream:
    """Any other provider, spoken to by litellm in this process: the ones that sign requests or have own dialects."""

    def __init__(
        self,
        model: str,
        api_key_env: str | None = None,
        base_url: str | None = None,
        *,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """
        :param model: litellm's name, with its provider's prefix.
        :param api_key_env: environment variable that holds the key; None leaves the search to litellm.
        :raises UsageError: the variable is not set.
        """
        self._model = model
        self._base_url = base_url
        self._answer_seconds = answer_seconds
        self._key: SecretStr | None = None
        if api_key_env is not None:
            value = os.environ.get(api_key_env)
            if not value:
                raise UsageError(f"the environment variable {api_key_env} is not set; put the key of {model} into it")
            self._key = SecretStr(value)

    @property
    def provider(self) -> str | None:
        return f"litellm:{self._model.partition('/')[0]}:{self._base_url or ''}#{_key_mark(self._key)}"

    async def complete(self, body: bytes, kind: CallKind) -> Answer:  # noqa: ARG002 (a provider does not care)
        litellm, openai = await asyncio.to_thread(_load_litellm)
        asked: dict[str, Any] = json.loads(body)
        asked.pop("stream", None)
        asked |= {"model": self._model, "timeout": self._answer_seconds, "num_retries": 0, "max_retries": 0}
        if self._key is not None:
            asked["api_key"] = self._key.get_secret_value()
        if self._base_url is not None:
            asked["api_base"] = self._base_url
        try:
            said = await litellm.acompletion(**asked)
        except openai.APITimeoutError as error:
            raise UpstreamTimeoutError(f"{self._model} did not answer in {self._answer_seconds:g} s") from error
        except openai.OpenAIError as error:
            status = getattr(error, "status_code", None)
            return self._error(status if isinstance(status, int) and 400 <= status < 600 else 502, error)
        return Answer(200, json.dumps(said.model_dump(mode="json")).encode())

    def _error(self, status: int, error: Exception) -> Answer:
        said = json.dumps({"error": {"message": str(error), "type": type(error).__name__, "code": status}})
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        return Answer(status, redacted(said.encode(), self._key), headers.get("retry-after"))

    async def aclose(self) -> None:
        """litellm keeps its own connections."""


def _load_litellm() -> tuple[ModuleType, ModuleType]:
    """litellm and the package whose errors it raises. Takes seconds the first time: keep it off the event loop."""
    # It would otherwise fetch its price table from the network.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    return importlib.import_module("litellm"), importlib.import_module("openai")


def with_model(body: bytes, model: str | None) -> bytes:
    """The body with another model's name; the very same bytes when it has that name already."""
    if model is None:
        return body
    asked = json.loads(body)
    if asked.get("model") == model:
        return body
    return json.dumps({**asked, "model": model}, separators=(",", ":")).encode()


def redacted(said: bytes, key: SecretStr | None) -> bytes:
    """An error text without the key, should the provider repeat it."""
    return said if key is None else said.replace(key.get_secret_value().encode(), REDACTED.encode())


def _key_mark(key: SecretStr | None) -> str:
    """Tells keys apart without showing them."""
    return "" if key is None else hashlib.sha256(key.get_secret_value().encode()).hexdigest()[:12]
