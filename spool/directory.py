"""The spool directory: the files in their order, and all that outlives a process.

    LOCK        held while a process writes or drains here (flock: a kill -9 releases it)
    spool-id    the UUID under which the store keeps this spool's marks
    last-name   the newest name that was ever given to a file here
    <name>.tmp  the unfinished file, and the finished ones:
    <name>.buf
    failed/     the quarantine

A mark in the store is found by the file's name, so a name must never come again: not when
the clock steps back, nor when the drain has emptied the directory meanwhile. That is why
the last name lies in a file of its own, replaced whole and synced before the name is used.

Imports segment, quarantine, disk, errors. Used by writer.py, drain.py, and who opens it.
"""

import bisect
import errno
import fcntl
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self
from uuid import UUID, uuid4

from spool import disk, quarantine, segment
from spool.errors import SpoolLocked, SpoolUnusable
from spool.quarantine import Quarantine
from spool.records import Whereabouts
from spool.segment import FINISHED, UNFINISHED, Position

log = logging.getLogger(__name__)

LOCK = "LOCK"
SPOOL_ID = "spool-id"
LAST_NAME = "last-name"
PROBE = "probe"
FAILED = "failed"
ADOPTED = " adopted"
MS_MAX = 10**13 - 1


class DirectoryStats(NamedTuple):
    """How much waits here. `events` leaves out files that nobody has counted yet."""

    files: int  # finished, waiting for the drain
    bytes: int  # in them
    total_bytes: int  # and with the unfinished file
    events: int  # not yet replayed, those of the unfinished file too
    oldest_us: int | None  # accept time of the oldest, microseconds since 1970
    failed_files: int
    failed_events: int
    failed_bytes: int
    free_bytes: int


@dataclass(slots=True)
class FileState:
    """What is known of one file."""

    bytes: int
    events: int | None = None
    oldest_us: int | None = None
    done: int = 0


