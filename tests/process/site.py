"""A database behind a gateway, and brokers beside it that keep their spools in one place.

The brokers of a site have names (their server ids) and share a data directory, so that one
that is started again finds its spool. They reach PostgreSQL through the gateway, unless
they are told to go directly.

Used by the tests of the spool. Imports gateway, harness.
"""

import contextlib
import itertools
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import harness
from tests.harness import BrokerProcess, Database, eventually
from tests.process.gateway import Gateway
from tests.wire_client import WireClient, expect

BUFFERS = "/api/v1/status/buffers"
MAINTENANCE = "/api/v1/system/maintenance"


class Site:
    def __init__(self, database: Database, directory: Path) -> None:
        self.database = database
        self.directory = directory
        self.gateway = Gateway(database)
        self._numbers = itertools.count()
        self._started: list[BrokerProcess] = []

    @property
    def spools(self) -> Path:
        return self.directory / "data" / "spool"

    def start(
        self,
        name: str = "one",
        *,
        directly: bool = False,
        ready: bool = True,
        **environment: str | None,
    ) -> BrokerProcess:
        database = self.database if directly else self.gateway.database
        process = BrokerProcess(
            self.directory / f"broker-{next(self._numbers)}.log",
            {
                **database.environment,
                "QUEEN_DATA_DIR": str(self.directory / "data"),
                "QUEEN_SERVER_ID": name,
                **environment,
            },
            ready=ready,
        )
        self._started.append(process)
        if ready:
            with WireClient.at(process.url) as wire:
                until_storing(wire)
        return process

    def close(self) -> None:
        for process in self._started:
            process.kill()
        self.gateway.close()


@contextlib.contextmanager
def made(postgres: Path, directory: Path) -> Iterator[Site]:
    """A site on a new database with the schema."""
    name = f"queen_{harness.WORKER}_{uuid.uuid4().hex[:8]}"
    site = Site(harness.make_database(postgres, name), directory)
    try:
        yield site
    finally:
        site.close()
        harness.drop_database(site.database)


# --- what the tests say about a broker ----------------------------------------------------------


def statuses(rows: list[dict[str, Any]]) -> list[str]:
    return [row["status"] for row in rows]


def push(wire: WireClient, queue: str, *payloads: Any, partition: str = "p") -> list[str]:
    """Push in one request, each payload's text as its transactionId; the statuses."""
    ids = [str(payload) for payload in payloads]
    return statuses(wire.push(queue, *payloads, partition=partition, ids=ids))


def buffers(wire: WireClient) -> dict[str, Any]:
    return expect(wire.get(BUFFERS), 200).json()


def set_aside(wire: WireClient) -> dict[str, int]:
    return buffers(wire)["spool"]["setAside"]


def until_drained(wire: WireClient, timeout_s: float = 30.0) -> None:
    """Until the broker is at its database and nothing is left in its spool."""
    eventually(lambda: (now := buffers(wire))["dbHealthy"] and now["pending"] == 0, timeout_s)


def until_storing(wire: WireClient, timeout_s: float = 30.0) -> None:
    """Until pushes go into the database (again)."""
    eventually(lambda: statuses(wire.push("storing?", 0)) == ["queued"], timeout_s)


def maintenance(wire: WireClient, enabled: bool) -> None:
    expect(wire.post(MAINTENANCE, {"enabled": enabled}), 200)


def log_of(wire: WireClient, queue: str) -> dict[str, list[Any]]:
    """Every payload of the queue by partition, as a group that begins at the start gets them."""
    group = f"audit-{uuid.uuid4().hex}"
    log: dict[str, list[Any]] = defaultdict(list)
    asked = {"consumerGroup": group, "subscriptionMode": "all", "autoAck": True}
    while messages := wire.messages(queue, batch=10_000, partitions=0, **asked):
        for message in messages:
            log[message["partition"]].append(message["data"])
    return dict(log)
