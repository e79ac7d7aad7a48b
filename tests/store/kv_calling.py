"""Key/value calls from a test, over its own connection: as the broker makes them.

Used by the tests of the key/value procedures.
"""

from typing import Any

from brokers.domain import DEFAULT_TENANT, KvOperation
from brokers.store import kv_calls
from tests.store.calling import call

WAIT_MS = 20_000


def apply(connection, *operations: KvOperation, wait_ms: int = WAIT_MS, bytes_max: int = 10**9):
    rows = call(
        connection,
        run,
        [(DEFAULT_TENANT, one) for one in operations],
        wait_ms=wait_ms,
        bytes_max=bytes_max,
    )
    return kv_calls.results(operations, rows)


async def run(fetch, asked, *, wait_ms, bytes_max):
    async def plain(statement: str, parameters: Any, *, timeout_s: float) -> list[Any]:
        return await fetch(statement, parameters)

    if any(one.op in kv_calls.WRITES for _, one in asked):
        return await kv_calls.kv_apply(
            plain, asked, bytes_max=bytes_max, wait_ms=wait_ms, timeout_s=1
        )
    return await kv_calls.kv_read(plain, asked, bytes_max=bytes_max, timeout_s=1)
