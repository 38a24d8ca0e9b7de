"""The offline demo: packaged recordings played against the real judge, gateway, store and jail."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_agent.campaign import LaunchRequest
from kernel_agent.errors import UsageError
from kernel_agent.gateway.recording import Recording, find_recordings
from kernel_agent.model import Budget, Frozen
from kernel_agent.plain_text import plain_line

MODEL = "replay:demo"
STEPS = 40


class Demo(Frozen):
    """What the demo will run."""

    request: LaunchRequest
    provenance: tuple[str, ...]
    """A line per recording: whose answers are played."""


def demo() -> Demo:
    """The campaign of the packaged recordings, with the compaction they were made under.

    Raises UsageError when the recordings are not installed or disagree about the compaction.
    """
    recordings = find_recordings(MODEL)
    strategies = {recording.header.strategy for recording in recordings.values()}
    if len(strategies) != 1:
        raise UsageError(
            f"the recordings of {MODEL} were made under several compactions ({', '.join(sorted(strategies))}); "
            "reinstall kernel-agent"
        )
    request = LaunchRequest(
        problems=tuple(sorted(recordings)), name="demo", compaction=strategies.pop(), budget=Budget(steps=STEPS)
    )
    return Demo(request=request, provenance=_provenance(recordings))


def _provenance(recordings: Mapping[str, Recording]) -> tuple[str, ...]:
    return tuple(
        plain_line(f"{problem}: {len(recording.turns)} answers, {_origin(recording)}")
        for problem, recording in sorted(recordings.items())
    )


def _origin(recording: Recording) -> str:
    if recording.header.provenance == "scripted":
        return "scripted: written by hand, not by a model"
    return f"recorded from {recording.header.model}"
