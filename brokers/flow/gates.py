"""The gates: where a pop sits until there is news for its group.

A seat hears of one queue, of one partition of it, or of any queue of the tenant that
matches (discovery). A bell is rung once for each partition that becomes ready, and wakes
the oldest seat that may claim it and has not been rung: one push to a queue with five
thousand waiters costs one look. A rung seat that leaves before its look is over passes its
bell on; one that looked lets it die, so that a false bell ends.

A bell says "look", never "here is a message": a lost one costs one interval of the floor.

Imports domain. Used by services/pop.py and flow/announce.py.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from brokers.domain import DEFAULT_TENANT

Key = tuple[int, str]


class Seat:
    """One waiting pop. Rearm, look, then wait: in that order no bell is missed."""

    __slots__ = ("_waiter", "keys", "looking", "partition_id", "queue", "rung", "tenant", "unborn")

    def __init__(self, queue: str | None, tenant: UUID) -> None:
        # The queue's name; None for discovery.
        self.queue = queue
        self.tenant = tenant
        # None: any partition will do.
        self.partition_id: int | None = None
        self.keys: list[Key] = []
        # (queue, partition name) that the seat waits for to exist.
        self.unborn: tuple[int, str] | None = None
        # The (queue, partition) of the bell that was rung and not yet looked after.
        self.rung: tuple[Key, int] | None = None
        self.looking = True
        self._waiter: asyncio.Future[None] | None = None

    def rearm(self) -> None:
        self.rung = None
        self.looking = True

    def ring(self, key: Key, partition_id: int) -> None:
        self.rung = (key, partition_id)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def parked(self) -> bool:
        return self._waiter is not None

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a bell; True when it rang, False when the time ran out."""
        self.looking = False
        if self.rung is not None:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(timeout_s, self._time_out)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
        return self.rung is not None

    def _time_out(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Gates:
    """Seats by (queue id, group), in the order they were taken."""

    def __init__(self) -> None:
        self._seats: dict[Key, dict[Seat, None]] = {}
        self._unborn: dict[tuple[int, str], dict[Seat, None]] = {}
        self._all: dict[Seat, None] = {}
        self.closed = False

    @contextmanager
    def seat(self, queue: str | None = None, tenant: UUID = DEFAULT_TENANT) -> Iterator[Seat]:
        """A seat that hears nothing until it is placed."""
        seat = Seat(queue, tenant)
        self._all[seat] = None
        bells: list[tuple[Key, int]] = []
        try:
            yield seat
        except BaseException:
            if seat.looking:
                # It leaves in the middle of a look (cancelled, or the database broke), and
                # what it had in its hands lies ready again: somebody else looks.
                bells = [(key, seat.partition_id or 0) for key in seat.keys]
            raise
        finally:
            if seat.rung is not None:
                bells = [seat.rung]
            del self._all[seat]
            self._remove(seat)
            if not self.closed:
                for bell in bells:
                    self.ring(*bell)

    def place(self, seat: Seat, keys: list[Key]) -> None:
        """Let the seat hear of these (queue, group) pairs, and of no others."""
        if seat.keys == keys:
            return
        self._remove(seat)
        seat.keys = keys
        for key in keys:
            self._seats.setdefault(key, {})[seat] = None

    def place_unborn(self, seat: Seat, queue_id: int, partition: str) -> None:
        """Let the seat hear of the birth of a partition, and of nothing else."""
        self._remove(seat)
        seat.unborn = (queue_id, partition)
        self._unborn.setdefault(seat.unborn, {})[seat] = None

    def _remove(self, seat: Seat) -> None:
        if seat.unborn is not None:
            waiting = self._unborn.get(seat.unborn, {})
            waiting.pop(seat, None)
            if not waiting:
                self._unborn.pop(seat.unborn, None)
            seat.unborn = None
        for key in seat.keys:
            seats = self._seats.get(key)
            if seats is not None:
                seats.pop(seat, None)
                if not seats:
                    del self._seats[key]
        seat.keys = []

    def ring(self, key: Key, partition_id: int) -> bool:
        """A partition became ready for a group: wake the oldest seat that may claim it."""
        for seat in self._seats.get(key, ()):
            if seat.rung is None and seat.partition_id in (None, partition_id):
                seat.ring(key, partition_id)
                return True
        return False

    def ring_ready(self, key: Key, is_ready: Callable[[int], bool]) -> None:
        """Partitions lie ready, and their bells may be lost: wake one seat that takes any, and
        for each of those partitions one that takes no other."""
        self.ring(key, 0)
        served: set[int] = set()
        for seat in self._seats.get(key, ()):
            wanted = seat.partition_id
            if wanted is not None and wanted not in served and is_ready(wanted):
                served.add(wanted)
                if seat.rung is None:
                    seat.ring(key, wanted)

    def ring_discovery(self, tenant: UUID) -> None:
        """A queue was pushed to that this broker had not seen: it may match a discovery."""
        for seat in self._all:
            if seat.queue is None and seat.tenant == tenant:
                seat.ring((0, ""), 0)

    def unborn(self) -> list[tuple[int, str]]:
        """The (queue id, partition name) pairs that somebody waits for to exist."""
        return list(self._unborn)

    def ring_unborn(self, queue_id: int, partition: str) -> None:
        """Something was stored in a partition: whoever waits for it to exist looks."""
        if self._unborn:
            for seat in self._unborn.get((queue_id, partition), ()):
                seat.ring((queue_id, ""), 0)

    def ring_all(self, wanted: Callable[[Key], bool]) -> None:
        """Something changed that no single partition stands for: everyone concerned looks."""
        for key, seats in self._seats.items():
            if wanted(key):
                for seat in seats:
                    seat.ring(key, 0)
        for (queue_id, _), seats in self._unborn.items():
            if wanted((queue_id, "")):
                for seat in seats:
                    seat.ring((queue_id, ""), 0)

    def seated(self, key: Key) -> int:
        return len(self._seats.get(key, ()))

    def occupied(self) -> list[Key]:
        """The (queue id, group) pairs that somebody sits at."""
        return list(self._seats)

    def close(self) -> None:
        """The broker stops: nobody waits any longer."""
        self.closed = True
        self.ring_everyone()

    def ring_everyone(self) -> None:
        """Nobody's wait goes on as it was."""
        for seat in self._all:
            seat.ring((0, ""), 0)

    def queues_waited_at(self, tenant: UUID, queue: str) -> set[int]:
        """The queues of this name that somebody waits at: one, or its successor too."""
        waiting = [seat for seat in self._all if seat.queue == queue and seat.tenant == tenant]
        placed = {queue_id for seat in waiting for queue_id, _ in seat.keys}
        return placed | {seat.unborn[0] for seat in waiting if seat.unborn is not None}

    def parked(self) -> dict[str, int]:
        """Parked pops by queue name, for the gauge; of other tenants as `<tenant>/<name>`."""
        return dict(
            Counter(
                seat.queue or "" if seat.tenant == DEFAULT_TENANT else f"{seat.tenant}/{seat.queue}"
                for seat in self._all
                if seat.parked
            )
        )

    def parked_by_id(self) -> Counter[int]:
        """Parked pops of a queue by its id; who discovers waits at none in particular."""
        return Counter(
            seat.keys[0][0] if seat.keys else (seat.unborn or (0, ""))[0]
            for seat in self._all
            if seat.parked and seat.queue is not None and (seat.keys or seat.unborn)
        )

    def parked_count(self) -> int:
        return sum(seat.parked for seat in self._all)

    def __len__(self) -> int:
        return len(self._all)
