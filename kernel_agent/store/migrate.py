"""Bringing a database's schema up to date with the packaged migrations, from within a transaction of ours."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from kernel_agent.errors import StoreError

HEAD = "0001"
"""Newest revision in ``migrations/versions``: lets an up-to-date store open without loading any migration."""


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, without an ini file; ``migrations/env.py`` finds the connection in it."""
    made = Config()
    made.set_main_option("script_location", "kernel_agent.store:migrations")
    made.attributes["connection"] = connection
    return made


def upgrade(connection: Connection) -> None:
    """Run the missing migrations in the transaction ``connection`` is in.

    :raises StoreError: the database is newer than this program.
    """
    current = MigrationContext.configure(connection).get_current_revision()
    if current == HEAD:
        return
    known = {script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()}
    if current is not None and current not in known:
        raise StoreError(
            f"the store was written by a newer kernel-agent (schema {current}, this one knows up to {HEAD}); "
            "upgrade kernel-agent or use another KERNEL_AGENT_HOME"
        )
    command.upgrade(config(connection), "head")
