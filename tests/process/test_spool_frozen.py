"""The network to PostgreSQL drops packets: nothing answers, and in the end all arrives late.

Method: a gateway that passes nothing on for a while. Time limits alone end such a wait.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness import eventually
from tests.process.site import Site, log_of, push, until_drained
from tests.wire_client import WireClient

IMPATIENT = {"QUEEN_STMT_TIMEOUT_MS": "1000", "QUEEN_CONNECT_TIMEOUT_S": "2"}


@pytest.mark.parametrize("afterwards", ["packets arrive late", "connections are reset"])
def test_a_push_that_meets_a_network_which_drops_packets_is_buffered_and_stored_once(
    site: Site, fresh_queue: str, afterwards: str
):
    with WireClient.at(site.start(**IMPATIENT).url) as wire:
        assert push(wire, fresh_queue, "a1") == ["queued"]
        site.gateway.freeze()
        assert push(wire, fresh_queue, "a2") == ["buffered"]
        assert push(wire, fresh_queue, "a3", "a4") == ["buffered"] * 2
        assert push(wire, fresh_queue, "b1", partition="other") == ["buffered"]
        if afterwards == "connections are reset":
            site.gateway.sever()
        site.gateway.open()
        until_drained(wire)
        assert push(wire, fresh_queue, "a5") == ["queued"]
        assert log_of(wire, fresh_queue) == {"p": ["a1", "a2", "a3", "a4", "a5"], "other": ["b1"]}


def test_a_broker_finds_its_database_again_however_often_it_looked_while_a_call_hung(
    site: Site, fresh_queue: str
):
    """A call is given up when the database is found to be away, and again at the next look."""
    process = site.start()
    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, "a1") == ["queued"]
        site.gateway.freeze()
        assert push(wire, fresh_queue, "a2") == ["buffered"]
        eventually(lambda: not process.is_ready())
        site.gateway.open()
        eventually(process.is_ready, timeout_s=30)
        until_drained(wire)
        assert push(wire, fresh_queue, "a3") == ["queued"]
        assert log_of(wire, fresh_queue) == {"p": ["a1", "a2", "a3"]}


def test_what_is_frozen_with_the_connection_open_does_not_hold_up_what_goes_to_the_spool(
    site: Site, fresh_queue: str
):
    """While one call hangs, pushes to other partitions wait no longer than it does."""
    process = site.start(**IMPATIENT)
    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, 0, partition="p0") == ["queued"]
        site.gateway.freeze()

        def produce(number: int) -> list[str]:
            with WireClient.at(process.url) as producer:
                partition = f"p{number}"
                return [push(producer, fresh_queue, n, partition=partition)[0] for n in range(1, 6)]

        with ThreadPoolExecutor(4) as producers:
            assert list(producers.map(produce, range(4))) == [["buffered"] * 5] * 4
        site.gateway.open()
        until_drained(wire)
        log = log_of(wire, fresh_queue)
        assert log.pop("p0") == list(range(6))
        assert log == {f"p{number}": list(range(1, 6)) for number in range(1, 4)}
