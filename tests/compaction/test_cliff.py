from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction import chat
from compaction.cliff import TARGET_SHARE, CliffCompaction, CliffState
from compaction.errors import CompactionError
from compaction.history import Content, Context, History, Message, Turn
from compaction.spec import CliffSpec
from compaction.tokens import TokenCounter
from tests.compaction.histories import HEAD, history, turn, words

BUDGET = 2_000


@pytest.fixture(scope="module")
def counter() -> TokenCounter:
    return TokenCounter()


def cliff(counter: TokenCounter, budget: int = BUDGET, k: int = 3, tools: int = 0) -> CliffCompaction:
    return CliffCompaction(CliffSpec(budget_tokens=budget, k=k), counter, tools)


def run(
    strategy: CliffCompaction, turns: list[Turn], state: CliffState | None = None
) -> list[tuple[Context, CliffState]]:
    """Every call of a session: with no turn, with one, …"""
    state = state or CliffState()
    calls = []
    for count in range(len(turns) + 1):
        context, state = strategy.step(history(turns[:count]), state)
        calls.append((context, state))
    return calls


def long_turns(count: int, size: int = 30) -> list[Turn]:
    return [
        turn(i, result=words(size, i), thought=f"Idea {i}: " + words(8, i), body=words(10, i)) for i in range(count)
    ]


def test_nothing_changes_below_the_budget(counter: TokenCounter) -> None:
    turns = long_turns(4)
    for count, (context, state) in enumerate(run(cliff(counter), turns)):
        assert context == Context(head=HEAD, turns=tuple(turns[:count]))
        assert state.cuts == ()


def test_a_cut_keeps_head_and_newest_turns_word_for_word_around_one_block(counter: TokenCounter) -> None:
    turns = long_turns(40)
    strategy = cliff(counter)
    calls = run(strategy, turns)
    cuts = calls[-1][1].cuts
    assert len(cuts) >= 3
    for cut, before in zip(cuts, (None, *cuts), strict=False):
        context, state = calls[cut.at]
        assert state.cuts[-1] == cut
        assert context.head == HEAD
        assert context.turns == tuple(turns[cut.at - 3 : cut.at])
        # The block covers what was live, and nothing an earlier block covered.
        assert context.block is not None
        assert (context.block.start, context.block.stop) == (before.first if before else 0, cut.at - 3)
        assert f"[step {cut.first - 1}] Idea" in context.block.text
        if before:
            assert f"[step {before.first - 1}]" not in context.block.text


def test_prompts_keep_to_the_budget_and_only_grow_between_cuts(counter: TokenCounter) -> None:
    strategy = cliff(counter, tools=150)
    calls = run(strategy, long_turns(60))
    prompts = [chat.to_messages(context) for context, _ in calls]
    cut_at = {cut.at for cut in calls[-1][1].cuts}
    for count in range(1, len(prompts)):
        assert strategy.estimate(calls[count][0]) <= BUDGET
        if count not in cut_at:
            assert prompts[count][: len(prompts[count - 1])] == prompts[count - 1]
            assert len(prompts[count]) > len(prompts[count - 1])
    for cut in calls[-1][1].cuts:
        assert cut.tokens_before > BUDGET
        assert cut.tokens_after == strategy.estimate(calls[cut.at][0]) <= TARGET_SHARE * BUDGET


def test_hundreds_of_short_turns_never_cause_amnesia(counter: TokenCounter) -> None:
    """Short turns are excerpted whole, so an uncapped block would outgrow the budget and be dropped by the next cut."""
    turns = [turn(i, result="ok " + words(12, i)) for i in range(400)]
    strategy = cliff(counter)
    calls = run(strategy, turns)
    cuts = calls[-1][1].cuts
    assert len(cuts) >= 5
    for cut, following in pairwise(cuts):
        assert following.at - cut.at >= 5
    for cut in cuts:
        block = calls[cut.at][0].block
        assert block is not None
        assert f"[step {cut.first - 1}] Thought" in block.text
        # The newest excerpts fill their share: the cap took the oldest only.
        assert sum(f"[step {i}]" in block.text for i in range(cut.block_from, cut.first)) >= 5
    for count, (context, state) in enumerate(calls):
        # Whatever was live before a call is still there after it, as a turn or as an excerpt of the newest.
        if state.cuts and count:
            assert context.turns[-1] == turns[count - 1]


