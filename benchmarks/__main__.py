"""``python -m benchmarks [NAME …] [--keep]``: all of them without a name; ``--keep`` updates docs/benchmarks.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from benchmarks import agreement, demo, discrimination, evaluation, inprocess, session
from benchmarks.table import Row, report

BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "evaluation": evaluation.run,
    "agreement": agreement.run,
    "discrimination": discrimination.run,
    "inprocess": inprocess.run,
    "session": session.run,
    "demo": demo.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--keep", action="store_true", help="update docs/benchmarks.md")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    met = True
    for name in arguments.names or BENCHMARKS:
        rows = BENCHMARKS[name]()
        report(name, rows, keep=arguments.keep)
        met = met and all(row.met for row in rows)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
