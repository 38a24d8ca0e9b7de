"""What one invocation of the command line works with: settings, catalog and store, each made when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from kernel_agent.settings import Settings
    from kernel_agent.store.repository import Store
    from problems.catalog import Catalog
    from problems.model import SizeOverride

PATIENCE_SECONDS = 5.0
"""How long a person at a terminal waits for another writer of the store before being told."""


@dataclass(frozen=True)
class Invocation:
    """The global flags."""

    home: Path | None = None
    kernelbench: Path | None = None

    def settings(self) -> Settings:
        """Flags over environment over file, with an absolute home. Raises UsageError."""
        from kernel_agent.settings import load_settings

        loaded = load_settings(home=self.home, kernelbench=self.kernelbench)
        return loaded.model_copy(update={"home": loaded.home.expanduser().absolute()})

    def prepared(self) -> Settings:
        """``settings`` with a home that exists. Raises UsageError when it cannot be made."""
        from kernel_agent.errors import UsageError

        settings = self.settings()
        try:
            settings.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"the home {settings.home} cannot be used ({error.strerror}); "
                "name a folder you can write with --home or KERNEL_AGENT_HOME"
            ) from error
        return settings

    def catalog(self) -> Catalog:
        from problems.catalog import Catalog

        return Catalog(kernelbench=self.settings().kernelbench)

    @contextmanager
    def store(self, busy_seconds: float = PATIENCE_SECONDS) -> Iterator[Store]:
        """The store, closed at the end. Raises UsageError for the home, StoreError for the database."""
        from kernel_agent.store.repository import Store

        opened = Store.open(self.prepared().database_url, busy_seconds=busy_seconds)
        try:
            yield opened
        finally:
            opened.close()

    def words(self) -> str:
        """``kernel-agent`` as the user has to type it again, with the home that was named by a flag."""
        import shlex

        return "kernel-agent" if self.home is None else f"kernel-agent --home {shlex.quote(str(self.home))}"


def of(context: typer.Context) -> Invocation:
    """The invocation that the global options made."""
    made = context.find_root().obj
    assert isinstance(made, Invocation)
    return made


def overrides(texts: Sequence[str] | None) -> tuple[SizeOverride, ...]:
    """``--set NAME=VALUE`` as given. Raises ProblemError."""
    from problems.sizes import parse

    return tuple(parse(text) for text in texts or ())
