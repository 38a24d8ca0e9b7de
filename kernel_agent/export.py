"""The best kernels of a campaign as folders that stand alone: source, reference, evidence, and a script that checks."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.resources
import os
import re
import tempfile
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from evaluator.model import Evaluation
from kernel_agent.errors import StoreError, UsageError
from kernel_agent.model import Campaign, Improvement, Session
from kernel_agent.plain_text import plain_line
from kernel_agent.report import best_of, by_problem
from kernel_agent.store.repository import Store

MANIFEST = "kernel-agent-export.json"
NAME_CHARACTERS = 80


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Evidence(Frozen):
    """``evidence.json``: where a kernel comes from and what confirmed it."""

    campaign: str
    campaign_name: str
    session: str
    step: int
    attempt: int
    candidate: str
    hypothesis: str
    """The model's own words; untrusted."""
    problem: str
    model: str
    provenance: str
    found_at: datetime
    kernel_sha256: str
    reference_sha256: str
    kernel_agent_version: str
    evaluation: Evaluation
    """The promotion, whole: the confirming measurement, not the screening."""


class ExportedKernel(Frozen):
    problem: str
    folder: Path
    speedup: float
    speedup_low: float
    speedup_high: float


class NotExported(Frozen):
    problem: str
    reason: str


class Exported(Frozen):
    directory: Path
    kernels: tuple[ExportedKernel, ...]
    not_exported: tuple[NotExported, ...]
    """Problems without a confirmed kernel."""


class Manifest(Frozen):
    """Marks a folder as an export of one campaign, so that exporting again may replace it and nothing else."""

    campaign: str
    folders: dict[str, str]
    """Folder name to problem."""


def export_campaign(store: Store, campaign_id: str, directory: Path) -> Exported:
    """Write one folder per problem with a confirmed kernel; its best rollout counts.

    Each holds ``kernel.py``, ``reference.py``, ``evidence.json`` and ``check.py``. ``directory`` is made when missing
    and may hold an earlier export of the same campaign, whose files are replaced; UsageError when it holds anything
    else. Nothing is executed. NotFoundError for an unknown campaign.
    """
    campaign = store.campaign(campaign_id)
    directory = directory.expanduser().absolute()
    _claim(directory, campaign.id)
    kernels: list[ExportedKernel] = []
    left_out: list[NotExported] = []
    folders: dict[str, str] = {}
    for sessions in by_problem(store.sessions(campaign.id)):
        first, best = sessions[0], best_of(sessions)
        if best is None:
            left_out.append(NotExported(problem=first.problem_id, reason=_why_not(sessions)))
            continue
        name = folder_name(first.problem_id, first.problem_sha, taken=folders)
        folders[name] = first.problem_id
        kernels.append(_export(store, campaign, *best, directory / name))
    _write_manifest(directory, campaign.id, folders)
    return Exported(directory=directory, kernels=tuple(kernels), not_exported=tuple(left_out))


def folder_name(problem_id: str, problem_sha: str, taken: dict[str, str]) -> str:
    """A safe path component for a problem's untrusted id: never empty, hidden, a parent, or one already ``taken``."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", problem_id).strip("._")[:NAME_CHARACTERS] or "problem"
    # Some file systems ignore case, and the manifest's own name is not a problem's.
    used = {other.lower() for other in (*taken, MANIFEST)}
    return name if name.lower() not in used else f"{name}-{problem_sha[:8]}"


def _export(store: Store, campaign: Campaign, session: Session, best: Improvement, folder: Path) -> ExportedKernel:
    candidate = store.candidate(best.candidate_id)
    if candidate.promotion is None or candidate.promotion.status != "correct":
        raise StoreError(
            f"The store has an improvement by candidate {candidate.id} but not the promotion that confirmed it; "
            "the database is damaged. Restore it from a copy, or export another campaign."
        )
    kernel, reference = store.source(candidate.source_sha), store.problem_source(session.problem_sha)
    evidence = Evidence(
        campaign=campaign.id,
        campaign_name=campaign.settings.name,
        session=session.id,
        step=best.step,
        attempt=best.attempt,
        candidate=candidate.id,
        hypothesis=candidate.hypothesis,
        problem=session.problem_id,
        model=campaign.settings.model,
        provenance=campaign.settings.provenance,
        found_at=best.at,
        kernel_sha256=hashlib.sha256(kernel.encode()).hexdigest(),
        reference_sha256=hashlib.sha256(reference.encode()).hexdigest(),
        kernel_agent_version=importlib.metadata.version("kernel-agent"),
        evaluation=candidate.promotion,
    )
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} is in the way and no folder; remove it, or name another directory.")
    folder.mkdir(exist_ok=True)
    _write(folder / "kernel.py", kernel)
    _write(folder / "reference.py", reference)
    _write(folder / "check.py", check_script())
    _write(folder / "evidence.json", evidence.model_dump_json(indent=2) + "\n")
    return ExportedKernel(
        problem=session.problem_id,
        folder=folder,
        speedup=best.speedup,
        speedup_low=best.speedup_low,
        speedup_high=best.speedup_high,
    )


def check_script() -> str:
    """The stand-alone script put beside each kernel."""
    return (importlib.resources.files("kernel_agent") / "export_template" / "check.py").read_text("utf-8")


def _claim(directory: Path, campaign_id: str) -> None:
    """Make ``directory`` ours, or refuse before anything is written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        entries = sorted(entry.name for entry in directory.iterdir())
    except OSError as error:
        raise UsageError(f"Cannot export to {directory}: {error.strerror}. Name a folder you can write to.") from error
    if not entries:
        # At once, so that an export that is cut short can be repeated.
        _write_manifest(directory, campaign_id, {})
        return
    if MANIFEST not in entries:
        raise UsageError(
            f"{directory} is not empty and holds no export (there is {plain_line(entries[0])!r}). Name a new folder."
        )
    try:
        manifest = Manifest.model_validate_json((directory / MANIFEST).read_text("utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{directory / MANIFEST} cannot be read as an export's. Name a new folder.") from error
    if manifest.campaign != campaign_id:
        raise UsageError(f"{directory} holds an export of campaign {manifest.campaign}. Name a new folder.")


def _write_manifest(directory: Path, campaign_id: str, folders: dict[str, str]) -> None:
    _write(directory / MANIFEST, Manifest(campaign=campaign_id, folders=folders).model_dump_json(indent=2) + "\n")


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and never through a link: the file is made beside ``path`` and renamed."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".export-")
        with os.fdopen(descriptor, "wb") as file:
            # Bytes, so that the text's hash is the file's hash on every system.
            file.write(text.encode())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise UsageError(f"Cannot write {path}: {error.strerror}. Free space, or name another folder.") from error


def _why_not(sessions: list[Session]) -> str:
    candidates = sum(session.candidates for session in sessions)
    correct = sum(session.statuses.get("correct", 0) for session in sessions)
    if not candidates:
        return "no candidate was submitted"
    if correct:
        return f"{correct} of {candidates} candidates passed the screening, none was confirmed"
    return f"none of {candidates} candidates was correct"
