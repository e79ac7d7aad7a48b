"""How workers share one listening socket: who takes the next connection.

Every worker watches the same socket, and a connection wakes them all. Left to themselves,
whoever is awake first takes everything that waits: four workers got 19, 15, 28 and 2 of 64
connections, and clients keep theirs. So each worker shows on a board in shared memory how
many it has. One that has more than another leaves the next connection alone for a moment; if
it is still there then, because the other is busy or stopped, it takes it after all.

A socket of its own for each worker (SO_REUSEPORT) is dealt out evenly as well, but loses
what waits in it when its worker goes. See docs/decisions/0006-one-listener.md.

Imports nothing of ours. Used by workers.py, serving.py and the two fronts.
"""

import asyncio
import errno
import logging
import mmap
import os
import socket
import struct
import tempfile
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)

LEAVE_S = 0.002
OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
OUT_OF_FILES_S = 0.5
CELL = struct.Struct("=q")
AWAY = 2**62


class Board:
    """How many connections each worker has. `away` is one that takes none at present."""

    def __init__(self, file: int, workers: int) -> None:
        self.file = file
        self._workers = workers
        self._cells = mmap.mmap(file, workers * CELL.size)

    @classmethod
    def make(cls, workers: int) -> "Board":
        """In a file without a name, which processes started from here inherit."""
        with tempfile.TemporaryFile() as file:
            os.ftruncate(file.fileno(), workers * CELL.size)
            board = cls(os.dup(file.fileno()), workers)
        for worker in range(workers):
            board.away(worker)
        return board

    def away(self, worker: int) -> None:
        self.show(worker, AWAY)

    def show(self, worker: int, connections: int) -> None:
        CELL.pack_into(self._cells, worker * CELL.size, connections)

    def has_less(self, connections: int) -> bool:
        """Whether some worker has less than that."""
        return any(count < connections for (count,) in CELL.iter_unpack(self._cells))


class Counted(Protocol):
    """A front that can tell how many connections it has, and take another."""

    def connections(self) -> int: ...

    async def take(self, connection: socket.socket) -> None: ...


class Sharer:
    """One worker's part of the listener."""

    def __init__(self, listener: socket.socket, board: Board, worker: int, front: Counted) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._board = board
        self._worker = worker
        self._front = front
        self._takings: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._shown = AWAY

    def open(self) -> None:
        self._show()
        self._watch()

    def close(self) -> None:
        """The listener stays open in the other workers; what waits there is theirs."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        elif self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        self._board.away(self._worker)

    async def settled(self) -> None:
        """What was accepted before the close has reached the front."""
        if self._takings:
            await asyncio.wait(self._takings)

    def _watch(self) -> None:
        self._loop.add_reader(self._listener.fileno(), self._on_waiting)

    def _on_waiting(self) -> None:
        if self._board.has_less(self._show()):
            self._leave(LEAVE_S, self._take_after_all)
        else:
            self._accept()

    def _leave(self, seconds: float, then: Callable[[], None]) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._again = self._loop.call_later(seconds, then)

    def _take_after_all(self) -> None:
        self._again = None
        self._watch()
        self._accept()

    def _accept(self) -> None:
        """One at a time: between two, the others have had their look."""
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another worker was faster, or the client has left
        except OSError as error:
            if error.errno not in OUT_OF_FILES:
                raise
            logger.error("no connection can be taken: %s", error.strerror)
            self._leave(OUT_OF_FILES_S, self._take_after_all)
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._hand_over(connection))
        self._takings.add(task)
        task.add_done_callback(self._takings.discard)
        self._show()

    async def _hand_over(self, connection: socket.socket) -> None:
        try:
            await self._front.take(connection)
        except OSError as error:
            logger.debug("a connection was gone before it was taken: %s", error)
            connection.close()

    def _show(self) -> int:
        count = self._front.connections() + len(self._takings)
        if count != self._shown:
            self._board.show(self._worker, count)
            self._shown = count
        return count
