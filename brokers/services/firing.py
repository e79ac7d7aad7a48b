"""Firing: bring claimed timers into the log, whatever some of them or their queues do.

A fire carries the timers of many partitions in one call. A partition that somebody holds
does not keep the others waiting: it is tried again alone, briefly, and then let go for a
moment. Stale ids are read anew, a missing queue is made. A permanent error splits the
call until only the guilty timer is left: that one is charged. A transient one charges
nobody.

Imports frames, encryption, store. Used by services/sweeper.py.
"""

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from brokers import frames
from brokers.encryption import KeyRing, bounded
from brokers.errors import Permanent, StoreError
from brokers.frames import FLAG_ENCRYPTED
from brokers.store import calls, timer_calls
from brokers.store.calls import Fetch, PartitionRow, PushGroup
from brokers.store.directory import PartitionKey
from brokers.store.parcels import NO_KEY
from brokers.store.timer_calls import ClaimedTimer

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

ROUNDS_MAX = 4
# A partition under load is free between two flushes; one that is not is somebody's long
# transaction.
BUSY_WAIT_MS = 100
BUSY_IN_ALL_S = 1.0
BUSY_BACKOFF_MS = 100
ERROR_CHARACTERS_MAX = 1000


@dataclass(slots=True, eq=False)
class Load:
    """The timers of one partition in deliver_at order, and whether they are off our hands."""

    key: PartitionKey
    timers: list[ClaimedTimer]
    row: PartitionRow | None = None
    settled: bool = False

    def plain(self) -> list[ClaimedTimer]:
        """Those to be encrypted before they are stored: scheduled before their queue was."""
        if self.row is None or not self.row.encryption_enabled:
            return []
        return [one for one in self.timers if not one.encrypted]

    def seal(self, keys: KeyRing) -> None:
        self.timers = [
            one if one.encrypted else one._replace(payload=keys.seal(one.payload), encrypted=True)
            for one in self.timers
        ]

    def group(self, keys: KeyRing) -> PushGroup:
        assert self.row is not None
        if self.plain():
            self.seal(keys)
        flags = None
        if any(one.encrypted for one in self.timers):
            flags = bytes([FLAG_ENCRYPTED if one.encrypted else 0 for one in self.timers])
        joined, ends = frames.join([_frame(one) for one in self.timers])
        return PushGroup(
            partition_id=self.row.id,
            queue_id=self.row.queue_id,
            version=self.row.version,
            frames=joined,
            ends=ends,
            transactions=frames.TEXT_SEPARATOR.join(one.transaction_literal for one in self.timers),
            flags=flags,
            first_id=self.timers[0].message_id,
            last_id=self.timers[-1].message_id,
        )


def loads_of(timers: Sequence[ClaimedTimer]) -> list[Load]:
    """One load per partition. A message id sorts by deliver_at, so ids rise along a load."""
    lanes: dict[PartitionKey, list[ClaimedTimer]] = {}
    for one in sorted(timers, key=lambda timer: timer.message_id):
        lanes.setdefault((UUID(one.tenant), one.queue, one.partition), []).append(one)
    return [Load(key, lane) for key, lane in lanes.items()]


