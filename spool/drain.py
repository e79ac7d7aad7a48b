"""The drain: replays the spool's files into the store, oldest first, and deletes them.

A batch is a contiguous range of a file's intact records. The store commits it together
with the mark that says how far the file got, so whatever dies in between, the mark tells
what is left to do. After any failure the marks are read again first: an answer that got
lost may have been a commit.

    transient  the database's state: the file stays, the cycle ends; ten in a row, a rest
    permanent  these bytes, or an unreadable file: counted on the head file alone; the fifth
               splits the batch, until only the guilty records are left to go to `failed/`
    unmovable  even that failed: the file is passed over for a minute

Poison is on the disk before the mark passes it, a file goes when nothing of it is left,
and its mark is forgotten only after that.

Imports head, replay, directory, writer, records, errors. Used by whoever owns a spool.
"""

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spool.directory import SpoolDirectory
from spool.errors import MarkMoved, ReplayPermanent, ReplayTransient, SpoolError
from spool.head import Batch, Head
from spool.records import Record
from spool.replay import Replay, ReplayStore
from spool.writer import SpoolWriter

log = logging.getLogger(__name__)

FILES_HEALTHY = 10
FILES_UNHEALTHY = 1
PERMANENT_MAX = 5
TRANSIENT_MAX = 10
MOVED_MAX = 3
REFRESH_S = 1.0
RATE_WEIGHT = 0.2
# The process is short of something; no file is guilty of that.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainConfig:
    flush_ms: int = 100
    max_batch: int = 100
    batch_bytes_max: int = 8 * 1024 * 1024
    delete_unmovable: bool = False
    cooldown_s: float = 5.0
    skip_s: float = 60.0


@dataclass(slots=True)
class DrainCycle:
    """What one cycle did; `error` is why it ended early."""

    files: int = 0
    events: int = 0
    poison: int = 0
    damaged: int = 0
    error: str | None = None


class Unmovable(Exception):
    """What should go to the quarantine, or go away, cannot."""


