"""The writer: appends records to the unfinished file, and answers after the group's fsync.

One thread owns the file. What has arrived while it was writing goes into one write and one
fsync together, so a disk that is slow makes the groups larger, and not the wait.

An append is on the disk as a whole or not at all: when the disk refuses, the file is cut
back to where it ended before. What an fsync that failed has left is unknown, and asking it
again would lie; so that file ends at its last good byte, and the next append begins another.

Imports directory, records, disk, errors. Used by drain.py, and by whoever spools.
"""

import asyncio
import errno
import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spool import disk
from spool.directory import SpoolDirectory, cut, unfinished_name
from spool.errors import SpoolClosed, SpoolFull, SpoolWriteFailed
from spool.records import Record, encode_many

log = logging.getLogger(__name__)

GROUP_BYTES_MAX = 16 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Append:
    """Records that go to the disk together, and who waits for it."""

    records: Sequence[Record]
    answer: asyncio.Future[None]
    data: bytes = b""
    failed: bool = False


@dataclass(slots=True, eq=False)
class Finalise:
    """A wish, in the order of the appends around it."""

    answer: asyncio.Future[str | None]


@dataclass(slots=True)
class OpenFile:
    """The unfinished file. `end` is where its last good record ends."""

    name: str
    fd: int
    end: int = 0
    events: int = 0


