"""Opening: places that cannot be used, other owners, other versions; and that migrations make the declared schema."""

from __future__ import annotations

import io
import multiprocessing
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from kernel_agent.errors import StoreError
from kernel_agent.store import migrate
from kernel_agent.store.database import Database
from kernel_agent.store.repository import Store
from kernel_agent.store.schema import APPEND_ONLY, Base
from tests.kernel_agent.store.conftest import settings


def test_migrations_make_exactly_the_declared_schema(url: str, tmp_path: Path) -> None:
    Store.open(url).close()
    migrated = create_engine(url)
    with migrated.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    declared = create_engine(f"sqlite:///{tmp_path}/declared.db")
    Base.metadata.create_all(declared)
    # Autogenerate does not look at CHECKs: compare the tables' own text, too.
    assert _tables(migrated.raw_connection()) == _tables(declared.raw_connection())


def _tables(connection: object) -> dict[str, list[str]]:
    rows = connection.execute(  # type: ignore[attr-defined]
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name != 'alembic_version'"
    ).fetchall()
    return {name: sorted(part.strip(" \t,") for part in sql.splitlines()) for name, sql in rows}


def test_the_head_named_in_code_is_the_newest_revision() -> None:
    assert ScriptDirectory.from_config(migrate.config()).get_heads() == [migrate.HEAD]


def test_downgrade_leaves_nothing(url: str) -> None:
    Store.open(url).close()
    engine = create_engine(url)
    with engine.begin() as connection:
        command.downgrade(migrate.config(connection), "base")
    with engine.connect() as connection:
        names = {row[0] for row in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names == {"alembic_version"}


def test_migrations_also_speak_postgresql() -> None:
    config = migrate.config()
    config.attributes["dialect"] = "postgresql"
    config.output_buffer = said = io.StringIO()
    command.upgrade(config, "head", sql=True)
    sql = said.getvalue()
    assert "TIMESTAMP WITH TIME ZONE" in sql
    assert sql.count("EXECUTE FUNCTION") == len(APPEND_ONLY)


def test_opening_again_keeps_the_data(url: str) -> None:
    first = Store.open(url)
    campaign = first.create_campaign(settings())
    first.close()
    second = Store.open(url)
    assert second.campaign(campaign.id) == campaign
    second.close()


def test_journal_mode_is_wal_and_foreign_keys_are_on(url: str) -> None:
    database = Database(url)
    with database.write() as tx:
        assert tx.connection().exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert tx.connection().exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    database.close()


def test_a_reader_can_write_nothing(url: str) -> None:
    database = Database(url)
    with pytest.raises(StoreError, match="cannot be written"), database.read() as tx:
        tx.connection().exec_driver_sql("DELETE FROM campaign")
    database.close()


def test_a_reader_is_not_stopped_by_a_writer(url: str) -> None:
    store = Store.open(url)
    campaign = store.create_campaign(settings())
    writer = sqlite3.connect(url.removeprefix("sqlite:///"))
    writer.execute("BEGIN IMMEDIATE")
    assert store.campaigns() == [campaign]
    writer.rollback()
    writer.close()
    store.close()


@pytest.mark.parametrize("held", ["before opening", "while open"])
def test_a_locked_database_names_its_place_and_the_remedy(url: str, held: str) -> None:
    Store.open(url).close()
    path = url.removeprefix("sqlite:///")
    store = Store.open(url, busy_seconds=0.05)
    other = sqlite3.connect(path)
    other.execute("BEGIN IMMEDIATE")
    attempts: dict[str, Callable[[], object]] = {
        # Opening takes the write lock, to be sure that no migration is under way.
        "before opening": lambda: Store.open(url, busy_seconds=0.05),
        "while open": lambda: store.create_campaign(settings()),
    }
    with pytest.raises(StoreError, match=r"is locked.*stop the other process") as caught:
        attempts[held]()
    assert path in str(caught.value)
    assert caught.value.__cause__ is not None
    other.rollback()
    other.close()
    store.close()


def _open_as_nobody(url: str, said: str) -> None:
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        Store.open(url)
    except StoreError as error:
        Path(said).write_text(str(error))


@pytest.mark.parametrize("state", ["empty folder", "existing database"])
def test_a_read_only_home_names_its_place_and_the_remedy(tmp_path: Path, state: str) -> None:
    """As a user without the right to write: root would be let in whatever the mode says."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder.owner() == tmp_path.owner() and folder.name.startswith(("pytest", "test")):
            folder.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    path = home / "store.db"
    if state == "existing database":
        Store.open(f"sqlite:///{path}").close()
        path.chmod(0o444)
    home.chmod(0o555)
    said = tmp_path / "said"
    said.touch()
    said.chmod(0o666)
    process = multiprocessing.get_context("fork").Process(target=_open_as_nobody, args=(f"sqlite:///{path}", str(said)))
    process.start()
    process.join(30)
    home.chmod(0o755)
    assert process.exitcode == 0
    assert str(path) in said.read_text()
    assert "make its folder writable for this user or set KERNEL_AGENT_HOME" in said.read_text()


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way")
    with pytest.raises(StoreError, match="KERNEL_AGENT_HOME"):
        Store.open(f"sqlite:///{tmp_path}/home/store.db")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_text("this is a shopping list, and a rather long one at that" * 40)
    with pytest.raises(StoreError, match=r"no SQLite database.*move it away"):
        Store.open(f"sqlite:///{path}")


def test_a_store_of_a_newer_program_is_left_alone(url: str) -> None:
    Store.open(url).close()
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    with pytest.raises(StoreError, match="newer kernel-agent"):
        Store.open(url)
    assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("9999",)
    connection.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_memory_is_no_place_for_a_store(url: str) -> None:
    with pytest.raises(StoreError, match="needs a file"):
        Store.open(url)


def test_an_address_that_makes_no_sense_does_not_repeat_its_password() -> None:
    with pytest.raises(StoreError, match="no database address") as caught:
        Store.open("nosuchdb://me:secret@host/db")
    assert "secret" not in str(caught.value)


def test_two_processes_may_open_an_empty_store_at_once(url: str) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_open_and_create, args=(url,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    store = Store.open(url)
    assert len(store.campaigns()) == 4
    store.close()


def _open_and_create(url: str) -> None:
    store = Store.open(url)
    store.create_campaign(settings())
    store.close()
