"""Every problem there is, by id: those bundled with the package, a KernelBench checkout's, and a user's own file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from problems import kernelbench, parsing, sizes
from problems.kernelbench import KernelBench
from problems.model import Origin, Problem, ProblemError, SizeOverride
from problems.selection import near, select
from problems.validate import validate

_LISTED = "`kernel-agent problems list` lists the ids."
_MOST_BYTES = 1 << 20


class Catalog(BaseModel):
    """Where problems are looked for. Reads files when asked, keeps nothing, executes nothing."""

    model_config = ConfigDict(frozen=True)

    kernelbench: Path | None = None
    """Folder of a KernelBench checkout; None: none is used."""

    def ids(self) -> tuple[str, ...]:
        """Every id, in the order in which problems are listed."""
        return tuple(self._files())

    def list(self, pattern: str | None = None) -> tuple[Problem, ...]:
        """The problems that ``pattern`` means (see ``problems.selection.select``); all of them without one.

        Raises ``ProblemError`` when it means none, or when a file among them is not a problem.
        """
        found = self._files()
        chosen = tuple(found) if pattern is None else select(pattern, tuple(found))
        if not chosen:
            raise self._unknown(str(pattern), tuple(found))
        return tuple(_load(id, found[id], _origin(id), ()) for id in chosen)

    def get(self, id: str, overrides: Sequence[SizeOverride] = ()) -> Problem:
        """The problem of that id, at other sizes if asked; a number stands for the name (``kernelbench/level3/1``).

        Raises ``ProblemError`` for an unknown id, a file that is not a problem, or an override that does not fit.
        """
        found = self._files()
        chosen = (id,) if id in found else select(id, tuple(found)) if not set(id) & set("*?[,") else ()
        if len(chosen) != 1 or chosen[0].startswith(id + "/"):
            raise self._unknown(id, tuple(found))
        return _load(chosen[0], found[chosen[0]], _origin(chosen[0]), overrides)

    def from_file(self, path: Path, overrides: Sequence[SizeOverride] = ()) -> Problem:
        """The problem in a file of the user's own, under the id ``file/<stem>``; raises as ``get`` does."""
        return _load(f"file/{path.stem}", path, "file", overrides)

    def resolve(self, text: str, overrides: Sequence[SizeOverride] = ()) -> Problem:
        """The problem that ``text`` names: an id, or else the path of a file. Raises as ``get`` does."""
        path = Path(text).expanduser()
        if text not in self._files() and (path.suffix == ".py" or path.is_file()):
            return self.from_file(path, overrides)
        return self.get(text, overrides)

    def _files(self) -> dict[str, Path | Traversable]:
        bundled = sorted(
            (entry for entry in files("problems").joinpath("data").iterdir() if entry.name.endswith(".py")),
            key=lambda entry: entry.name,
        )
        found: dict[str, Path | Traversable] = {f"bundled/{entry.name.removesuffix('.py')}": entry for entry in bundled}
        if self.kernelbench is not None:
            found |= KernelBench(self.kernelbench).files()
        return found

    def _unknown(self, text: str, ids: Sequence[str]) -> ProblemError:
        origin, _, rest = text.partition("/")
        if origin == kernelbench.PREFIX:
            if self.kernelbench is None:
                return ProblemError(
                    f"{text!r} needs a KernelBench checkout, and none is set. "
                    "Clone ScalingIntelligence/KernelBench from GitHub and name its folder in the settings."
                )
            level = rest.partition("/")[0]
            if level.startswith("level") and level[5:].isdecimal():
                KernelBench(self.kernelbench).check_level(level)
        alike = near(text, ids)
        meant = f" Did you mean {' or '.join(alike)}?" if alike else ""
        return ProblemError(f"no problem {text!r}.{meant} {_LISTED}")


def _origin(id: str) -> Origin:
    return "kernelbench" if id.startswith(kernelbench.PREFIX + "/") else "bundled"


def _load(id: str, file: Path | Traversable, origin: Origin, overrides: Sequence[SizeOverride]) -> Problem:
    where = str(file)
    source = _read(file, where)
    tree = validate(source, where)
    changes = sizes.effective(source, overrides, where)
    return Problem(
        id=id,
        title=parsing.title(tree, file.name.removesuffix(".py")),
        origin=origin,
        source=sizes.override(source, changes, where),
        overrides=changes,
    )


def _read(file: Path | Traversable, where: str) -> str:
    if isinstance(file, Path) and file.is_dir():
        raise ProblemError(f"{where} is a folder; name the Python file of a problem")
    try:
        # One more than the cap: enough to know, and a stray gigabyte stays unread.
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise ProblemError(f"no such file: {where}. Name the Python file of a problem, or an id; {_LISTED}") from error
    except OSError as error:
        raise ProblemError(f"{where} cannot be read: {error.strerror or error}") from error
    if len(data) > _MOST_BYTES:
        raise ProblemError(f"{where} is larger than {_MOST_BYTES} bytes: that is no problem's source")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ProblemError(f"{where} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
