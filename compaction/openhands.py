"""The condenser that runs a compaction strategy inside an OpenHands conversation.

Import this module before a conversation is resumed, or the SDK does not know the condenser's kind.

The log stays the truth: cuts are read back from its ``Condensation`` events and prompt sizes from the metrics saved
with them, so a resumed conversation sends what an uninterrupted one would have sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from openhands.sdk import LocalConversation
from openhands.sdk.context.condenser import CondenserBase
from openhands.sdk.context.view import View
from openhands.sdk.event import Condensation, Event, LLMConvertibleEvent
from openhands.sdk.event.condenser import CondensationSummaryEvent
from openhands.sdk.llm import LLM
from pydantic import PrivateAttr, field_validator

from compaction.chat import to_history
from compaction.cliff import CliffCompaction, CliffState, Cut
from compaction.errors import CompactionError
from compaction.history import Context, History, Turn
from compaction.openhands_events import Branch, cut_id, read_branch, read_turn, response_id, wire, write_clipped
from compaction.spec import CliffSpec, NoneSpec, parse_spec
from compaction.tokens import TokenCounter

OnCompaction = Callable[[int, int, int], None]
"""``(from_step, tokens_before, tokens_after)``: step ``from_step`` is the first to see the rebuilt prompt. A cut redone
after a crash is told again, with the same numbers."""


class CliffCondenser(CondenserBase):
    """CliffCompaction over a conversation's events. ``attach`` it to its conversation before the first run."""

    spec: str
    """A ``cliff:…`` strategy; stored in canonical form."""

    _events: Callable[[], Sequence[Event]] | None = PrivateAttr(default=None)
    _tools: Callable[[], Iterable[Any]] | None = PrivateAttr(default=None)
    _on_compaction: OnCompaction | None = PrivateAttr(default=None)
    _counter: TokenCounter = PrivateAttr(default_factory=TokenCounter)
    _turns: dict[tuple[str, int, tuple[str, ...]], Turn] = PrivateAttr(default_factory=dict)

    @field_validator("spec")
    @classmethod
    def _canonical(cls, text: str) -> str:
        return str(_cliff_spec(text))

    def handles_condensation_requests(self) -> bool:
        return True

    def attach(self, conversation: LocalConversation) -> None:
        """Read the whole branch and the tools of this conversation from now on.

        The view alone lacks the turns already cut away, whose numbers must not change.
        """
        self._events = conversation.state.active_branch
        self._tools = lambda: conversation.agent.tools_map.values()

    def condense(self, view: View, agent_llm: LLM | None = None) -> View | Condensation:
        """The view as it is, or with clipped turns; or the next cut, which the SDK logs before it asks again.

        :raises CompactionError: the condenser is not attached, or no cut brings the prompt within its limits.
        """
        if self._events is None or self._tools is None:
            raise CompactionError(
                "the condenser does not know its conversation: call compaction.openhands.attach(conversation) first"
            )
        branch = read_branch(self._events())
        history = self._history(branch, view, agent_llm)
        tools = [tool.to_openai_tool(add_security_risk_prediction=True) for tool in self._tools()]
        strategy = CliffCompaction(_cliff_spec(self.spec), self._counter, self._counter.tools(tools))
        before = CliffState(cuts=branch.cuts, seen=len(history.turns))
        context, after = strategy.step(
            history, before, force=view.unhandled_condensation_request, boundaries=_boundaries(branch, view)
        )
        if after.cuts == before.cuts:
            return _shown(branch, view, history, context)
        cut = after.cuts[-1]
        if self._on_compaction is not None:
            self._on_compaction(cut.at, cut.tokens_before, cut.tokens_after)
        return _condensation(branch, view, context, cut)

    def _history(self, branch: Branch, view: View, llm: LLM | None) -> History:
        visible = {event.id for event in view.events}
        live = branch.cuts[-1].first if branch.cuts else 0
        sizes = _prompt_sizes(llm)
        turns: list[Turn] = []
        for step, group in enumerate(branch.groups):
            # The SDK may drop a half-finished or doubled event from the view; then it is not sent.
            shown = tuple(e for e in group if step < live or e.id in visible)
            key = (llm.model if llm is not None else "", step, tuple(event.id for event in shown))
            turn = self._turns.get(key)
            if turn is None:
                turn = self._turns[key] = read_turn(step, shown, llm)
            turns.append(turn.model_copy(update={"prompt_tokens": sizes.get(response_id(group))}))
        return History(head=to_history(wire(branch.head, llm)).head, turns=tuple(turns))


