"""PostgreSQL is killed under a running broker: what was answered stands, the broker heals.

Method: a PostgreSQL of its own, durable as in production but so slow to write out asynchronous
commits (`wal_writer_delay` at its maximum) that a crash loses those which nobody waited for. Its
postmaster gets SIGQUIT or SIGKILL, then it is started again; the broker is not touched.
"""

import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness import BrokerProcess, KillablePostgres, eventually
from tests.wire_client import INVALID_LEASE, WireClient, ack_of

SETTINGS = {
    "wal_writer_delay": "10s",
    "wal_writer_flush_after": "1GB",
    "shared_buffers": "32MB",
    "max_connections": "60",
}


@pytest.fixture(scope="module")
def server() -> Iterator[KillablePostgres]:
    # Not pytest's own directory: the account that PostgreSQL runs as could not reach it.
    data_dir = Path(tempfile.mkdtemp(prefix="crash-"))
    data_dir.chmod(0o711)
    server = KillablePostgres(data_dir, SETTINGS)
    yield server
    server.remove()


@pytest.fixture(scope="module")
def broker(
    server: KillablePostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """One process that lives through all the crashes of this file."""
    log = tmp_path_factory.mktemp("crash") / "broker.log"
    process = BrokerProcess(log, server.database.environment)
    yield process
    process.stop()


class Persistent(WireClient):
    """Asks again when it was told that the database failed, as every client does.

    Whether that was needed is the question of one test; the others ask what was kept.
    """

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.until_served(lambda: super(Persistent, self).get(path, **params))

    def post(self, path: str, body: Any = None, **arguments: Any) -> httpx.Response:
        return self.until_served(lambda: super(Persistent, self).post(path, body, **arguments))

    def settle(self) -> None:
        """Wait until what was buffered is in the log, and pushes go there directly again."""

        def settled() -> bool:
            buffers = self.get("/api/v1/status/buffers").json()
            return buffers["pending"] == 0 and buffers["dbHealthy"]

        eventually(settled, 30)

    @staticmethod
    def until_served(ask: Callable[[], httpx.Response]) -> httpx.Response:
        for _ in range(100):
            answer = ask()
            refused = answer.status_code >= 500 or b"ack flush failed" in answer.content
            if not refused and b'"status":"failed"' not in answer.content.replace(b" ", b""):
                return answer
            time.sleep(0.02)
        raise AssertionError(f"never served: {answer.text}")


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[WireClient]:
    with httpx.Client(base_url=broker.url, timeout=30) as client:
        wire = Persistent(client)
        wire.settle()
        yield wire


@pytest.fixture
def crash(server: KillablePostgres, broker: BrokerProcess) -> Callable[..., None]:
    """Kill PostgreSQL and start it again; the broker process lives on."""

    def crash(signum: int = signal.SIGQUIT) -> None:
        server.kill(signum)
        server.start()
        assert broker.process.poll() is None, "the broker went down with its database"

    return crash


@pytest.mark.parametrize("signum", [signal.SIGQUIT, signal.SIGKILL])
def test_every_message_answered_queued_is_in_the_log_once_after_a_crash(
    wire: Persistent, crash: Callable[..., None], fresh_queue: str, signum: int
):
    queued: dict[str, set[str]] = {f"p{n}": set() for n in range(4)}
    stop = threading.Event()
    under_way = threading.Barrier(len(queued) + 1)

    def produce(partition: str) -> None:
        with httpx.Client(base_url=wire.http.base_url, timeout=30) as client:
            producer = Persistent(client)
            n = 0
            while not stop.is_set():
                ids = [f"{n + k}" for k in range(5)]
                n += 5
                rows = producer.push(fresh_queue, *ids, partition=partition, ids=ids)
                queued[partition] |= {row["transaction_id"] for row in rows}
                if n == 50:
                    under_way.wait(timeout=30)

    producers = [threading.Thread(target=produce, args=[partition]) for partition in queued]
    for producer in producers:
        producer.start()
    under_way.wait(timeout=30)
    crash(signum)
    stop.set()
    for producer in producers:
        producer.join()
    wire.settle()

    for partition, ids in queued.items():
        read: list[str] = []
        while messages := wire.messages(fresh_queue, partition, batch=10000, autoAck=True):
            read += [message["transactionId"] for message in messages]
        assert read == sorted(ids, key=int), f"{partition}: the log is not what was answered"


def test_a_lease_that_the_crash_forgot_means_redelivery_and_never_a_skip(
    wire: WireClient, crash: Callable[..., None], fresh_queue: str, eventually: Callable[..., Any]
):
    wire.push(fresh_queue, *range(10))
    first = wire.messages(fresh_queue, batch=4, leaseSeconds=1)
    assert [one["data"] for one in first] == [0, 1, 2, 3]

    crash()

    again = eventually(lambda: wire.messages(fresh_queue, batch=10, leaseSeconds=60))
    assert [one["data"] for one in again] == list(range(10))
    late = wire.ack(first[-1])
    assert (late["success"], late["error"]) == (False, INVALID_LEASE)
    assert wire.ack(again[-1])["leaseReleased"] is True
    assert wire.messages(fresh_queue) == []


def test_a_subscription_whose_first_pop_was_answered_is_not_lost(
    wire: Persistent, crash: Callable[..., None], fresh_queue: str
):
    wire.push(fresh_queue, "before")
    for group in ("stays new", "would like all"):
        assert wire.messages(fresh_queue, consumerGroup=group, subscriptionMode="new") == []

    crash()
    wire.push(fresh_queue, "after", ids=["after"])
    wire.settle()

    for group, mode in (("stays new", "new"), ("would like all", "all")):
        popped = wire.payloads(fresh_queue, consumerGroup=group, subscriptionMode=mode)
        assert popped == ["after"], group


def test_a_group_that_subscribed_before_there_was_a_message_gets_the_first_one(
    wire: Persistent, crash: Callable[..., None], fresh_queue: str
):
    assert wire.messages(fresh_queue, consumerGroup="early", subscriptionMode="new") == []

    crash()
    wire.push(fresh_queue, "the first", ids=["the first"])
    wire.settle()

    assert wire.payloads(fresh_queue, consumerGroup="early", subscriptionMode="new") == [
        "the first"
    ]


def test_what_was_acked_or_popped_with_auto_ack_is_not_delivered_again(
    wire: WireClient, crash: Callable[..., None], fresh_queue: str, eventually: Callable[..., Any]
):
    wire.push(fresh_queue, 1, 2, 3)
    batch = wire.messages(fresh_queue, consumerGroup="acks", subscriptionMode="all", leaseSeconds=1)
    pushed = wire.transaction(
        {"type": "push", "queue": f"{fresh_queue}-out", "payload": "derived"},
        {"type": "ack", "consumerGroup": "acks"} | ack_of(batch[0]),
    )
    assert pushed["success"] is True
    assert wire.ack(batch[1])["success"] is True
    popped = wire.payloads(
        fresh_queue, consumerGroup="auto", subscriptionMode="all", batch=2, autoAck=True
    )
    assert popped == [1, 2]

    crash()

    rest = eventually(lambda: wire.payloads(fresh_queue, consumerGroup="acks"))
    assert rest == [3]
    assert wire.payloads(fresh_queue, consumerGroup="auto") == [3]
    assert wire.payloads(f"{fresh_queue}-out") == ["derived"]


def test_no_request_meets_a_connection_that_died_with_the_database(
    server: KillablePostgres,
    broker: BrokerProcess,
    wire: Persistent,
    fresh_queue: str,
    eventually: Any,
):
    wire.push(fresh_queue, *range(40))
    with ThreadPoolExecutor(10) as callers:
        list(callers.map(lambda n: wire.messages(f"{fresh_queue}-{n}"), range(40)))

    server.kill(signal.SIGQUIT)
    eventually(lambda: not broker.is_ready())
    server.start()
    eventually(broker.is_ready)
    wire.settle()

    impatient = WireClient(wire.http)
    popped = [impatient.payloads(fresh_queue, batch=1, autoAck=True) for _ in range(30)]
    assert popped == [[n] for n in range(30)]
    assert [row["status"] for row in impatient.push(fresh_queue, "on")] == ["queued"]
