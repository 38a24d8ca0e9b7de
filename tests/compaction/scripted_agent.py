"""A real conversation with one small tool, driven to a number of steps; also runs as a program, to be killed."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from openhands.sdk import LLM, Agent, LocalConversation, Tool
from openhands.sdk.llm import TextContent
from openhands.sdk.tool import Action, Observation, ToolDefinition, ToolExecutor, register_tool

from compaction.openhands import attach, make_condenser
from compaction.openhands_events import read_branch

SYSTEM = "You are an engineer who makes kernels fast. Keep at it until you are told to stop.\n" * 4
TASK = "Make the matrix product in /workspace/kernel.py faster.\nRules: every figure is measured; never guess."
NUDGE = "Go on, and prefer vector loads."


class InspectAction(Action):
    path: str
    size: int
    body: str = ""


class InspectObservation(Observation):
    pass


class InspectExecutor(ToolExecutor[InspectAction, InspectObservation]):
    def __call__(self, action: InspectAction, conversation: object = None) -> InspectObservation:  # noqa: ARG002
        line = f"{action.path}: row of figures 0.25 0.50 0.75 for tile {action.size}\n"
        text = (line * (action.size // len(line) + 1))[: action.size]
        return InspectObservation(content=[TextContent(text=text)])


class InspectTool(ToolDefinition[InspectAction, InspectObservation]):
    name = "inspect"

    @classmethod
    def create(cls, conv_state: object = None, **_: object) -> Sequence[InspectTool]:  # noqa: ARG003
        return [
            cls(
                description="Look at a file.",
                action_type=InspectAction,
                observation_type=InspectObservation,
                executor=InspectExecutor(),
            )
        ]


def open_conversation(
    url: str, folder: Path, spec: str, on_compaction: Callable[[int, int, int], None] | None = None
) -> LocalConversation:
    register_tool(InspectTool.name, InspectTool)
    llm = LLM(
        model="openai/scripted", base_url=url, api_key="none", num_retries=1, reasoning_effort=None, usage_id="agent"
    )
    agent = Agent(
        llm=llm,
        tools=[Tool(name=InspectTool.name)],
        system_prompt=SYSTEM,
        include_default_tools=[],
        condenser=make_condenser(spec, context_tokens=200_000, on_compaction=on_compaction),
    )
    conversation = LocalConversation(
        agent=agent,
        workspace=folder / "workspace",
        persistence_dir=folder / "log",
        conversation_id=uuid.UUID(int=7),
        stuck_detection=False,
        visualizer=None,
        delete_on_close=False,
    )
    attach(conversation)
    return conversation


def drive(conversation: LocalConversation, steps: int) -> None:
    """Run to ``steps`` answered calls; a plain answer on the way is met by a nudge from the user."""
    if not read_branch(conversation.state.active_branch()).head:
        conversation.send_message(TASK)  # type: ignore[arg-type]
    while True:
        conversation.run()
        if len(read_branch(conversation.state.active_branch()).groups) >= steps:
            return
        conversation.send_message(NUDGE)


def main() -> None:
    url, folder, spec, steps, die_at = sys.argv[1:]

    def die_once(from_step: int, _before: int, _after: int) -> None:
        """Killed after a cut was decided and before it was logged."""
        mark = Path(folder) / "died"
        if from_step >= int(die_at) and not mark.exists():
            mark.write_text(str(from_step))
            os.kill(os.getpid(), signal.SIGKILL)

    drive(open_conversation(url, Path(folder), spec, die_once), int(steps))


if __name__ == "__main__":
    main()
