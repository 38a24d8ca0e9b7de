"""Problems of a KernelBench checkout (``KernelBench/level1`` to ``level4``): listed and parsed, never executed."""

from __future__ import annotations

import re
from pathlib import Path

from problems.model import ProblemError

PREFIX = "kernelbench"
_LEVEL = re.compile(r"level(\d+)")
_NUMBERED = re.compile(r"(\d+)_.*")


class KernelBench:
    """One checkout. ``folder`` is its root, or the inner folder that holds ``level1``, ``level2`` and so on.

    Raises ``ProblemError`` when neither holds levels.
    """

    def __init__(self, folder: Path) -> None:
        for candidate in (folder, folder / "KernelBench"):
            levels = _levels(candidate)
            if levels:
                self._levels = levels
                return
        state = "has no KernelBench/level1 … level4 in it" if folder.is_dir() else "is no folder"
        raise ProblemError(
            f"{folder} is not a KernelBench checkout: it {state}. "
            "Clone ScalingIntelligence/KernelBench from GitHub and name the folder of the clone."
        )

    def files(self) -> dict[str, Path]:
        """Path of every problem by its id (``kernelbench/level3/1_MLP``), by level and then by number."""
        return {
            f"{PREFIX}/level{level}/{path.stem}": path
            for level, folder in self._levels.items()
            for path in _numbered_files(folder)
        }

    def check_level(self, level: str) -> None:
        """Raise ``ProblemError`` unless the checkout has the level (``level3``)."""
        if level not in {f"level{number}" for number in self._levels}:
            there = ", ".join(f"level{number}" for number in self._levels)
            raise ProblemError(f"this KernelBench checkout has no {level!r}; it has {there}")


def _levels(folder: Path) -> dict[int, Path]:
    if not folder.is_dir():
        return {}
    found = {int(m[1]): path for path in folder.iterdir() if path.is_dir() and (m := _LEVEL.fullmatch(path.name))}
    return dict(sorted(found.items()))


def _numbered_files(folder: Path) -> list[Path]:
    numbered = [(int(m[1]), path.name, path) for path in folder.glob("*.py") if (m := _NUMBERED.fullmatch(path.stem))]
    return [path for _, _, path in sorted(numbered)]
