"""Brokers inside the test's own process and loop, each with everything but HTTP.

What a client would see is read from the rendered messages; what the database believes is
asked over the test's own connection, in a thread, so that the loop goes on.

Used by the tests of services. Imports the broker and its services.
"""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from brokers.domain import DEFAULT_TENANT, Ack, AckOutcome, PopRequest, PushItem, PushRequest
from brokers.runtime import Broker
from brokers.services import ack as ack_service
from brokers.services import mesh as mesh_service
from brokers.services import pop as pop_service
from brokers.services import push as push_service
from brokers.services import queues as queue_service
from brokers.services.spool import Spooling
from brokers.services.spool_directories import open_directories
from queen_project import config as environment
from tests.harness import Database

Message = dict[str, Any]

TIMEOUT_S = 15.0
# A floor this slow has no part in what a test sees.
NO_FLOOR = {"POP_WAIT_MAX_INTERVAL_MS": "60000"}
FLOOR_S = 0.3
QUICK_FLOOR = {"POP_WAIT_MAX_INTERVAL_MS": str(int(FLOOR_S * 1000))}


class Client:
    """What a client says to one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def push(
        self, queue: str, *payloads: Any, partition: str = "Default", ids: list[str] | None = None
    ) -> list[tuple[str, str]]:
        """(status, error) of each."""
        items = [
            PushItem(queue, partition, json.dumps(payload).encode(), ids[no] if ids else None)
            for no, payload in enumerate(payloads)
        ]
        outcomes = await self.push_items(*items)
        return [(one.status, one.error or "") for one in outcomes]

    async def push_items(self, *items: PushItem) -> Any:
        request = PushRequest(tenant=DEFAULT_TENANT, items=list(items))
        return await push_service.push(self.broker, request)

    async def pop(self, queue: str | None, **options: Any) -> list[Message]:
        request = PopRequest(tenant=DEFAULT_TENANT, queue=queue, **options)
        result = await pop_service.pop(self.broker, request)
        return [json.loads(one) for one in result.messages]

    async def payloads(self, queue: str | None, **options: Any) -> list[Any]:
        return [message["data"] for message in await self.pop(queue, **options)]

    def park(self, queue: str | None, **options: Any) -> "asyncio.Task[list[Any]]":
        """A waiting pop that takes what it gets; its payloads."""
        options = {"wait": True, "timeout_s": 60.0, "auto_ack": True, **options}
        return asyncio.create_task(self.payloads(queue, **options))

    async def parked(self, count: int, queue: str = "") -> None:
        """Wait until so many pops sit and wait."""
        await until(lambda: self.broker.gates.parked().get(queue, 0) == count)

    async def park_here(self, queue: str, **options: Any) -> "asyncio.Task[list[Any]]":
        """`park`, and come back when it sits and waits."""
        before = self.broker.gates.parked().get(queue, 0)
        task = self.park(queue, **options)
        await self.parked(before + 1, queue)
        return task

    async def ack(self, *messages: Message, status: str | None = None) -> list[AckOutcome]:
        acks = [ack_of(message, status=status) for message in messages]
        return await ack_service.ack(self.broker, DEFAULT_TENANT, acks)

    async def configure(self, queue: str, **options: Any) -> None:
        request = queue_service.ConfigureRequest(
            tenant=DEFAULT_TENANT, queue=queue, replace=False, options=options
        )
        await queue_service.configure(self.broker, request)

    async def delete(self, queue: str) -> bool:
        return await queue_service.delete(self.broker, DEFAULT_TENANT, queue)


def ack_of(message: Message, **changes: Any) -> Ack:
    given = {
        "transaction_id": message["transactionId"],
        "partition_id": message["partitionId"],
        "group": message["consumerGroup"],
        "lease_id": message["leaseId"] or None,
    }
    return Ack(**{**given, **changes})


@contextlib.asynccontextmanager
async def running(
    database: Database, *, spool: Path | None = None, ready: bool = True, **settings: str
) -> AsyncIterator[Client]:
    """A broker on this database, from its start until it is stopped; with a spool if told where."""
    given = {**os.environ, **database.environment, "DB_POOL_SIZE": "8", **settings}
    if spool is not None:
        given["FILE_BUFFER_DIR"] = str(spool)
    broker = Broker(environment.load(given))
    mesh_service.attach(broker)
    if spool is not None:
        spooling = Spooling(broker, *open_directories(broker.config))
        broker.use_spool(spooling)
        broker.run_also("spool", spooling.run)
    await broker.start()
    try:
        if ready:
            await until(lambda: broker.ready, timeout_s=60)
        yield Client(broker)
    finally:
        await broker.stop()


async def until(
    condition: Callable[[], Any], *, timeout_s: float = TIMEOUT_S, step_s: float = 0.002
) -> None:
    """Wait for a condition of this process while the loop goes on."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not true within {timeout_s} s"
        await asyncio.sleep(step_s)


async def within(work: Any, timeout_s: float = TIMEOUT_S) -> Any:
    return await asyncio.wait_for(work, timeout_s)


@contextlib.contextmanager
def held(connection: psycopg.Connection[Any], statement: str, *parameters: Any) -> Iterator[None]:
    """Hold the locks of a statement meanwhile."""
    connection.execute(statement, parameters)
    try:
        yield
    finally:
        connection.rollback()


async def until_waiting(db: psycopg.Connection[Any], like: str) -> None:
    """Wait until a statement of that text waits for a lock."""
    await until(lambda: waits(db, like), step_s=0.02)


def waits(db: psycopg.Connection[Any], like: str) -> bool:
    row = db.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND query LIKE %s",
        [f"%{like}%"],
    ).fetchone()
    return row is not None and row[0] > 0
