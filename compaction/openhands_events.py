"""OpenHands events as turns: which events make which step, and what a clipped turn looks like as events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from openhands.sdk.event import ActionEvent, Condensation, Event, LLMConvertibleEvent, MessageEvent
from openhands.sdk.event.llm_convertible import ObservationBaseEvent
from openhands.sdk.llm import LLM, Message, TextContent
from pydantic import BaseModel, ConfigDict

from compaction import chat
from compaction.cliff import Cut
from compaction.history import Response, Turn

Events = tuple[LLMConvertibleEvent, ...]


class Branch(BaseModel):
    """The active branch of a conversation, cut into the head and one group of events a step."""

    model_config = ConfigDict(frozen=True)

    head: Events
    groups: tuple[Events, ...]
    cuts: tuple[Cut, ...]


class ClippedObservation(ObservationBaseEvent):
    """A tool's result as a clipped turn shows it. Lives in views only, never in the log."""

    text: str

    def to_llm_message(self) -> Message:
        return Message(
            role="tool", content=[TextContent(text=self.text)], name=self.tool_name, tool_call_id=self.tool_call_id
        )


def read_branch(events: Iterable[Event]) -> Branch:
    """Split a branch into head and steps, and read back the cuts made on it.

    A step starts with the first event of a response: a message of the assistant, or the first of its actions.
    """
    head: list[LLMConvertibleEvent] = []
    groups: list[list[LLMConvertibleEvent]] = []
    cuts: list[Cut] = []
    response_id: str | None = None
    for event in events:
        if isinstance(event, Condensation):
            cuts.append(_read_cut(event, groups, cuts))
        if not isinstance(event, LLMConvertibleEvent):
            continue
        if isinstance(event, ActionEvent):
            if response_id != event.llm_response_id:
                groups.append([])
            response_id = event.llm_response_id
        else:
            response_id = None
            if isinstance(event, MessageEvent) and event.llm_message.role == "assistant":
                groups.append([])
        (groups[-1] if groups else head).append(event)
    return Branch(head=tuple(head), groups=tuple(tuple(group) for group in groups), cuts=tuple(cuts))


def cut_id(cut: Cut) -> str:
    """The name under which a cut is logged; it holds what the events around it do not say."""
    tokens = f"{cut.tokens_before}-{cut.tokens_after}"
    return f"cliff-{cut.at}-{cut.block_from}-{cut.first}-{cut.left_out}-{cut.clip or 0}-{tokens}"


def response_id(group: Sequence[LLMConvertibleEvent]) -> str | None:
    """The provider's id of the response that made a step."""
    first = group[0] if group else None
    return first.llm_response_id if isinstance(first, ActionEvent | MessageEvent) else None


def wire(events: Sequence[LLMConvertibleEvent], llm: LLM | None) -> list[dict[str, Any]]:
    """The chat messages the SDK makes of the events for this model."""
    messages = LLMConvertibleEvent.events_to_messages(list(events))
    if llm is not None:
        formatted: list[dict[str, Any]] = llm.format_messages_for_llm(messages)
        return formatted
    return [
        message.to_chat_dict(
            cache_enabled=False,
            vision_enabled=False,
            function_calling_enabled=True,
            force_string_serializer=False,
            send_reasoning_content=True,
        )
        for message in messages
    ]


def read_turn(step: int, group: Sequence[LLMConvertibleEvent], llm: LLM | None) -> Turn:
    """One step's events as a turn; a step whose events were all dropped from the view is an empty turn."""
    turns = chat.to_history(wire(group, llm)).turns if group else ()
    return turns[0].model_copy(update={"step": step}) if turns else Turn(step=step, response=Response())


def write_clipped(group: Sequence[LLMConvertibleEvent], turn: Turn) -> Events:
    """The events with the texts of the clipped turn. Ids and pairings stay as they are."""
    arguments = {call.id: call.arguments for call in turn.response.calls}
    results = {result.call_id: result.content.text for result in turn.results}
    text, reasoning = turn.response.content.text, turn.response.reasoning
    written: list[LLMConvertibleEvent] = []
    for event in group:
        if isinstance(event, ActionEvent):
            written.append(_clip_action(event, arguments, text, reasoning))
        elif isinstance(event, ObservationBaseEvent) and event.tool_call_id in results:
            written.append(
                ClippedObservation(
                    id=event.id,
                    timestamp=event.timestamp,
                    source=event.source,
                    parent_id=event.parent_id,
                    tool_name=event.tool_name,
                    tool_call_id=event.tool_call_id,
                    text=results[event.tool_call_id],
                )
            )
        elif isinstance(event, MessageEvent) and event.llm_message.role == "assistant":
            message = event.llm_message.model_copy(update={"content": [TextContent(text=text)]})
            written.append(event.model_copy(update={"llm_message": message, "extended_content": []}))
        else:
            written.append(event)
    return tuple(written)


def _clip_action(
    event: ActionEvent, arguments: Mapping[str | None, str | None], text: str, reasoning: str | None
) -> ActionEvent:
    clipped = arguments.get(event.tool_call.id)
    update: dict[str, Any] = {}
    if clipped is not None:
        update["tool_call"] = event.tool_call.model_copy(update={"arguments": clipped})
    if event.thought:
        update["thought"] = [TextContent(text=text)]
    if event.reasoning_content and reasoning is not None:
        update["reasoning_content"] = reasoning
    return event.model_copy(update=update)


def _read_cut(event: Condensation, groups: Sequence[Sequence[LLMConvertibleEvent]], cuts: Sequence[Cut]) -> Cut:
    match = re.fullmatch(r"cliff-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)", event.llm_response_id)
    if match is not None:
        at, block_from, first, left_out, clip, before, after = (int(number) for number in match.groups())
        return Cut(
            at=at, block_from=block_from, first=first, left_out=left_out, clip=clip or None,
            tokens_before=before, tokens_after=after,
        )  # fmt: skip
    # Another condenser was at work before: what it left standing is live.
    live = cuts[-1].first if cuts else 0
    first = live
    while first < len(groups) and all(e.id in event.forgotten_event_ids for e in groups[first]):
        first += 1
    return Cut(at=len(groups), block_from=live, first=first)