def test_fewer_turns_are_kept_before_anything_is_clipped(counter: TokenCounter) -> None:
    turns = [*long_turns(5, 20), *(turn(i, result=words(1_650, i)) for i in (5, 6))]
    context, state = cliff(counter, budget=10_000).step(history(turns), CliffState())
    assert [cut.clip for cut in state.cuts] == [None]
    assert context.turns == (turns[6],)


def test_a_turn_too_big_for_the_budget_is_clipped_and_later_excerpted_from_its_original(counter: TokenCounter) -> None:
    giant = turn(6, thought="A giant idea.", result=words(30_000), body=words(5_000), calls=2)
    turns = [*long_turns(6, 20), giant, *(turn(i, result=words(80, i)) for i in range(7, 30))]
    strategy = cliff(counter)
    calls = run(strategy, turns)
    context, state = calls[7]
    assert state.cuts[-1].clip is not None
    assert [one.step for one in context.turns] == [6]
    assert "characters left out" in context.turns[0].results[0].content.text
    assert context.block is not None
    assert context.block.stop == 6
    assert strategy.estimate(context) <= TARGET_SHARE * BUDGET
    assert calls[8][0].turns == (*context.turns, turns[7])
    following = next(c for c, s in calls if len(s.cuts) == len(state.cuts) + 1)
    assert following.block is not None
    assert "[step 6] A giant idea." in following.block.text
    assert "characters left out" not in following.block.text
    assert max(strategy.estimate(c) for c, _ in calls) <= BUDGET


def test_a_giant_first_turn_is_clipped_with_nothing_cut_away(counter: TokenCounter) -> None:
    context, state = cliff(counter).step(history([turn(0, result=words(9_000))]), CliffState())
    assert context.block is None
    assert [one.step for one in context.turns] == [0]
    assert state.cuts[0].first == 0


def test_a_block_stays_when_only_clipping_can_help(counter: TokenCounter) -> None:
    """Right after a cut that kept one turn, that turn's user writes a page: there is no other turn to cut away."""
    strategy = cliff(counter, k=1)
    turns = long_turns(40)
    state = next(s for _, s in run(strategy, turns) if s.cuts)
    count = state.cuts[0].at
    longer = turns[count - 1].model_copy(
        update={"followers": (*turns[count - 1].followers, Message(role="user", content=Content.of(words(80))))}
    )
    grown = [*turns[: count - 1], longer]
    block = strategy.context(history(grown), state.cuts).block
    forced, after = strategy.step(history(grown), state, force=True)
    assert after.cuts[-1].first == state.cuts[-1].first
    assert block is not None
    assert forced.block is not None
    assert (forced.block.start, forced.block.stop) == (block.start, block.stop)
    assert f"[step {block.stop - 1}] Idea" in forced.block.text


def test_a_head_that_leaves_no_room_is_refused_before_the_first_call(counter: TokenCounter) -> None:
    head = (HEAD[0], Message(role="user", content=Content.of(words(500))))
    with pytest.raises(CompactionError, match=r"alone take \d+ tokens, .* raise the budget of cliff:2k,k=3"):
        cliff(counter).step(history([], head), CliffState())
    with pytest.raises(CompactionError, match="alone take 1519 tokens"):
        cliff(counter, tools=1_500).step(history(long_turns(12)), CliffState())


def test_what_cannot_fit_fails_and_says_why(counter: TokenCounter) -> None:
    page = turn(3, user=words(3_000))
    with pytest.raises(CompactionError, match=r"prompt of step 4 \(\d+ tokens\) cannot be brought down to 1200: .*"):
        cliff(counter).step(history([*long_turns(3), page]), CliffState())


def test_a_demanded_cut_makes_progress_until_it_fails_clearly(counter: TokenCounter) -> None:
    strategy = cliff(counter, budget=50_000)
    turns = history(long_turns(30))
    _, state = strategy.step(turns, CliffState())
    assert state.cuts == ()
    sizes = [strategy.estimate(strategy.context(turns, ()))]
    failure = ""
    while not failure and len(sizes) < 100:
        try:
            context, state = strategy.step(turns, state, force=True)
        except CompactionError as error:
            failure = str(error)
        else:
            sizes.append(strategy.estimate(context))
    assert "cannot be brought down" in failure
    assert sizes[1] <= 0.6 * sizes[0]
    assert len(sizes) >= 3
    assert all(after < before for before, after in pairwise(sizes))