class Drain:
    """`healthy`: what the last replay said of the database; `rate`: records a second of late.

    Counters since the start: `files_drained`, `events_replayed`, `events_poison`,
    `pieces_damaged`, `transient_failures`, `permanent_failures`, `unmovable_files`.
    """

    def __init__(
        self,
        directory: SpoolDirectory,
        *,
        writer: SpoolWriter | None,
        store: ReplayStore,
        config: DrainConfig,
        settled: Callable[[Sequence[Record]], None],
        paused: Callable[[], bool] = lambda: False,
        moved: Callable[[str], None] = lambda name: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`settled` hears, once in this process, of each intact record of each file that left
        the spool, be it stored now or before, or set aside. `moved` hears of a file whose
        records were not settled as they had been counted: it left as a whole, or held others.
        """
        self._directory = directory
        self._writer = writer
        self._replay = Replay(store, directory.spool_id)
        self._config = config
        self._settled = settled
        self._paused = paused
        self._moved = moved
        self._now = now
        self.healthy = True
        self.rate = 0.0
        self.files_drained = 0
        self.events_replayed = 0
        self.events_poison = 0
        self.pieces_damaged = 0
        self.transient_failures = 0
        self.permanent_failures = 0
        self.unmovable_files = 0
        self._one_cycle = asyncio.Lock()
        self._poked = asyncio.Event()
        self._head: Head | None = None
        self._marks: dict[str, int] | None = None
        self._settled_to: dict[str, int] = {}
        self._damage_counted: set[str] = set()
        self._gone: set[str] = set()  # whose marks are still to be forgotten
        self._skipped: dict[str, float] = {}
        self._transient_in_a_row = 0
        self._resting_until = 0.0
        self._last_done = 0.0
        self._last_refresh = -REFRESH_S

    async def run(self) -> None:
        """Cycles until cancelled; idles while paused."""
        while True:
            self._poked.clear()
            began = self._now()
            try:
                await self.cycle()
            except Exception:
                log.exception("the drain failed")
            rest_s = self._config.flush_ms / 1000 - (self._now() - began)
            try:
                async with asyncio.timeout(max(rest_s, 0)):
                    await self._poked.wait()
            except TimeoutError:
                pass

    def due(self) -> str | None:
        """The file that it would be at now; None when it has nothing to do."""
        return next(iter(self._due()), None)

    async def recount(self) -> None:
        """Between two cycles: from now on every file is settled from its start on again."""
        async with self._one_cycle:
            if self._head is not None:
                self._head.rewind()
            self._marks = None
            self._settled_to.clear()

    def poke(self) -> None:
        """Begin the next cycle at once."""
        self._poked.set()

    async def cycle(self) -> DrainCycle:
        """One round over the oldest files."""
        cycle = DrainCycle()
        async with self._one_cycle:
            await self._refresh()
            self._last_done = self._now()
            try:
                await self._drain_some(cycle)
            except BaseException:
                # Cancelled, or our mistake: nobody knows what the store has done.
                self._lose_track()
                raise
        return cycle

    async def _drain_some(self, cycle: DrainCycle) -> None:
        if self._paused():
            cycle.error = "paused"
            return
        if self._now() < self._resting_until:
            cycle.error = "resting after transient failures"
            return
        await self._finalise()
        files_max = self._files_max()
        names = self._due()[:files_max]
        try:
            if self._marks is None or not (self.healthy or names):
                await self._read_marks()
                if not names:
                    self._recovered()
            for name in names:
                if not await self._drain_file(name, cycle):
                    break
            await self._forget()
        except Exception as error:
            self._transient(cycle, error)

    async def _finalise(self) -> None:
        """Let the drain have what was written, unless more waits than this cycle can reach.

        So the files stay large while the database is away.
        """
        writer = self._writer
        if writer is None or not writer.current_events or len(self._due()) >= self._files_max():
            return
        try:
            await writer.finalise()
        except SpoolError as error:
            log.warning("%s", error)

    def _files_max(self) -> int:
        return FILES_HEALTHY if self.healthy else FILES_UNHEALTHY

    def _due(self) -> list[str]:
        names = self._directory.finished()
        if not self._skipped:
            return names
        now = self._now()
        here = set(names)
        self._skipped = {
            name: until for name, until in self._skipped.items() if until > now and name in here
        }
        return [name for name in names if name not in self._skipped]

    async def _read_marks(self) -> None:
        self._marks = await self._replay.marks()
        here = self._directory.finished()
        try:
            kept = await asyncio.to_thread(self._directory.quarantine.names)
        except OSError as error:
            log.warning("the quarantine cannot be looked at: %s", error)
            return  # a file in it may still need its mark
        self._gone.update(self._marks.keys() - set(here) - set(kept))

    async def _forget(self) -> None:
        """A mark that outlives its file costs a row and nothing else: it can wait."""
        if not self._gone:
            return
        gone = sorted(self._gone)
        try:
            await self._replay.forget(gone)
        except ReplayTransient as error:
            log.info("the marks of %d files stay for now: %s", len(gone), error)
            return
        self._gone.clear()
        for name in gone:
            (self._marks or {}).pop(name, None)

    # One file.

    async def _drain_file(self, name: str, cycle: DrainCycle) -> bool:
        """Whether the cycle goes on behind it."""
        if self._head is None or self._head.name != name:
            self._head = Head(
                self._directory.path_of(name),
                batch_max=self._config.max_batch,
                batch_bytes_max=self._config.batch_bytes_max,
            )
        head = self._head
        try:
            if not await self._replay_file(head, cycle):
                return False
            await self._finish(head, cycle)
        except ReplayPermanent as error:
            cycle.error = f"permanent: {error}"
            log.warning("%s fails for the %d. time: %s", name, head.failures, error)
            self._marks = None
            return False
        except FileNotFoundError:
            log.error("somebody has taken %s away", name)
            self._left_unread(name)
            self._gone.add(name)
        except OSError as error:
            return await self._unreadable(head, cycle, error)
        except Unmovable as error:
            self._skip(head, cycle, error)
        return True

    async def _replay_file(self, head: Head, cycle: DrainCycle) -> bool:
        """To its end; False when paused on the way there."""
        moved = 0
        while batch := await head.batch():
            if self._marks is None:
                await self._read_marks()
            mark = (self._marks or {}).get(head.name, 0)
            if mark < batch.start:
                # The store has lost what it had committed: a replica behind was promoted.
                head.rewind()
            elif mark > batch.start:
                self._leave(head, Batch(batch.start, batch.records[: mark - batch.start]))
            elif self._paused():
                return False
            else:
                try:
                    await self._replay_batch(head, batch, cycle)
                    moved = 0
                except MarkMoved as error:
                    self._marks = None
                    moved += 1
                    if moved > MOVED_MAX:
                        raise ReplayTransient("the mark keeps moving") from error
        return True

    async def _replay_batch(self, head: Head, batch: Batch, cycle: DrainCycle) -> None:
        try:
            await self._store_batch(head, batch, cycle)
        except ReplayPermanent:
            self.permanent_failures += 1
            head.failures += 1
            if head.failures < PERMANENT_MAX:
                raise
            await self._split(head, batch, cycle)

    async def _split(self, head: Head, batch: Batch, cycle: DrainCycle) -> None:
        """A batch that failed: its halves in order, theirs, until the guilty stand alone."""
        untried = await self._narrow(head, batch, cycle)
        while untried:
            part = untried.pop()
            try:
                await self._store_batch(head, part, cycle)
            except ReplayPermanent:
                untried += await self._narrow(head, part, cycle)

    async def _narrow(self, head: Head, failed: Batch, cycle: DrainCycle) -> list[Batch]:
        """Its halves, the first one last; of a single record nothing is left to try."""
        start, records = failed
        if len(records) == 1:
            await self._set_aside(head, failed, cycle)
            return []
        middle = len(records) // 2
        return [Batch(start + middle, records[middle:]), Batch(start, records[:middle])]

    async def _store_batch(self, head: Head, batch: Batch, cycle: DrainCycle) -> None:
        oldest_us = min(record.accepted_us for record in batch.records)
        waiting_us = self._directory.oldest_us()
        await self._replay.replay(
            head.name,
            batch.start,
            batch.records,
            oldest_us=oldest_us if waiting_us is None else min(oldest_us, waiting_us),
        )
        self._recovered()
        count = len(batch.records)
        self._measure(count)
        cycle.events += count
        self.events_replayed += count
        self._leave(head, batch, moves_mark=True)

    async def _set_aside(self, head: Head, poison: Batch, cycle: DrainCycle) -> None:
        [record] = poison.records
        try:
            await asyncio.to_thread(
                self._directory.quarantine.keep_poison, head.name, poison.records
            )
        except OSError as error:
            if not self._config.delete_unmovable:
                raise Unmovable(f"a poison record cannot be set aside: {error}") from error
            log.error("message %s is lost: %s", record.message_id, error)
        else:
            log.error(
                "message %s of queue %r goes to %s: the store refuses it",
                record.message_id,
                record.queue,
                self._directory.quarantine.path,
            )
        await self._replay.pass_over(head.name, poison.start, 1)
        cycle.poison += 1
        self.events_poison += 1
        self._leave(head, poison, moves_mark=True)

    def _leave(self, head: Head, batch: Batch, *, moves_mark: bool = False) -> None:
        """These records, the first of the batch in hand, have left the spool."""
        end = batch.start + len(batch.records)
        if moves_mark and self._marks is not None:
            self._marks[head.name] = end
        head.advance(len(batch.records))
        self._directory.replayed(head.name, end)
        settled_to = self._settled_to.get(head.name, 0)
        if end > settled_to:
            self._settled_to[head.name] = end
            try:
                self._settled(batch.records[max(settled_to - batch.start, 0) :])
            except Exception:
                log.exception("who was to hear of replayed records")

    async def _finish(self, head: Head, cycle: DrainCycle) -> None:
        """Nothing that could be replayed is left in it."""
        name, directory = head.name, self._directory
        if not directory.counted(name, head.events()):
            self._tell_moved(name)
        pieces, ranges = head.damage()
        if ranges:
            try:
                await asyncio.to_thread(directory.quarantine.keep_damage, head.path, ranges)
            except OSError as error:
                if not self._config.delete_unmovable:
                    raise Unmovable(f"damage cannot be set aside: {error}") from error
                log.error("damage of %s cannot be set aside: %s", name, error)
            if name not in self._damage_counted:
                self._damage_counted.add(name)
                cycle.damaged += pieces
                self.pieces_damaged += pieces
                log.error("%d pieces of %s are no records", pieces, name)
        try:
            await asyncio.to_thread(directory.remove, name)
        except OSError as error:
            raise Unmovable(f"it cannot be deleted: {error}") from error
        self._file_gone(name)
        self._gone.add(name)
        self._recovered()
        cycle.files += 1
        self.files_drained += 1

    # When it does not go well.

    def _transient(self, cycle: DrainCycle, error: Exception) -> None:
        if self.healthy:
            log.warning("the database does not take the replay: %s", error)
        if not isinstance(error, ReplayTransient):
            log.error("the drain failed", exc_info=error)
        cycle.error = f"transient: {error}"
        self.healthy = False
        self.transient_failures += 1
        self._marks = None
        self._transient_in_a_row += 1
        if self._transient_in_a_row >= TRANSIENT_MAX:
            self._transient_in_a_row = 0
            self._resting_until = self._now() + self._config.cooldown_s

    async def _unreadable(self, head: Head, cycle: DrainCycle, error: OSError) -> bool:
        """As a permanent failure; the fifth moves the file away as a whole, with its mark."""
        cycle.error = f"unreadable: {error}"
        head.rewind()
        if error.errno in SHORTAGES:
            log.warning("%s cannot be read now: %s", head.name, error)
            return False
        self.permanent_failures += 1
        head.failures += 1
        log.warning("%s is unreadable for the %d. time: %s", head.name, head.failures, error)
        if head.failures < PERMANENT_MAX:
            return False
        try:
            await asyncio.to_thread(self._directory.quarantine.keep_whole, head.path)
        except OSError as unmovable:
            if not self._config.delete_unmovable:
                self._skip(head, cycle, Unmovable(f"it cannot be moved: {unmovable}"))
                return True
            log.error("the unreadable file %s is deleted: %s", head.name, unmovable)
            try:
                await asyncio.to_thread(self._directory.remove, head.name)
            except OSError as undeletable:
                self._skip(head, cycle, Unmovable(f"it cannot be deleted: {undeletable}"))
                return True
            self._gone.add(head.name)
        self._left_unread(head.name)
        return True

    def _skip(self, head: Head, cycle: DrainCycle, error: Unmovable) -> None:
        cycle.error = f"unmovable: {error}"
        log.error("%s is passed over for %g s: %s", head.name, self._config.skip_s, error)
        self.unmovable_files += 1
        self._skipped[head.name] = self._now() + self._config.skip_s
        self._head = None

    def _left_unread(self, name: str) -> None:
        self._directory.dropped(name)
        self._file_gone(name)
        self._tell_moved(name)

    def _tell_moved(self, name: str) -> None:
        try:
            self._moved(name)
        except Exception:
            log.exception("who was to hear of records that are gone")

    def _file_gone(self, name: str) -> None:
        self._head = None
        self._settled_to.pop(name, None)
        self._damage_counted.discard(name)

    def _lose_track(self) -> None:
        self._head = None
        self._marks = None

    def _recovered(self) -> None:
        self._transient_in_a_row = 0
        if not self.healthy:
            self.healthy = True
            log.info("the database takes the replay again")

    def _measure(self, count: int) -> None:
        now = self._now()
        rate = count / max(now - self._last_done, 1e-6)
        self._last_done = now
        self.rate = rate if not self.rate else self.rate + RATE_WEIGHT * (rate - self.rate)

    async def _refresh(self) -> None:
        """What waits has to be known before the first batch: its age goes with every one."""
        if self._now() - self._last_refresh < REFRESH_S:
            return
        self._last_refresh = self._now()
        try:
            await asyncio.to_thread(self._directory.refresh)
        except OSError as error:
            log.warning("%s cannot be looked at: %s", self._directory.path, error)
