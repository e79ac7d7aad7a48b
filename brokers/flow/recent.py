"""What was read lately, for whoever asks for the same within some seconds.

History is written once a minute, and adding it up over very many queues takes a while: pages that
many have open, and that ask again and again, share one reading.

Imports flow/coalesce. Used by runtime.py, services/analytics.py and api/views/history.py.
"""

import time
from collections.abc import Callable, Coroutine, Hashable
from threading import Lock
from typing import Any, TypeVar, cast

from brokers.flow.coalesce import SingleFlight

T = TypeVar("T")

# One of them may be some thousand rows, or their text.
ENTRIES_MAX = 64


class Recent:
    """`fresh_s` 0: nothing is kept. `find` and `keep` are for threads, too."""

    def __init__(self, fresh_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = clock
        self._fresh_s = fresh_s
        self._flights: SingleFlight[Hashable, Any] = SingleFlight()
        # In the order in which they were kept; whoever changes it holds the lock.
        self._kept: dict[Hashable, tuple[float, Any]] = {}
        self._lock = Lock()

    async def get(self, key: Hashable, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What was read for the key, at most `fresh_s` ago. What fails is not kept."""
        if self._fresh_s <= 0:
            return await read()
        kept = self.find(key)
        if kept is not None:
            return cast(T, kept)
        return cast(T, await self._flights.run(key, lambda: self._read(key, read)))

    def find(self, key: Hashable) -> Any:
        """None when there is nothing that is new enough."""
        kept = self._kept.get(key)
        if kept is None or self.now() - kept[0] >= self._fresh_s:
            return None
        return kept[1]

    def keep(self, key: Hashable, answer: Any, asked_at: float) -> None:
        """Its age counts from before the reading: that is what the answer knows of."""
        if self._fresh_s <= 0:
            return
        with self._lock:
            self._kept.pop(key, None)
            while len(self._kept) >= ENTRIES_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = (asked_at, answer)

    async def _read(self, key: Hashable, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        asked_at = self.now()
        answer = await read()
        self.keep(key, answer, asked_at)
        return answer
