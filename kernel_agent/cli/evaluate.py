"""``evaluate``: one verdict on one file."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernel_agent.cli import invocation
from kernel_agent.cli.options import Isolation, Json, Lane, Sizes, TargetName
from kernel_agent.cli.output import print_json, print_text

MOST_BYTES = 1 << 20


def evaluate(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A candidate: a Python file that defines ModelNew.")],
    problem: Annotated[str, typer.Option(metavar="ID|FILE", help="What it is a candidate for.")],
    sizes: Sizes = None,
    target: Annotated[TargetName, typer.Option(help="Where it runs.")] = "cpu",
    lane: Lane = "fp32",
    isolation: Isolation = "jail",
    confirm: Annotated[bool, typer.Option("--confirm", help="Measure longer, in three sets of fresh processes.")] = False,
    as_json: Json = False,
) -> None:
    """Build, check and time a candidate. Exits with 0 whenever there is a verdict, whatever it says."""
    from evaluator.model import EvaluationSpec
    from evaluator.pool import LocalEvaluator

    run = invocation.of(context)
    source = read_candidate(file)
    chosen = run.catalog().resolve(problem, invocation.overrides(sizes))
    require_jail(isolation)
    settings = run.prepared()
    spec = EvaluationSpec(
        problem=chosen,
        source=source,
        target=target,
        purpose="final" if confirm else "screen",
        lane=lane,
        isolation=isolation,
    )
    if not as_json and sys.stderr.isatty():
        print(f"judging {file} against {chosen.id} …", file=sys.stderr)
    with LocalEvaluator(settings.build_cache, isolation) as evaluator:
        verdict = evaluator.evaluate(spec)
    if as_json:
        print_json(verdict)
        return
    from kernel_agent.cli.verdict_text import verdict_text

    print_text(verdict_text(verdict, chosen.id))


def read_candidate(path: Path) -> str:
    """The text of a regular file; raises UsageError for anything else, and waits for nothing."""
    from kernel_agent.errors import UsageError

    try:
        # Without O_NONBLOCK a FIFO that nobody writes would hold the command for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}; name a candidate: a Python file that defines ModelNew") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise UsageError(f"{path} is {_kind(mode)}, not a file; name a Python file that defines ModelNew")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MOST_BYTES:
        raise UsageError(f"{path} is larger than {MOST_BYTES} bytes; a candidate is one source file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error


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


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return next((name for test, name in kinds if test(mode)), "a device")
