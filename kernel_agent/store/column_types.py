# ruff: noqa: ARG002 (SQLAlchemy names the arguments)
"""Column types that keep a promise the plain ones do not: exact money and times that know their zone."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import BigInteger, DateTime
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

NANO = 1_000_000_000


class Usd(TypeDecorator[float]):
    """Dollars in Python, whole nano-dollars in the database.

    A cap is compared inside SQL (``spent + reserved + :r <= cap``); binary fractions would refuse the last
    affordable call (0.1 + 0.2 > 0.3) and leave residue in ``reserved``. Integers do neither.
    """

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> int | None:
        return None if value is None else round(value * NANO)

    def process_result_value(self, value: int | None, dialect: Dialect) -> float | None:
        return None if value is None else int(value) / NANO


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, stored in UTC and returned with its zone (SQLite would forget it)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone cannot be stored")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
