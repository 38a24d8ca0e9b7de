"""What the documents promise is there: links lead somewhere, commands and options exist, nothing is left out."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from evaluator.model import Status
from kernel_agent.cli.app import build

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE_BLOCK = re.compile(r"^```[\s\S]*?^```|^(?:    |\t).*$", re.MULTILINE)
INLINE_CODE = re.compile(r"`([^`\n]+)`")
REQUIREMENT = re.compile(r"[A-Za-z0-9-]+")
PATH = re.compile(r"(?:problems|gpu_profiles|compaction|evaluator|kernel_agent|dashboard|docs|tools|tests)/[\w./-]*")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def anchors(text: str) -> set[str]:
    """Of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", CODE_BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_relative_links_lead_to_files_and_headings(document: Path) -> None:
    broken = []
    for link in LINK.findall(CODE_BLOCK.sub("", document.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert not broken, f"{name_of(document)} has links that lead nowhere: {broken}"


def test_the_main_documents_are_linked_from_the_readme() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in LINK.findall(read("README.md"))}
    assert [name_of(d) for d in DOCUMENTS if d.resolve() not in linked] == ["README.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_files_named_in_code_style_are_there(document: Path) -> None:
    named = [word for word in INLINE_CODE.findall(document.read_text(encoding="utf-8")) if PATH.fullmatch(word)]
    assert not [word for word in named if not (ROOT / word).exists()]


def commands() -> dict[str, TyperCommand]:
    """Every command by its words (``problems list``)."""
    found: dict[str, TyperCommand] = {}
    waiting = [("", get_command(build()))]
    for words, command in waiting:
        if isinstance(command, TyperGroup):
            waiting += [(f"{words} {name}".strip(), below) for name, below in command.commands.items()]
        else:
            assert isinstance(command, TyperCommand)
            found[words] = command
    return found


def invocations(text: str) -> list[list[str]]:
    """The words after ``kernel-agent`` of every example, in blocks and within lines, without comments."""
    joined = text.replace("\\\n", " ")
    blocks = [line.strip() for line in joined.splitlines() if line.startswith("    ")]
    examples = [*blocks, *INLINE_CODE.findall(joined)]
    return [shlex.split(e, comments=True)[1:] for e in examples if e.startswith("kernel-agent ")]


def command_of(words: list[str]) -> tuple[str, list[str]]:
    """The command's own words, and what follows them; the global options before it are left out."""
    while words and words[0] in ("--home", "--kernelbench"):
        words = words[2:]
    count = 2 if words[0] == "problems" else 1
    return " ".join(words[:count]), words[count:]


EXAMPLES = [
    (name, *command_of(words))
    for name in ("README.md", "docs/sessions.md")
    for words in invocations(read(name))
    if words[0] != "COMMAND"
]


@pytest.mark.parametrize("name", sorted({command for _, command, _ in EXAMPLES}))
def test_commands_named_in_the_documents_answer_help(name: str) -> None:
    done = CliRunner().invoke(build(), [*name.split(), "--help"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(("document", "command", "rest"), EXAMPLES, ids=lambda value: str(value)[:40])
def test_options_in_examples_exist(document: str, command: str, rest: list[str]) -> None:
    known = {option for parameter in commands()[command].params for option in parameter.opts}
    unknown = [word for word in rest if word.startswith("--") and word not in known]
    assert not unknown, f"{document} shows {command} with {unknown}"


def test_the_readme_shows_every_command() -> None:
    assert {command for document, command, _ in EXAMPLES if document == "README.md"} == set(commands())


@pytest.mark.parametrize("status", get_args(Status))
def test_every_status_is_explained(status: str) -> None:
    for name in ("docs/candidate.md", "README.md"):
        rows = [
            line for line in read(name).splitlines() if line.startswith("|") and f"`{status}`" in line.split("|")[1]
        ]
        assert len(rows) == 1, f"{name} has {len(rows)} rows for {status}"


def requirements() -> list[str]:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    listed = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    return [found[0] for text in listed if (found := REQUIREMENT.match(text))]


def test_every_dependency_is_justified_and_none_is_made_up() -> None:
    table = read("ARCHITECTURE.md").partition("## Dependencies")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    named = [word for row in rows for word in INLINE_CODE.findall(row)]
    assert sorted(named) == sorted(requirements())


def test_the_changelog_has_the_version() -> None:
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert re.search(
        rf"^## \[{re.escape(version)}\] - (?:unreleased|\d{{4}}-\d\d-\d\d)$", read("CHANGELOG.md"), re.MULTILINE
    )
