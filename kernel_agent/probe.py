"""One cheap tool call to a model, through a real gateway: does it answer, does it call tools, what does it cost?"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import httpx

from kernel_agent.doctor import Probe
from kernel_agent.gateway.app import CALL_HEADER, Gateway
from kernel_agent.gateway.recording import PREFIX, find_recordings
from kernel_agent.gateway.replay import ReplayUpstream
from kernel_agent.gateway.upstream import Upstream
from kernel_agent.gateway.usage import parse_answer
from kernel_agent.model import CampaignSettings
from kernel_agent.models import ResolvedModel, upstream_for
from kernel_agent.store.repository import Store
from problems.model import Problem

ANSWER_SECONDS = 120.0
MOST_TOKENS = 1024
OWNER = "doctor"
TOOL = {
    "type": "function",
    "function": {
        "name": "report",
        "description": "Report that you can call tools.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": "Any single word."}},
            "required": ["word"],
        },
    },
}
PROMPT = "Call the tool `report` once, with the word `ready`. Write nothing else."


def probe(model: ResolvedModel) -> Probe:
    """Ask once. A provider's refusal is a result, not an exception; the user's own store is not touched."""
    with tempfile.TemporaryDirectory(prefix="kernel-agent-probe-") as folder:
        store = Store.open(f"sqlite:///{Path(folder) / 'probe.db'}")
        gateway = Gateway(store)
        try:
            gateway.start()
            return _ask(store, gateway, model)
        finally:
            gateway.stop(0.5)
            store.close()


def _ask(store: Store, gateway: Gateway, model: ResolvedModel) -> Probe:
    settings = CampaignSettings(
        name="probe",
        problem_ids=(),
        model=model.model,
        base_url=model.base_url,
        api_key_env=model.api_key_env,
        price=model.price,
        max_output_tokens=MOST_TOKENS,
    )
    nothing = Problem(id="probe", title="probe", origin="bundled", source="")
    campaign = store.create_campaign(settings)
    session = store.create_session(campaign.id, nothing, 0, "cpu")
    store.set_campaign_state(campaign.id, "running")
    store.set_session_state(store.acquire_session(session.id, OWNER, ANSWER_SECONDS), "running")
    base_url = gateway.register(session.id, _upstream(settings, nothing), model.price, settings)
    asked = {
        "model": model.model,
        "messages": [{"role": "user", "content": PROMPT}],
        "tools": [TOOL],
        "max_completion_tokens": MOST_TOKENS,
    }
    started = time.monotonic()
    try:
        # No proxy of the environment's: the gateway is on this machine.
        said = httpx.post(
            f"{base_url}/chat/completions",
            json=asked,
            headers={CALL_HEADER: "probe"},
            timeout=ANSWER_SECONDS,
            trust_env=False,
        )
        called, words = (_answer if said.status_code == 200 else _refusal)(said)
        answered = said.status_code == 200
    except httpx.TimeoutException:
        answered, called, words = False, False, f"no answer in {ANSWER_SECONDS:g} s"
    seconds = time.monotonic() - started
    used = store.session(session.id)
    return Probe(
        model=model.model,
        answered=answered,
        called_tool=called,
        said=words,
        prompt_tokens=used.usage.prompt_tokens,
        completion_tokens=used.usage.completion_tokens,
        cost_usd=used.spent_usd,
        price_name=model.price.name,
        seconds=seconds,
    )


def _upstream(settings: CampaignSettings, problem: Problem) -> Upstream:
    if settings.model.startswith(PREFIX):
        # Any of them: a recording answers a probe with its name.
        return ReplayUpstream(next(iter(find_recordings(settings.model).values())))
    return upstream_for(settings, problem)


def _answer(said: httpx.Response) -> tuple[bool, str]:
    message = parse_answer(said.content)["choices"][0]["message"]
    calls = message.get("tool_calls") or []
    if calls:
        function = calls[0].get("function") or {}
        return True, f"{function.get('name')}({function.get('arguments')})"
    return False, str(message.get("content") or "")


def _refusal(said: httpx.Response) -> tuple[bool, str]:
    try:
        return False, str(json.loads(said.content)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return False, f"HTTP {said.status_code}: {said.text[:300]}"