class Firing:
    def __init__(self, broker: "Broker", fetch: Fetch) -> None:
        self._broker = broker
        self._fetch = fetch
        self._config = broker.config.sweeper
        self._metrics = broker.timer_metrics

    async def fire(self, token: str, timers: Sequence[ClaimedTimer], *, backoff_ms: int) -> int:
        """How many were delivered. Raises the transient error that stopped it.

        Where the outcome of a call is unknown its timers are left alone: they are gone, or
        their lease will end.
        """
        before = self._metrics.fired["delivered"]
        loads = loads_of(timers)
        try:
            await self._deliver(token, loads, wait_ms=0)
            await self._deliver_busy(token, [load for load in loads if not load.settled])
        except StoreError as error:
            self._failed(error, sum(len(load.timers) for load in loads if not load.settled))
            if not error.outcome_unknown:
                await self._release(token, loads, backoff_ms)
            raise
        return self._metrics.fired["delivered"] - before

    async def _deliver(self, token: str, loads: Sequence[Load], *, wait_ms: int) -> None:
        """Store what can be stored now; what is not settled afterwards was busy."""
        left = list(loads)
        for _ in range(ROUNDS_MAX):
            if not left:
                return
            try:
                await self._resolve(token, left)
                left = [load for load in left if not load.settled]
                await self._seal(token, left)
                left = [load for load in left if not load.settled]
                ready = [load for load in left if load.row is not None]
                if not ready:
                    continue
                rows = await self._call(token, ready, wait_ms)
            except Permanent as error:
                await self._isolate(token, left, error, wait_ms=wait_ms)
                return
            if rows and rows[0].verdict == "short":
                self._keep(ready, rows[0].held or [])
            else:
                self._settle(ready, [row for row in rows if row.verdict == "stored"])
                for row in rows:
                    if row.verdict == "stale":
                        self._forget(ready[row.group - 1])
                    elif row.verdict == "busy":
                        left.remove(ready[row.group - 1])
            left = [load for load in left if not load.settled]

    async def _call(
        self, token: str, loads: Sequence[Load], wait_ms: int
    ) -> list[timer_calls.FireRow]:
        async with self._broker.admission.slot("maint"):
            return await timer_calls.timer_fire(
                self._fetch,
                token,
                [one.place for load in loads for one in load.timers],
                [no for no, load in enumerate(loads, 1) for _ in load.timers],
                [load.group(self._broker.keys) for load in loads],
                wait_ms=wait_ms,
            )

    async def _deliver_busy(self, token: str, loads: Sequence[Load]) -> None:
        """Each alone, with a short wait; what is held for longer is let go for a moment."""
        deadline = time.monotonic() + BUSY_IN_ALL_S
        for load in loads:
            if time.monotonic() > deadline:
                break
            try:
                await self._deliver(token, [load], wait_ms=BUSY_WAIT_MS)
            except StoreError as error:
                if error.outcome_unknown:
                    raise
                log.debug("a timer's partition is held: %s", error.text)
        await self._release(token, loads, BUSY_BACKOFF_MS + random.randrange(BUSY_BACKOFF_MS))

    async def _resolve(self, token: str, loads: Sequence[Load]) -> None:
        """Give each load its ids; make the queues and partitions that are missing.

        Nothing is made for timers that are not ours any more: their queue may have been
        deleted behind the claim, and is not to come back empty.
        """
        directory = self._broker.directory
        for load in loads:
            load.row = directory.partitions.get(load.key)
        unknown = [load for load in loads if load.row is None]
        if unknown:
            places = [one.place for load in unknown for one in load.timers]
            self._keep(unknown, await timer_calls.timer_held(self._fetch, token, places))
        strangers: dict[UUID, list[Load]] = {}
        for load in unknown:
            if not load.settled:
                strangers.setdefault(load.key[0], []).append(load)
        for tenant, theirs in strangers.items():
            async with self._broker.admission.slot("maint"):
                rows = await calls.partition_ensure(
                    self._fetch, tenant, [load.key[1:] for load in theirs], metered=False
                )
            for load, row in zip(theirs, rows, strict=True):
                load.row = row
                if row is not None:
                    directory.partitions.put(load.key, row)

    async def _seal(self, token: str, loads: Sequence[Load]) -> None:
        """Encrypt what its queue wants encrypted. Without a key that is nobody's fault but
        ours: those timers are let go uncharged, for a broker that has one."""
        secret = [load for load in loads if load.plain()]
        if not secret:
            return
        if not self._broker.keys.can_seal:
            log.warning("timers wait: %s", NO_KEY)
            await self._release(token, secret, self._config.backoff_min_ms)
            for load in secret:
                load.settled = True
                # The flag may be an old one: have it looked at again next time.
                self._forget(load)
            return

        def work() -> None:
            for load in secret:
                load.seal(self._broker.keys)

        await bounded(work, sum(len(one.payload) for load in secret for one in load.plain()))

    async def _isolate(
        self, token: str, loads: Sequence[Load], error: Permanent, *, wait_ms: int
    ) -> None:
        """Halve the call until only the timer that cannot be stored is left."""
        if not self._config.isolate_on_permanent:
            await self._charge(token, loads, error)
        elif len(loads) > 1:
            middle = len(loads) // 2
            await self._deliver(token, loads[:middle], wait_ms=wait_ms)
            await self._deliver(token, loads[middle:], wait_ms=wait_ms)
        elif len(loads[0].timers) > 1:
            [load] = loads
            middle = len(load.timers) // 2
            for part in (load.timers[:middle], load.timers[middle:]):
                half = Load(load.key, part)
                await self._deliver(token, [half], wait_ms=wait_ms or BUSY_WAIT_MS)
                if not half.settled:
                    await self._release(token, [half], BUSY_BACKOFF_MS)
            load.settled = True
        else:
            await self._charge(token, loads, error)

    async def _charge(self, token: str, loads: Sequence[Load], error: Permanent) -> None:
        """The timers' own fault: they back off, and at the limit become dead letters."""
        timers = [(one, load.row) for load in loads for one in load.timers]
        self._metrics.fire_failures[error.sqlstate[:2]] += 1
        async with self._broker.admission.slot("maint"):
            rows = await timer_calls.timer_fail(
                self._fetch,
                token,
                [one.place for one, _ in timers],
                [None if row is None else row.id for _, row in timers],
                error=error.text.split("\n")[0][:ERROR_CHARACTERS_MAX],
                backoff_min_ms=self._config.backoff_min_ms,
                backoff_max_ms=self._config.backoff_max_ms,
                attempts_max=self._config.attempts_max,
            )
        for load in loads:
            load.settled = True
        dead = sum(row.dead for row in rows)
        self._metrics.fired["permanent"] += len(rows) - dead
        self._metrics.fired["dead_letter"] += dead
        self._metrics.poisoned += len(rows)
        self._metrics.dead_letters += dead
        self._broker.counters.dead_letters += dead
        log.warning("%d timers cannot be stored (%d given up): %s", len(rows), dead, error.text)

    async def _release(self, token: str, loads: Sequence[Load], backoff_ms: int) -> None:
        """Let go of what is not settled: nothing is charged, and it is due again soon."""
        timers = [one for load in loads if not load.settled for one in load.timers]
        if not timers:
            return
        self._metrics.fired["transient"] += len(timers)
        try:
            async with self._broker.admission.slot("maint"):
                await timer_calls.timer_fail(
                    self._fetch,
                    token,
                    [one.place for one in timers],
                    [None] * len(timers),
                    error=None,
                    backoff_min_ms=backoff_ms,
                    backoff_max_ms=self._config.backoff_max_ms,
                    attempts_max=self._config.attempts_max,
                )
        except StoreError as error:
            log.info("timers wait for the end of their lease: %s", error.text)

    def _keep(self, loads: Sequence[Load], held: Sequence[int]) -> None:
        """Some timers were cancelled, or taken by another broker: go on with the others."""
        ours, no = set(held), 0
        for load in loads:
            kept = []
            for one in load.timers:
                no += 1
                if no in ours:
                    kept.append(one)
            self._metrics.fired["short"] += len(load.timers) - len(kept)
            load.timers = kept
            load.settled = not kept

    def _settle(self, loads: Sequence[Load], stored: Sequence[timer_calls.FireRow]) -> None:
        """Committed: tell whoever waits."""
        news = []
        for fired in stored:
            load = loads[fired.group - 1]
            load.settled = True
            assert load.row is not None
            count = len(load.timers)
            tenant, queue, name = load.key
            news.append((tenant, queue, name, load.row.queue_id, load.row.id, count))
            self._metrics.fired["delivered"] += count
            self._metrics.rows["fired"] += count
            self._metrics.lags(str(tenant), [one.late_us / 1e6 for one in load.timers])
        if news:
            self._broker.announce.pushed(news)

    def _forget(self, load: Load) -> None:
        self._broker.directory.forget_partition(*load.key)

    def _failed(self, error: StoreError, count: int) -> None:
        self._metrics.fire_failures[error.code] += 1
        if error.outcome_unknown:
            self._metrics.fired["unknown"] += count


def _frame(timer: ClaimedTimer) -> bytes:
    return frames.frame(
        timer.message_id,
        timer.transaction_literal,
        None,
        timer.producer_sub,
        timer.payload,
    )