class SpoolDirectory:
    """Opened, it is this process's alone. Methods block on the disk unless they say not."""

    def __init__(self, path: Path, lock_fd: int, spool_id: UUID, now_ms: Callable[[], int]) -> None:
        self.path = path
        self.spool_id = spool_id
        self.quarantine = Quarantine(path / FAILED)
        self.torn_tails = 0
        self.torn_bytes = 0
        self._lock_fd = lock_fd
        self._now_ms = now_ms
        self._guard = threading.Lock()  # of what is in memory: never held during a disk access
        self._naming = threading.Lock()
        self._files: dict[str, FileState] = {}
        self._order: list[str] = []
        self._unfinished: dict[str, FileState] = {}
        self._last = Position(0, 0)
        self._finished_bytes = 0
        self._oldest_us: int | None = None
        self._oldest_stale = False
        self._free_bytes = 0

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        fsync: bool = True,
        adopting: bool = False,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> Self:
        """Lock it, make what is missing, finish what a crash has left unfinished.

        With `fsync` the torn tail of an unfinished file was never answered and is cut off;
        without, it may have been, and the drain sets it aside. `adopting`: it is somebody
        else's, and the lock says so. Raises SpoolLocked, SpoolUnusable.
        """
        path = Path(path)
        lock_fd = -1
        try:
            (path / FAILED).mkdir(mode=0o700, parents=True, exist_ok=True)
            lock_fd = take_lock(path, ADOPTED if adopting else "")
            try_to_write(path)
            directory = cls(path, lock_fd, read_or_make_id(path), now_ms)
            directory._load(fsync)
        except OSError as error:
            if lock_fd >= 0:
                os.close(lock_fd)
            raise SpoolUnusable(f"the spool directory {path} cannot be used: {error}") from error
        except SpoolUnusable:
            if lock_fd >= 0:
                os.close(lock_fd)
            raise
        return directory

    def close(self) -> None:
        """Let another process have it."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    # What waits here. From memory.

    def finished(self) -> list[str]:
        """Names of the finished files, oldest first."""
        with self._guard:
            return list(self._order)

    def unfinished(self) -> int:
        with self._guard:
            return len(self._unfinished)

    def head(self) -> str | None:
        """The oldest file by the name that it has, or will have, when it is finished."""
        with self._guard:
            return self._order[0] if self._order else next(iter(self._unfinished), None)

    def path_of(self, name: str) -> Path:
        return self.path / name

    def stats(self) -> DirectoryStats:
        with self._guard:
            finished, unfinished = self._files.values(), self._unfinished.values()
            events = sum(max((file.events or 0) - file.done, 0) for file in finished)
            failed = self.quarantine.stats
            return DirectoryStats(
                files=len(self._files),
                bytes=self._finished_bytes,
                total_bytes=self._total_bytes(),
                events=events + sum(file.events or 0 for file in unfinished),
                oldest_us=self._oldest(),
                failed_files=failed.files,
                failed_events=failed.events,
                failed_bytes=failed.bytes,
                free_bytes=self._free_bytes,
            )

    def total_bytes(self) -> int:
        """Without the quarantine."""
        with self._guard:
            return self._total_bytes()

    def _total_bytes(self) -> int:
        return self._finished_bytes + sum(file.bytes for file in self._unfinished.values())

    def oldest_us(self) -> int | None:
        """The accept time of the oldest record that waits, as far as files were counted."""
        with self._guard:
            return self._oldest()

    def _oldest(self) -> int | None:
        if self._oldest_stale:
            files = (*self._files.values(), *self._unfinished.values())
            known = [file.oldest_us for file in files if file.oldest_us is not None]
            self._oldest_us, self._oldest_stale = min(known, default=None), False
        return self._oldest_us

    def replayed(self, name: str, done: int) -> None:
        """The first `done` records of a file have left the spool."""
        with self._guard:
            if file := self._files.get(name):
                file.done = done

    def counted(self, name: str, events: int) -> bool:
        """A file was read to its end; false when other records were expected, or nobody knew."""
        with self._guard:
            file = self._files.get(name)
            if file is None:
                return True
            expected, file.events = file.events, events
            return expected == events

    # Looking at the disk.

    def survey(self, name: str) -> Counter[Whereabouts]:
        """How many records of which partition a finished file holds, replayed ones too."""
        found = segment.survey(self.path / name)
        self._note(name, found)
        return found.partitions

    def refresh(self, count_files_max: int = 100) -> None:
        """Free space, the quarantine, and some of the files that nobody has counted yet."""
        self.free_bytes()
        self.quarantine.refresh()
        with self._guard:
            uncounted = [name for name in self._order if self._files[name].events is None]
        for name in uncounted[:count_files_max]:
            try:
                self._note(name, segment.count(self.path / name))
            except OSError as error:
                log.debug("%s cannot be counted: %s", name, error)

    def _note(self, name: str, found: segment.Survey) -> None:
        with self._guard:
            if file := self._files.get(name):
                file.events, file.oldest_us = found.events, found.oldest_us
                self._oldest_stale = True

    def free_bytes(self) -> int:
        status = os.statvfs(self.path)
        self._free_bytes = status.f_bavail * status.f_frsize
        return self._free_bytes

    # The writer's part: a file's life until it is finished.

    def create(self) -> tuple[str, int]:
        """A new unfinished file, durable as an empty one: (its name once finished, fd)."""
        position = self.next_position()
        path = self.path / (position.stem + UNFINISHED)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            disk.sync_directory(self.path)
        except OSError:
            os.close(fd)
            os.unlink(path)
            raise
        name = position.stem + FINISHED
        with self._guard:
            self._unfinished[name] = FileState(0, 0)
        return name, fd

    def next_position(self) -> Position:
        """A name later than every one before, whatever the clock says."""
        with self._naming:
            position = max(self._last.after(), Position(min(self._now_ms(), MS_MAX), 0))
            disk.replace_file(self.path / LAST_NAME, position.stem.encode())
            self._last = position
        return position

    def grew(self, name: str, size: int, events: int, oldest_us: int) -> None:
        """From memory."""
        with self._guard:
            file = self._unfinished[name]
            file.bytes = size
            file.events = (file.events or 0) + events
            file.oldest_us = earlier(oldest_us, file.oldest_us)
            self._oldest_us = earlier(oldest_us, self._oldest_us)

    def finish(self, name: str) -> None:
        """The drain may have it."""
        os.rename(self.path / unfinished_name(name), self.path / name)
        with self._guard:
            self._add(name, self._unfinished.pop(name))
        try:
            disk.sync_directory(self.path)
        except OSError as error:
            # Its records are durable under either name.
            log.warning("the directory could not be synced: %s", error)

    def drop_unfinished(self, name: str) -> None:
        """An unfinished file without records goes."""
        self.lost(name)
        os.unlink(self.path / unfinished_name(name))

    def lost(self, name: str) -> None:
        """An unfinished file is no more. From memory."""
        with self._guard:
            self._unfinished.pop(name, None)
            self._oldest_stale = True

    # The drain's part: a file's end.

    def remove(self, name: str) -> None:
        """Every record has left it."""
        try:
            os.unlink(self.path / name)
        except FileNotFoundError:
            pass
        disk.sync_directory(self.path)
        self.dropped(name)

    def dropped(self, name: str) -> None:
        """It lies here no more. From memory."""
        with self._guard:
            self._oldest_stale = True
            if file := self._files.pop(name, None):
                self._finished_bytes -= file.bytes
                del self._order[bisect.bisect_left(self._order, name)]

    def requeue_failed(self) -> tuple[int, int]:
        """Give the quarantine's records another try: (files, records).

        A whole file goes back to its place, where its mark in the store still tells how much
        of it was replayed. Poison becomes a new file behind all others. Damage stays.
        """
        files = events = 0
        for name in self.quarantine.names():
            source = self.quarantine.path / name
            if source.suffix == quarantine.POISON:
                target = self.path / (self.next_position().stem + FINISHED)
            elif source.suffix == FINISHED and not (self.path / name).exists():
                target = self.path / name
            else:
                continue
            os.rename(source, target)
            disk.sync_directory(self.path)
            found = segment.count(target)
            state = FileState(target.stat().st_size, *found[:2])
            with self._guard:
                self._add(target.name, state)
            files, events = files + 1, events + found.events
        disk.sync_directory(self.quarantine.path)
        self.quarantine.refresh()
        return files, events

    # Opening.

    def _load(self, fsync: bool) -> None:
        names = os.listdir(self.path)
        for name in names:
            if name.endswith(disk.NEW):
                (self.path / name).unlink()
        for name in os.listdir(self.quarantine.path):
            if name.endswith(disk.NEW):
                (self.quarantine.path / name).unlink()
        self._last = self._last_position(names)
        for name in sorted(names):
            if segment.position_of(name) is None or not (self.path / name).is_file():
                continue
            if name.endswith(UNFINISHED):
                name = self._recover(name, fsync)
            if name:
                self._add(name, FileState((self.path / name).stat().st_size))
        disk.sync_directory(self.path)
        self.free_bytes()
        self.quarantine.refresh()

    def _last_position(self, names: list[str]) -> Position:
        try:
            last = (self.path / LAST_NAME).read_text("ascii", "replace").strip()
        except FileNotFoundError:
            last = ""
        # Should it be lost, the names that are there tell nearly as much.
        stems = [last, *(Path(name).stem for name in (*names, *self.quarantine.names()))]
        positions = [segment.position_of(stem + FINISHED) for stem in stems]
        return max((position for position in positions if position), default=Position(0, 0))

    def _recover(self, name: str, fsync: bool) -> str:
        """Finish a file that its writer could not; returns its name, empty when it is gone."""
        path = self.path / name
        target = path.with_suffix(FINISHED)
        try:
            reader = segment.Reader(path)
            reader.survey()
            if reader.torn is not None and fsync:
                self.torn_tails += 1
                self.torn_bytes += reader.size - reader.torn
                log.info(
                    "cut %d bytes off %s, which a crash left in mid-write, unanswered",
                    reader.size - reader.torn,
                    name,
                )
                cut(path, reader.torn)
            if path.stat().st_size == 0:
                path.unlink()
                return ""
        except OSError as error:
            # The drain will meet the same error, and knows what to do with such a file.
            log.error("the unfinished file %s cannot be read: %s", name, error)
        if target.exists():
            target = self.path / (self.next_position().stem + FINISHED)
        os.rename(path, target)
        return target.name

    def _add(self, name: str, file: FileState) -> None:
        if name not in self._files:
            bisect.insort(self._order, name)
            self._finished_bytes += file.bytes
            self._oldest_stale = True
        self._files[name] = file


def look(path: Path) -> DirectoryStats:
    """What waits in a directory that perhaps another process has open. Changes nothing."""
    if not path.is_dir():
        raise SpoolUnusable(f"there is no spool directory {path}")
    directory = SpoolDirectory(path, -1, UUID(int=0), lambda: 0)
    for name in os.listdir(path):
        if segment.position_of(name) is None:
            continue
        try:
            found = segment.count(path / name)
            file = FileState((path / name).stat().st_size, found.events, found.oldest_us)
        except OSError:
            continue  # replayed and gone meanwhile
        if name.endswith(FINISHED):
            directory._add(name, file)
        else:
            directory._unfinished[name] = file
            directory._oldest_stale = True
    directory.free_bytes()
    if directory.quarantine.path.is_dir():
        directory.quarantine.refresh()
    return directory.stats()


def earlier(one_us: int, other_us: int | None) -> int:
    return one_us if other_us is None else min(one_us, other_us)


def unfinished_name(name: str) -> str:
    return name.removesuffix(FINISHED) + UNFINISHED


def cut(path: Path, size: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)


def take_lock(path: Path, note: str) -> int:
    fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        text = f"process {holder.split(' ')[0] or '?'} has the spool directory {path} open"
        raise SpoolLocked(text, adopted=holder.endswith(ADOPTED)) from None
    except OSError:
        os.close(fd)
        raise
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}{note}".encode(), 0)
    except OSError:
        pass  # only for the message above
    return fd


def try_to_write(path: Path) -> None:
    """A directory that cannot be written is found out at the start, not by the first push.

    A full disk is no reason: it may have filled because the spool is needed, and the drain
    makes room.
    """
    probe = path / (PROBE + disk.NEW)
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            disk.write_at(fd, b"probe", 0)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        log.warning("no space left in %s", path)
    probe.unlink(missing_ok=True)


def read_or_make_id(path: Path) -> UUID:
    try:
        text = (path / SPOOL_ID).read_text("ascii", "replace").strip()
    except FileNotFoundError:
        spool_id = uuid4()
        disk.replace_file(path / SPOOL_ID, str(spool_id).encode())
        disk.sync_directory(path)
        return spool_id
    try:
        return UUID(text)
    except ValueError:
        raise SpoolUnusable(
            f"{path / SPOOL_ID} holds no UUID. Without it the store's marks of what was replayed"
            " are not found: restore the file, or delete it to replay everything once more"
        ) from None
