"""The disk: the few steps by which bytes become durable.

Imports nothing of ours. Used by directory, quarantine, writer.
"""

import errno
import os
from pathlib import Path

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
NEW = ".new"
COPY_BYTES = 1024 * 1024


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_at(fd: int, data: bytes, offset: int) -> None:
    """All of it; a disk that fills in the middle takes a part and refuses the rest."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, offset)
        rest = rest[written:]
        offset += written


def replace_file(path: Path, data: bytes) -> None:
    """The old content or the new, never a mixture. The directory is the caller's to sync."""
    new = path.with_name(path.name + NEW)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_at(fd, data, 0)
        os.fsync(fd)
    except OSError:
        os.unlink(new)
        raise
    finally:
        os.close(fd)
    os.rename(new, path)


def copy_ranges(source: Path, target: Path, ranges: list[tuple[int, int]]) -> int:
    """Parts of a file as another one, durable but for its directory; returns its bytes."""
    new = target.with_name(target.name + NEW)
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writing = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            copied = 0
            for start, end in ranges:
                while start < end:
                    data = os.pread(reading, min(COPY_BYTES, end - start), start)
                    if not data:
                        break
                    write_at(writing, data, copied)
                    copied += len(data)
                    start += len(data)
            os.fsync(writing)
        except OSError:
            os.unlink(new)
            raise
        finally:
            os.close(writing)
    finally:
        os.close(reading)
    os.rename(new, target)
    return copied
