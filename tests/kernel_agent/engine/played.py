"""A campaign played from a small recording, for the engine's tests: real gateway, store, judge, jail and SDK."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.pool import LocalEvaluator
from kernel_agent.campaign import LaunchRequest, chosen_problems, create, resolve_settings
from kernel_agent.engine.local import LocalEngine
from kernel_agent.gateway.recording import Header, Recording, Turn
from kernel_agent.model import Budget, Campaign
from kernel_agent.models import resolve_model
from kernel_agent.settings import Settings
from kernel_agent.store.repository import Store
from problems.catalog import Catalog

PROBLEM = '''"""Scale and shift"""
import torch
import torch.nn as nn

ROWS = 64
COLUMNS = 256


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(n))

    def forward(self, x):
        return x * self.scale + x


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
'''
RIGHT = PROBLEM.replace("class Model(", "class ModelNew(")
WRONG = RIGHT.replace("+ x", "- x")
SYNTAX = RIGHT.replace("def forward(self, x):", "def forward(self, x)")
CACHED = RIGHT.replace(
    "        return x * self.scale + x",
    "        if not hasattr(self, 'old'): self.old = x * self.scale + x\n        return self.old",
)

Call = tuple[str, dict[str, Any]]


def turn(thought: str, *calls: Call) -> dict[str, Any]:
    """An assistant message with tool calls."""
    return {
        "role": "assistant",
        "content": thought,
        "tool_calls": [
            {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for i, (name, arguments) in enumerate(calls)
        ],
    }


def write(path: str, text: str) -> Call:
    return "file_editor", {"command": "create", "path": path, "file_text": text}


def shell(command: str) -> Call:
    return "terminal", {"command": command}


def submit(path: str, hypothesis: str) -> Call:
    return "evaluate_kernel", {"path": path, "hypothesis": hypothesis}


def look(query: str) -> Call:
    return "history", {"query": query}


@dataclass(frozen=True)
class Stage:
    """Everything a test needs to play a recording."""

    home: Path
    store: Store
    campaign: Campaign
    settings: Settings

    @property
    def session_id(self) -> str:
        return self.store.sessions(self.campaign.id)[0].id

    @property
    def workspace(self) -> Path:
        return self.home / "campaigns" / self.campaign.id / self.session_id / "workspace"

    def evaluator(self) -> LocalEvaluator:
        return LocalEvaluator(self.settings.build_cache)

    def engine(self, evaluator: LocalEvaluator) -> LocalEngine:
        return LocalEngine(self.store, self.home, evaluator)


def stage(folder: Path, messages: list[dict[str, Any]], budget: Budget | None = None, **asked: Any) -> Stage:
    """A stored campaign over the small problem above, to be played from ``messages``."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    problem_file = folder / "scale.py"
    problem_file.write_text(PROBLEM)
    (problem,) = chosen_problems(Catalog(), [str(problem_file)], ())
    header = Header(
        name="small",
        problem_id=problem.id,
        problem_sha=problem.sha256,
        strategy="none",
        model="scripted",
        provenance="scripted",
    )
    turns = tuple(Turn(n=n, message=m, finish_reason="tool_calls") for n, m in enumerate(messages))
    recording = folder / "small.jsonl"
    Recording(header=header, turns=turns).save(recording)
    settings = Settings(home=home)
    model = resolve_model(settings, f"replay:{recording}", None, None)
    request = LaunchRequest(
        problems=(str(problem_file),), compaction="none", budget=budget or Budget(steps=100), **asked
    )
    store = Store.open(settings.database_url)
    campaign = create(store, resolve_settings(request, [problem], model), [problem])
    return Stage(home, store, campaign, settings)
