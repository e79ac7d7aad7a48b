"""What the bench asks PostgreSQL itself: its settings, its transactions, whose it is.

Imports brokers.config. Used by instrument.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from brokers.bench import machine
from brokers.config import PostgresConfig

SETTINGS = (
    "server_version",
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "shared_buffers",
    "wal_compression",
    "max_wal_size",
)
READ_SETTING = "SELECT current_setting(%s)"
QUEUE_EXISTS = "SELECT EXISTS (SELECT FROM queen_queue WHERE name = %s)"
TRANSACTIONS = """
SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()
"""
BACKEND = "SELECT pg_backend_pid()"


class Database:
    """Short connections to the broker's database, one a question."""

    def __init__(self, config: PostgresConfig) -> None:
        self.config = config

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        parameters = self.config.parameters(application_name="queen-bench")
        with psycopg.connect(**parameters, autocommit=True) as connection:
            yield connection

    def settings(self) -> dict[str, str]:
        with self._connected() as connection:
            return {name: _value(connection, READ_SETTING, name) for name in SETTINGS}

    def has_queue(self, name: str) -> bool:
        """Whether this is the database that the broker under test writes to."""
        with self._connected() as connection:
            return bool(_value(connection, QUEUE_EXISTS, name))

    def transactions(self) -> int:
        """Transactions of this database so far, everybody's; a call of the broker is one."""
        with self._connected() as connection:
            return int(_value(connection, TRANSACTIONS))

    def postmaster_pid(self) -> int | None:
        with self._connected() as connection:
            return machine.postmaster_of(int(_value(connection, BACKEND)))


def _value(connection: psycopg.Connection[Any], statement: str, *arguments: Any) -> Any:
    row = connection.execute(statement, arguments).fetchone()  # type: ignore[call-overload]
    assert row is not None
    return row[0]
