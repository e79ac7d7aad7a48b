"""Pops that wait at a broker, in threads, and what they were answered in the end.

Used by the tests of failover and of rolling restarts. Imports wire_client, harness.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.harness import eventually
from tests.wire_client import WireClient, expect


class Parked:
    """`queues`: one pop of queue mode waits at each. Leaving waits for their answers."""

    def __init__(self, url: str, queues: list[str], timeout_s: float = 60.0) -> None:
        self._url = url
        self._timeout_ms = int(timeout_s * 1000)
        self._threads = ThreadPoolExecutor(len(queues))
        with WireClient.at(url) as wire:
            before = seated(wire)
            self._pops = {queue: self._threads.submit(self._pop, queue) for queue in queues}
            eventually(lambda: seated(wire) >= before + len(queues))

    def still_wait(self) -> bool:
        return not any(pop.done() for pop in self._pops.values())

    def answers(self, timeout_s: float = 60.0) -> dict[str, list[Any]]:
        """The payloads that each got; a status that is not 200 or 204 fails the test."""
        deadline = time.monotonic() + timeout_s
        try:
            return {
                queue: pop.result(max(deadline - time.monotonic(), 0.1))
                for queue, pop in self._pops.items()
            }
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _pop(self, queue: str) -> list[Any]:
        with WireClient.at(self._url) as wire:
            wire.http.timeout = self._timeout_ms / 1000 + 30
            return wire.payloads(queue, wait=True, timeout=self._timeout_ms, autoAck=True)


def seated(wire: WireClient) -> int:
    """How many pops wait at this broker."""
    text = expect(wire.get("/metrics/prometheus"), 200).text
    lines = [one for one in text.splitlines() if one.startswith("queen_parked_long_polls{")]
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines)
