"""Profiles by id, from the TOML files beside this module, or from a file of the user's own."""

from __future__ import annotations

import difflib
import tomllib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pydantic import ValidationError

from gpu_profiles.model import GpuProfile, GpuProfileError


def profiles() -> tuple[GpuProfile, ...]:
    """Every profile that comes with the package, by id."""
    entries = files("gpu_profiles").joinpath("data").iterdir()
    loaded = (_load(entry) for entry in entries if entry.name.endswith(".toml"))
    return tuple(sorted(loaded, key=lambda profile: profile.id))


def profile(id: str) -> GpuProfile:
    """The profile of that id (``l40s``); raises ``GpuProfileError`` that suggests near ones when there is none."""
    by_id = {known.id: known for known in profiles()}
    if id in by_id:
        return by_id[id]
    alike = difflib.get_close_matches(id.lower().replace(" ", "-").replace("_", "-"), by_id, cutoff=0.5)
    meant = f" Did you mean {' or '.join(alike)}?" if alike else ""
    raise GpuProfileError(
        f"no GPU profile {id!r}.{meant} There are: {', '.join(by_id)}. A file of your own may be named instead (.toml)."
    )


def from_file(path: Path) -> GpuProfile:
    """The profile in a TOML file; raises ``GpuProfileError`` that names the file and each wrong key."""
    return _load(path)


def resolve(text: str) -> GpuProfile:
    """The profile that ``text`` names: an id, or the path of a ``.toml`` file. Raises as ``profile`` does."""
    return from_file(Path(text).expanduser()) if text.endswith(".toml") else profile(text)


def _load(file: Path | Traversable) -> GpuProfile:
    try:
        return GpuProfile.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise GpuProfileError(f"no such file: {file}") from error
    except OSError as error:
        raise GpuProfileError(f"{file} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GpuProfileError(f"{file} is not TOML: {error}") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'profile'}: {e['msg']}" for e in error.errors())
        raise GpuProfileError(f"{file} is not a GPU profile: {faults}") from error
