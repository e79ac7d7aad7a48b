"""Waiting pops hold no connection, cancelled ones leave none behind, none idles in a transaction.

Method: a broker of its own, so that the backends counted in pg_stat_activity are its alone; pops
are plain sockets that are closed without a word, which is what a client that is killed does.
"""

import re
import socket
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
from psycopg import sql

from tests.wire_client import WireClient, ack_of

WAITERS = 500
ROUNDS = 20
BACKENDS = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND backend_type = 'client backend'
       AND pid <> pg_backend_pid()
"""
IDLERS = """
    SELECT state, query FROM pg_stat_activity
     WHERE datname = current_database() AND state LIKE 'idle in transaction%'
       AND state_change < clock_timestamp() - interval '100 ms'
"""


def waiting_pops(base_url: str, queue: str, count: int) -> list[socket.socket]:
    url = urlsplit(base_url)
    request = (
        f"GET /api/v1/pop/queue/{queue}?wait=true&timeout=60000&consumerGroup=g HTTP/1.1\r\n"
        "Host: broker\r\n\r\n"
    ).encode()
    sockets = []
    for _ in range(count):
        one = socket.create_connection((url.hostname or "", url.port or 0), timeout=20)
        one.sendall(request)
        sockets.append(one)
    return sockets


def hang_up(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()


def gauges(client: httpx.Client, pattern: str) -> dict[str, float]:
    text = client.get("/metrics/prometheus").text
    found = re.findall(rf"^({pattern}.*) (\S+)$", text, flags=re.MULTILINE)
    return {name: float(value) for name, value in found}


def backends(db: psycopg.Connection) -> int:
    [count] = db.execute(BACKENDS).fetchone()
    return count


def test_a_storm_of_cancelled_pops_leaves_the_pool_as_it_was(
    start_broker: Any,
    fresh_database: Any,
    fresh_queue: str,
    eventually: Callable[..., Any],
):
    database = fresh_database()
    broker = start_broker(on=database)
    with database.connect() as db, httpx.Client(base_url=broker.url, timeout=30) as client:
        wire = WireClient(client)
        wire.push(fresh_queue, 0)
        wire.payloads(fresh_queue, autoAck=True, consumerGroup="g", subscriptionMode="all")
        hang_up(waiting_pops(broker.url, fresh_queue, WAITERS))
        eventually(lambda: parked(client) == 0)
        size, others = pool(client)["size"], backends(db)
        most = 0

        for n in range(ROUNDS):
            sockets = waiting_pops(broker.url, fresh_queue, WAITERS)
            if n == 0:
                eventually(lambda: parked(client) == WAITERS)
            most = max(most, backends(db))
            hang_up(sockets)

        eventually(lambda: parked(client) == 0)
        eventually(lambda: pool(client) == {"size": size, "idle": size, "active": 0})
        eventually(lambda: backends(db) == others)
        assert most <= others + size, "parked pops must not hold connections"
        wire.push(fresh_queue, "after the storm")
        assert wire.payloads(fresh_queue, consumerGroup="g") == ["after the storm"]


def parked(client: httpx.Client) -> float:
    return sum(gauges(client, "queen_parked_long_polls").values())


def pool(client: httpx.Client) -> dict[str, float]:
    found = gauges(client, "queen_db_pool_")
    return {name.removeprefix("queen_db_pool_"): value for name, value in found.items()}


def test_no_request_lets_a_connection_idle_in_a_transaction(
    start_broker: Any, fresh_database: Any, fresh_queue: str
):
    database = fresh_database()
    with database.connect() as db:
        db.execute(
            sql.SQL("ALTER DATABASE {} SET idle_in_transaction_session_timeout = '250ms'").format(
                sql.Identifier(database.name)
            )
        )
    broker = start_broker(on=database)
    stop = threading.Event()
    idlers: list[Any] = []

    def watch() -> None:
        with database.connect() as db:
            while not stop.wait(0.02):
                idlers.extend(db.execute(IDLERS).fetchall())

    watcher = threading.Thread(target=watch)
    watcher.start()
    sockets = waiting_pops(broker.url, f"{fresh_queue}-idle", 50)
    try:
        with httpx.Client(base_url=broker.url, timeout=30) as client:
            wire = WireClient(client)
            for n in range(40):
                everything_once(wire, fresh_queue, n)
            # Long enough for a transaction that a waiting pop held open to be shot.
            assert wire.messages(fresh_queue, wait=True, timeout=600) == []
    finally:
        stop.set()
        watcher.join()
        hang_up(sockets)

    assert idlers == []


def everything_once(wire: WireClient, queue: str, n: int) -> None:
    wire.push(queue, n, n + 1, partition=f"p{n % 5}")
    first, second = wire.messages(queue)
    wire.extend(first["leaseId"])
    assert wire.ack(first)["success"]
    push = {"type": "push", "queue": f"{queue}-out", "payload": n}
    ack = ack_of(second, type="ack")
    assert wire.transaction(push, ack)["success"]
    assert wire.transaction({"type": "ack"} | ack_of(second, partitionId="no such"))["success"] is (
        False
    )
    wire.configure(queue, retryLimit=n % 4)
    wire.queue(queue)
    wire.depth(queue)
    wire.dead_letters(queue)
    if n % 10 == 9:
        wire.delete(f"{queue}-out")
