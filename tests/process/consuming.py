"""A consumer that never stops: pops with a lease, acks, and remembers what it was told.

Used by the tests of failover and of rolling restarts. Imports wire_client.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Self

import httpx

from tests.wire_client import Json, WireClient, ack_of

RETRY_S = 0.05
LEASE_S = 2
POLL_MS = 2000


class Consumer:
    """Of one group; `url` says where, after so many connections that broke."""

    def __init__(self, url: Callable[[int], str], queue: str, group: str) -> None:
        self.queue, self.group = queue, group
        # What was completed by an ack that was answered with success, by partition.
        self.completed: dict[str, list[Any]] = defaultdict(list)
        self.faults: list[str] = []
        self.refusals: list[str] = []
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._consume, name=f"consumer {group}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._over.set()
        self._thread.join()

    def completed_count(self) -> int:
        return sum(map(len, list(self.completed.values())))

    def _consume(self) -> None:
        with httpx.Client(timeout=60) as http:
            wire = WireClient(http)
            while not self._over.is_set():
                for message in self._pop(wire):
                    self._complete(wire, message)

    def _pop(self, wire: WireClient) -> list[Json]:
        options = {
            "consumerGroup": self.group,
            "subscriptionMode": "all",
            "batch": 50,
            "wait": True,
            "timeout": POLL_MS,
            "leaseSeconds": LEASE_S,
        }
        try:
            answer = wire.get(
                f"{self._url(len(self.refusals))}/api/v1/pop/queue/{self.queue}", **options
            )
        except httpx.HTTPError as error:
            self.refusals.append(type(error).__name__)
            time.sleep(RETRY_S)
            return []
        if answer.status_code >= 500:
            self.refusals.append(f"{answer.status_code} {answer.text[:200]}")
            time.sleep(RETRY_S)
        messages = answer.json()["messages"] if answer.status_code == 200 else []
        # Everything below what was completed is done with: to hand it out again is a fault.
        for message in messages:
            done = self.completed[message["partition"]]
            if message["data"] in done:
                self.faults.append(f"{message['partition']} {message['data']} handed out again")
        # One ack completes all that lies below it.
        last = {message["partition"]: message for message in messages}
        return [last[name] | {"below": messages} for name in last]

    def _complete(self, wire: WireClient, message: Json) -> None:
        body = ack_of(message) | {"consumerGroup": self.group}
        try:
            answer = wire.http.post(f"{self._url(len(self.refusals))}/api/v1/ack", json=body)
        except httpx.HTTPError as error:
            self.refusals.append(type(error).__name__)
            return
        if answer.status_code != 200 or not answer.json()[0]["success"]:
            return
        partition = message["partition"]
        mine = [one["data"] for one in message["below"] if one["partition"] == partition]
        known = set(self.completed[partition])
        self.completed[partition] += [one for one in mine if one not in known]
