"""Replay: what a drain gives back to the log, a range of records at a time.

A batch is stored whole or not at all, together with the mark of how far its file got. The
drain is told which of three things went wrong: the database's state, the bytes themselves,
or a mark that somebody else has moved.

Imports encryption, store, spool. Used by services/spool.py.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.domain import DEFAULT_TENANT
from brokers.encryption import bounded
from brokers.errors import Permanent, StoreError
from brokers.store import calls, spool_calls
from brokers.store.calls import PartitionRow
from brokers.store.directory import PartitionKey
from brokers.store.parcels import NO_KEY
from brokers.store.spool_calls import Mark, ReplayItem
from spool.errors import MarkMoved, ReplayPermanent, ReplayTransient
from spool.records import Record, Whereabouts

if TYPE_CHECKING:
    from brokers.runtime import Broker

STALE_ROUNDS_MAX = 3
# Of the time that a batch took, how much is left to pushes that came meanwhile.
GIVE_WAY = 0.5
GIVE_WAY_MAX_S = 0.1


def key_of(where: Whereabouts) -> PartitionKey:
    tenant = DEFAULT_TENANT if where.tenant is None else UUID(where.tenant)
    return tenant, where.queue, where.partition


class Replay:
    """The store, as the drains of one broker see it (spool/drain.py, ReplayStore)."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._fetch = broker.drain_lane.fetch
        self._wait_ms = broker.config.push.busy_ms

    async def marks(self, spool_id: UUID) -> dict[str, int]:
        try:
            return await spool_calls.marks(self._fetch, spool_id)
        except StoreError as error:
            raise ReplayTransient(error.text) from error

    async def replay(
        self, spool_id: UUID, file: str, start: int, records: Sequence[Record], *, oldest_us: int
    ) -> None:
        began, flushes = time.monotonic(), self._broker.push_combiner.flushes
        await self._store(self._mark(spool_id, file, start), records, oldest_us)
        if self._broker.push_combiner.flushes != flushes:
            # There is live traffic: a spool that comes back must not crowd it out.
            took_s = time.monotonic() - began
            await asyncio.sleep(min(took_s * GIVE_WAY, GIVE_WAY_MAX_S))

    async def _store(self, mark: Mark, records: Sequence[Record], oldest_us: int) -> None:
        known = {where: key_of(where) for where in {record.whereabouts for record in records}}
        keys = [known[record.whereabouts] for record in records]
        for _ in range(STALE_ROUNDS_MAX):
            try:
                places = await self._places(keys)
                if places is None:
                    continue
                items = await self._items(keys, places, records)
                async with self._broker.admission.slot("maint"):
                    written = await spool_calls.replay(
                        self._fetch, mark, items, oldest_us=oldest_us, wait_ms=self._wait_ms
                    )
            except Permanent as error:
                if error.sqlstate != spool_calls.STALE:
                    raise _drain_error(error) from error
                for key in set(keys):
                    self._broker.directory.forget_partition(*key)
            except StoreError as error:
                raise _drain_error(error) from error
            else:
                self._announce(keys, items, written)
                return
        raise ReplayTransient("the queues keep changing")

    async def _items(
        self,
        keys: Sequence[PartitionKey],
        places: Mapping[PartitionKey, PartitionRow],
        records: Sequence[Record],
    ) -> list[ReplayItem]:
        """What the procedure takes; nothing plain goes to a queue that encrypts."""
        items = [
            ReplayItem(
                place=places[key],
                message_id=record.message_id,
                frame=b"{" + record.message,
                accepted_us=record.accepted_us,
                encrypted=record.encrypted,
                unclear=record.unclear,
            )
            for key, record in zip(keys, records, strict=True)
        ]
        plain = [
            no
            for no, item in enumerate(items)
            if item.place.encryption_enabled and not item.encrypted
        ]
        if not plain:
            return items
        ring = self._broker.keys
        if not ring.can_seal:
            # The flag may be an old one: have it looked at again next time.
            for no in plain:
                self._broker.directory.forget_partition(*keys[no])
            raise ReplayPermanent(NO_KEY)

        def seal() -> None:
            for no in plain:
                frame = ring.seal_frame(items[no].frame)
                items[no] = items[no]._replace(frame=frame, encrypted=True)

        await bounded(seal, sum(len(items[no].frame) for no in plain))
        return items

    async def pass_over(self, spool_id: UUID, file: str, start: int, count: int) -> None:
        try:
            async with self._broker.admission.slot("maint"):
                await spool_calls.pass_over(
                    self._fetch, self._mark(spool_id, file, start), count, wait_ms=self._wait_ms
                )
        except StoreError as error:
            raise _drain_error(error) from error

    async def keep_alive(self, spool_id: UUID, file: str, oldest_us: int) -> None:
        """The spool waits and is not being drained: what it will be judged by must stay."""
        start = (await self.marks(spool_id)).get(file, 0)
        try:
            async with self._broker.admission.slot("maint"):
                await spool_calls.pass_over(
                    self._fetch,
                    self._mark(spool_id, file, start),
                    0,
                    wait_ms=self._wait_ms,
                    oldest_us=oldest_us,
                )
        except StoreError as error:
            raise _drain_error(error) from error

    async def forget(self, spool_id: UUID, files: Sequence[str]) -> None:
        try:
            async with self._broker.admission.slot("maint"):
                await spool_calls.forget(self._fetch, spool_id, files)
        except StoreError as error:
            raise ReplayTransient(error.text) from error

    def _mark(self, spool_id: UUID, file: str, start: int) -> Mark:
        return Mark(spool_id, file, start, self._broker.config.server.server_id)

    async def _places(
        self, keys: Sequence[PartitionKey]
    ) -> dict[PartitionKey, PartitionRow] | None:
        """Make the queues and partitions that are missing; None when one was just deleted."""
        known = self._broker.directory.partitions
        places: dict[PartitionKey, PartitionRow] = {}
        strangers: dict[UUID, list[PartitionKey]] = {}
        for key in dict.fromkeys(keys):
            row = known.get(key)
            if row is None:
                strangers.setdefault(key[0], []).append(key)
            else:
                places[key] = row
        for tenant, unknown in strangers.items():
            names = [key[1:] for key in unknown]
            # Accepted is accepted: what lies here is within no quota any more.
            async with self._broker.admission.slot("maint"):
                rows = await calls.partition_ensure(self._fetch, tenant, names, metered=False)
            for key, row in zip(unknown, rows, strict=True):
                if row is None:
                    return None
                known.put(key, row)
                places[key] = row
        return places

    def _announce(
        self, keys: Sequence[PartitionKey], items: Sequence[ReplayItem], written: Sequence[bool]
    ) -> None:
        counts: dict[PartitionKey, int] = {}
        rows: dict[PartitionKey, PartitionRow] = {}
        for key, item, new in zip(keys, items, written, strict=True):
            if new:
                counts[key] = counts.get(key, 0) + 1
                rows[key] = item.place
        if counts:
            self._broker.announce.pushed(
                [(*key, rows[key].queue_id, rows[key].id, count) for key, count in counts.items()]
            )


def _drain_error(error: StoreError) -> Exception:
    """What the drain makes of it: see spool/errors.py."""
    if not isinstance(error, Permanent):
        return ReplayTransient(error.text)
    if error.sqlstate == spool_calls.MARK_MOVED:
        return MarkMoved(error.text)
    return ReplayPermanent(error.text)
