"""``baseline``: what eager and torch.compile take on a problem; and the use that ``evaluate`` makes of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_agent.cli import invocation
from kernel_agent.cli.failures import FAILED
from kernel_agent.cli.options import Isolation, Json, Lane, Sizes
from kernel_agent.cli.output import print_json, print_text

if TYPE_CHECKING:
    from evaluator.baselines import Baseline, Way
    from evaluator.model import Evaluation, EvaluationSpec
    from evaluator.model import Isolation as IsolationName
    from evaluator.pool import Evaluator
    from kernel_agent.settings import Settings
    from problems.model import Problem

NAMES: dict[Way, str] = {"compile": "torch.compile", "fp16": "eager in fp16", "bf16": "eager in bf16"}


def baseline(
    context: typer.Context,
    problem: Annotated[str, typer.Option(metavar="ID|FILE", help="What is to be measured.")],
    sizes: Sizes = None,
    isolation: Isolation = "jail",
    lane: Lane = "fp32",
    again: Annotated[bool, typer.Option("--again", help="Measure even when a trusted one is kept.")] = False,
    as_json: Json = False,
) -> None:
    """Measure eager and torch.compile on a problem, and keep the result for later verdicts. Takes minutes.

    With --lane fp16 or bf16: eager with parameters and inputs cast, for kernels of that lane. A problem that cannot be
    compiled or cast has a baseline that says so. Exits with 1 when the machine was too noisy.
    """
    from evaluator import baselines
    from evaluator.pool import LocalEvaluator
    from kernel_agent.cli.isolation import require_jail
    from kernel_agent.errors import UsageError

    run = invocation.of(context)
    chosen = run.catalog().resolve(problem, invocation.overrides(sizes))
    require_jail(isolation)
    if lane == "tf32":
        raise UsageError("--lane tf32: no CPU computes in it; fp32 measures torch.compile, fp16 and bf16 a cast model")
    way = baselines.CAST.get(lane, "compile")
    settings = run.prepared()
    with LocalEvaluator(settings.build_cache, isolation) as evaluator:
        found = None
        if not again:
            found = baselines.cached(settings.baseline_cache, baselines.conditions_here(evaluator, chosen), way)
        if found is None or baselines.old(found):
            found = measured(evaluator, chosen, way, settings.baseline_cache, isolation, quiet=as_json)
    if as_json:
        print_json(found)
    else:
        print_text(baseline_text(found, chosen.id))
    if found.status == "unstable":
        raise typer.Exit(FAILED)


def measured(
    evaluator: Evaluator, problem: Problem, way: Way, folder: Path, isolation: IsolationName, *, quiet: bool
) -> Baseline:
    """A baseline measured now, and kept in ``folder`` unless it is ``unstable``."""
    from evaluator import baselines
    from kernel_agent.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"baselines cannot be kept in {folder} ({error.strerror}); name another --home") from error
    if not quiet and sys.stderr.isatty():
        print(f"measuring eager and {NAMES[way]} on {problem.id}: minutes …", file=sys.stderr)
    found = baselines.measure(evaluator, problem, way, isolation=isolation)
    if found.status != "unstable":
        baselines.save(folder, found)
    return found


def compared(
    verdict: Evaluation,
    spec: EvaluationSpec,
    evaluator: Evaluator,
    settings: Settings,
    *,
    measuring: bool,
    quiet: bool,
) -> tuple[Evaluation, tuple[tuple[str, str], ...]]:
    """The verdict on ``spec`` beside the baselines kept, and what is to be said of those it cannot be compared with.

    ``measuring``: one is measured where none is kept that can be trusted. What is said is a name and a reason each.
    """
    from evaluator import baselines

    folder, said = settings.baseline_cache, []
    for way in baselines.ways(verdict):
        found = baselines.cached(folder, baselines.conditions_of(verdict), way)
        if measuring and (found is None or baselines.doubt(found, verdict)):
            found = measured(evaluator, spec.problem, way, folder, spec.isolation, quiet=quiet)
        if found is None:
            continue
        if found.speedup is None:
            said.append((NAMES[way], f"no time to compare with: {found.status}: {found.reason}"))
        elif reason := baselines.doubt(found, verdict):
            said.append((NAMES[way], f"stale baseline, not used: {reason}; kernel-agent baseline --again renews it"))
        verdict = baselines.with_baseline(verdict, found)
    return verdict, tuple(said)


def baseline_text(found: Baseline, problem_id: str) -> str:
    """A head line and aligned rows. Plain text that may hold what a problem printed: clean it for the terminal."""
    under, name = found.conditions, NAMES[found.way]
    if found.speedup is None:
        lines = [f"{name}: {found.status}: {found.reason}"]
    else:
        low, high = found.speedup_low, found.speedup_high
        lines = [f"{name} is {found.speedup:.3f}× as fast as eager (95%: {low:.3f} to {high:.3f})"]
    rows = [
        ("problem", f"{problem_id} ({under.problem_sha[:12]}) on {under.device}, {under.threads} threads"),
        ("eager", _milliseconds(found.eager_ms)),
        (found.way, _milliseconds(found.ms)),
        (
            "measured",
            f"{found.measured_at:%Y-%m-%d %H:%M} UTC, torch {under.torch_version}, Python {under.python_version}, "
            f"protocol {under.protocol_version}",
        ),
    ]
    return "\n".join([*lines, *(f"{name:<10}{value}" for name, value in rows)])


def _milliseconds(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4g} ms"
