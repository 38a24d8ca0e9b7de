"""Make the recordings behind ``replay:demo`` from their scripts, their kernels and the bundled problems.

    python tools/make_demo_recordings.py [--out FOLDER]

Run it after a change of any of the three: a recording is bound to its problem by hash and holds the kernels' text.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import kernel_agent
from kernel_agent.gateway.recording import Header, Recording
from kernel_agent.recordings.script import Script
from kernel_agent.recordings.scripts import bias_gelu_residual, gated_recurrence
from problems.catalog import Catalog

RECORDINGS = Path(kernel_agent.__file__).parent / "recordings"
SCRIPTS: dict[str, Callable[[Script], None]] = {
    "bias_gelu_residual": bias_gelu_residual.write,
    "gated_recurrence": gated_recurrence.write,
}
STRATEGY = "cliff:12k"
"""Small enough that a session of 40 answers is compacted at least once."""
TURNS = 40


def make(name: str) -> Recording:
    """The scripted session on the bundled problem of that name.

    :raises ScriptError: the script does not fit the kernels.
    """
    problem = Catalog().get(f"bundled/{name}")
    kernels = {path.stem: path.read_text(encoding="utf-8") for path in (RECORDINGS / "kernels" / name).glob("*.py")}
    script = Script(problem.source, kernels)
    SCRIPTS[name](script)
    if len(script.turns) != TURNS:
        raise SystemExit(f"the script of {name} has {len(script.turns)} answers; the demo plays {TURNS}")
    header = Header(
        name=f"demo/{name}",
        problem_id=problem.id,
        problem_sha=problem.sha256,
        strategy=STRATEGY,
        model="scripted",
        provenance="scripted",
    )
    return Recording(header=header, turns=tuple(script.turns))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the recordings behind replay:demo.")
    parser.add_argument("--out", type=Path, default=RECORDINGS / "demo", help="folder to write to")
    folder = parser.parse_args().out
    for name in SCRIPTS:
        recording = make(name)
        path = folder / f"{Catalog().get(recording.header.problem_id).slug}.jsonl"
        recording.save(path)
        print(path)


if __name__ == "__main__":
    main()
