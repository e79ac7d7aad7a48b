"""Keeps the embedded PostgreSQL running while a broker lives: if it dies, start it again.

A thread of its own, because starting a server blocks. It looks at a file lock, not at a
process number (see embedded.py), so a look costs a few microseconds.

Imports embedded. Used by the broker command and asgi.py.
"""

import logging
import threading
from pathlib import Path

from queen_project import embedded

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.25
RETRY_S_MIN = 0.5
RETRY_S_MAX = 15.0


class Supervisor:
    """Start once, stop once. Stopping leaves PostgreSQL running, for the next command.

    With `create` off it never makes a cluster: where one was and is gone, an empty one in
    its place would hide the loss.
    """

    def __init__(self, data_dir: Path, *, database: str, create: bool = False) -> None:
        self._data_dir = data_dir
        self._create = create
        self._database = database
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._supervise, name="embedded-postgres", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=5)

    def _supervise(self) -> None:
        with embedded.supervisor_seat(self._data_dir):
            retry_s = RETRY_S_MIN
            while not self._stopping.is_set():
                if embedded.is_alive(self._data_dir):
                    self._stopping.wait(LOOK_EVERY_S)
                elif self._start_again():
                    retry_s = RETRY_S_MIN
                else:
                    self._stopping.wait(retry_s)
                    retry_s = min(retry_s * 2, RETRY_S_MAX)

    def _start_again(self) -> bool:
        logger.warning("the embedded PostgreSQL does not run; starting it")
        try:
            embedded.ensure_running(self._data_dir, database=self._database, create=self._create)
        except Exception:  # whatever it was, the broker goes on and the next round tries again
            logger.exception("the embedded PostgreSQL did not start")
            return False
        logger.warning("the embedded PostgreSQL runs again")
        return True
