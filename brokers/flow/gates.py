"""The gates: where a pop sits until there is news about its queue.

A pop takes a seat, and whoever commits messages rings: the seats of the queue and those
of its tenant's discovery pops look again. A bell says "look", never "here is a message":
a lost one costs one interval of the floor, a false one costs a look, and neither can lose
or double a message.

Imports nothing of ours. Used by services/pop.py and flow/announce.py.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

Scope = tuple[UUID, str | None]


class Seat:
    """One waiting pop. Rearm, look, then wait: in that order no bell is missed."""

    __slots__ = ("_bell",)

    def __init__(self) -> None:
        self._bell = asyncio.Event()

    def rearm(self) -> None:
        self._bell.clear()

    def ring(self) -> None:
        self._bell.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the bell; True when it rang, False when the time ran out."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._bell.wait()
        except TimeoutError:
            return False
        return True


class Gates:
    """Seats by scope: (tenant, queue), or (tenant, None) for discovery."""

    def __init__(self) -> None:
        self._seats: dict[Scope, dict[Seat, None]] = {}
        self._closed = False

    @contextmanager
    def seat(self, tenant: UUID, queue: str | None) -> Iterator[Seat]:
        scope = (tenant, queue)
        seat = Seat()
        self._seats.setdefault(scope, {})[seat] = None
        try:
            yield seat
        finally:
            seats = self._seats[scope]
            del seats[seat]
            if not seats:
                del self._seats[scope]

    def ring(self, tenant: UUID, queue: str) -> None:
        """News about a queue: everyone who might be served by it looks again."""
        for scope in ((tenant, queue), (tenant, None)):
            for seat in self._seats.get(scope, ()):
                seat.ring()

    def ring_all(self) -> None:
        for seats in self._seats.values():
            for seat in seats:
                seat.ring()

    def close(self) -> None:
        """The broker stops: nobody waits any longer."""
        self._closed = True
        self.ring_all()

    @property
    def closed(self) -> bool:
        return self._closed

    def seated(self) -> dict[str, int]:
        """Parked pops by queue, for the gauge; discovery counts under ''."""
        counts: dict[str, int] = {}
        for (_, queue), seats in self._seats.items():
            counts[queue or ""] = counts.get(queue or "", 0) + len(seats)
        return counts
