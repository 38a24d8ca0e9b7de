from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.cli import main
from kernel_agent.settings import load_settings
from kernel_agent.store.repository import Store
from tests.kernel_agent.cli.tiny import write_problem
from tests.kernel_agent.gateway.conftest import provider  # noqa: F401 (a fixture)

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        read = json.loads(self.out)
        assert isinstance(read, dict)
        return read


Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of this test's own, no configuration file, no keys."""
    folder = tmp_path / "home"
    monkeypatch.setenv("KERNEL_AGENT_HOME", str(folder))
    monkeypatch.setenv("KERNEL_AGENT_CONFIG", str(tmp_path / "absent.toml"))
    for name in (*KEYS, "KERNEL_AGENT_TOKEN", "KERNEL_AGENT_DATABASE", "KERNEL_AGENT_KERNELBENCH"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def run(home: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process, as the console script calls it."""
    del home

    def call(*arguments: object) -> Result:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        said = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return Result(left.value.code, said.out, said.err)

    return call


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    del home
    opened = Store.open(load_settings().database_url)
    yield opened
    opened.close()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_problem(tmp_path)


def refused(result: Result, *words: str, code: int = 2) -> None:
    """One clear line on stderr, nothing on stdout, no traceback."""
    assert (result.code, result.out) == (code, "")
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err
