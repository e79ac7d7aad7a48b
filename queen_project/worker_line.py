"""Between a parent and its workers: what a worker inherits, and the line that is left to it.

The line is a pair of sockets. The worker says `serving` over it, and reads the end of its
parent from it: no worker outlives a parent that was killed.

Imports nothing of ours. Used by workers.py and the broker command.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

SERVING = b"serving\n"
# What a worker ends with that will not get better by trying again.
EXIT_UNUSABLE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """What a worker is given: open files by their numbers, and where to meet the others."""

    worker: int
    listener: int
    parent: int
    board: int
    run_dir: Path

    def argument(self) -> str:
        parts = (self.worker, self.listener, self.parent, self.board, self.run_dir)
        return ",".join(map(str, parts))

    @classmethod
    def read(cls, argument: str) -> "Inherited":
        worker, listener, parent, board, run_dir = argument.split(",", 4)
        return cls(
            worker=int(worker),
            listener=int(listener),
            parent=int(parent),
            board=int(board),
            run_dir=Path(run_dir),
        )


class ParentLine:
    """A worker's end of the pair of sockets."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)

    def say_serving(self) -> None:
        with contextlib.suppress(OSError):  # a parent that is gone is found out by `watch`
            self._socket.send(SERVING)

    def watch(self, gone: Callable[[], None]) -> None:
        """Call `gone` when the parent has ended, whatever ended it."""
        loop = asyncio.get_running_loop()

        def look() -> None:
            with contextlib.suppress(BlockingIOError):
                try:
                    if self._socket.recv(1):
                        return
                except ConnectionError:
                    pass
                loop.remove_reader(self._socket.fileno())
                logger.warning("the parent process is gone")
                gone()

        loop.add_reader(self._socket.fileno(), look)


def mesh_socket(run_dir: Path) -> Path:
    """Where workers meet the hub of their hints."""
    return run_dir / "hints"
