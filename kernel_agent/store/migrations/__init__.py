"""Alembic migrations, run by ``kernel_agent.store.database`` when a store is opened."""
