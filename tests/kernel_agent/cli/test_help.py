"""Help answers at once: by what is imported for it, since seconds depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kernel_agent.cli.app import build
from tests.kernel_agent.cli.conftest import Run, refused

HEAVY = ("torch", "litellm", "openhands", "sqlalchemy", "plotly", "fastapi", "uvicorn", "httpx", "numpy")
COMMANDS = (
    "demo",
    "baseline",
    "evaluate",
    "gpus",
    "doctor",
    "launch",
    "status",
    "stop",
    "resume",
    "report",
    "export",
    "serve",
    "problems list",
    "problems show",
    "problems probe",
)
HELP = """
import contextlib, io, json, sys
from kernel_agent.cli import main
shown = {}
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([*words.split(), "--help"])
    shown[words] = out.getvalue()
print(json.dumps({"shown": shown, "modules": sorted(sys.modules)}))
"""


def test_help_of_every_command_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP, json.dumps(["", "problems", *COMMANDS])],
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)
    assert not [name for name in HEAVY if name in said["modules"]]
    for words, text in said["shown"].items():
        assert f"Usage: kernel-agent{' ' if words else ''}{words}" in text


def test_every_command_is_listed_here() -> None:
    app = build()
    groups = [group.typer_instance for group in app.registered_groups]
    names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    inner = [f"problems {command.name}" for group in groups if group for command in group.registered_commands]
    assert sorted([*names, *inner]) == sorted(COMMANDS)


def test_the_version(run: Run) -> None:
    result = run("--version")
    assert result.code == 0
    assert result.out.startswith("kernel-agent 0.")


def test_no_command_shows_what_there_is(run: Run) -> None:
    result = run()
    assert result.code == 2
    assert "launch" in result.out + result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lunch",), "lunch"),
        (("evaluate", "k.py"), "--problem"),
        (("launch", "--problems", "x"), "--model"),
        (("report", "c1", "--format", "pdf"), "html"),
        (("launch", "--problems", "x", "--model", "m", "--steps", "0"), "--steps"),
        (("launch", "--problems", "x", "--model", "m", "--max-cost", "nan"), "finite"),
        (("launch", "--problems", "x", "--model", "m", "--max-cost", "-1"), "below 0"),
        (("launch", "--problems", "x", "--model", "m", "--max-hours", "0"), "above 0"),
        (("launch", "--problems", "x", "--model", "m", "--max-hours", "soon"), "no number"),
    ],
)
def test_bad_usage(run: Run, arguments: tuple[str, ...], said: str) -> None:
    refused(run(*arguments), said)
