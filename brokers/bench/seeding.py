"""Seeding: fill a queue with a given number of messages before the clock starts.

`run` messages lie together in each segment, so that a bench of single pops can find
segments as single pushes leave them, and one of large pops those of large pushes.

Imports payloads, tally, wire. Used by worker.py.
"""

from collections.abc import Iterator

from brokers.bench import payloads, wire
from brokers.bench.tally import Tally

ITEMS_MAX = 1000


def requests(
    queue: str, partitions: int, total: int, run: int, data: bytes
) -> Iterator[tuple[int, bytes]]:
    """(number of items, request) until `total` items are spread over the partitions in turn."""
    at = 0
    while total > 0:
        items: list[bytes] = []
        for _ in range(min(partitions, max(1, ITEMS_MAX // run))):
            one = payloads.item(queue, payloads.partition_name(at % partitions), data)
            items += [one] * min(run, total - len(items))
            at += 1
        total -= len(items)
        yield len(items), wire.post("/api/v1/push", payloads.push_body(items))


class Seeder:
    """Takes the next request of the shared plan; idle when there is none left."""

    def __init__(self, plan: Iterator[tuple[int, bytes]], tally: Tally) -> None:
        self.tally = tally
        self._plan = plan
        self._asked = 0

    def first(self) -> bytes | None:
        return self._next()

    def answered(self, answer: wire.Answer, now: float) -> bytes | None:
        queued = answer.body.count(b'"queued"')
        if answer.status != b"201" or queued != self._asked:
            self.tally.fail(f"seed: {answer.status!r}, {queued} queued: {answer.body[:200]!r}")
        self.tally.add(queued)
        return self._next()

    def due_at(self) -> float | None:
        return None

    def resume(self, now: float) -> bytes | None:
        return None

    def may_be_cut(self) -> bool:
        return False

    def must_finish(self) -> bool:
        return False

    def _next(self) -> bytes | None:
        self._asked, request = next(self._plan, (0, None))
        return request
