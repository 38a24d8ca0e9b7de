"""Opening the database: engines, pragmas, migrations, and failures said in words a user can act on.

SQLite gets two engines. Writers begin with BEGIN IMMEDIATE, because a deferred transaction that upgrades from
read to write cannot wait for another writer and fails with "database is locked". Readers begin deferred and are
refused any write; under WAL they never wait for a writer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic.util.exc import CommandError
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session as OrmSession

from kernel_agent.errors import StoreError
from kernel_agent.store.migrate import upgrade

DEFAULT_BUSY_SECONDS = 30.0


class Database:
    """Engines for one database. ``write`` and ``read`` each give a transaction."""

    def __init__(self, url: str, busy_seconds: float = DEFAULT_BUSY_SECONDS) -> None:
        """Open ``url``, create the file's folder, and bring the schema up to date.

        ``busy_seconds`` is how long a writer waits for another one before it gives up.
        """
        parsed = _parse(url)
        self.place = _place(parsed)
        self._busy_seconds = busy_seconds
        with self._translated():
            if parsed.get_backend_name() == "sqlite":
                Path(self.place).parent.mkdir(parents=True, exist_ok=True)
                self._writer = _sqlite_engine(parsed, busy_seconds, read_only=False)
                self._reader = _sqlite_engine(parsed, busy_seconds, read_only=True)
            else:
                self._writer = self._reader = create_engine(parsed, pool_pre_ping=True)
            try:
                with self._writer.begin() as connection:
                    upgrade(connection)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        self._reader.dispose()
        self._writer.dispose()

    @contextmanager
    def write(self) -> Iterator[OrmSession]:
        """A transaction that holds the write lock from its first moment; commits unless the block raises."""
        with self._translated(), OrmSession(self._writer, expire_on_commit=False) as tx, tx.begin():
            tx.connection()  # begins now: a transaction is otherwise begun by its first statement
            yield tx

    @contextmanager
    def read(self) -> Iterator[OrmSession]:
        """A consistent snapshot that can change nothing."""
        with self._translated(), OrmSession(self._reader, expire_on_commit=False) as tx, tx.begin():
            yield tx

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, OSError, CommandError, UnicodeError) as error:
            raise StoreError(_explain(error, self.place, self._busy_seconds)) from error


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        parsed.get_dialect()
    except (ArgumentError, NoSuchModuleError) as error:
        # A malformed address may hold a password: only its scheme is repeated.
        raise StoreError(
            f"{url.partition(':')[0]!r}… is no database address this installation can open; write "
            "sqlite:////absolute/path/kernel-agent.db (or postgresql+psycopg://… with psycopg installed)"
        ) from error
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StoreError(
            "the store needs a file, since readers and writers use separate connections; name one in the URL"
        )
    return parsed


def _place(url: URL) -> str:
    if url.get_backend_name() == "sqlite":
        return str(Path(str(url.database)).absolute())
    return url.render_as_string(hide_password=True)


def _sqlite_engine(url: URL, busy_seconds: float, *, read_only: bool) -> Engine:
    # One writing connection per process: writers queue for it in order instead of polling the file's lock.
    pool: dict[str, Any] = {"pool_size": 8, "max_overflow": 8} if read_only else {"pool_size": 1, "max_overflow": 0}
    engine = create_engine(
        url,
        connect_args={"timeout": busy_seconds, "check_same_thread": False},
        pool_timeout=busy_seconds,
        **pool,
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # the driver would otherwise start deferred transactions by itself
        connection.execute("PRAGMA foreign_keys = ON")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
        else:
            connection.execute("PRAGMA journal_mode = WAL")
            # FULL, not NORMAL: an answer that was paid for survives a power cut, too.
            connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _explain(error: Exception, place: str, busy_seconds: float) -> str:
    """Name the place and the remedy for what the driver said."""
    said = str(getattr(error, "orig", None) or error).strip()
    low = said.lower()
    if isinstance(error, UnicodeError):
        return f"the store at {place} was given text that is no valid Unicode ({said}); replace the characters it names"
    if isinstance(error, IntegrityError):
        return f"the store at {place} refused a write that breaks one of its rules: {said}"
    if isinstance(error, PoolTimeoutError) or "locked" in low or "busy" in low:
        return (
            f"the store at {place} is locked: another writer held it for more than {busy_seconds:g} s; "
            "stop the other process (`fuser` shows who has the file open) or try again later"
        )
    if isinstance(error, PermissionError) or "readonly" in low or "read-only" in low or "unable to open" in low:
        return (
            f"the store at {place} cannot be written ({said}); make its folder writable for this user "
            "or set KERNEL_AGENT_HOME to one that is"
        )
    if "full" in low or "no space" in low:
        return f"no space left for the store at {place}; free some (`kernel-agent gc` helps) and try again"
    if "malformed" in low or "not a database" in low:
        return f"{place} is damaged or no SQLite database ({said}); move it away or restore a copy"
    if isinstance(error, CommandError):
        return f"the store at {place} could not be brought up to date: {said}"
    if isinstance(error, OSError):
        return f"the store at {place} cannot be opened ({said}); set KERNEL_AGENT_HOME to a folder you may write"
    return f"the store at {place} failed: {said}; `kernel-agent doctor` checks it"
