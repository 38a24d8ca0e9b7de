"""The agent's tools beside the shell: submit a kernel, look at history, edit files inside the workspace only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

from openhands.sdk.conversation.impl.local_conversation import LocalConversation
from openhands.sdk.event import ActionEvent
from openhands.sdk.llm import ImageContent, TextContent
from openhands.sdk.tool import Action, Observation, ToolAnnotations, ToolDefinition, ToolExecutor, register_tool
from openhands.tools.file_editor.definition import FileEditorAction, FileEditorObservation, FileEditorTool
from openhands.tools.file_editor.impl import FileEditorExecutor
from pydantic import Field

from kernel_agent.session import protocol
from kernel_agent.session.protocol import EngineClient
from kernel_agent.session.workspace import INSIDE, WorkspaceError, read_source

EVALUATE = "evaluate_kernel"
HISTORY = "history"


class EvaluateAction(Action):
    path: str = Field(description="Path of the candidate's file under /workspace; it defines class ModelNew.")
    hypothesis: str = Field(
        description="One sentence: what you changed and why it should be faster (or right). It is kept with the result."
    )


class HistoryAction(Action):
    query: str = Field(
        description="One of: best | top [N] | failed [N] | tried [N] | show ID | diff A B. IDs are numbers of attempts."
    )


class TextObservation(Observation):
    """Plain text for the model."""

    @property
    def to_llm_content(self) -> Sequence[TextContent | ImageContent]:
        return self.content


class EvaluateExecutor(ToolExecutor[EvaluateAction, TextObservation]):
    """Reads the file as it is now and asks the engine. The verdict is stored before it is returned."""

    def __init__(self, engine: EngineClient, workspace: str) -> None:
        self._engine, self._workspace = engine, workspace

    def __call__(self, action: EvaluateAction, conversation: LocalConversation | None = None) -> TextObservation:
        try:
            source = read_source(self._workspace, action.path)
        except WorkspaceError as error:
            return TextObservation.from_text(f"not evaluated: {error}", is_error=True)
        request = protocol.Evaluate(
            tool_call_id=_tool_call_id(conversation, action), source=source, hypothesis=action.hypothesis
        )
        answer = self._engine.ask(request)
        return TextObservation.from_text(answer.text, is_error=answer.is_error)


class HistoryExecutor(ToolExecutor[HistoryAction, TextObservation]):
    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine

    def __call__(self, action: HistoryAction, conversation: LocalConversation | None = None) -> TextObservation:  # noqa: ARG002
        answer = self._engine.ask(protocol.History(query=action.query))
        return TextObservation.from_text(answer.text, is_error=answer.is_error)


class EvaluateKernelTool(ToolDefinition[EvaluateAction, TextObservation]):
    name: ClassVar[str] = EVALUATE

    @classmethod
    def create(cls, *_: Any, **__: Any) -> Sequence[EvaluateKernelTool]:
        raise TypeError("the session builds this tool with its engine: see register_session_tools")


class HistoryTool(ToolDefinition[HistoryAction, TextObservation]):
    name: ClassVar[str] = HISTORY

    @classmethod
    def create(cls, *_: Any, **__: Any) -> Sequence[HistoryTool]:
        raise TypeError("the session builds this tool with its engine: see register_session_tools")


class ConfinedEditor(ToolExecutor[FileEditorAction, FileEditorObservation]):
    """The SDK's editor, for paths inside the workspace. ``/workspace`` is accepted wherever the folder really lies."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self._editor = FileEditorExecutor(workspace_root=workspace)

    def __call__(
        self, action: FileEditorAction, conversation: LocalConversation | None = None
    ) -> FileEditorObservation:
        path = action.path
        if path == INSIDE or path.startswith(INSIDE + "/"):
            path = self._workspace + path[len(INSIDE) :]
        real = os.path.realpath(path)
        root = os.path.realpath(self._workspace)
        if real != root and not real.startswith(root + "/"):
            text = f"{action.path} lies outside {INSIDE}; only files inside it can be viewed or edited"
            return FileEditorObservation.from_text(text, command=action.command, is_error=True)
        if os.path.lexists(real) and not (os.path.isfile(real) or os.path.isdir(real)):
            text = f"{action.path} is no regular file"
            return FileEditorObservation.from_text(text, command=action.command, is_error=True)
        return self._editor(action.model_copy(update={"path": real}), conversation)


class ConfinedFileEditorTool(FileEditorTool):
    """The SDK's editor tool with the confined executor; its name stays ``file_editor``."""

    name: ClassVar[str] = FileEditorTool.name

    @classmethod
    def create(cls, conv_state: Any) -> Sequence[ConfinedFileEditorTool]:
        (tool,) = super().create(conv_state)
        assert isinstance(tool, cls)
        return [tool.model_copy(update={"executor": ConfinedEditor(str(conv_state.workspace.working_dir))})]


def register_session_tools(engine: EngineClient, workspace: str) -> None:
    """Make the tools known to the SDK, bound to this process's engine. Before a conversation is made or resumed."""
    annotations = ToolAnnotations(readOnlyHint=False, destructiveHint=False, idempotentHint=True, openWorldHint=False)
    register_tool(
        EVALUATE,
        EvaluateKernelTool(
            description=(
                "Build, check and time a candidate on the real device. Give the path of a file, not its source. Every "
                "timed output is checked on fresh inputs and fresh weights. Returns the verdict in a few lines; the "
                "candidate is kept, so never paste it again."
            ),
            action_type=EvaluateAction,
            observation_type=TextObservation,
            annotations=annotations,
            executor=EvaluateExecutor(engine, workspace),
        ),
    )
    register_tool(
        HISTORY,
        HistoryTool(
            description=(
                "Look up earlier attempts of this session: best, top, failed or tried ones, the source of one "
                "(show ID), or the difference of two (diff A B). Use it instead of memory."
            ),
            action_type=HistoryAction,
            observation_type=TextObservation,
            annotations=annotations,
            executor=HistoryExecutor(engine),
        ),
    )
    register_tool(ConfinedFileEditorTool.name, ConfinedFileEditorTool)


def _tool_call_id(conversation: LocalConversation | None, action: Action) -> str:
    """Id of the tool call that carries ``action``: with the step it identifies the attempt across a resume."""
    if conversation is not None:
        for event in reversed(conversation.state.active_branch()):
            if isinstance(event, ActionEvent) and event.action == action:
                return event.tool_call_id
    raise RuntimeError("an action was executed that is not in the conversation's log")
