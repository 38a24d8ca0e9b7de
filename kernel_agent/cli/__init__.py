"""The command line. ``main`` is the console script; nothing heavy is imported until a command needs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import TextIOWrapper


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave by SystemExit: 0 done, 1 the work failed, 2 bad usage or input, 130 interrupted."""
    from kernel_agent.cli.app import build
    from kernel_agent.cli.failures import translated

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Text that the terminal's encoding lacks is shown escaped; it must not end the command.
            stream.reconfigure(errors="backslashreplace")
    with translated():
        build()(args=list(sys.argv[1:] if arguments is None else arguments), prog_name="kernel-agent")
