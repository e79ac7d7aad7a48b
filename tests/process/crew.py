"""The workers of one broker, as a test sees them: a connection to each, and their processes.

Which worker has a connection is told by `GET /api/v1/status/buffers`, and stays so as long
as the connection does.

Used by the tests of workers. Imports harness.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import httpx

from tests.harness import BrokerProcess, eventually
from tests.wire_client import WireClient, expect

BUFFERS = "/api/v1/status/buffers"
# Small, because several workers and several tests share one PostgreSQL.
FEW = {"DB_POOL_SIZE": "8"}
CONNECTIONS_MAX = 200
PROCESS = re.compile(r"worker (\d+) is process (\d+)")


def of(workers: int, **more: str | None) -> dict[str, str | None]:
    """The environment of a broker with so many."""
    return {"QUEEN_WORKERS": str(workers), **FEW, **more}


def pids(broker: BrokerProcess) -> dict[int, int]:
    """The latest process of each."""
    return {int(worker): int(pid) for worker, pid in PROCESS.findall(broker.log)}


def starts(broker: BrokerProcess, worker: int) -> int:
    """How often a worker was started so far."""
    return [int(one) for one, _ in PROCESS.findall(broker.log)].count(worker)


def buffers(http: httpx.Client) -> dict[str, Any]:
    return dict(expect(http.get(BUFFERS), 200).json())


def one_connection(broker: BrokerProcess) -> httpx.Client:
    limits = httpx.Limits(max_connections=1)
    return httpx.Client(base_url=broker.url, timeout=60.0, limits=limits)


@contextlib.contextmanager
def connections(broker: BrokerProcess, count: int) -> Iterator[list[tuple[int, httpx.Client]]]:
    """Open so many; each with the number of the worker that has it."""
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(one_connection(broker)) for _ in range(count)]
        yield [(int(buffers(client)["worker"]), client) for client in clients]


@contextlib.contextmanager
def each_worker(broker: BrokerProcess, workers: int) -> Iterator[list[WireClient]]:
    """A client of each, in the order of their numbers."""
    with contextlib.ExitStack() as opened:
        found: dict[int, httpx.Client] = {}
        for _ in range(CONNECTIONS_MAX):
            client = opened.enter_context(one_connection(broker))
            found.setdefault(int(buffers(client)["worker"]), client)
            if len(found) == workers:
                break
        else:
            raise AssertionError(f"only {sorted(found)} of {workers} workers take connections")
        yield [WireClient(found[number]) for number in sorted(found)]


def until_all_ready(broker: BrokerProcess, timeout_s: float = 60.0) -> None:
    """Until every worker answers and has its database."""

    def ready() -> bool:
        with contextlib.suppress(httpx.HTTPError), one_connection(broker) as http:
            told = buffers(http)
            return bool(told["dbHealthy"])
        return False

    eventually(ready, timeout_s)
