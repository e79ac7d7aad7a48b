"""A broker loses its connections, all or silently: it heals, and whoever waits goes on waiting.

Method: a broker behind a gateway of the test. Its server processes are terminated, PostgreSQL is
restarted, or the network passes nothing on and closes nothing; the broker is never touched. A
second broker that reaches the database directly changes what the first believes to know.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.harness import BrokerProcess, KillablePostgres, eventually
from tests.process.parked import Parked
from tests.process.producing import Producer
from tests.process.replicas import new_data_dir
from tests.process.site import Site, log_of, push, until_drained, until_storing
from tests.wire_client import WireClient, ack_of, expect

IMPATIENT = {"QUEEN_STMT_TIMEOUT_MS": "2000", "QUEEN_CONNECT_TIMEOUT_S": "2"}
TERMINATE = (
    "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def terminate_all(db: psycopg.Connection[Any]) -> None:
    """Every server process of this database; returns when they are gone, for then it is known."""
    pids = [pid for pid, _ in db.execute(TERMINATE).fetchall()]
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def names(queue: str, count: int = 5) -> list[str]:
    return [f"{queue}-quiet-{n}" for n in range(count)]


def wake(wire: WireClient, parked: Parked, queues: list[str]) -> None:
    """The parked pops are there still, and get what is pushed now."""
    assert parked.still_wait(), parked.answers()
    for queue in queues:
        push(wire, queue, "woken")
    assert parked.answers() == {queue: ["woken"] for queue in queues}


def test_a_broker_whose_server_processes_are_all_terminated_again_and_again_loses_nothing(
    site: Site, fresh_queue: str
):
    process = site.start()
    quiet = names(fresh_queue)
    producer = Producer(lambda _: process.url, fresh_queue, "p")
    with WireClient.at(process.url) as wire, site.database.connect() as db:
        parked = Parked(process.url, quiet)
        with producer:
            for _ in range(3):
                producer.until_pushed(20)
                terminate_all(db)
                producer.until_answered("queued", 10)
        until_drained(wire)
        wake(wire, parked, quiet)
        assert producer.refusals == []
        assert log_of(wire, fresh_queue) == {"p": list(range(producer.pushed))}


def test_idle_connections_that_were_terminated_are_met_by_no_request(site: Site, fresh_queue: str):
    # Directly: through the gateway the end of a connection would arrive a moment later.
    process = site.start(directly=True)
    with WireClient.at(process.url) as wire, site.database.connect() as db:
        push(wire, fresh_queue, *range(3))
        for n in range(3):
            terminate_all(db)
            [message] = wire.messages(fresh_queue, batch=1, leaseSeconds=60)
            terminate_all(db)
            assert (message["data"], wire.ack(message)["success"]) == (n, True)
            terminate_all(db)
            wire.configure(fresh_queue, retryLimit=n)
            assert wire.queue(fresh_queue)["name"] == fresh_queue


@pytest.fixture
def server() -> Iterator[KillablePostgres]:
    server = KillablePostgres(new_data_dir(), {"max_connections": "100"})
    yield server
    server.remove()


def test_parked_pops_outlive_a_restart_of_postgresql(
    server: KillablePostgres, tmp_path: Path, fresh_queue: str
):
    process = BrokerProcess(
        tmp_path / "log",
        {**server.database.environment, "QUEEN_DATA_DIR": str(tmp_path / "data")},
    )
    quiet = names(fresh_queue)
    try:
        with WireClient.at(process.url) as wire:
            until_storing(wire)
            parked = Parked(process.url, quiet)
            server.stop()
            assert push(wire, fresh_queue, 1) == ["buffered"]
            server.start()
            eventually(process.is_ready, 30)
            until_drained(wire)
            wake(wire, parked, quiet)
            assert push(wire, fresh_queue, 2) == ["queued"]
            assert log_of(wire, fresh_queue) == {"p": [1, 2]}
    finally:
        process.kill()


def test_a_network_that_drops_packets_ends_no_parked_pop_and_holds_no_request_for_ever(
    site: Site, fresh_queue: str
):
    process = site.start(**IMPATIENT)
    quiet = names(fresh_queue)
    with WireClient.at(process.url) as wire:
        push(wire, fresh_queue, *range(5))
        [held] = wire.messages(fresh_queue, batch=1, leaseSeconds=60)
        parked = Parked(process.url, quiet)
        site.gateway.freeze()
        requests = [
            ("GET", f"/api/v1/pop/queue/{fresh_queue}-never-seen", None),
            ("POST", "/api/v1/ack", ack_of(held)),
            ("GET", "/api/v1/resources/queues", None),
        ]
        with ThreadPoolExecutor(len(requests)) as callers:
            hanging = [callers.submit(ask, process.url, *request) for request in requests]
            eventually(lambda: not process.is_ready(), 30)
            assert push(wire, fresh_queue, 5) == ["buffered"]
            assert {one.result(30) for one in hanging} <= {200, 500, 503}
        site.gateway.open()
        eventually(process.is_ready, 30)
        until_drained(wire)
        wake(wire, parked, quiet)
        # Its first try may have arrived, late.
        assert wire.ack(held)["success"] is True
        assert wire.payloads(fresh_queue, autoAck=True) == [1, 2, 3, 4, 5]


def ask(url: str, method: str, path: str, body: Any) -> int:
    return httpx.request(method, url + path, json=body, timeout=60).status_code


def test_what_was_changed_elsewhere_while_a_broker_was_cut_off_is_known_to_it_afterwards(
    site: Site, fresh_queue: str
):
    process = site.start(**IMPATIENT)
    gone, short = f"{fresh_queue}-gone", f"{fresh_queue}-short"
    with (
        WireClient.at(process.url) as wire,
        WireClient.at(site.start("two", directly=True).url) as other,
    ):
        for queue in (gone, short):
            push(wire, queue, "old")
            assert wire.payloads(queue, autoAck=True) == ["old"]
        parked = Parked(process.url, [gone])
        site.gateway.freeze()
        eventually(lambda: not process.is_ready(), 30)

        other.delete(gone)
        push(other, gone, "in the new queue")
        other.configure(short, leaseTime=1)
        push(other, short, "leased", "left")

        site.gateway.sever()
        site.gateway.open()
        eventually(process.is_ready, 30)
        until_storing(wire)
        assert parked.answers() == {gone: ["in the new queue"]}
        push(wire, gone, "more")
        assert log_of(other, gone) == {"p": ["in the new queue", "more"]}
        [message] = wire.messages(short, batch=1)
        assert message["data"] == "leased"
        eventually(lambda: wire.payloads(short, batch=1) == ["leased"])


def test_a_switch_thrown_elsewhere_while_a_broker_had_no_connection_holds_there_afterwards(
    site: Site, fresh_queue: str
):
    process = site.start()
    with (
        WireClient.at(process.url) as wire,
        WireClient.at(site.start("two", directly=True).url) as other,
    ):
        push(wire, fresh_queue, 1)
        site.gateway.close()
        eventually(lambda: not process.is_ready())
        expect(other.post("/api/v1/system/maintenance/pop", {"enabled": True}), 200)
        site.gateway.open()
        eventually(process.is_ready, 30)

        def paused() -> bool:
            asked = {"consumerGroup": "paused?", "conflation": True}
            return bool(wire.pop(fresh_queue, **asked).get("paused"))

        eventually(paused)
        expect(wire.post("/api/v1/system/maintenance/pop", {"enabled": False}), 200)
        assert wire.payloads(fresh_queue, autoAck=True) == [1]
