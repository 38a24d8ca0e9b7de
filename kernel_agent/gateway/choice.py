"""Which upstream a campaign's settings mean."""

from __future__ import annotations

import os

from pydantic import SecretStr

from kernel_agent.errors import UsageError
from kernel_agent.gateway.recording import PREFIX, find_recordings, for_problem
from kernel_agent.gateway.replay import ReplayUpstream
from kernel_agent.gateway.upstream import HttpUpstream, LiteLLMUpstream, Upstream
from kernel_agent.model import CampaignSettings
from problems.model import Problem

OPENAI = "openai/"


def upstream_for(settings: CampaignSettings, problem: Problem) -> Upstream:
    """One session's upstream: ``replay:NAME`` plays the problem's recording; ``openai/NAME`` with a ``base_url`` is
    spoken to over HTTP, byte for byte; litellm knows all others. Sessions with the same key share its limits.

    :raises UsageError: the key's variable is not set, or there is no recording of this problem.
    """
    if settings.model.startswith(PREFIX):
        return ReplayUpstream(for_problem(find_recordings(settings.model), problem))
    if settings.base_url is not None and settings.model.startswith(OPENAI):
        return HttpUpstream(settings.base_url, _key(settings), settings.model.removeprefix(OPENAI))
    return LiteLLMUpstream(settings.model, settings.api_key_env, settings.base_url)


def _key(settings: CampaignSettings) -> SecretStr | None:
    """The key from its variable; None when the settings name no variable, as for a server of one's own."""
    if settings.api_key_env is None:
        return None
    value = os.environ.get(settings.api_key_env)
    if not value:
        raise UsageError(
            f"the environment variable {settings.api_key_env} is not set; put the key of {settings.model} into it"
        )
    return SecretStr(value)
