"""The spool at work: pushes that the database cannot have now, and their way into the log.

Stations: divert -> write (group fsync) -> answer `buffered`; later drain -> replay -> announce.
The files are those of the package spool; what a replay does to the log is services/replay.py.

Imports spool, frames, flow/diversion, store, services/replay. Used by services/background.py, the
broker and drain commands.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from brokers.domain import DEFAULT_TENANT, SpoolStatus
from brokers.errors import StoreError
from brokers.flow.diversion import Diversion
from brokers.frames import FLAG_ENCRYPTED
from brokers.services.replay import Replay, key_of
from brokers.store import sealing, spool_calls
from brokers.store.directory import PartitionKey, QueueKey
from brokers.store.parcels import NO_KEY, Load
from brokers.store.parcels import Path as Way
from spool.directory import SpoolDirectory
from spool.drain import Drain, DrainConfig
from spool.errors import SpoolError, SpoolFull, SpoolWriteFailed
from spool.records import Record
from spool.writer import SpoolWriter

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

# Statements that failed for a reason of their own: the database is there.
STATEMENT_STATES = ("40001", "40P01", "55P03", "57014")
REFRESH_S = 1.0
# For a question that is asked before something is written.
ASK_S = 1.0
FLAP_S = 5.0
FLAP_DELAY_MAX_S = 2.0
FLAP_DELAY_MIN_S = 0.05
ADOPTED_LOOK_S = 0.1
ADOPTED_EMPTY_S = 1.0
KEEP_ALIVE_S = 60.0
RECOUNT_PAUSE_S = 1.0
RECOUNT_PAUSE_MAX_S = 60.0


def records_of(load: Load, *, unclear: bool) -> list[Record]:
    """What a load is in the spool. `unclear`: its call was sent, and may have committed."""
    tenant, queue, partition = load.gate.key
    owner = None if tenant == DEFAULT_TENANT else str(tenant)
    return [
        Record(
            queue=queue,
            partition=partition,
            accepted_us=accepted_us(message_id),
            message=frame[1:],
            tenant=owner,
            encrypted=parcel.sealed is not None and bool(parcel.sealed[no] & FLAG_ENCRYPTED),
            unclear=unclear,
        )
        for parcel in load.parcels
        for no, (message_id, frame) in enumerate(zip(parcel.ids, parcel.frames, strict=True))
    ]


def accepted_us(message_id: str) -> int:
    """When a message was accepted: its id tells, to the millisecond."""
    return int(message_id[:8] + message_id[9:13], 16) * 1000


class Spooling:
    """Of one broker. `own` None: nothing is diverted here, directories are only drained."""

    def __init__(
        self,
        broker: "Broker",
        own: SpoolDirectory | None,
        adopted: Sequence[SpoolDirectory] = (),
    ) -> None:
        self._broker = broker
        config = broker.config.file_buffer
        self.handover_s = config.handover_ms / 1000
        self.diversion = Diversion(
            handover_s=self.handover_s, reconsider=broker.push_combiner.reconsider
        )
        self._own = own
        self._adopted = list(adopted)
        self._writer = None
        if own is not None:
            self._writer = SpoolWriter(
                own,
                fsync=config.fsync,
                events_per_file=config.events_per_file,
                max_bytes=config.max_bytes,
                min_free_bytes=config.min_free_bytes,
            )
        self._replay = Replay(broker)
        drain_config = DrainConfig(
            flush_ms=config.flush_ms,
            max_batch=config.batch_max,
            delete_unmovable=config.delete_unmovable,
        )
        self._drains = {
            directory: Drain(
                directory,
                writer=self._writer if directory is own else None,
                store=self._replay,
                config=drain_config,
                settled=self._settled,
                paused=partial(self._paused, directory),
                moved=self._moved,
            )
            for directory in ([] if own is None else [own]) + self._adopted
        }
        # Before anything is written: what is written later is counted as it comes.
        self._lay_there = self._files()
        # Held by whoever writes records and counts them, or counts all of them anew.
        self._counting = asyncio.Lock()
        self._recounting = False
        self._miscounted = asyncio.Event()
        self._failed = 0
        self._buffering = False
        self._back_at = 0.0
        self._flap_s = 0.0
        self._coming_back: asyncio.TimerHandle | None = None

    # What the combiner asks.

    def path(self, key: PartitionKey) -> Way:
        return self.diversion.path(key)

    def failed(self, error: StoreError) -> None:
        """Unless it was the statement's own doing: nobody tries before the database is seen."""
        if error.sqlstate in STATEMENT_STATES:
            return
        if time.monotonic() - self._back_at < FLAP_S:
            # It answers when it is looked at, and fails when it is used.
            self._flap_s = min(max(self._flap_s * 2, FLAP_DELAY_MIN_S), FLAP_DELAY_MAX_S)
        else:
            self._flap_s = 0.0
        self._store_up(False)
        self._broker.look_at_database()

    async def write(self, loads: Sequence[Load], error: StoreError | None) -> None:
        """Settle every load: `buffered` once it is on disk, else `failed`."""
        loads = await self._seal(loads)
        async with self._counting:
            if loads:
                await self._write(loads, error)

    async def _write(self, loads: Sequence[Load], error: StoreError | None) -> None:
        assert self._writer is not None
        unclear = error is not None and error.outcome_unknown
        written: list[tuple[Load, list[Record]]] = []
        for load in loads:
            records = records_of(load, unclear=unclear)
            written.append((load, records))
            self.diversion.entered(load.gate.key, len(records))
        self._say_buffering(error)
        try:
            await self._writer.append([one for _, records in written for one in records])
        except SpoolError as trouble:
            await self._write_singly(written, trouble)
        except BaseException:
            for load, records in written:
                self.diversion.left(load.gate.key, len(records))
            raise
        else:
            for load, _ in written:
                load.buffered()

    async def _write_singly(
        self, written: Sequence[tuple[Load, list[Record]]], trouble: SpoolError
    ) -> None:
        """A small load is not the victim of a big one."""
        for load, records in written:
            if len(written) > 1:
                try:
                    assert self._writer is not None
                    await self._writer.append(records)
                except SpoolError as error:
                    trouble = error
                else:
                    load.buffered()
                    continue
            self._failed += len(records)
            self.diversion.left(load.gate.key, len(records))
            reason = "the spool is full" if isinstance(trouble, SpoolFull) else "the spool failed"
            load.fail(f"neither stored nor spooled, {reason}: {trouble}")

    async def _seal(self, loads: Sequence[Load]) -> list[Load]:
        """Nothing lies plain on the disk whose queue encrypts, or may; without a key those
        fail that are known to, and while the database is there it knows.
        """
        keys, directory = self._broker.keys, self._broker.directory
        rows = [(load, directory.partitions.get(load.gate.key)) for load in loads]
        if keys.can_seal:
            secret = [
                load
                for load, row in rows
                if row is None
                or row.encryption_enabled
                or directory.configured.get(load.gate.key[:2])
            ]
            await sealing.seal_bounded(keys, [one for load in secret for one in load.parcels])
            return list(loads)
        plain = [(load, row) for load, row in rows if not sealing.is_sealed(load.parcels)]
        doubtful = {
            load.gate.key[:2]
            for load, row in plain
            if row is None or directory.configured.get(load.gate.key[:2])
        }
        encrypting = await self._encrypting(doubtful)
        refused = set()
        for load, row in plain:
            if load.gate.key[:2] in encrypting or (row is not None and row.encryption_enabled):
                refused.add(id(load))
                load.fail(NO_KEY)
        return [load for load in loads if id(load) not in refused]

    async def _encrypting(self, queues: set[QueueKey]) -> set[QueueKey]:
        """Which of these queues encrypt; of none it is known while the database is away, or does
        not answer soon: the spool is for such times, and waits for nothing.
        """
        found: set[QueueKey] = set()
        fetch, lookups = self._broker.reads.fetch, self._broker.lookups
        for tenant in {tenant for tenant, _ in queues if self._broker.ready}:
            names = tuple(sorted(name for owner, name in queues if owner == tenant))
            ask = partial(spool_calls.queue_encrypted, fetch, tenant, names)
            try:
                async with asyncio.timeout(ASK_S):
                    told = await lookups.run(("encrypting", tenant, names), ask)
            except (TimeoutError, StoreError) as error:
                log.info("nobody knows which of the queues encrypt: %s", str(error) or "no answer")
                break
            found.update((tenant, name) for name in told)
        return found

    # What the runtime tells.

    def database(self, *, up: bool) -> None:
        if not up:
            self._store_up(False)
        elif not self.diversion.store_up and self._flap_s == 0:
            self._store_up(True)
        elif not self.diversion.store_up and self._coming_back is None:
            loop = asyncio.get_running_loop()
            self._coming_back = loop.call_later(self._flap_s, self._store_up, True)

    def _store_up(self, up: bool) -> None:
        if self._coming_back is not None:
            self._coming_back.cancel()
            self._coming_back = None
        if up:
            self._back_at = time.monotonic()
        self.diversion.set_store_up(up)
        if up:
            self.wake()
            self._say_recovered()

    def maintenance(self, on: bool) -> None:
        """Push maintenance was switched."""
        self.diversion.set_maintenance(on)
        if not on:
            self.wake()

    def wake(self) -> None:
        for drain in self._drains.values():
            drain.poke()

    def closing(self) -> None:
        self.diversion.close()

    async def clear(self, keys: Collection[PartitionKey], timeout_s: float) -> bool:
        """Whether none of these partitions lies in the spool any more."""
        return await self.diversion.clear(keys, timeout_s)

    # The drain.

    async def run(self) -> None:
        """Count what is there, then drain for ever."""
        await self._survey()
        work = [self._look_at_disk(), self._keep_count(), self._keep_alive()]
        for directory, drain in self._drains.items():
            alien = directory is not self._own
            work.append(self._drain_adopted(drain, directory) if alien else drain.run())
        tasks = [asyncio.create_task(one) for one in work]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _directories(self) -> list[SpoolDirectory]:
        return ([] if self._own is None else [self._own]) + self._adopted

    def _files(self) -> list[tuple[str, SpoolDirectory]]:
        """What waits to be drained, in the order in which it will be."""
        files = [(name, one) for one in self._directories() for name in one.finished()]
        return sorted(files, key=itemgetter(0))

    async def _survey(self) -> None:
        """Which partitions lie in the files: until that is known, all may.

        A file that cannot be read now is the drain's to set aside; what it holds is counted
        once that is done, or once it can be read.
        """
        found: Counter[PartitionKey] = Counter()
        for name, directory in self._lay_there:
            try:
                counts = await asyncio.to_thread(directory.survey, name)
                by_key = [(key_of(where), count) for where, count in counts.items()]
            except Exception as error:
                log.error("nobody knows what lies in %s: %s", directory.path_of(name), error)
                self._miscounted.set()
                continue
            for key, count in by_key:
                # Moved to the end: a partition's place is that of its last file.
                found[key] = found.pop(key, 0) + count
        self._lay_there.clear()
        if found:
            self._say_buffering(None)
        self.diversion.found(list(found.items()))

    async def _look_at_disk(self) -> None:
        """A look that fails must not end the drain, which runs beside it."""
        files_lost = 0
        while True:
            for directory in self._directories():
                try:
                    await asyncio.to_thread(directory.refresh)
                except OSError as error:
                    log.warning("%s cannot be looked at: %s", directory.path, error)
            if self._writer is not None and self._writer.files_lost != files_lost:
                files_lost = self._writer.files_lost
                self._miscounted.set()
            await asyncio.sleep(REFRESH_S)

    async def _keep_count(self) -> None:
        """Count anew when records were lost: or their partitions were diverted for ever."""
        pause_s = RECOUNT_PAUSE_S
        while True:
            await self._miscounted.wait()
            # Time for the drain to get past the reason, and for more of the kind to come.
            await asyncio.sleep(pause_s)
            self._miscounted.clear()
            try:
                await self._recount()
            except Exception as error:
                log.warning("the spool cannot be counted now: %s", error)
                self._miscounted.set()
            again = self._miscounted.is_set()
            pause_s = min(2 * pause_s, RECOUNT_PAUSE_MAX_S) if again else RECOUNT_PAUSE_S

    async def _recount(self) -> None:
        """As at the start: the drains wait, what is written meanwhile is counted as it comes."""
        self._recounting = True
        try:
            for drain in list(self._drains.values()):
                await drain.recount()
            async with self._counting:
                if self._writer is not None and self._own is not None:
                    await self._writer.finalise()
                    if self._own.unfinished():
                        raise SpoolWriteFailed("a file is not finished yet")
                self._lay_there = self._files()
                self.diversion.lose_count()
            await self._survey()
        finally:
            self._recounting = False
            self.wake()
        self._say_recovered()

    async def _drain_adopted(self, drain: Drain, directory: SpoolDirectory) -> None:
        """Until it is empty for a while; then whoever comes may have it."""
        draining = asyncio.create_task(drain.run(), name=f"drain {directory.path}")
        empty_since = None
        try:
            while empty_since is None or time.monotonic() - empty_since < ADOPTED_EMPTY_S:
                await asyncio.wait([draining], timeout=ADOPTED_LOOK_S)
                if draining.done():
                    break
                if directory.finished():
                    empty_since = None
                else:
                    empty_since = empty_since or time.monotonic()
        finally:
            draining.cancel()
            await asyncio.gather(draining, return_exceptions=True)
        log.info("%s is drained", directory.path)
        del self._drains[directory]
        self._adopted.remove(directory)
        directory.close()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_S)
            if self._broker.ready:
                await self.keep_alive()

    async def keep_alive(self) -> None:
        """Say that what lies here still waits, in maintenance or behind a partition that
        somebody holds: the transaction rows of its time must stay.
        """
        for directory in self._directories():
            file, oldest_us = directory.head(), directory.oldest_us()
            if file is None or oldest_us is None:
                continue
            try:
                await self._replay.keep_alive(directory.spool_id, file, oldest_us)
            except SpoolError as error:
                log.debug("spool: %s", error)

    def _paused(self, directory: SpoolDirectory) -> bool:
        if not self._broker.ready or self.diversion.maintenance or self._recounting:
            return True
        if not self._adopted:
            return False
        # What was left by others belongs before what is ours, or the other way round: the
        # names of the files tell. One directory that holds nothing lets the others go first.
        due = {one: drain.due() for one, drain in self._drains.items()}
        mine = due.pop(directory, None)
        return any(name and (mine is None or name < mine) for name in due.values())

    def _moved(self, name: str) -> None:
        log.warning("%s did not hold what was counted: the spool is counted anew", name)
        self._miscounted.set()

    def _settled(self, records: Sequence[Record]) -> None:
        """These records are out of the spool."""
        counts = Counter(record.whereabouts for record in records)
        self.diversion.rate = max(drain.rate for drain in self._drains.values())
        for where, count in counts.items():
            self.diversion.left(key_of(where), count)
        if self._adopted:
            self.wake()  # the oldest file may be another directory's now
        self._say_recovered()

    def _say_buffering(self, error: StoreError | None) -> None:
        if self._buffering:
            return
        self._buffering = True
        if error is not None:
            why = error.text
        elif self.diversion.maintenance:
            why = "push maintenance is on"
        elif not self.diversion.store_up:
            why = "the database is away"
        else:
            why = "the spool of an earlier time is not empty"
        log.warning("entering buffered mode (degraded durability): %s", why)

    def _say_recovered(self) -> None:
        if self._buffering and not self.diversion.buffering:
            self._buffering = False
            log.info("DB recovered: the spool is empty, pushes go to the database again")

    def status(self) -> SpoolStatus:
        """As of a second ago at most."""
        stats = [directory.stats() for directory in self._directories()]
        oldest = min((one.oldest_us for one in stats if one.oldest_us is not None), default=None)
        age_s = 0.0 if oldest is None else max(time.time() - oldest / 1e6, 0.0)
        return SpoolStatus(
            pending=self.diversion.pending,
            failed=self._failed,
            files=sum(one.files for one in stats),
            bytes=sum(one.bytes for one in stats),
            total_bytes=sum(one.total_bytes for one in stats),
            failed_files=sum(one.failed_files for one in stats),
            failed_events=sum(one.failed_events for one in stats),
            failed_bytes=sum(one.failed_bytes for one in stats),
            oldest_age_s=age_s,
            free_bytes=min((one.free_bytes for one in stats), default=0),
            healthy=self.diversion.store_up
            and all(drain.healthy for drain in self._drains.values()),
        )

    async def stop(self) -> None:
        """After the combiner has stopped: finish the file that is open, let go of the locks."""
        if self._coming_back is not None:
            self._coming_back.cancel()
        if self._writer is not None:
            await self._writer.close()
        for directory in self._directories():
            directory.close()
