"""``evaluate``: one verdict on one file, or one on every file of a folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kernel_agent.cli import invocation
from kernel_agent.cli.options import Isolation, Json, Lane, Sizes, TargetName
from kernel_agent.cli.output import print_json, print_text

if TYPE_CHECKING:
    from evaluator.model import EvaluationSpec
    from problems.model import Problem

Contract = Annotated[
    Literal["names", "kernelbench"],
    typer.Option(help="How weights get into a candidate: by name, or by the seed that both constructors start from."),
]


def evaluate(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE|DIR", help="A Python file that defines ModelNew, or a folder of them.")
    ],
    problem: Annotated[
        str | None,
        typer.Option(
            metavar="ID|FILE",
            help="What it is a candidate for. A folder whose files are named as KernelBench names those of a run "
            "needs none; it may also be a pattern, to judge part of them.",
        ),
    ] = None,
    sizes: Sizes = None,
    target: Annotated[TargetName, typer.Option(help="Where it runs.")] = "cpu",
    lane: Lane = "fp32",
    contract: Contract = "names",
    isolation: Isolation = "jail",
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Measure longer, in three to six sets of fresh processes.")
    ] = False,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Measure torch.compile, too, unless a trusted baseline is kept.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Build, check and time a candidate. Exits with 0 whenever there is a verdict, whatever it says.

    A folder's candidates are also put to an in-process loop, as most evaluators are, and both answers shown.
    """
    from evaluator.model import EvaluationSpec
    from kernel_agent.candidate_file import read_candidate
    from kernel_agent.errors import UsageError

    run = invocation.of(context)

    def request(chosen: Problem, source: str) -> EvaluationSpec:
        return EvaluationSpec(
            problem=chosen,
            source=source,
            target=target,
            purpose="final" if confirm else "screen",
            lane=lane,
            contract=contract,
            isolation=isolation,
        )

    if os.path.isdir(file):  # false where Path.is_dir raises: a name that is too long
        if baseline:
            raise UsageError(
                f"--baseline goes with one file, and {file} is a folder; kernel-agent baseline measures it"
            )
        from kernel_agent.cli.rescore import rescore_folder

        rescore_folder(run, file, problem, sizes, isolation, request, as_json=as_json)
        return
    if problem is None:
        raise UsageError(f"{file} is a candidate for which problem? Name it with --problem ID or --problem FILE")
    source = read_candidate(file)
    chosen = run.catalog().resolve(problem, invocation.overrides(sizes))
    _judge_one(run, file, request(chosen, source), measuring=baseline, as_json=as_json)


def _judge_one(run: invocation.Invocation, file: Path, spec: EvaluationSpec, *, measuring: bool, as_json: bool) -> None:
    from evaluator.pool import LocalEvaluator
    from kernel_agent.cli.baseline import compared
    from kernel_agent.cli.isolation import require_jail
    from kernel_agent.known import with_soundness

    require_jail(spec.isolation)
    settings = run.prepared()
    if not as_json and sys.stderr.isatty():
        print(f"judging {file} against {spec.problem.id} …", file=sys.stderr)
    with LocalEvaluator(settings.build_cache, spec.isolation) as evaluator:
        judged = evaluator.evaluate(spec)
        verdict, uncompared = compared(judged, spec, evaluator, settings, measuring=measuring, quiet=as_json)
    verdict = with_soundness(verdict, spec, settings)
    if as_json:
        print_json(verdict)
        return
    from kernel_agent.cli.verdict_text import verdict_text

    print_text(verdict_text(verdict, spec.problem.id, uncompared))
