"""Whether the pools of the brokers fit into the server's max_connections.

Imports nothing of ours. Used by the broker command, before it serves.
"""

from dataclasses import dataclass
from typing import Any

import psycopg

# Beside the pool: the lanes, and what management routes and the schema use.
OTHER_CONNECTIONS = 10

LIMITS = """
SELECT current_setting('max_connections')::int,
       current_setting('superuser_reserved_connections')::int
       + coalesce(current_setting('reserved_connections', true), '0')::int
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The arithmetic, kept apart so that it can be shown."""

    pool_size: int
    kv_pool_size: int
    read_pool_size: int
    workers: int
    connections_max: int
    reserved: int

    @property
    def needed(self) -> int:
        return (
            self.pool_size + self.kv_pool_size + self.read_pool_size + OTHER_CONNECTIONS
        ) * self.workers

    @property
    def available(self) -> int:
        return self.connections_max - self.reserved

    @property
    def suffices(self) -> bool:
        return self.needed <= self.available

    def __str__(self) -> str:
        return (
            f"(DB_POOL_SIZE {self.pool_size} + QUEEN_KV_POOL_SIZE {self.kv_pool_size}"
            f" + QUEEN_READ_POOL_SIZE {self.read_pool_size} + {OTHER_CONNECTIONS} others)"
            f" x {self.workers}"
            f" worker{'s' if self.workers > 1 else ''} = {self.needed} connections,"
            f" of max_connections {self.connections_max} - {self.reserved} reserved"
            f" = {self.available}"
        )


def read_capacity(
    parameters: dict[str, Any],
    *,
    pool_size: int,
    kv_pool_size: int,
    read_pool_size: int,
    workers: int = 1,
) -> Capacity | None:
    """Ask the server; None when it is away, which does not keep a broker from starting."""
    try:
        with psycopg.connect(**parameters, autocommit=True) as connection:
            row = connection.execute(LIMITS).fetchone()
    except psycopg.OperationalError:
        return None
    assert row is not None
    return Capacity(
        pool_size=pool_size,
        kv_pool_size=kv_pool_size,
        read_pool_size=read_pool_size,
        workers=workers,
        connections_max=row[0],
        reserved=row[1],
    )
