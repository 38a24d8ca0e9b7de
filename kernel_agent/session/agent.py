"""The OpenHands conversation of a session: how it is built, resumed, kept going and ended."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, Literal

from openai import OpenAIError
from openhands.sdk import LLM, Agent, LocalConversation, Message, TextContent, Tool
from openhands.sdk.conversation.exceptions import ConversationRunError
from openhands.sdk.conversation.state import ConversationExecutionStatus
from openhands.sdk.event import ActionEvent, Event, MessageEvent, ObservationBaseEvent
from openhands.sdk.llm.exceptions import LLMError
from openhands.tools.terminal import TerminalTool
from pydantic import SecretStr

from compaction.openhands import attach, make_condenser
from kernel_agent.session import protocol
from kernel_agent.session.protocol import Ended, EngineClient, SessionConfig
from kernel_agent.session.tools import EVALUATE, HISTORY, ConfinedFileEditorTool, register_session_tools
from kernel_agent.session.workspace import Snapshots, write_shell

MAX_SILENT_REPLIES = 3
NUDGE = "Go on: reply with a tool call. The work ends when the budget does."
ITERATIONS = 1_000_000
"""The gateway counts and caps steps; the SDK's own counter restarts with each run and counts compactions."""
NAMESPACE = uuid.UUID("5b0e9a53-8f0e-4d62-9c55-0f6a3f4f7c1e")
SHELL_TIMEOUT_SECONDS = 60


class SessionConversation:
    """One conversation, new or resumed."""

    def __init__(self, engine: EngineClient, config: SessionConfig) -> None:
        self._engine, self._config = engine, config
        state = Path(config.state_dir)
        self._snapshots = Snapshots(state / "snapshots.git", Path(config.workspace))
        shell = state / "shell"
        write_shell(shell, config.jail_level, config.workspace, config.threads)
        register_session_tools(engine, config.workspace)
        condenser = make_condenser(
            config.compaction, context_tokens=config.context_tokens, on_compaction=self._compacted
        )
        agent = Agent(
            llm=self._llm(),
            tools=[
                Tool(
                    name=TerminalTool.name,
                    params={
                        "terminal_type": "subprocess",
                        "shell_path": str(shell),
                        "no_change_timeout_seconds": SHELL_TIMEOUT_SECONDS,
                    },
                ),
                Tool(name=ConfinedFileEditorTool.name),
                Tool(name=EVALUATE),
                Tool(name=HISTORY),
            ],
            system_prompt=config.system_prompt,
            condenser=condenser,
            include_default_tools=[],
        )
        # Any: a decorator of the SDK's hides the signatures of its methods.
        self._conversation: Any = LocalConversation(
            agent=agent,
            workspace=config.workspace,
            persistence_dir=str(state / "conversation"),
            conversation_id=uuid.uuid5(NAMESPACE, config.session_id),
            callbacks=[self._on_event],
            max_iteration_per_run=ITERATIONS,
            stuck_detection=False,
            visualizer=None,
            delete_on_close=False,
        )
        attach(self._conversation)

    def _llm(self) -> LLM:
        c = self._config
        return LLM(
            model=f"openai/{c.model}",
            base_url=c.base_url,
            api_key=SecretStr("held-by-the-gateway"),
            usage_id="agent",
            extra_headers={"X-Kernel-Agent-Call": "agent"},
            reasoning_effort=None,
            max_input_tokens=c.context_tokens,
            max_output_tokens=c.max_output_tokens,
            input_cost_per_token=0.0,
            output_cost_per_token=0.0,
            log_completions=False,
            num_retries=c.call_attempts,
        )

    # -- running ------------------------------------------------------------------------------------------------

    def run(self) -> Ended:
        """Until the gateway refuses the next call, the model stops calling tools, or something fails."""
        self._restore_workspace()
        if not any(isinstance(e, MessageEvent) and e.source == "user" for e in self._branch()):
            self._say(self._config.task)
        silent = 0
        while silent < MAX_SILENT_REPLIES:
            actions = self._count_actions()
            try:
                self._conversation.run()
            except ConversationRunError as error:
                cause = error.original_exception
                why: Literal["no_answer", "error"] = "no_answer" if _is_call_error(cause) else "error"
                return Ended(why=why, detail=f"{type(cause).__name__}: {cause}")
            if self._conversation.state.execution_status is not ConversationExecutionStatus.FINISHED:
                return Ended(
                    why="error", detail=f"the conversation stopped as {self._conversation.state.execution_status}"
                )
            silent = 1 if self._count_actions() > actions else silent + 1
            self._say(NUDGE)
        return Ended(why="stalled", detail=f"{MAX_SILENT_REPLIES} replies in a row called no tool")

    def _say(self, text: str) -> None:
        message = Message(role="user", content=[TextContent(text=text)])
        self._conversation.send_message(message)

    def close(self) -> None:
        self._conversation.close()

    # -- the log ------------------------------------------------------------------------------------------------

    def _branch(self) -> list[Event]:
        return list(self._conversation.state.active_branch())

    def _count_actions(self) -> int:
        return sum(isinstance(e, ActionEvent) for e in self._branch())

    def _on_event(self, event: Event) -> None:
        """After each result the workspace is kept under the result's event id. The event itself is on disk by then."""
        if isinstance(event, ObservationBaseEvent):
            self._snapshots.take(event.id)

    def _restore_workspace(self) -> None:
        """Put the workspace back to the end of the last complete step.

        A result without a snapshot is the newest thing that happened: the process died before it could do more, and
        the workspace is already what it must be.
        """
        results = [e for e in self._branch() if isinstance(e, ObservationBaseEvent)]
        if results and self._snapshots.has(results[-1].id):
            self._snapshots.restore(results[-1].id)
        elif not results and self._snapshots.has("start"):
            self._snapshots.restore("start")
        elif not results:
            self._snapshots.take("start")

    def _compacted(self, from_step: int, tokens_before: int, tokens_after: int) -> None:
        request = protocol.Compacted(from_step=from_step, tokens_before=tokens_before, tokens_after=tokens_after)
        self._engine.ask(request)


def _is_call_error(error: BaseException) -> bool:
    """Whether a model call failed, by the base class that all of LiteLLM's and the SDK's such errors share."""
    return isinstance(error, (OpenAIError, LLMError))
