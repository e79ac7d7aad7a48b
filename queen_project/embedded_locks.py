"""Advisory file locks of the embedded PostgreSQL, as small as they can be.

Imports embedded_cluster for its error. Used by embedded.py.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from queen_project.embedded_cluster import EmbeddedPostgresError

LOOK_AGAIN_S = 0.02


def open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise EmbeddedPostgresError(
            f"{path} belongs to another user: use another QUEEN_DATA_DIR, or that user"
        ) from error


def is_free(path: Path, *, of: int) -> bool:
    """Whether nobody holds the lock. `of` is the kind to look for: LOCK_EX finds an exclusive
    holder only and disturbs no other looker; LOCK_SH finds shared holders too."""
    asked = fcntl.LOCK_SH if of == fcntl.LOCK_EX else fcntl.LOCK_EX
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except PermissionError as error:
        raise EmbeddedPostgresError(f"{path} belongs to another user") from error
    try:
        fcntl.flock(descriptor, asked | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


@contextlib.contextmanager
def exclusive(path: Path, *, timeout_s: float) -> Iterator[None]:
    descriptor = open_lock(path)
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EmbeddedPostgresError(
                        f"another command has held {path} for {timeout_s:.0f} s"
                    ) from None
                time.sleep(LOOK_AGAIN_S)
        yield
    finally:
        os.close(descriptor)
