"""Each worker has a spool of its own, and none is ever left behind.

Method: a broker of several workers reaches its database through a gateway of the test, which
is closed while messages are pushed through every worker; then workers are killed, or the broker
is started again with another number of them.
"""

import os
import signal
from pathlib import Path

import pytest

from tests.harness import BrokerProcess, eventually
from tests.process import crew
from tests.process.site import Site, log_of, maintenance, push, until_drained
from tests.wire_client import WireClient

# A stop must not wait for a database that is away.
PROMPT = {"QUEEN_DRAIN_S": "1", "QUEEN_CONNECT_TIMEOUT_S": "2"}


def start(site: Site, workers: int, directory: Path | None, *, ready: bool = True) -> BrokerProcess:
    given = {} if directory is None else {"FILE_BUFFER_DIR": str(directory)}
    return site.start("one", ready=ready, **crew.of(workers, **given, **PROMPT))


def buffer_one_each(broker: BrokerProcess, workers: int, queue: str, name: str) -> list[str]:
    """A message through each worker, in a partition of its own."""
    names = []
    with crew.each_worker(broker, workers) as wires:
        for number, wire in enumerate(wires):
            names.append(f"{name}-{number}")
            assert push(wire, queue, names[-1], partition=names[-1]) == ["buffered"]
        assert crew.buffers(wires[0].http)["pending"] >= workers, "the sum of all"
    return names


def test_a_worker_that_is_killed_comes_back_with_its_spool(site: Site, fresh_queue: str):
    broker = start(site, 2, None)
    crew.until_all_ready(broker)
    site.gateway.close()
    names = buffer_one_each(broker, 2, fresh_queue, "a")
    os.kill(crew.pids(broker)[0], signal.SIGKILL)
    eventually(lambda: crew.starts(broker, 0) == 2, timeout_s=60)

    def pending() -> dict[int, int | None]:
        with crew.one_connection(broker) as http:
            return {one["worker"]: one.get("pending") for one in crew.buffers(http)["workers"]}

    eventually(lambda: pending() == {0: 1, 1: 1}, timeout_s=60)
    names += buffer_one_each(broker, 2, fresh_queue, "b")
    site.gateway.open()
    with WireClient.at(broker.url) as wire:
        until_drained(wire)
        assert log_of(wire, fresh_queue) == {name: [name] for name in names}


@pytest.mark.parametrize("given", [False, True], ids=["below the data", "FILE_BUFFER_DIR"])
@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 3), (3, 2)])
def test_another_number_of_workers_strands_no_spool(
    site: Site, tmp_path: Path, fresh_queue: str, before: int, after: int, given: bool
):
    directory = tmp_path / "given" if given else None
    broker = start(site, before, directory)
    crew.until_all_ready(broker)
    site.gateway.close()
    if before > 1:
        names = buffer_one_each(broker, before, fresh_queue, "a")
    else:
        with WireClient.at(broker.url) as wire:
            assert push(wire, fresh_queue, "a", partition="a") == ["buffered"]
        names = ["a"]
    assert broker.stop() == 0, broker.log[-5000:]

    broker = start(site, after, directory, ready=False)
    with WireClient.at(broker.url) as wire:
        # Adopted while the database is away: the spool of a worker that starts later is its own.
        eventually(lambda: crew.buffers(wire.http)["pending"] == before)
        site.gateway.open()
        until_drained(wire)
        assert log_of(wire, fresh_queue) == {name: [name] for name in names}
    assert broker.stop() == 0, broker.log[-5000:]
    root = directory or site.spools
    assert not list(root.rglob("*.buf")) + list(root.rglob("*.tmp"))


def test_push_maintenance_shows_what_all_workers_hold(site: Site, fresh_queue: str):
    broker = start(site, 2, None)
    crew.until_all_ready(broker)
    with crew.each_worker(broker, 2) as wires:
        maintenance(wires[0], True)

        def diverted(wire: WireClient) -> bool:
            return push(wire, fresh_queue, "until it is known", partition="p") == ["buffered"]

        for wire in wires:
            eventually(lambda wire=wire: diverted(wire))
        for wire in wires:
            state = wire.get("/api/v1/system/maintenance").json()
            assert state["maintenanceMode"] is True
            assert state["bufferedMessages"] == 2
        maintenance(wires[1], False)
        until_drained(wires[0])
