"""A producer that never stops: one partition, one message a push, retried until it is taken.

Every answer is remembered, so that a test can say what there was and what there was not.

Used by the tests of failover and of rolling restarts. Imports wire_client, harness.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Self

import httpx

from tests.harness import eventually
from tests.wire_client import Json, WireClient

PAUSE_S = 0.005
RETRY_S = 0.05
# After its end: what is under way is taken by then, or never.
GIVE_UP_S = 30.0
TAKEN = ("queued", "duplicate", "buffered")


class Producer:
    """Pushes 0, 1, 2, ... to its partition; `url` says where, after so many refusals."""

    def __init__(self, url: Callable[[int], str], queue: str, partition: str) -> None:
        self.queue, self.partition = queue, partition
        self.pushed = 0
        self.statuses: Counter[str] = Counter()
        # Answers that were no taken item, and connections that broke: each was retried.
        self.refusals: list[str] = []
        self._url = url
        self._over = threading.Event()
        self._give_up_at = float("inf")
        self._thread = threading.Thread(target=self._produce, name=f"producer {partition}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._give_up_at = time.monotonic() + GIVE_UP_S
        self._over.set()
        self._thread.join()

    def until_pushed(self, count: int, timeout_s: float = 30.0) -> None:
        """So many more."""
        goal = self.pushed + count
        eventually(lambda: self.pushed >= goal, timeout_s)

    def until_answered(self, status: str, count: int = 1, timeout_s: float = 30.0) -> float:
        """So many more with this status; returns how long that took."""
        began, goal = time.monotonic(), self.statuses[status] + count
        eventually(lambda: self.statuses[status] >= goal, timeout_s)
        return time.monotonic() - began

    def _produce(self) -> None:
        with httpx.Client(timeout=60) as http:
            while not self._over.is_set():
                item = {
                    "queue": self.queue,
                    "partition": self.partition,
                    "payload": self.pushed,
                    "transactionId": f"{self.partition}-{self.pushed}",
                }
                self.statuses[self._push_until_taken(WireClient(http), item)] += 1
                self.pushed += 1
                time.sleep(PAUSE_S)

    def _push_until_taken(self, wire: WireClient, item: Json) -> str:
        while time.monotonic() < self._give_up_at:
            try:
                url = f"{self._url(len(self.refusals))}/api/v1/push"
                answer = wire.http.post(url, json={"items": [item]})
            except httpx.HTTPError as error:
                self.refusals.append(type(error).__name__)
            else:
                status = answer.json()[0]["status"] if answer.status_code == 201 else ""
                if status in TAKEN:
                    return status
                self.refusals.append(f"{answer.status_code} {answer.text[:200]}")
            time.sleep(RETRY_S)
        raise AssertionError(f"never taken: {self.refusals[-3:]}")
