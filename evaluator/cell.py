"""One jailed interpreter that runs a script of ours: its channel, its log, its processes and their group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from evaluator import cgroup
from evaluator.channel import LOG_BYTES, Buffer, Channel
from evaluator.model import EvaluatorError, Limits
from evaluator.plain import sanitize
from evaluator.processes import Tree, exit_text
from evaluator.sandbox import Limits as JailLimits
from evaluator.sandbox import Mounts, environment, jailed, python_trees

PACKAGES = Path(__file__).resolve().parent.parent
INSIDE = Path("/opt")
"""Where a jail shows what of ``PACKAGES`` it may see."""
IMPORT_SECONDS = 120.0


class Cell:
    """From start to end. Nothing that it starts outlives ``kill``.

    The script is called with the descriptor of its end of the channel and says ``r`` once it is there; no code of a
    problem or candidate has run by then. ``shown`` is what it may read of our packages, by default itself alone.
    """

    def __init__(
        self,
        level: str,
        script: Path,
        threads: int,
        limits: Limits,
        *,
        shown: Sequence[Path] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.level, self.threads, self.script = level, threads, script
        self.channel = Channel()
        self.log = Buffer(LOG_BYTES)
        self.group = cgroup.Group.create(limits.processes, limits.memory_bytes)
        fd = self.channel.theirs.fileno()
        trees = [(tree, tree) for tree in python_trees()]
        ours = [(str(path), str(_inside(path))) for path in shown or (script,)]
        mounts = Mounts(read_only=(*trees, *ours), scratch_bytes=limits.scratch_bytes)
        rlimits = JailLimits(limits.memory_bytes, limits.processes, limits.file_bytes)
        seen = script if level == "none" else _inside(script)
        self.process = subprocess.Popen(
            jailed(level, mounts, rlimits, [sys.executable, "-I", str(seen), str(fd)]),
            stdin=subprocess.DEVNULL,
            stdout=self.log.fd,
            stderr=self.log.fd,
            env=environment(threads, dict(variables or {})),
            pass_fds=[fd],
            cwd="/",
            start_new_session=True,
        )
        self.channel.theirs.close()
        self._ended = False
        self.lingers = False
        """Whether its processes were still ending long after they were killed: they may disturb whoever comes next."""
        self.tree = Tree(self.process.pid, wrapped=level != "none")

    def started(self) -> None:
        """Wait until the script says that it is there. Raises EvaluatorError."""
        try:
            byte = self.channel.receive(IMPORT_SECONDS)
        except TimeoutError:
            byte = b""
        if byte != b"r":
            said = self.log_tail() or exit_text(self.process)
            self.kill()
            raise EvaluatorError(f"{self.script.name} did not start in the jail: {said}")
        self.tree.walk()
        if self.group is not None:
            self.group.add(self.tree.pids)

    def log_tail(self, limit: int = 4000) -> str:
        return sanitize(self.log.text(), limit).strip()

    def kill(self) -> None:
        if self._ended:
            return
        self._ended = True
        self.tree.kill()
        if self.level == "none":
            # What lost its parent is no descendant any more, but mostly still of the process group.
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.channel.close()
        self.log.close()
        if self.group is not None:
            self.lingers = not self.group.wait_empty()
            self.group.remove_later()


def _inside(path: Path) -> Path:
    return INSIDE / path.relative_to(PACKAGES)
