"""PostgreSQL fails over to its standby, and loses its connections: brokers heal by themselves.

Method: a primary and a synchronous standby of our own, on two loopback addresses, and a broker
that knows both (PG_HOST=a,b). The primary is killed under load, the standby promoted; the broker
is never touched. Every answer of the load is held against the log.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import BrokerProcess, eventually
from tests.process.consuming import Consumer
from tests.process.parked import Parked
from tests.process.producing import Producer
from tests.process.replicas import Pair
from tests.process.site import log_of, until_drained, until_storing
from tests.wire_client import WireClient

# The promise is 10 s from the promotion on; a machine that is busy may take longer.
HEALED_S = 30.0


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.remove()


@pytest.fixture
def broker(pair: Pair, tmp_path: Path) -> Iterator[BrokerProcess]:
    environment = {
        **pair.environment,
        "QUEEN_DATA_DIR": str(tmp_path / "data"),
        "QUEEN_SERVER_ID": "one",
    }
    process = BrokerProcess(tmp_path / "broker.log", environment)
    yield process
    process.kill()


def test_a_failover_loses_nothing_doubles_nothing_and_needs_no_restart(
    pair: Pair, broker: BrokerProcess, fresh_queue: str
):
    quiet = [f"{fresh_queue}-quiet-{n}" for n in range(5)]
    producers = [Producer(lambda _: broker.url, fresh_queue, f"p{n}") for n in range(3)]
    consumer = Consumer(lambda _: broker.url, fresh_queue, "g")
    with WireClient.at(broker.url) as wire:
        until_storing(wire)
        parked = Parked(broker.url, quiet)
        with producers[0], producers[1], producers[2], consumer:
            for producer in producers:
                producer.until_pushed(50)
            eventually(lambda: consumer.completed_count() > 50)

            pair.kill_primary()
            for producer in producers:
                producer.until_answered("buffered", 20)
            assert wire.get("/livez").status_code == 200
            completed = consumer.completed_count()

            pair.promote()
            promoted = time.monotonic()
            for producer in producers:
                producer.until_answered("queued", 20, HEALED_S)
            eventually(lambda: consumer.completed_count() > completed, HEALED_S)
            print(f"healed {time.monotonic() - promoted:.2f} s after the promotion")

            assert parked.still_wait(), parked.answers()
            for queue in quiet:
                wire.push(queue, "after the failover")
            assert parked.answers() == {queue: ["after the failover"] for queue in quiet}
        until_drained(wire)
        assert time.monotonic() - promoted < HEALED_S + 60
        log = log_of(wire, fresh_queue)
    assert log == {p.partition: list(range(p.pushed)) for p in producers}
    for producer in producers:
        assert producer.refusals == []
        assert set(producer.statuses) == {"queued", "buffered"}
    assert consumer.faults == []
    for partition, completed_here in consumer.completed.items():
        assert completed_here == sorted(completed_here), partition
    assert broker.process.poll() is None
