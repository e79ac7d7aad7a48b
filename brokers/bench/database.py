"""What the bench asks PostgreSQL itself: its settings, its transactions, whose it is.

Imports brokers.config. Used by instrument.py.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from brokers.bench import machine
from brokers.config import PostgresConfig

# As rarely as a push comes that is paced.
COMMIT_PAUSE_S = 0.02
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
# Writes a few bytes to the log, to no table; its commit waits for the disk like any other.
COMMIT = "SELECT pg_logical_emit_message(true, 'bench', '')"
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

    def commit_p50_ms(self, count: int) -> float:
        """What a commit takes that does nothing else, by a call of the same driver."""
        took = []
        with self._connected() as connection:
            for _ in range(count):
                began = time.perf_counter()
                connection.execute(COMMIT, prepare=True)
                took.append(time.perf_counter() - began)
                time.sleep(COMMIT_PAUSE_S)
        return statistics.median(took) * 1000

    def postmaster_pid(self) -> int | None:
        with self._connected() as connection:
            return machine.postmaster_of(int(_value(connection, BACKEND)))


def _value(connection: psycopg.Connection[Any], statement: str, *arguments: Any) -> Any:
    row = connection.execute(statement, arguments).fetchone()  # type: ignore[call-overload]
    assert row is not None
    return row[0]