def make_condenser(
    spec: str, *, context_tokens: int, on_compaction: OnCompaction | None = None
) -> CliffCondenser | None:
    """The condenser for a strategy; None for ``none``.

    :param context_tokens: the model's window.
    :raises CompactionError: the strategy cannot be read, or its budget exceeds the window.
    """
    parsed = parse_spec(spec)
    if isinstance(parsed, NoneSpec):
        return None
    if parsed.budget_tokens > context_tokens:
        raise CompactionError(
            f"the budget of {parsed} exceeds the model's window of {context_tokens} tokens: choose a smaller one"
        )
    condenser = CliffCondenser(spec=str(parsed))
    condenser._on_compaction = on_compaction
    return condenser


def attach(conversation: LocalConversation, on_compaction: OnCompaction | None = None) -> None:
    """Give the conversation's condenser, if it is one of ours, its conversation. Call it after every (re)opening.

    :param on_compaction: whom to tell of cuts; for a condenser that was read back from the log, and so has nobody.
    """
    condenser = conversation.agent.condenser
    if isinstance(condenser, CliffCondenser):
        condenser.attach(conversation)
        if on_compaction is not None:
            condenser._on_compaction = on_compaction


def _cliff_spec(text: str) -> CliffSpec:
    spec = parse_spec(text)
    if not isinstance(spec, CliffSpec):
        raise CompactionError(f"strategy {text!r} needs no condenser: leave the agent's condenser out")
    return spec


def _prompt_sizes(llm: LLM | None) -> dict[str | None, int]:
    """Prompt tokens by response id. An id that stands for two different sizes says nothing."""
    sizes: dict[str | None, int] = {}
    doubtful: set[str | None] = {None, ""}
    for usage in llm.metrics.token_usages if llm is not None else ():
        if sizes.setdefault(usage.response_id, usage.prompt_tokens) != usage.prompt_tokens:
            doubtful.add(usage.response_id)
    return {key: size for key, size in sizes.items() if key not in doubtful}


def _boundaries(branch: Branch, view: View) -> set[int]:
    """Steps before which the SDK allows a cut."""
    position = {event.id: index for index, event in enumerate(view.events)}
    allowed = view.manipulation_indices
    return {step for step, group in enumerate(branch.groups) if group and position.get(group[0].id, -1) in allowed}


def _shown(branch: Branch, view: View, history: History, context: Context) -> View:
    """The view with the context's clipped turns in place of the whole ones."""
    clipped: dict[str, LLMConvertibleEvent] = {}
    for turn in context.turns:
        if turn != history.turns[turn.step]:
            clipped.update((event.id, event) for event in write_clipped(branch.groups[turn.step], turn))
    if not clipped:
        return view
    return View(events=[clipped.get(event.id, event) for event in view.events])


def _condensation(branch: Branch, view: View, context: Context, cut: Cut) -> Condensation:
    """The log entry of a cut: everything before its first kept step goes, the previous block too."""
    gone = {event.id for group in branch.groups[: cut.first] for event in group}
    forgotten = {e.id for e in view.events if e.id in gone or isinstance(e, CondensationSummaryEvent)}
    head = {event.id for event in branch.head}
    return Condensation(
        forgotten_event_ids=forgotten,
        summary=context.block.text if context.block is not None else None,
        summary_offset=sum(event.id in head for event in view.events) if context.block is not None else None,
        llm_response_id=cut_id(cut),
    )
