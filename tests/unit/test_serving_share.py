"""Workers share a listener: the one with less takes the next connection, and none waits for long.

Method: two sharers in one process, on two descriptors of one socket and a real board, each with
a front that keeps what it is given.
"""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from queen_project.serving_share import Board, Sharer
from tests.services.in_process import until


class Front:
    def __init__(self) -> None:
        self.taken: list[socket.socket] = []

    def connections(self) -> int:
        return len(self.taken)

    async def take(self, connection: socket.socket) -> None:
        self.taken.append(connection)


class Pair:
    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.address = listener.getsockname()
        self.board = Board.make(2)
        self.fronts = [Front(), Front()]
        self.sharers = [
            Sharer(one, self.board, number, self.fronts[number])
            for number, one in enumerate((listener, listener.dup()))
        ]
        self.clients: list[socket.socket] = []

    def counts(self) -> list[int]:
        return [front.connections() for front in self.fronts]

    async def connect(self, count: int, *, all_at_once: bool = False) -> None:
        for _ in range(count):
            self.clients.append(socket.create_connection(self.address))
            if not all_at_once:
                await self.taken()
        await self.taken()

    async def taken(self) -> None:
        await until(lambda: sum(self.counts()) == len(self.clients))


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    one = Pair()
    try:
        yield one
    finally:
        for sharer in one.sharers:
            sharer.close()
        for connection in [*one.clients, *(c for front in one.fronts for c in front.taken)]:
            connection.close()


async def test_connections_one_after_the_other_are_dealt_out_evenly():
    async with pair() as sharing:
        for sharer in sharing.sharers:
            sharer.open()
        await sharing.connect(20)
        assert sharing.counts() == [10, 10]


async def test_connections_that_come_at_once_are_dealt_out():
    async with pair() as sharing:
        for sharer in sharing.sharers:
            sharer.open()
        await sharing.connect(40, all_at_once=True)
        assert min(sharing.counts()) >= 10


async def test_a_worker_that_begins_gets_the_next_ones_until_it_has_as_many():
    async with pair() as sharing:
        sharing.sharers[0].open()
        await sharing.connect(10)
        sharing.sharers[1].open()
        await sharing.connect(10)
        assert sharing.counts() == [10, 10]


async def test_a_worker_that_shows_less_and_does_not_take_is_not_waited_for():
    async with pair() as sharing:
        sharing.sharers[0].open()
        sharing.board.show(1, 0)  # as one that is stopped
        await sharing.connect(5)
        assert sharing.counts() == [5, 0]


async def test_what_waits_when_a_worker_closes_is_the_others():
    async with pair() as sharing:
        for sharer in sharing.sharers:
            sharer.open()
        sharing.clients += [socket.create_connection(sharing.address) for _ in range(10)]
        sharing.sharers[0].close()
        await sharing.taken()
        assert sharing.counts() == [0, 10]


async def test_a_worker_that_is_away_is_nobody_to_leave_connections_to():
    async with pair() as sharing:
        sharing.sharers[0].open()
        await sharing.connect(3)
        assert not sharing.board.has_less(3)
        sharing.board.show(1, 2)
        assert sharing.board.has_less(3)
        sharing.board.away(1)
        assert not sharing.board.has_less(3)
