"""Counting tokens offline, incrementally: a text is encoded once however often it is counted."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from compaction.errors import CompactionError

ENCODING = "o200k_base"
ENCODING_FILE = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""SHA-1 of the encoding's address: the name under which tiktoken looks it up in a cache folder."""

MESSAGE_OVERHEAD = 4
"""Tokens a chat template spends on a message's role and borders."""
CALL_OVERHEAD = 8
"""Tokens spent on one tool call's id and borders."""
IMAGE_TOKENS = 1_100
"""What an image is taken to cost; the calibration with the provider's own figures corrects it."""
CACHED_TEXTS = 50_000

_UNCOUNTED = frozenset({"role", "content", "tool_calls", "tool_call_id", "cache_control", "name"})


class Encoding(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


def load_encoding() -> Encoding:
    """The ``o200k_base`` encoding from the files that litellm ships; touches no network.

    :raises CompactionError: litellm or its encoding file is not installed.
    """
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        raise CompactionError(
            f"the token encoding {ENCODING} comes with litellm, which is not installed: install litellm"
        )
    folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    if not (folder / ENCODING_FILE).is_file():
        raise CompactionError(f"{folder} lacks {ENCODING} ({ENCODING_FILE}): reinstall litellm")
    import tiktoken  # here, since it starts a registry that a program which never counts does not need

    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        encoding: Encoding = tiktoken.get_encoding(ENCODING)
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before
    return encoding


class TokenCounter:
    """Counts texts, chat messages and tool schemas, remembering each text by its hash.

    The count of a message is an estimate of what a provider's template makes of it: its texts, plus a few tokens a
    message and a call. Not safe to share between threads.
    """

    def __init__(self, encoding: Encoding | None = None) -> None:
        """Without an encoding, ``load_encoding()`` is called at the first text."""
        self._encoding = encoding
        self._known: dict[bytes, int] = {}

    def text(self, text: str) -> int:
        if not text:
            return 0
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        count = self._known.get(key)
        if count is None:
            if self._encoding is None:
                self._encoding = load_encoding()
            if len(self._known) >= CACHED_TEXTS:
                self._known.clear()
            # Lone surrogates, which some tools emit, are not encodable.
            count = len(self._encoding.encode_ordinary(text.encode("utf-8", "replace").decode("utf-8")))
            self._known[key] = count
        return count

    def message(self, wire: Mapping[str, Any]) -> int:
        """One OpenAI chat message. Cache markers cost nothing; unknown fields cost their JSON."""
        total = MESSAGE_OVERHEAD + self._content(wire.get("content"))
        calls = wire.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            function = call.get("function") if isinstance(call, Mapping) else None
            function = function if isinstance(function, Mapping) else {"arguments": call}
            total += CALL_OVERHEAD + sum(self._value(function.get(key)) for key in ("name", "arguments"))
        return total + sum(self._value(value) for key, value in wire.items() if key not in _UNCOUNTED)

    def messages(self, wire: Iterable[Mapping[str, Any]]) -> int:
        return sum(self.message(message) for message in wire)

    def tools(self, wire: Iterable[Mapping[str, Any]]) -> int:
        """Tool schemas, as JSON."""
        return sum(self._value(tool) for tool in wire)

    def prompt(self, messages: Iterable[Mapping[str, Any]], tools: Iterable[Mapping[str, Any]] = ()) -> int:
        """A whole request."""
        return self.messages(messages) + self.tools(tools)

    def _content(self, content: Any) -> int:
        if not isinstance(content, list):
            return self._value(content)
        total = 0
        for part in content:
            if not isinstance(part, Mapping):
                total += self._value(part)
            elif part.get("type") == "text":
                total += self._value(part.get("text"))
            elif "image" in str(part.get("type")):
                total += IMAGE_TOKENS
            else:
                total += self._value(part)
        return total

    def _value(self, value: Any) -> int:
        if value is None:
            return 0
        if isinstance(value, str):
            return self.text(value)
        return self.text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True))
