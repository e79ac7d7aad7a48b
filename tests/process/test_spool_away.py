"""PostgreSQL cannot be reached: pushes are buffered, and delivered when it can.

Method: a broker reaches its database through a gateway of the test, which refuses
connections or swallows answers. What is stored is read by a fresh group.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.harness import BrokerProcess, eventually
from tests.process import site as sites
from tests.process.site import Site, buffers, log_of, push, until_drained, until_storing
from tests.wire_client import WireClient


@pytest.fixture(scope="module")
def shared_site(postgres: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with sites.made(postgres, tmp_path_factory.mktemp("away")) as site:
        yield site


@pytest.fixture(scope="module")
def process(shared_site: Site) -> BrokerProcess:
    return shared_site.start()


@pytest.fixture
def wire(shared_site: Site, process: BrokerProcess) -> Iterator[WireClient]:
    with WireClient.at(process.url) as wire:
        until_storing(wire)
        yield wire
        shared_site.gateway.open()
        until_drained(wire)


def committed(site: Site, queue: str) -> int:
    """How many messages of the queue are in the log."""
    with site.database.connect() as db:
        counted = db.execute(
            "SELECT coalesce(sum(length(segment.ends) / 4), 0)::int FROM queen_segment segment"
            " JOIN queen_partition partition ON partition.id = segment.partition_id"
            " JOIN queen_queue queue ON queue.id = partition.queue_id WHERE queue.name = %s",
            [queue],
        ).fetchone()
    assert counted is not None
    return int(counted[0])


def test_what_is_pushed_while_connections_are_refused_is_delivered_in_order_afterwards(
    shared_site: Site, wire: WireClient, fresh_queue: str
):
    assert push(wire, fresh_queue, "a1") == ["queued"]
    shared_site.gateway.close()
    assert push(wire, fresh_queue, "a2", "a3") == ["buffered"] * 2
    assert push(wire, fresh_queue, "b1", partition="never seen") == ["buffered"]
    for n in range(20):
        assert push(wire, fresh_queue, f"a{n + 4}") == ["buffered"]
    assert buffers(wire)["pending"] == 23
    shared_site.gateway.open()
    assert push(wire, fresh_queue, "a24")[0] in ("buffered", "queued")
    until_drained(wire)
    assert push(wire, fresh_queue, "a25") == ["queued"]
    expected = [f"a{n + 1}" for n in range(25)]
    assert log_of(wire, fresh_queue) == {"p": expected, "never seen": ["b1"]}


def test_an_answer_tells_the_ids_under_which_the_message_is_consumed(
    shared_site: Site, wire: WireClient, fresh_queue: str
):
    shared_site.gateway.close()
    [minted] = wire.push(fresh_queue, {"n": 1})
    [given] = wire.push(fresh_queue, {"n": 2}, ids=["mine"])
    assert (minted["status"], given["status"]) == ("buffered", "buffered")
    assert minted["transaction_id"] == minted["message_id"]
    shared_site.gateway.open()
    until_drained(wire)
    first, second = wire.messages(fresh_queue, batch=10)
    assert first["transactionId"] == minted["message_id"]
    assert (second["transactionId"], second["data"]) == ("mine", {"n": 2})
    assert wire.ack(first)["success"] and wire.ack(second)["success"]


def test_a_transaction_id_that_was_stored_before_or_is_repeated_meanwhile_is_stored_once(
    shared_site: Site, wire: WireClient, fresh_queue: str
):
    assert push(wire, fresh_queue, "stored") == ["queued"]
    shared_site.gateway.close()
    for _ in range(3):
        assert set(push(wire, fresh_queue, "stored", "new")) <= {"buffered", "duplicate"}
    shared_site.gateway.open()
    until_drained(wire)
    assert push(wire, fresh_queue, "stored", "new", "last") == ["duplicate", "duplicate", "queued"]
    assert log_of(wire, fresh_queue) == {"p": ["stored", "new", "last"]}


@pytest.fixture(scope="module")
def unprepared(shared_site: Site) -> BrokerProcess:
    """A statement that has to be prepared first waits for an answer before it does anything."""
    return shared_site.start("unprepared", QUEEN_PREPARE_STATEMENTS="false")


@pytest.mark.parametrize("dedup_s", [3600, 0])
def test_a_push_that_was_committed_and_whose_answer_was_lost_is_in_the_log_once(
    shared_site: Site, unprepared: BrokerProcess, fresh_queue: str, dedup_s: int
):
    with WireClient.at(unprepared.url) as wire:
        until_storing(wire)
        wire.configure(fresh_queue, dedupWindowSeconds=dedup_s)
        assert push(wire, fresh_queue, "a1") == ["queued"]
        shared_site.gateway.mute()
        with ThreadPoolExecutor(1) as producer:
            told = producer.submit(push, wire, fresh_queue, "a2", "a3")
            eventually(lambda: committed(shared_site, fresh_queue) == 3)
            shared_site.gateway.sever()
            assert told.result(30) == ["buffered"] * 2
        shared_site.gateway.open()
        assert push(wire, fresh_queue, "a4")[0] in ("buffered", "queued")
        until_drained(wire)
        assert log_of(wire, fresh_queue) == {"p": ["a1", "a2", "a3", "a4"]}


def test_a_consumer_that_waits_hears_of_what_comes_out_of_the_spool(
    shared_site: Site, wire: WireClient, process: BrokerProcess, fresh_queue: str
):
    push(wire, fresh_queue, "before")
    assert wire.payloads(fresh_queue, autoAck=True) == ["before"]
    shared_site.gateway.close()
    assert push(wire, fresh_queue, "meanwhile") == ["buffered"]
    shared_site.gateway.open()
    eventually(process.is_ready)
    with WireClient.at(process.url) as consumer:
        popped = consumer.payloads(fresh_queue, wait=True, timeout=30_000)
    assert popped == ["meanwhile"]


def test_while_the_database_is_away_the_broker_is_alive_and_not_ready_and_only_pushes_work(
    shared_site: Site, wire: WireClient, process: BrokerProcess, fresh_queue: str
):
    shared_site.gateway.close()
    assert push(wire, fresh_queue, 1) == ["buffered"]
    eventually(lambda: wire.get("/readyz").status_code == 503)
    assert wire.get("/livez").status_code == 200
    assert wire.get_pop(fresh_queue).status_code >= 500
    pushed = {"type": "push", "items": [{"queue": fresh_queue, "payload": 2}]}
    assert wire.post("/api/v1/transaction", {"operations": [pushed]}).status_code == 500
    now = buffers(wire)
    assert (now["pending"], now["failed"], now["dbHealthy"]) == (1, 0, False)
    shared_site.gateway.open()
    until_drained(wire)
    assert log_of(wire, fresh_queue) == {"p": [1]}, "the transaction was not spooled"


def test_buffered_mode_is_told_once_when_it_begins_and_once_when_it_ends(
    shared_site: Site, wire: WireClient, process: BrokerProcess, fresh_queue: str
):
    def told() -> tuple[int, int]:
        log = process.log
        entered = log.count("entering buffered mode (degraded durability)")
        return entered, log.count("DB recovered")

    entered, left = told()
    assert entered == left
    shared_site.gateway.close()
    for n in range(5):
        push(wire, fresh_queue, n)
    assert told() == (entered + 1, left)
    shared_site.gateway.open()
    until_drained(wire)
    eventually(lambda: told() == (entered + 1, left + 1))


def test_another_broker_goes_on_while_this_one_has_lost_its_database(
    shared_site: Site, wire: WireClient, fresh_queue: str
):
    with WireClient.at(shared_site.start("two", directly=True).url) as other:
        shared_site.gateway.close()
        assert push(wire, fresh_queue, "here") == ["buffered"]
        assert push(other, fresh_queue, "there 1") == ["queued"]
        shared_site.gateway.open()
        until_drained(wire)
        assert push(other, fresh_queue, "there 2") == ["queued"]
        assert log_of(other, fresh_queue) == {"p": ["there 1", "here", "there 2"]}


def test_many_producers_keep_their_order_through_repeated_short_outages(
    shared_site: Site, wire: WireClient, process: BrokerProcess, fresh_queue: str
):
    over = threading.Event()
    counts: dict[str, int] = {}
    seen: set[str] = set()

    def produce(partition: str) -> None:
        with WireClient.at(process.url) as producer:
            n = 0
            while not over.is_set():
                seen.update(push(producer, fresh_queue, n, partition=partition))
                n += 1
            counts[partition] = n

    producers = [threading.Thread(target=produce, args=[f"p{n}"]) for n in range(4)]
    for producer in producers:
        producer.start()
    try:
        for _ in range(3):
            # What is under way is cut off; whether any of it is depends on the moment.
            shared_site.gateway.sever()
            shared_site.gateway.close()
            eventually(lambda: "buffered" in seen)
            shared_site.gateway.open()
            until_storing(wire)
            seen.clear()
            eventually(lambda: "queued" in seen)
    finally:
        over.set()
        for producer in producers:
            producer.join()
    until_drained(wire)
    assert seen <= {"queued", "buffered"}
    assert log_of(wire, fresh_queue) == {name: list(range(n)) for name, n in counts.items()}


def test_a_broker_that_starts_without_its_database_serves_pushes_at_once(
    site: Site, fresh_queue: str, eventually: Callable[..., Any]
):
    site.gateway.close()
    process = site.start(ready=False)
    with WireClient.at(process.url) as wire:
        assert wire.get("/livez").status_code == 200
        assert wire.get("/readyz").status_code == 503
        for n in range(5):
            assert push(wire, fresh_queue, n) == ["buffered"]
        process.kill()
    process = site.start(ready=False)
    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, 5) == ["buffered"]
        site.gateway.open()
        eventually(process.is_ready, timeout_s=60)
        assert push(wire, fresh_queue, 6)[0] in ("buffered", "queued")
        until_drained(wire)
        assert log_of(wire, fresh_queue) == {"p": list(range(7))}