class SpoolWriter:
    """Appends and finalises in the order in which it was asked.

    `records` and `bytes` that it wrote, `fsyncs` of files, `write_failures`: appends that
    failed, `records_failed` in them, `current_events`: in the unfinished file. `files_lost`:
    somebody has deleted them before they were finished.
    """

    def __init__(
        self,
        directory: SpoolDirectory,
        *,
        fsync: bool = True,
        events_per_file: int = 10_000,
        file_bytes_max: int = 64 * 1024 * 1024,
        max_bytes: int = 0,
        min_free_bytes: int = 0,
    ) -> None:
        self._directory = directory
        self._fsync = fsync
        self._events_per_file = events_per_file
        self._file_bytes_max = file_bytes_max
        self._max_bytes = max_bytes
        self._min_free_bytes = min_free_bytes
        self.records = 0
        self.bytes = 0
        self.fsyncs = 0
        self.write_failures = 0
        self.records_failed = 0
        self.files_lost = 0
        self._file: OpenFile | None = None
        self._uncut: list[OpenFile] = []
        self._failing = False
        self._waiting: deque[Append | Finalise] = deque()
        self._news = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="spool-writer", daemon=True)
        self._thread.start()

    @property
    def current_events(self) -> int:
        file = self._file
        return file.events if file else 0

    async def append(self, records: Sequence[Record]) -> None:
        """Return once they are on the disk; cancelling does not take them back.

        Raises SpoolFull, SpoolWriteFailed or SpoolClosed, or ValueError for records that no
        file could hold; then none of them is on the disk.
        """
        if records:
            append = Append(records, asyncio.get_running_loop().create_future())
            self._ask(append)
            await append.answer

    async def finalise(self) -> str | None:
        """Hand the unfinished file to the drain; returns its name, None when there is none."""
        wish = Finalise(asyncio.get_running_loop().create_future())
        self._ask(wish)
        return await wish.answer

    async def close(self) -> None:
        """Write what was asked for, finish the file, end the thread."""
        if self._closing:
            return
        try:
            await self.finalise()
        except SpoolWriteFailed as error:
            log.warning("the next start will finish the file: %s", error)
        with self._news:
            self._closing = True
            self._news.notify()
        await asyncio.to_thread(self._thread.join)

    def _ask(self, wish: Append | Finalise) -> None:
        with self._news:
            if self._closing:
                raise SpoolClosed("the spool is closed")
            self._waiting.append(wish)
            self._news.notify()

    # From here on in the writer's thread.

    def _work(self) -> None:
        while True:
            with self._news:
                while not self._waiting and not self._closing:
                    self._news.wait()
                taken, self._waiting = self._waiting, deque()
                if not taken:
                    break
            while taken:
                if isinstance(taken[0], Append):
                    self._write_some(taken)
                else:
                    self._finalise_for(taken.popleft())
        self._leave_file()

    def _write_some(self, taken: deque[Append | Finalise]) -> None:
        """One group: what fits into the file, and at least one append."""
        group: list[Append] = []
        events = size = 0
        try:
            while taken and isinstance(append := taken[0], Append):
                if not append.data and not self._encode(append):
                    taken.popleft()
                    continue
                if group and size + len(append.data) > GROUP_BYTES_MAX:
                    break
                if not self._fits(append, events, size):
                    break
                group.append(append)
                events += len(append.records)
                size += len(append.data)
                taken.popleft()
            if group:
                self._write_group(group)
        except Exception as error:  # our mistake: whoever waits must hear of it
            log.exception("the writer failed")
            if not group and isinstance(append := taken.popleft(), Append):
                group.append(append)
            self._fail(group, error)

    def _encode(self, append: Append) -> bool:
        try:
            append.data = encode_many(append.records)
        except Exception as error:  # the caller's mistake, and the caller's alone
            self._fail([append], error)
            return False
        return True

    def _fits(self, append: Append, group_events: int, group_bytes: int) -> bool:
        """Whether the file has room; one that is full is finished, once its group is written."""
        events = self.current_events + group_events
        end = (self._file.end if self._file else 0) + group_bytes
        if not events or (
            events + len(append.records) <= self._events_per_file
            and end + len(append.data) <= self._file_bytes_max
        ):
            return True
        if group_events:
            return False
        try:
            self._finish_file()
        except OSError as error:
            log.warning("a full file could not be finished, and grows on: %s", error)
        return True

    def _write_group(self, group: list[Append]) -> None:
        group = self._within_limits(group)
        if not group:
            return
        try:
            self._put(group)
        except OSError as error:
            full = error.errno in disk.NO_SPACE and len(group) > 1
            if full or error.errno == errno.EFBIG:
                self._put_each(group)
            else:
                self._fail(group, self._write_failed(error))

    def _within_limits(self, group: list[Append]) -> list[Append]:
        """Those that the limits leave room for; the others are told."""
        room: int | None = None
        if self._max_bytes:
            room = self._max_bytes - self._directory.total_bytes()
        if self._min_free_bytes:
            try:
                free = self._directory.free_bytes() - self._min_free_bytes
            except OSError as error:
                self._fail(group, self._write_failed(error))
                return []
            room = free if room is None else min(room, free)
        if room is None:
            return group
        admitted = []
        for append in group:
            if len(append.data) <= room:
                admitted.append(append)
                room -= len(append.data)
            else:
                self._fail([append], SpoolFull("the spool has reached its limit"))
        return admitted

    def _put(self, group: list[Append]) -> None:
        """Write, sync, answer. Raises OSError with the file as it was before."""
        file = self._file or self._create()
        try:
            disk.write_at(file.fd, b"".join(append.data for append in group), file.end)
        except OSError as error:
            self._cut_back(file, file.end)
            if error.errno == errno.EFBIG and file.events:
                self._abandon(file)  # another file has room
            raise
        self._commit(file, group)

    def _put_each(self, group: list[Append]) -> None:
        """As many of them as there is room for, in one sync.

        A small append is not to be the victim of a big one beside it.
        """
        written: list[Append] = []
        try:
            file = self._file or self._create()
            end = file.end
            for append in group:
                try:
                    disk.write_at(file.fd, append.data, end)
                except OSError as error:
                    self._fail([append], self._write_failed(error))
                    self._cut_back(file, end)
                    if self._file is not file:
                        raise
                else:
                    written.append(append)
                    end += len(append.data)
            if written:
                self._commit(file, written)
        except OSError as error:
            # Who was told already is not told again.
            self._fail(group, self._write_failed(error))

    def _commit(self, file: OpenFile, group: list[Append]) -> None:
        """What was written at the file's end becomes part of it, and is answered."""
        if self._fsync:
            try:
                self.fsyncs += 1
                os.fsync(file.fd)
            except OSError:
                self._abandon(file)
                raise
        if os.fstat(file.fd).st_nlink == 0:
            # Durable, and yet nowhere: nobody will find it after a restart.
            self._abandon(file)
            raise FileNotFoundError(errno.ENOENT, "somebody has deleted the spool file")
        events = sum(len(append.records) for append in group)
        size = sum(len(append.data) for append in group)
        oldest_us = min(record.accepted_us for append in group for record in append.records)
        file.end += size
        file.events += events
        self.records += events
        self.bytes += size
        self._directory.grew(file.name, file.end, events, oldest_us)
        if self._failing:
            self._failing = False
            log.info("writes work again")
        answer([append.answer for append in group], None)

    def _create(self) -> OpenFile:
        self._file = OpenFile(*self._directory.create())
        return self._file

    def _cut_back(self, file: OpenFile, end: int) -> None:
        try:
            os.ftruncate(file.fd, end)
        except OSError:
            self._abandon(file)

    def _abandon(self, file: OpenFile) -> None:
        """It ends at its last good record. Until it does on the disk, nobody may drain it."""
        if self._file is not file:
            return
        self._file = None
        try:
            os.close(file.fd)
        except OSError:
            pass  # what it could tell is known already
        self._uncut.append(file)
        self._finish_uncut()

    def _finish_uncut(self) -> None:
        for file in list(self._uncut):
            try:
                cut(self._directory.path / unfinished_name(file.name), file.end)
                if file.events:
                    self._directory.finish(file.name)
                else:
                    self._directory.drop_unfinished(file.name)
            except FileNotFoundError:
                log.error("%s is gone, with %d records in it", file.name, file.events)
                self._directory.lost(file.name)
                self.files_lost += 1
                self._uncut.remove(file)
            except OSError as error:
                log.warning("%s cannot be finished yet: %s", file.name, error)
            else:
                self._uncut.remove(file)

    def _finalise_for(self, wish: Append | Finalise) -> None:
        assert isinstance(wish, Finalise)
        try:
            self._finish_uncut()
            name = self._finish_file()
        except Exception as error:
            if not isinstance(error, OSError):
                log.exception("the writer failed")
            answer([wish.answer], SpoolWriteFailed(f"a spool file was not finished: {error}"))
        else:
            answer([wish.answer], None, name)

    def _finish_file(self) -> str | None:
        """Rename it, then forget it; what is in it was synced by every group."""
        file = self._file
        if file is None or not file.events:
            return None
        self._directory.finish(file.name)
        self._file = None
        os.close(file.fd)
        return file.name

    def _leave_file(self) -> None:
        """At the end: an empty file goes, one that could not be finished stays for recovery."""
        file, self._file = self._file, None
        if file is None:
            return
        os.close(file.fd)
        if not file.events:
            try:
                self._directory.drop_unfinished(file.name)
            except OSError as error:
                log.warning("%s stays behind, empty: %s", file.name, error)

    def _write_failed(self, error: OSError) -> SpoolWriteFailed:
        if not self._failing:
            self._failing = True
            log.error("writes fail: %s", error)
        failed = SpoolWriteFailed(f"the spool could not be written: {error}")
        failed.__cause__ = error
        return failed

    def _fail(self, group: list[Append], error: Exception) -> None:
        group = [append for append in group if not append.failed]
        if not group:
            return
        for append in group:
            append.failed = True
        self.write_failures += len(group)
        self.records_failed += sum(len(append.records) for append in group)
        answer([append.answer for append in group], error)


def answer(
    waiting: Sequence[asyncio.Future[Any]], error: Exception | None, value: str | None = None
) -> None:
    """Tell the loop, once for all of them."""
    try:
        waiting[0].get_loop().call_soon_threadsafe(resolve, waiting, error, value)
    except RuntimeError:
        pass  # the loop is closed: nobody waits any more


def resolve(
    waiting: Sequence[asyncio.Future[Any]], error: Exception | None, value: str | None
) -> None:
    for future in waiting:
        if future.done():
            continue  # cancelled meanwhile
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