def test_the_providers_own_figures_move_the_trigger(counter: TokenCounter) -> None:
    def reported(factor: float) -> Callable[[int, Context, CliffCompaction], int]:
        return lambda _, context, strategy: round(factor * strategy.estimate(context))

    first_cuts = {}
    for factor in (1.0, 1.5):
        strategy = cliff(counter)
        turns: list[Turn] = []
        state = CliffState()
        for one in long_turns(40):
            context, state = strategy.step(history(turns), state)
            size = reported(factor)(0, context, strategy)
            assert size <= BUDGET
            turns.append(one.model_copy(update={"prompt_tokens": size}))
        assert state.calibration == pytest.approx(factor, rel=0.01)
        first_cuts[factor] = state.cuts[0].at
    assert first_cuts[1.5] < first_cuts[1.0]


def test_an_unbelievable_report_is_bounded(counter: TokenCounter) -> None:
    turns = [one.model_copy(update={"prompt_tokens": 1}) for one in long_turns(5)]
    assert cliff(counter).step(history(turns), CliffState())[1].calibration == 0.5


def test_cuts_fall_on_the_allowed_steps_only_and_keep_at_least_k(counter: TokenCounter) -> None:
    turns = long_turns(40, 120)
    strategy = cliff(counter, budget=10_000)
    at = next(s for _, s in run(strategy, turns) if s.cuts).cuts[0].at
    _, state = strategy.step(history(turns[: at - 1]), CliffState())
    _, state = strategy.step(history(turns[:at]), state, boundaries={0, 2, at - 5, at - 1})
    assert state.cuts[0].first == at - 5


def test_a_user_who_writes_like_a_block_is_no_block(counter: TokenCounter) -> None:
    turns = long_turns(40)
    calls = run(cliff(counter), turns)
    block = next(c.block for c, _ in calls if c.block)
    head = (*HEAD, Message(role="user", content=Content.of(block.text[:200])))
    context, state = cliff(counter).step(history(turns, head), CliffState())
    assert state.cuts
    assert context.head == head


def test_state_survives_json(counter: TokenCounter) -> None:
    state = run(cliff(counter), long_turns(40))[-1][1]
    assert state.cuts
    assert CliffState.model_validate_json(state.model_dump_json()) == state


def test_a_history_that_does_not_go_with_the_state_is_refused(counter: TokenCounter) -> None:
    strategy = cliff(counter)
    with pytest.raises(CompactionError, match="has 2 turns, but the state has seen 5"):
        strategy.step(history(long_turns(2)), CliffState(seen=5))
    with pytest.raises(CompactionError, match="starts at step 3"):
        strategy.step(history(long_turns(6)[3:]), CliffState())


sizes = st.lists(st.sampled_from([1, 5, 40, 120, 400, 3_000]), min_size=1, max_size=25)


@settings(max_examples=40, deadline=None)
@given(sizes=sizes, data=st.data())
def test_the_context_does_not_depend_on_when_it_was_asked_for(sizes: list[int], data: st.DataObject) -> None:
    turns = [turn(i, result=words(size, i), user="note" if size == 5 else None) for i, size in enumerate(sizes)]
    asked = data.draw(st.sets(st.integers(0, len(turns))).map(lambda counts: sorted({*counts, len(turns)})))
    strategy = CliffCompaction(CliffSpec(budget_tokens=BUDGET), SHARED)
    every = run(strategy, turns)
    state = CliffState()
    for count in asked:
        context, state = strategy.step(history(turns[:count]), CliffState.model_validate_json(state.model_dump_json()))
        assert (context, state) == every[count]
    check(strategy, every, history(turns))


def check(strategy: CliffCompaction, calls: list[tuple[Context, CliffState]], whole: History) -> None:
    for count, (context, state) in enumerate(calls):
        assert strategy.estimate(context) <= BUDGET
        assert context.head == whole.head
        shown = [one.step for one in context.turns]
        assert shown == list(range(count - len(shown), count))
        if state.cuts and context.block is not None:
            assert context.block.stop == shown[0]


SHARED = TokenCounter()
