"""Launching: everything the user asked for resolved into frozen settings, checked, and stored with its sessions."""

from __future__ import annotations

from collections.abc import Sequence

from compaction.errors import CompactionError
from compaction.spec import parse_spec
from evaluator.model import Lane, Target
from gpu_profiles.loader import resolve as resolve_profile
from gpu_profiles.model import GpuProfileError
from kernel_agent.errors import UsageError
from kernel_agent.model import Budget, Campaign, CampaignSettings, Frozen
from kernel_agent.models import ResolvedModel
from kernel_agent.store.repository import Store
from problems.catalog import Catalog
from problems.model import Problem, SizeOverride


class LaunchRequest(Frozen):
    """What the user asked for, as words and numbers."""

    problems: tuple[str, ...]
    name: str | None = None
    overrides: tuple[SizeOverride, ...] = ()
    compaction: str = "cliff:128k"
    rollouts: int = 1
    target: Target = "cpu"
    profile: str | None = None
    lane: Lane = "fp32"
    isolation: str = "jail"
    budget: Budget = Budget()
    max_cost_usd: float | None = None
    max_hours: float | None = None
    context_tokens: int | None = None


def chosen_problems(
    catalog: Catalog, patterns: Sequence[str], overrides: Sequence[SizeOverride]
) -> tuple[Problem, ...]:
    """The problems that the patterns mean, each once, in order. Raises ProblemError."""
    found: dict[str, Problem] = {}
    for pattern in patterns:
        if pattern.endswith(".py"):
            problem = catalog.resolve(pattern, overrides)
            found.setdefault(problem.sha256, problem)
            continue
        for problem in catalog.list(pattern):
            chosen = catalog.get(problem.id, overrides) if overrides else problem
            found.setdefault(chosen.sha256, chosen)
    return tuple(found.values())


def resolve_settings(request: LaunchRequest, problems: Sequence[Problem], model: ResolvedModel) -> CampaignSettings:
    """Frozen settings, each checked. Raises UsageError."""
    try:
        compaction = str(parse_spec(request.compaction))
    except CompactionError as error:
        raise UsageError(f"--compaction {request.compaction!r}: {error}") from error
    if request.rollouts < 1:
        raise UsageError(f"--rollouts {request.rollouts}: at least 1")
    if request.isolation not in ("jail", "none"):
        raise UsageError(f"--isolation {request.isolation!r}: jail or none")
    profile = request.profile or request.target
    if request.target != "cpu":
        try:
            profile = resolve_profile(profile).id
        except GpuProfileError as error:
            raise UsageError(str(error)) from error
    return CampaignSettings(
        name=request.name or _name(problems, model.model),
        problem_ids=tuple(p.id for p in problems),
        model=model.model,
        base_url=model.base_url,
        api_key_env=model.api_key_env,
        price=model.price,
        compaction=compaction,
        rollouts=request.rollouts,
        target=request.target,
        profile=profile,
        lane=request.lane,
        isolation="none" if request.isolation == "none" else "jail",
        budget=request.budget,
        max_cost_usd=request.max_cost_usd,
        max_seconds=request.max_hours * 3600 if request.max_hours is not None else None,
        context_tokens=request.context_tokens or model.context_tokens,
        max_output_tokens=model.max_output_tokens,
        provenance=model.provenance,
    )


def create(store: Store, settings: CampaignSettings, problems: Sequence[Problem]) -> Campaign:
    """Store a campaign with a session per problem and rollout."""
    campaign = store.create_campaign(settings)
    for rollout in range(settings.rollouts):
        for problem in problems:
            store.create_session(campaign.id, problem, rollout, settings.profile)
    return campaign


def _name(problems: Sequence[Problem], model: str) -> str:
    what = problems[0].id.rpartition("/")[2] if len(problems) == 1 else f"{len(problems)} problems"
    return f"{what} with {model.rpartition('/')[2]}"
