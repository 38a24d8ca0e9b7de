from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from evaluator.model import Evaluation, Evidence, GateResult, Purpose, Status
from kernel_agent.model import Budget, CampaignSettings, Price
from kernel_agent.store.repository import Fence, Store
from problems.model import Problem

PRICE = Price(name="test", input_usd=1.0, cached_usd=0.1, output_usd=4.0)
PROBLEM = Problem(id="bundled/add", title="Add", origin="bundled", source="class Model: ...\n")


class Clock:
    """Time that moves only when told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def settings(name: str = "first", budget: Budget | None = None, **changes: object) -> CampaignSettings:
    made = CampaignSettings(
        name=name, problem_ids=("bundled/add",), model="openai/x", price=PRICE, budget=budget or Budget()
    )
    return made.model_copy(update=changes)


def evaluation(
    source_sha: str,
    *,
    purpose: Purpose = "screen",
    status: Status = "correct",
    speedup: float = 1.5,
    accepted: bool | None = None,
) -> Evaluation:
    numbers = (
        {
            "speedup": speedup,
            "speedup_low": speedup - 0.1,
            "speedup_high": speedup + 0.1,
            "reference_ms": 3.0,
            "candidate_ms": 3.0 / speedup,
        }
        if status == "correct"
        else {}
    )
    return Evaluation(
        status=status,
        reason="seen",
        source_sha=source_sha,
        problem_sha=PROBLEM.sha256,
        purpose=purpose,
        target="cpu",
        isolation="jail",
        lane="fp32",
        accepted=accepted,
        gates=(
            GateResult(gate="honest", lane="fp32", passed=status == "correct", rms=0.5),
            GateResult(gate="paper-cuda", passed=True, pass_share=1.0),
        ),
        evidence=Evidence(isolation="bubblewrap"),
        **numbers,
    )


def launch(store: Store, *, problem: Problem = PROBLEM, **changes: object) -> Fence:
    """A running campaign with one running session, leased."""
    campaign = store.create_campaign(settings(**changes))  # type: ignore[arg-type]
    store.set_campaign_state(campaign.id, "running")
    session = store.create_session(campaign.id, problem, 0, "cpu")
    fence = store.acquire_session(session.id, "engine", 60)
    store.set_session_state(fence, "running")
    return fence


@cache
def _migrated() -> bytes:
    """An empty store's file, migrated once for all tests."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        Store.open(f"sqlite:///{path}").close()
        return path.read_bytes()


def empty_store(path: Path) -> str:
    """Put an empty, migrated store at ``path``; returns its URL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_migrated())
    return f"sqlite:///{path}"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/home/kernel-agent.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    opened = Store.open(empty_store(tmp_path / "store.db"), clock=clock)
    yield opened
    opened.close()
