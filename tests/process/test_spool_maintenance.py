"""Push maintenance diverts every push, over restarts too, and a spooled partition keeps its order.

Method: real brokers on a database of their own; the operator's routes over HTTP.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness import eventually
from tests.process.site import (
    Site,
    buffers,
    log_of,
    maintenance,
    push,
    until_drained,
)
from tests.wire_client import WireClient


def test_push_maintenance_outlives_restarts_and_nothing_is_drained_until_it_is_over(
    site: Site, fresh_queue: str
):
    quick = {"FILE_BUFFER_FLUSH_MS": "5", "FILE_BUFFER_EVENTS_PER_FILE": "3"}
    process = site.start(**quick)
    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, 0) == ["queued"]
        maintenance(wire, True)
        for n in range(1, 20):
            assert push(wire, fresh_queue, n) == ["buffered"]
            assert buffers(wire)["pending"] == n, "nothing leaves the spool"
        assert log_of(wire, fresh_queue) == {"p": [0]}, "pops go on"
    assert process.stop() == 0
    process = site.start(ready=False, **quick)
    eventually(process.is_ready, 30.0)
    with WireClient.at(process.url) as wire:
        for n in range(20, 40):
            assert push(wire, fresh_queue, n) == ["buffered"]
            assert buffers(wire)["pending"] == n
        process.kill()
    process = site.start(ready=False, **quick)
    eventually(process.is_ready, 30.0)
    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, 40) == ["buffered"]
        assert push(wire, fresh_queue, "new", partition="unseen") == ["buffered"]
        assert log_of(wire, fresh_queue) == {"p": [0]}
        maintenance(wire, False)
        until_drained(wire)
        assert push(wire, fresh_queue, 41) == ["queued"]
        assert log_of(wire, fresh_queue) == {"p": list(range(42)), "unseen": ["new"]}


def test_push_maintenance_that_is_switched_under_load_loses_and_reorders_nothing(
    site: Site, fresh_queue: str
):
    process = site.start()
    numbers = range(300)

    def produce(partition: str) -> set[str]:
        with WireClient.at(process.url) as producer:
            told = (push(producer, fresh_queue, n, partition=partition) for n in numbers)
            return {status for one in told for status in one}

    partitions = [f"p{n}" for n in range(4)]
    with WireClient.at(process.url) as wire, ThreadPoolExecutor(4) as producers:
        work = [producers.submit(produce, partition) for partition in partitions]
        while not all(one.done() for one in work):
            maintenance(wire, True)
            maintenance(wire, False)
        assert set.union(*(one.result() for one in work)) <= {"queued", "buffered"}
        until_drained(wire)
        assert log_of(wire, fresh_queue) == {name: list(numbers) for name in partitions}


def test_a_transaction_that_pushes_to_a_spooled_partition_fails_and_works_once_it_is_drained(
    site: Site, fresh_queue: str
):
    def transact(wire: WireClient, payload: str, partition: str) -> dict:
        item = {"queue": fresh_queue, "partition": partition, "payload": payload}
        return wire.transaction({"type": "push", "items": [item]})

    process = site.start()
    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, "a1") == ["queued"]
        maintenance(wire, True)
        assert push(wire, fresh_queue, "a2") == ["buffered"]
        refused = transact(wire, "too early", "p")
        assert (refused["success"], refused["reason"]) == (False, "db_error")
        assert refused["results"] == []
        assert transact(wire, "b1", "elsewhere")["success"] is True, "it is not diverted"
        maintenance(wire, False)
        until_drained(wire)
        assert transact(wire, "a3", "p")["success"] is True
        assert log_of(wire, fresh_queue) == {"p": ["a1", "a2", "a3"], "elsewhere": ["b1"]}


def test_a_transaction_that_waits_is_done_when_its_partition_is_drained_in_time(
    site: Site, fresh_queue: str
):
    process = site.start()
    with WireClient.at(process.url) as wire, ThreadPoolExecutor(1) as elsewhere:
        maintenance(wire, True)
        assert push(wire, fresh_queue, "a1") == ["buffered"]
        operation = {
            "type": "push",
            "items": [{"queue": fresh_queue, "partition": "p", "payload": "a2"}],
        }
        done = False
        while not done:
            # Whether the drain is in time depends on the machine: what was refused did nothing.
            with WireClient.at(process.url) as other:
                asked = elsewhere.submit(other.transaction, operation)
                maintenance(wire, False)
                done = asked.result()["success"]
        assert log_of(wire, fresh_queue) == {"p": ["a1", "a2"]}


def test_a_transaction_of_another_broker_does_not_wait_for_this_ones_spool(
    site: Site, fresh_queue: str
):
    here, there = site.start("here"), site.start("there", directly=True)
    with WireClient.at(here.url) as wire, WireClient.at(there.url) as other:
        site.gateway.close()
        assert push(wire, fresh_queue, "spooled here") == ["buffered"]
        item = {"queue": fresh_queue, "partition": "p", "payload": "there"}
        assert other.transaction({"type": "push", "items": [item]})["success"] is True
        site.gateway.open()
        until_drained(wire)
        assert log_of(other, fresh_queue) == {"p": ["there", "spooled here"]}


@pytest.mark.parametrize("dedup_s", [3600, 0])
def test_a_partition_is_handed_back_under_a_steady_stream_of_pushes(
    site: Site, fresh_queue: str, dedup_s: int
):
    process = site.start()
    with WireClient.at(process.url) as wire:
        wire.configure(fresh_queue, dedupWindowSeconds=dedup_s)
        maintenance(wire, True)
        told = [push(wire, fresh_queue, n)[0] for n in range(100)]
        maintenance(wire, False)
        # No pause: the stream itself must not keep the partition in the spool.
        while told[-20:] != ["queued"] * 20:
            told += push(wire, fresh_queue, len(told))
            assert len(told) < 20_000, "never queued again"
        assert told[:100] == ["buffered"] * 100
        assert set(told) == {"buffered", "queued"}
        assert log_of(wire, fresh_queue) == {"p": list(range(len(told)))}
