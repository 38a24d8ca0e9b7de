"""What works on this machine, what is missing, and how to mend it. Looks; changes nothing but an absent database."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from kernel_agent.errors import KernelAgentError
from kernel_agent.model import Frozen
from kernel_agent.settings import Settings

DISTRIBUTION = "kernel-agent"
PACKAGES = ("problems", "gpu_profiles", "compaction", "evaluator", "kernel_agent", "dashboard")
LEAST_PYTHON = (3, 12)
LEAST_FREE_BYTES = 5 << 30
BUSY_SECONDS = 2.0
TOOL_SECONDS = 20.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Check(Frozen):
    """One thing looked at."""

    name: str
    state: Literal["ok", "warning", "failed"]
    """``failed``: campaigns on this machine's CPU cannot run without it. ``warning``: something else cannot."""
    found: str
    remedy: str = ""
    """Empty when all is well."""


class Diagnosis(Frozen):
    checks: tuple[Check, ...]
    healthy: bool
    """No check failed."""


class Probe(Frozen):
    """What a model said when it was asked for one tool call (``kernel_agent.probe``)."""

    model: str
    answered: bool
    called_tool: bool
    said: str
    """The tool call or the words of the answer; the error when there was none. Untrusted text."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    price_name: str
    seconds: float


def examine(settings: Settings) -> Diagnosis:
    """Every check, in the order in which they are read. Takes a few seconds."""
    looks: tuple[Callable[[], Check], ...] = (
        python,
        jail,
        control_group,
        compiler,
        ninja,
        python_headers,
        git,
        torch_version,
        lambda: database(settings),
        lambda: disk(settings.home),
        packages,
        gpu,
        cuda_compiler,
        browser,
    )
    checks = tuple(look() for look in looks)
    return Diagnosis(checks=checks, healthy=all(check.state != "failed" for check in checks))


def python() -> Check:
    version = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info >= LEAST_PYTHON:
        return Check(name="Python", state="ok", found=version)
    wanted = ".".join(map(str, LEAST_PYTHON))
    return Check(name="Python", state="failed", found=version, remedy=f"install Python {wanted} or newer")


def jail() -> Check:
    """The level that the evaluator would use, with what was tried before it."""
    from evaluator.sandbox import detect

    report = detect()
    if report.level is None:
        return Check(name="jail", state="failed", found="none works", remedy=report.remedy)
    tried = f" (not {'; '.join(report.attempts)})" if report.attempts else ""
    return Check(name="jail", state="ok", found=f"{report.level}{tried}")


def control_group() -> Check:
    """Whether the evaluator may make one: it names what a candidate starts at once, and caps all of it together."""
    from evaluator.cgroup import Group

    group = Group.create(processes=1)
    if group is None:
        found = "cannot be made here: verdicts carry the flag no_control_group"
        remedy = "run as root, or in a container whose control groups can be written to"
        return Check(name="control group", state="warning", found=found, remedy=remedy)
    group.remove()
    return Check(name="control group", state="ok", found="can be made")


def compiler() -> Check:
    # The name that builds call; CXX does not reach into the jail.
    return _tool("C++ compiler", "c++", "failed", "C++ candidates are built with c++: apt-get install g++")


def ninja() -> Check:
    # Installed as a Python package, it lies beside the interpreter, which need not be on PATH.
    path = shutil.which("ninja") or shutil.which("ninja", path=str(Path(sys.executable).parent))
    if path is None:
        remedy = "install it: pip install ninja"
        return Check(name="ninja", state="failed", found="not found", remedy=remedy)
    return Check(name="ninja", state="ok", found=f"{_first_line([path, '--version'])} at {path}")


def python_headers() -> Check:
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if header.is_file():
        return Check(name="Python headers", state="ok", found=str(header.parent))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    remedy = f"C++ candidates need them: apt-get install python{version}-dev"
    return Check(name="Python headers", state="failed", found=f"{header} is not there", remedy=remedy)


def git() -> Check:
    return _tool("git", "git", "failed", "workspaces are kept with it: apt-get install git")


def torch_version() -> Check:
    try:
        return Check(name="torch", state="ok", found=importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        return Check(name="torch", state="failed", found="not installed", remedy="install it: pip install torch")


def database(settings: Settings) -> Check:
    """Opens the database as a writer does, which makes an absent one."""
    from kernel_agent.store.repository import Store

    try:
        store = Store.open(settings.database_url, busy_seconds=BUSY_SECONDS)
        try:
            count = len(store.campaigns())
        finally:
            store.close()
    except KernelAgentError as error:
        return Check(name="database", state="failed", found="cannot be written", remedy=str(error))
    place = settings.home if settings.database is None else settings.database.partition(":")[0]
    return Check(name="database", state="ok", found=f"{count} campaign{'' if count == 1 else 's'} in {place}")


def disk(home: Path) -> Check:
    """Free space where the home is, or will be."""
    there = next((folder for folder in (home, *home.parents) if folder.is_dir()), Path("/"))
    free = shutil.disk_usage(there).free
    found = f"{free / (1 << 30):.1f} GiB free at {there}"
    if free >= LEAST_FREE_BYTES:
        return Check(name="disk", state="ok", found=found)
    remedy = "a campaign with its builds needs a few GiB: free some, or name another home with --home"
    return Check(name="disk", state="warning", found=found, remedy=remedy)


def packages() -> Check:
    """Whether another distribution, or another folder on the path, owns one of the names that ours are imported by."""
    owners = importlib.metadata.packages_distributions()
    foreign = [
        f"{name} is also installed by {', '.join(others)}"
        for name in PACKAGES
        if (others := sorted({o for o in owners.get(name, ()) if o != DISTRIBUTION}))
    ]
    root = Path(__file__).resolve().parent.parent
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            foreign.append(f"{name} cannot be found")
        elif Path(spec.origin).resolve().parent.parent != root:
            foreign.append(f"{name} is imported from {Path(spec.origin).parent}, not from {root}")
    if not foreign:
        return Check(name="package names", state="ok", found=f"all six are {DISTRIBUTION}'s")
    remedy = "install kernel-agent into an environment of its own"
    return Check(name="package names", state="failed", found="; ".join(foreign), remedy=remedy)


def gpu() -> Check:
    from gpu_profiles.detect import devices

    found = devices()
    if not found.devices:
        remedy = "not needed for campaigns on the CPU; for CUDA install NVIDIA's driver"
        return Check(name="GPU", state="warning", found=found.reason, remedy=remedy)
    named = ", ".join(f"{d.name} ({d.memory_bytes / (1 << 30):.0f} GiB)" for d in found.devices)
    state: Literal["ok", "warning"] = "warning" if found.reason else "ok"
    return Check(name="GPU", state=state, found=f"{named}, driver {found.devices[0].driver}", remedy=found.reason)


def cuda_compiler() -> Check:
    """nvcc by CUDA_HOME, then where the toolkit installs itself (the newest), then PATH."""
    home = os.environ.get("CUDA_HOME")
    places = [Path(home)] if home else []
    places += sorted(Path("/usr/local").glob("cuda*"), key=_version_of, reverse=True)
    inside = next((str(p / "bin" / "nvcc") for p in places if os.access(p / "bin" / "nvcc", os.X_OK)), None)
    path = inside or shutil.which("nvcc")
    if path is None:
        remedy = "not needed for campaigns on the CPU; for CUDA install the toolkit, or set CUDA_HOME to it"
        return Check(name="nvcc", state="warning", found="not found", remedy=remedy)
    return Check(name="nvcc", state="ok", found=path)


def browser() -> Check:
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        remedy = "only the browser tests need it: apt-get install chromium"
        return Check(name="chromium", state="warning", found="not found", remedy=remedy)
    return Check(name="chromium", state="ok", found=path)


def _tool(name: str, command: str, missing: Literal["warning", "failed"], remedy: str) -> Check:
    path = shutil.which(command)
    if path is None:
        return Check(name=name, state=missing, found="not found", remedy=remedy)
    return Check(name=name, state="ok", found=f"{_first_line([path, '--version'])} at {path}")


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TOOL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not answer ({error})"
    return next(iter((done.stdout or done.stderr).splitlines()), "no version told")


def _version_of(folder: Path) -> tuple[int, ...]:
    """``cuda-12.8`` as (12, 8), so that 12.10 comes after it; a bare ``cuda`` is the newest."""
    parts = folder.name.removeprefix("cuda").lstrip("-").split(".")
    return tuple(int(p) for p in parts if p.isdigit()) if parts != [""] else (1 << 30,)
