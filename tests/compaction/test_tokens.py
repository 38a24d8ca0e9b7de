from __future__ import annotations

import os
import subprocess
import sys

import pytest

from compaction.tokens import CALL_OVERHEAD, IMAGE_TOKENS, MESSAGE_OVERHEAD, Encoding, TokenCounter, load_encoding


@pytest.fixture(scope="module")
def encoding() -> Encoding:
    return load_encoding()


class Watched:
    """The real encoding, with a note of every text it was asked for."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding, self.asked = encoding, list[str]()

    def encode_ordinary(self, text: str) -> list[int]:
        self.asked.append(text)
        return self.encoding.encode_ordinary(text)


def test_loading_needs_no_network_no_litellm_import_and_leaves_the_environment_alone() -> None:
    program = (
        "import os, socket, sys\n"
        "def refuse(*a, **k): raise AssertionError('network')\n"
        "socket.socket.connect = refuse\n"
        "from compaction.tokens import TokenCounter\n"
        "assert 'tiktoken' not in sys.modules\n"
        "print(TokenCounter().text('hello world'), 'litellm' in sys.modules, 'TIKTOKEN_CACHE_DIR' in os.environ)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert run.stdout.split() == ["2", "False", "False"], run.stderr


def test_a_text_is_encoded_once(encoding: Encoding) -> None:
    watched = Watched(encoding)
    counter = TokenCounter(watched)
    message = {"role": "user", "content": "for (int i = 0; i < n; ++i)"}
    first = counter.messages([message] * 50)
    assert first == 50 * (MESSAGE_OVERHEAD + len(encoding.encode_ordinary(str(message["content"]))))
    assert len(watched.asked) == 1
    assert counter.messages([message, {"role": "tool", "content": "ok"}]) > 0
    assert len(watched.asked) == 2


def test_every_text_of_a_message_counts_and_markers_do_not(encoding: Encoding) -> None:
    counter = TokenCounter(encoding)
    plain = counter.message({"role": "assistant", "content": "hi"})
    marked = {"role": "assistant", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}
    assert counter.message(marked) == plain
    call = {"id": "1", "function": {"name": "run", "arguments": "{}"}}
    with_call = counter.message({"role": "assistant", "content": "hi", "tool_calls": [call]})
    assert with_call == plain + CALL_OVERHEAD + counter.text("run") + counter.text("{}")
    thinking = counter.message({"role": "assistant", "content": "hi", "reasoning_content": "let me see"})
    assert thinking == plain + counter.text("let me see")


def test_an_image_costs_a_fixed_number_of_tokens_however_long_its_data(encoding: Encoding) -> None:
    counter = TokenCounter(encoding)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    assert counter.message({"role": "user", "content": [image]}) == MESSAGE_OVERHEAD + IMAGE_TOKENS


def test_a_prompt_is_its_messages_and_tools(encoding: Encoding) -> None:
    counter = TokenCounter(encoding)
    tool = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}
    messages = [{"role": "user", "content": "go"}]
    assert counter.prompt(messages, [tool]) == counter.messages(messages) + counter.tools([tool])
    assert counter.tools([tool]) > 5


def test_lone_surrogates_are_counted_not_refused(encoding: Encoding) -> None:
    assert TokenCounter(encoding).text("bad \ud800 byte") > 0
