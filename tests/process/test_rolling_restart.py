"""Three brokers are restarted one after the other under load: nobody notices but by a retry.

Method: brokers on ports that they keep, stopped with SIGTERM and started again. Producers push one
message at a time and retry until it is taken, three of them each at a broker of its own, one
at whichever answers; consumers wait and ack at whichever answers; timers fall due all the while.
"""

import base64
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.harness import BrokerProcess, Database, eventually
from tests.process.consuming import Consumer
from tests.process.parked import Parked
from tests.process.producing import Producer
from tests.process.site import log_of, until_drained
from tests.wire_client import WireClient, expect

NAMES = ("a", "b", "c")
LEASE_MS = 3000
# A sweeper sleeps a second at most; the rest is a machine that is not the test's alone.
SLACK_S = 6.0
TIMERS = 120
TIMERS_OVER_MS = 12_000


class Fleet:
    """Brokers by name, each with its port and its spool."""

    def __init__(self, database: Database, directory: Path) -> None:
        self._database, self._directory = database, directory
        self.ports = {name: _free_port() for name in NAMES}
        self.processes = {name: self.start(name) for name in NAMES}

    def start(self, name: str) -> BrokerProcess:
        environment = {
            **self._database.environment,
            "PORT": str(self.ports[name]),
            "QUEEN_SERVER_ID": name,
            "QUEEN_DATA_DIR": str(self._directory / "data"),
            "QUEEN_SWEEPER_LEASE_MS": str(LEASE_MS),
        }
        return BrokerProcess(self._directory / f"{name}.log", environment)

    def restart(self, name: str) -> None:
        self.processes[name].process.send_signal(signal.SIGTERM)
        assert self.processes[name].wait() == 0
        self.processes[name] = self.start(name)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def anywhere(self, refused: int) -> str:
        """A client's list: the next one, whenever one refused."""
        return self.url(NAMES[refused % len(NAMES)])


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def fleet(fresh_database: Callable[..., Database], tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(fresh_database(), tmp_path)
    yield fleet
    for process in fleet.processes.values():
        process.kill()


def schedule(wire: WireClient, queue: str) -> dict[str, datetime]:
    """Timers that fall due evenly from now on; when each of them should fire."""
    due: dict[str, datetime] = {}
    operations = []
    for n in range(TIMERS):
        delay_ms = TIMERS_OVER_MS * n // TIMERS
        due[f"t{n}"] = datetime.now(UTC) + timedelta(milliseconds=delay_ms)
        payload = base64.b64encode(b"1").decode()
        operations.append(
            {"op": "schedule", "queue": queue, "timerKey": f"t{n}", "txn": f"t{n}"}
            | {"delayMs": delay_ms, "payload": payload, "partition": f"p{n % 4}"}
        )
    results = expect(wire.post("/api/v1/timers", {"operations": operations}), 200).json()
    assert all(one["ok"] for one in results["results"])
    return due


def fired(wire: WireClient, queue: str) -> list[tuple[str, datetime]]:
    """Which have fired so far, and when each was stored."""
    found = []
    asked = {"consumerGroup": f"audit-{time.monotonic_ns()}", "subscriptionMode": "all"}
    while messages := wire.messages(queue, batch=1000, partitions=0, autoAck=True, **asked):
        found += [
            (one["transactionId"], datetime.fromisoformat(one["createdAt"])) for one in messages
        ]
    return found


def test_a_rolling_restart_under_load_loses_and_doubles_nothing(fleet: Fleet, fresh_queue: str):
    timers = f"{fresh_queue}-timers"
    loyal = [Producer(lambda _, n=n: fleet.url(n), fresh_queue, f"at {n}") for n in NAMES]
    roaming = Producer(fleet.anywhere, fresh_queue, "anywhere")
    consumers = [Consumer(fleet.anywhere, fresh_queue, group) for group in ("g", "h")]
    with ExitStack() as running:
        wire = running.enter_context(WireClient.at(fleet.url("b")))
        due = schedule(wire, timers)
        for one in (*loyal, roaming, *consumers):
            running.enter_context(one)
        for name in NAMES:
            for producer in (*loyal, roaming):
                producer.until_pushed(30)
            waiting = Parked(fleet.url(name), [f"{fresh_queue}-quiet-{name}"])
            fleet.restart(name)
            # Answered with nothing, and not cut off.
            assert waiting.answers() == {f"{fresh_queue}-quiet-{name}": []}
        for producer in (*loyal, roaming):
            producer.until_pushed(30)
        eventually(lambda: len(fired(wire, timers)) >= TIMERS, 30 + TIMERS_OVER_MS / 1000)
    for name in NAMES:
        with WireClient.at(fleet.url(name)) as wire:
            until_drained(wire)
    with WireClient.at(fleet.url("c")) as wire:
        log, at = log_of(wire, fresh_queue), fired(wire, timers)

    assert log == {one.partition: list(range(one.pushed)) for one in (*loyal, roaming)}
    for producer in (*loyal, roaming):
        # A broker that stops refuses connections; what it took it answers.
        assert not [one for one in producer.refusals if one[0].isdigit()], producer.refusals
        # A broker listens a moment before it has its database.
        assert set(producer.statuses) <= {"queued", "duplicate", "buffered"}
    for consumer in consumers:
        assert consumer.completed_count() > 0 and consumer.faults == []
        assert not [one for one in consumer.refusals if one[0].isdigit()], consumer.refusals
    assert sorted(key for key, _ in at) == sorted(due), "each timer fires once"
    late_s = max((when - due[key]).total_seconds() for key, when in at)
    print(f"the latest timer was {late_s:.2f} s late; refused: {roaming.refusals}")
    assert late_s < LEASE_MS / 1000 + SLACK_S
