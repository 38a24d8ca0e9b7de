"""What a campaign can cost at most, said before it starts."""

from __future__ import annotations

from compaction.spec import CliffSpec, parse_spec
from kernel_agent.gateway.prices import worst_cost
from kernel_agent.model import CampaignSettings


def worst_case_usd(settings: CampaignSettings) -> float:
    """US dollars if every step sends a full context, nothing is cached, and every answer is as long as allowed.

    Real campaigns cost a fraction: contexts grow slowly and are mostly cached. Caps are counted in.
    """
    spec = parse_spec(settings.compaction)
    prompt = settings.context_tokens
    if isinstance(spec, CliffSpec):
        prompt = min(prompt, spec.budget_tokens)
    each = settings.budget.steps * worst_cost(prompt, settings.max_output_tokens, settings.price)
    if settings.budget.max_cost_usd is not None:
        each = min(each, settings.budget.max_cost_usd)
    total = each * len(settings.problem_ids) * settings.rollouts
    return total if settings.max_cost_usd is None else min(total, settings.max_cost_usd)
