"""CliffCompaction: grow untouched up to the budget, then rebuild once as head, one block of excerpts, newest turns.

The strategy is a reducer, ``step(history, state) -> (context, state)``. It weighs every prefix of the history since
the last call, so the context depends on the turns alone, never on which prefixes it happened to be shown. Excerpts are
always made of the original turns; a block is never excerpted again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from pydantic import Field

from compaction import chat
from compaction.clip import clip_turn
from compaction.errors import CompactionError
from compaction.excerpt import Entry, build_block, turn_entries
from compaction.history import Block, Context, Frozen, History, Turn
from compaction.spec import CliffSpec
from compaction.tokens import TokenCounter

TARGET_SHARE = 0.6
"""A rebuilt prompt takes at most this share of the budget: a cut must buy room for many turns."""
BLOCK_SHARE = 0.5
"""Share of what the head leaves of that target which the block may demand before fewer turns are kept; it takes more
where the kept turns leave more, and less only when all else failed."""
FORCED_SHARES = (0.6, 0.95)
"""Shares of the present prompt aimed at when a cut is demanded: a good cut, else any that makes progress."""
CLIP_LADDER = (32_000, 16_000, 8_000, 4_000, 2_000, 1_000, 500, 250)
"""Characters a text inside a kept turn may have, tried in this order once keeping fewer turns did not help."""
CALIBRATION_RANGE = (0.5, 4.0)
"""Believable ratios of a provider's count to ours."""


class Cut(Frozen):
    """One compaction; with the turns, it says all about the context it made."""

    at: int = Field(ge=0)
    """Turns there were: the step that first saw the rebuilt prompt."""
    block_from: int = Field(ge=0)
    """First step the block excerpts."""
    first: int = Field(ge=0)
    """First step kept word for word; the block ends before it."""
    left_out: int = Field(0, ge=0)
    """Lines of the block that its cap left out."""
    clip: int | None = None
    """Characters allowed to a text inside the turns kept at this cut; None: they are whole."""
    tokens_before: int = 0
    tokens_after: int = 0


class CliffState(Frozen):
    """All that ``step`` remembers. It serialises as JSON."""

    cuts: tuple[Cut, ...] = ()
    seen: int = Field(0, ge=0)
    """Turns already weighed."""
    calibration: float = 1.0
    """Tokens the provider last reported for one of ours."""


