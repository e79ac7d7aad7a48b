"""The tally: what this process did for each queue, kept in memory and written out by the minute.

Statistics are sums of what every broker wrote; losing a minute in a crash loses a minute
of statistics and nothing else.

How old a message is when it is delivered is measured by this host's clock against that of the
database, in which it was stored.

Imports nothing of ours. Used by services/, flow/ and runtime.py.
"""

import time
from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counts:
    """One queue's counts since the last write; the names are the columns', in their order.

    All are added up but the last, of which the greatest stays.
    """

    push_requests: int = 0
    push_messages: int = 0
    pop_requests: int = 0
    pop_messages: int = 0
    pop_empty: int = 0
    ack_requests: int = 0
    ack_success: int = 0
    ack_failed: int = 0
    transactions: int = 0
    conflated: int = 0
    dead_letters: int = 0
    pop_lag_ms: int = 0
    pop_lag_count: int = 0
    parked: int = 0
    parked_samples: int = 0
    pop_lag_max_ms: int = 0

    def add(self, other: "Counts") -> None:
        for name in COLUMNS[:-1]:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.pop_lag_max_ms = max(self.pop_lag_max_ms, other.pop_lag_max_ms)


COLUMNS = tuple(one.name for one in fields(Counts))


class Tally:
    def __init__(self) -> None:
        self._queues: dict[int, Counts] = {}
        # Of all queues together, as far as `delivered` was told.
        self.lag = Counts()

    def of(self, queue_id: int) -> Counts:
        counts = self._queues.get(queue_id)
        if counts is None:
            counts = self._queues[queue_id] = Counts()
        return counts

    def delivered(self, queue_id: int, created_us: int, messages: int) -> None:
        """Messages that were stored together were handed out."""
        lag_ms = max(time.time_ns() // 1000 - created_us, 0) // 1000
        for counts in (self.of(queue_id), self.lag):
            counts.pop_lag_ms += lag_ms * messages
            counts.pop_lag_count += messages
            counts.pop_lag_max_ms = max(counts.pop_lag_max_ms, lag_ms)

    def take_lag(self) -> Counts:
        taken, self.lag = self.lag, Counts()
        return taken

    def take(self) -> dict[int, Counts]:
        """What has been counted; counting starts anew."""
        taken, self._queues = self._queues, {}
        return taken

    def give_back(self, taken: dict[int, Counts]) -> None:
        """It could not be written: count it with the next."""
        for queue_id, counts in taken.items():
            self.of(queue_id).add(counts)
