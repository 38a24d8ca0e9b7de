"""The one place where errors become a line on stderr and an exit code. A bug of ours keeps its traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


@contextmanager
def translated() -> Iterator[None]:
    """Say what was raised on purpose and exit; anything else passes through."""
    try:
        yield
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        from kernel_agent.plain_text import plain

        print(f"kernel-agent: {plain(str(error))}", file=sys.stderr)
        raise SystemExit(code) from error


def exit_code(error: Exception) -> int | None:
    """What an error of one of the packages' families exits with; None for any other."""
    # Imported when something has failed, so that a command which works pays nothing for them.
    from compaction.errors import CompactionError
    from evaluator.model import EvaluatorError
    from gpu_profiles.model import GpuProfileError
    from kernel_agent.errors import KernelAgentError
    from problems.model import ProblemError

    if isinstance(error, KernelAgentError):
        return error.exit_code
    if isinstance(error, ProblemError | GpuProfileError | CompactionError):
        return BAD_INPUT
    return FAILED if isinstance(error, EvaluatorError) else None