class CliffCompaction:
    """The strategy for one conversation's model and tools. Holds no state but a cache of token counts."""

    def __init__(self, spec: CliffSpec, counter: TokenCounter, tool_tokens: int = 0) -> None:
        """``tool_tokens``: what the tool schemas take of every prompt, by the same counter."""
        self._spec = spec
        self._counter = counter
        self._tool_tokens = tool_tokens

    def step(
        self, history: History, state: CliffState, *, force: bool = False, boundaries: Collection[int] | None = None
    ) -> tuple[Context, CliffState]:
        """The context for the next call.

        :param history: the whole conversation, from step 0.
        :param force: cut now although the estimate is within the budget (the provider refused the prompt).
        :param boundaries: steps before which the newest prefix may be cut; None: before any.
        :raises CompactionError: the head leaves too little room, not even the shortest context fits, or the history
            does not go with the state.
        """
        count = len(history.turns)
        if count and history.turns[0].step != 0:
            raise CompactionError(
                f"the history starts at step {history.turns[0].step}: give the whole one, from step 0"
            )
        if state.seen > count:
            raise CompactionError(
                f"the history has {count} turns, but the state has seen {state.seen}: they do not match"
            )
        for turns in range(state.seen, count + 1):
            newest = turns == count
            prefix = history if newest else history.model_copy(update={"turns": history.turns[:turns]})
            state = self._weigh(prefix, state, force and newest, boundaries if newest else None)
        return self.context(history, state.cuts), state

    def context(self, history: History, cuts: Sequence[Cut]) -> Context:
        """The history as the newest of the cuts leaves it."""
        if not cuts:
            return Context(head=history.head, turns=history.turns)
        cut = cuts[-1]
        turns = history.turns[cut.first :]
        if cut.clip is not None:
            turns = tuple(clip_turn(turn, cut.clip) if turn.step < cut.at else turn for turn in turns)
        excerpted = history.turns[cut.block_from : cut.first]
        block = build_block(excerpted, self._entries(excerpted), cut.left_out) if excerpted else None
        return Context(head=history.head, block=block, turns=turns)

    def estimate(self, context: Context) -> int:
        """Tokens of the prompt by our own count, tools included."""
        return self._tool_tokens + self._counter.messages(chat.to_messages(context))

    def calibration(self, history: History, cuts: Sequence[Cut]) -> float:
        """The provider's count of the last prompt it reported, over ours of the same prompt; 1 without a report."""
        for turn in reversed(history.turns):
            if turn.prompt_tokens:
                prompt = history.model_copy(update={"turns": history.turns[: turn.step]})
                ours = self.estimate(self.context(prompt, [cut for cut in cuts if cut.at <= turn.step]))
                low, high = CALIBRATION_RANGE
                return min(max(turn.prompt_tokens / max(ours, 1), low), high)
        return 1.0

    def _weigh(
        self, history: History, state: CliffState, force: bool, boundaries: Collection[int] | None
    ) -> CliffState:
        factor = self.calibration(history, state.cuts)
        before = factor * self.estimate(self.context(history, state.cuts))
        cuts = state.cuts
        if not history.turns and before > TARGET_SHARE * self._spec.budget_tokens:
            # Said at once: the first cut would fail, after the money for everything before it is spent.
            raise CompactionError(
                f"system prompt, task and tools alone take {math.ceil(before)} tokens, and a cut must come down to "
                f"{int(TARGET_SHARE * self._spec.budget_tokens)}: raise the budget of {self._spec} or shorten the task"
            )
        if force or before > self._spec.budget_tokens:
            cuts = (*cuts, self._cut(history, cuts, before, factor, force, boundaries))
        return CliffState(cuts=cuts, seen=len(history.turns), calibration=factor)

    def _cut(
        self,
        history: History,
        cuts: Sequence[Cut],
        before: float,
        factor: float,
        force: bool,
        boundaries: Collection[int] | None,
    ) -> Cut:
        """The first rung of the ladder that fits.

        Keep K turns, then fewer; then only the newest, with ever shorter texts; then a smaller block beside it.
        """
        count = len(history.turns)
        live = cuts[-1].first if cuts else 0
        carried_from = cuts[-1].block_from if cuts else 0
        allowed = [i for i in range(live + 1, count) if boundaries is None or i in boundaries]
        last = allowed[-1] if allowed else live
        rungs: list[tuple[int, int | None, float]] = [
            *((first, None, BLOCK_SHARE) for first in _starts(allowed, count - self._spec.k)),
            *((last, clip, BLOCK_SHARE) for clip in CLIP_LADDER),
            (last, CLIP_LADDER[-1], 0.0),
        ]
        budget = self._spec.budget_tokens
        if force:
            targets = [share * min(budget, before) for share in FORCED_SHARES]
            targets[0] = min(targets[0], TARGET_SHARE * budget)
        else:
            targets = [TARGET_SHARE * budget]
        for target in targets:
            for first, clip, share in rungs:
                # With no turn to cut away, the turns before the live ones keep their block: it is made anew
                # from the originals.
                plan = Cut(
                    at=count, block_from=live if first > live else carried_from, first=first, clip=clip,
                    tokens_before=math.ceil(before),
                )  # fmt: skip
                fitted = self._fit(history, plan, target / factor, share)
                if fitted is not None:
                    after = math.ceil(factor * self.estimate(self.context(history, [fitted])))
                    return fitted.model_copy(update={"tokens_after": after})
        head = math.ceil(factor * self.estimate(Context(head=history.head)))
        raise CompactionError(
            f"the prompt of step {count} ({math.ceil(before)} tokens) cannot be brought down to {int(targets[-1])}: "
            f"system prompt, task and tools alone take {head}, and the newest turn does not fit beside them even with "
            f"every text clipped to {CLIP_LADDER[-1]} characters; raise the budget of {self._spec} or shorten the task"
        )

    def _fit(self, history: History, plan: Cut, target: float, share: float) -> Cut | None:
        """The plan with as much of its block as fits under ``target`` of our tokens.

        None when the block can have less than its ``share`` of what the head leaves.
        """
        kept = self.context(history, [plan]).model_copy(update={"block": None})
        room = target - self.estimate(kept)
        excerpted = history.turns[plan.block_from : plan.first]
        if room < 0 or not excerpted:
            return plan if room >= 0 else None
        entries = self._entries(excerpted)
        due = share * (target - self.estimate(Context(head=history.head)))
        demanded = self._left_out(excerpted, entries, due)
        if self._block_tokens(build_block(excerpted, entries, demanded)) > room:
            return None
        return plan.model_copy(update={"left_out": self._left_out(excerpted, entries, room)})

    def _left_out(self, turns: Sequence[Turn], entries: Sequence[Entry], cap: float) -> int:
        """The fewest lines to leave out for the block to keep its cap; all of them when even that is too long."""
        low, high, middle = 0, len(entries), 0
        while low < high:
            if self._block_tokens(build_block(turns, entries, middle)) <= cap:
                high = middle
            else:
                low = middle + 1
            middle = (low + high) // 2
        return low

    def _block_tokens(self, block: Block) -> int:
        return self._counter.message(chat.write_block(block))

    def _entries(self, turns: Sequence[Turn]) -> list[Entry]:
        return [entry for turn in turns for entry in turn_entries(turn, self._spec.thought, self._spec.result)]


def _starts(allowed: Sequence[int], wanted: int) -> list[int]:
    """Where the kept turns may start: the latest place that keeps at least K of them, then ever later ones."""
    enough = [i for i in allowed if i <= wanted]
    return enough[-1:] + [i for i in allowed if i > wanted]
