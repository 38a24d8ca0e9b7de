"""A scripted OpenAI-compatible model on loopback. It remembers every request and answers by the request alone.

The step to answer is read from the newest tool call or message of the assistant in the request, so a repeated request
gets the same answer and no counter can be lost.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from compaction.tokens import TokenCounter

Body = dict[str, Any]


class ScriptedModel:
    """``reply(step)`` gives the assistant's message; ``refuse(step, request_number)`` an error text or None."""

    def __init__(
        self,
        reply: Callable[[int], Body],
        *,
        scale: float = 1.0,
        refuse: Callable[[int, int], str | None] = lambda _step, _number: None,
        before_answer: Callable[[int], None] = lambda _step: None,
        after_answer: Callable[[int], None] = lambda _step: None,
    ) -> None:
        self.requests: list[Body] = []
        self.prompt_tokens: list[int] = []
        self._reply, self._refuse, self._scale = reply, refuse, scale
        self._before, self._after = before_answer, after_answer
        self._counter = TokenCounter()
        self._lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer, step = model._answer(body)
                model._before(step)
                payload = json.dumps(answer).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(payload)))
                    self.end_headers()
                    self.wfile.write(payload)
                    self.wfile.flush()
                except OSError:
                    return  # the client was killed
                model._after(step)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ScriptedModel:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, body: Body) -> tuple[int, Body, int]:
        step = next_step(body["messages"])
        with self._lock:
            tokens = int(self._counter.prompt(body["messages"], body.get("tools", [])) * self._scale)
            refusal = self._refuse(step, len(self.requests))
            self.requests.append(body)
            self.prompt_tokens.append(tokens)
        if refusal is not None:
            error = {"message": refusal, "type": "invalid_request_error", "code": "context_length_exceeded"}
            return 400, {"error": error}, step
        message = {"role": "assistant", **self._reply(step)}
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        usage = {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        answer = {"id": f"response-{step}", "object": "chat.completion", "created": 0, "model": "scripted"}
        return 200, {**answer, "choices": [choice], "usage": usage}, step


def next_step(messages: list[Body]) -> int:
    """One past the newest step in the request; an assistant's words start with ``Step N``."""
    for message in reversed(messages):
        if message["role"] != "assistant":
            continue
        if message.get("tool_calls"):
            return int(message["tool_calls"][0]["id"].split("_")[1]) + 1
        match = re.match(r"Step (\d+)", text_of(message))
        if match:
            return int(match[1]) + 1
    return 0


def text_of(message: Body) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def tool_call(step: int, index: int, **arguments: object) -> Body:
    function = {"name": "inspect", "arguments": json.dumps(arguments)}
    return {"id": f"call_{step}_{index}", "type": "function", "function": function}
