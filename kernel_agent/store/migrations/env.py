"""Alembic's entry point: runs inside the caller's connection, or prints SQL when there is none."""

from __future__ import annotations

from alembic import context

from kernel_agent.store.schema import Base

connection = context.config.attributes.get("connection")
if connection is None:
    context.configure(
        dialect_name=context.config.attributes.get("dialect", "sqlite"),
        target_metadata=Base.metadata,
        literal_binds=True,
    )
else:
    # The caller owns the transaction; SQLite's DDL takes part in it, which Alembic would not assume.
    context.configure(
        connection=connection, target_metadata=Base.metadata, transactional_ddl=True, render_as_batch=True
    )
with context.begin_transaction():
    context.run_migrations()
