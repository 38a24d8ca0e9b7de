"""Whether candidates can be jailed on this machine, asked before anything runs."""

from __future__ import annotations

import sys


def require_jail(isolation: str) -> None:
    """Raise UsageError with the remedy when candidates cannot be jailed here; say so when they are not to be."""
    from evaluator.model import EvaluatorError
    from evaluator.sandbox import require
    from kernel_agent.errors import UsageError

    try:
        level = require(isolation)
    except EvaluatorError as error:
        raise UsageError(str(error)) from error
    if level == "none":
        print("kernel-agent: warning: no jail; candidates run with your rights", file=sys.stderr)
