"""The tally: what this process did for each queue, kept in memory and written out by the minute.

Statistics are sums of what every broker wrote; losing a minute in a crash loses a minute
of statistics and nothing else.

Imports nothing of ours. Used by services/, flow/ and runtime.py.
"""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counts:
    """One queue's counts since the last write; the names are the columns'."""

    push_requests: int = 0
    push_messages: int = 0
    pop_requests: int = 0
    pop_messages: int = 0
    pop_empty: int = 0
    ack_success: int = 0
    ack_failed: int = 0
    transactions: int = 0
    conflated: int = 0
    dead_letters: int = 0


COLUMNS = tuple(one.name for one in fields(Counts))


class Tally:
    def __init__(self) -> None:
        self._queues: dict[int, Counts] = {}

    def of(self, queue_id: int) -> Counts:
        counts = self._queues.get(queue_id)
        if counts is None:
            counts = self._queues[queue_id] = Counts()
        return counts

    def take(self) -> dict[int, Counts]:
        """What has been counted; counting starts anew."""
        taken, self._queues = self._queues, {}
        return taken

    def give_back(self, taken: dict[int, Counts]) -> None:
        """It could not be written: count it with the next."""
        for queue_id, counts in taken.items():
            mine = self.of(queue_id)
            for name in COLUMNS:
                setattr(mine, name, getattr(mine, name) + getattr(counts, name))
