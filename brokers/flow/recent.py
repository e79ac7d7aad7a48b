"""What was read lately, for whoever asks for the same within some seconds.

History is written once a minute and lists tell what was counted some seconds ago, and making
either of very many queues takes a while: pages that many have open, and that ask again and again,
share one reading. Two things bound what is told again:

- its age, counted from before the reading, because that is what the answer knows of;
- what was written here since: whoever has just changed something through this broker, and looks,
  sees it. `written` is said before the writer is answered, and a reading that began before it is
  told to nobody who asks after it.

An answer is somebody's: a tenant's, or the cell's, which any tenant's write may change, or of
something that nobody writes to. What is written all the time beside the rest of a tenant (traces,
key/value state) is a topic of its own, lest it end everything else. The key of an answer names
everything else that it depends on.

Imports nothing of ours. Used by runtime.py, flow/history.py, services/{analytics,kv,written}.py and
api/shared.py.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

T = TypeVar("T")

ENTRIES_MAX = 1024
BYTES_MAX = 33_554_432
# What is larger is shared by those who ask at once, and not kept.
ENTRY_BYTES_MAX = 8_388_608
TENANTS_MAX = 10_000
# Whose an answer is that is about all tenants together.
CELL = None
TRACES, KV = "traces", "kv"


class Topic(NamedTuple):
    """Whose an answer is that is about one topic of a tenant's; a write is that of all tenants
    where it names none."""

    tenant: UUID | None
    name: str


class _Kept(NamedTuple):
    writes: int
    asked_at: float
    size: int
    answer: Any


class _Flight(NamedTuple):
    writes: int
    asked_at: float
    task: asyncio.Task[Any]


class Recent:
    """`fresh_s` 0: everybody reads. All of it belongs to one event loop."""

    def __init__(
        self,
        fresh_s: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        entries_max: int = ENTRIES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._now = clock
        self._fresh_s = fresh_s
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        # The oldest reading first.
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._bytes = 0
        self._flights: dict[Hashable, _Flight] = {}
        # Which write was the last one of a tenant, by their count; `_forgotten` stands for every
        # tenant that is not there.
        self._writes = 0
        self._last_writes: OrderedDict[Hashable, int] = OrderedDict()
        self._forgotten = 0
        self.told_again = 0
        self.read = 0

    async def get(
        self,
        whose: Hashable,
        key: Hashable,
        read: Callable[[], Coroutine[Any, Any, T]],
        *,
        size: Callable[[T], int | None] = lambda answer: 0,
        fresh_s: float = 0.0,
    ) -> T:
        """What was read for the key lately, or is being read. A failure is everyone's who waits
        for it, and is not kept; nor is an answer that has no `size`, in bytes. `fresh_s` is for
        what seldom changes without a word: its age has that bound where it is the longer one.
        """
        if self._fresh_s <= 0:
            return await read()
        key = (whose, key)
        writes, oldest = self._last_write(whose), self._now() - max(fresh_s, self._fresh_s)
        kept = self._kept.get(key)
        if kept is not None and kept.writes == writes and kept.asked_at > oldest:
            self.told_again += 1
            return cast(T, kept.answer)
        flight = self._flights.get(key)
        if flight is None or flight.writes != writes or flight.asked_at <= oldest:
            flight = self._start(key, writes, read, size)
        else:
            self.told_again += 1
        # One that is cancelled must not take the answer from the others.
        return cast(T, await asyncio.shield(flight.task))

    def written(self, tenant: UUID) -> None:
        """Something of the tenant's was changed: what was read before is old now."""
        self._note(tenant, CELL)

    def topic_written(self, tenant: UUID | None, name: str) -> None:
        """Only that topic of the tenant's was changed, or of every tenant's."""
        self._note(Topic(tenant, name))

    def _note(self, *changed: Hashable) -> None:
        self._writes += 1
        for one in changed:
            self._last_writes[one] = self._writes
            self._last_writes.move_to_end(one)
        while len(self._last_writes) > TENANTS_MAX:
            self._last_writes.popitem(last=False)
            self._forgotten = self._writes

    def forget(self) -> None:
        """Nothing that was read is believed any more."""
        self._writes += 1
        self._last_writes.clear()
        self._forgotten = self._writes
        self._kept.clear()
        self._bytes = 0

    def _last_write(self, whose: Hashable) -> int:
        if not isinstance(whose, Topic):
            return self._last_writes.get(whose, self._forgotten)
        concerns = (whose, whose.tenant, Topic(None, whose.name))
        return max(self._last_writes.get(one, self._forgotten) for one in concerns)

    def _start(
        self,
        key: Hashable,
        writes: int,
        read: Callable[[], Coroutine[Any, Any, T]],
        size: Callable[[T], int | None],
    ) -> _Flight:
        self.read += 1
        asked_at = self._now()

        async def fly() -> T:
            answer = await read()
            self._keep(key, writes, asked_at, size(answer), answer)
            return answer

        flight = _Flight(writes, asked_at, asyncio.create_task(fly(), name="shared reading"))
        self._flights[key] = flight
        flight.task.add_done_callback(lambda task: self._landed(key, flight))
        return flight

    def _landed(self, key: Hashable, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        # Looked at, so that a failure whose askers have all gone is not reported as lost.
        if not flight.task.cancelled():
            flight.task.exception()

    def _keep(
        self, key: Hashable, writes: int, asked_at: float, size: int | None, answer: Any
    ) -> None:
        if size is None or size > ENTRY_BYTES_MAX:
            return
        was = self._kept.get(key)
        if was is not None:
            if (was.writes, was.asked_at) > (writes, asked_at):
                return  # a later reading was quicker
            self._drop(key)
        self._kept[key] = _Kept(writes, asked_at, size, answer)
        self._bytes += size
        while len(self._kept) > self._entries_max or self._bytes > self._bytes_max:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Hashable) -> None:
        self._bytes -= self._kept.pop(key).size
