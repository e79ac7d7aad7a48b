"""Key/value calls: their own connections, and how single operations share calls.

KV has a small pool of its own, and that pool is what bounds it: when the database is slow
here, KV callers are told to come back, and no connection of the message plane is taken.
Single operations of different requests share a call, the writes in one and the gets in
another; each is judged by itself, in its turn. A write whose key somebody else holds comes
back from the shared call at once and waits alone, so that it holds up nobody; so does a get
for which the shared call had no bytes left.

Imports config, domain, errors, flow/coalesce, store. Used by runtime.py, services/kv.py.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from brokers.config import Config, KvConfig
from brokers.domain import DEFAULT_TENANT, KvLost, KvOperation, KvResult
from brokers.errors import Permanent, Refusal, RequestError, StoreError
from brokers.flow.coalesce import Coalescer
from brokers.kv_metrics import KvCounters
from brokers.store import kv_calls
from brokers.store.directory import Bounded
from brokers.store.kv_calls import Asked
from brokers.store.pool import Pool

SHARED_OPS_MAX = 256
WAITING_MAX = 10_000
# How long a call may want a connection, and how long it may take in all.
CONNECTION_WAIT_S = 1.0
CALL_S = 6.0
RETRY_AFTER_S = 1
# Connections that the shared calls can always count on.
SHARED_CONNECTIONS = 2
LOCK_NOT_HAD = "55P03"
READS_TOO_MUCH = "QN012"
# Several reads in one call would have to share its bytes, so only these go together.
SHARED_READS = frozenset({"get"})
# What may make a tenant have more than before; a delete never does.
GROWING = kv_calls.WRITES - {"delete"}
QUOTA = "kv_quota_exceeded"
# After a quota was met: for how long nobody asks the database again, and for how long the
# tenant's writes share no call with others', which one refusal would undo.
FULL_S = 1.0
ALONE_S = 60.0

Answer = KvResult | None
ALONE: Final = None  # the answer of a shared call to an operation that must go alone


class Kv:
    """The key/value side of a broker."""

    def __init__(self, config: Config, *, name: str) -> None:
        self.config = config.kv
        self.counters = KvCounters()
        self.limits = Limits(config.kv)
        self.shedding = Shedding(config.kv.shed_after)
        self._busy_ms = config.push.busy_ms
        self.pool = Pool(
            config.postgres, size=config.kv.pool_size, name=name, wait_s=CONNECTION_WAIT_S
        )
        self._full: Bounded[UUID, float] = Bounded(entries_max=config.kv.tenants_max, ttl_s=ALONE_S)
        self._alone = asyncio.Semaphore(max(config.kv.pool_size - SHARED_CONNECTIONS, 1))
        self.writes: Coalescer[Asked, Answer] = Coalescer(
            "kv writes", self._write_together, weight_max=SHARED_OPS_MAX
        )
        self.reads: Coalescer[Asked, Answer] = Coalescer(
            "kv reads", self._read_together, weight_max=SHARED_OPS_MAX
        )

    async def open(self) -> None:
        await self.pool.open()

    async def stop(self) -> None:
        await self.writes.stop()
        await self.reads.stop()
        await self.pool.close()

    async def run(self, tenant: UUID, operations: Sequence[KvOperation]) -> list[KvResult] | KvLost:
        """Carry out one call. Raises kv_unavailable where the database does not keep up."""
        started = time.monotonic()
        writes = any(one.op in kv_calls.WRITES for one in operations)
        self._check_full(tenant, operations, started)
        if writes and self.shedding.refuses(started):
            raise self._unavailable("shed", operations)
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._run(tenant, operations)
        except (StoreError, TimeoutError) as error:
            if isinstance(error, Permanent):
                if error.code == QUOTA:
                    self._full.put(tenant, started)
                    self.counters.reject("quota", operations)
                raise
            if not _is_a_held_key(error):
                self.shedding.failed(time.monotonic())
            raise self._unavailable("pool", operations) from error
        finally:
            self.counters.took(time.monotonic() - started)
        self.shedding.succeeded()
        return answer

    async def _run(
        self, tenant: UUID, operations: Sequence[KvOperation]
    ) -> list[KvResult] | KvLost:
        if len(operations) == 1 and operations[0].op in SHARED_READS | kv_calls.WRITES:
            [one] = operations
            shared = self.writes if one.op in kv_calls.WRITES else self.reads
            lonely = shared is self.writes and self._full.get(tenant) is not None
            if shared.waiting < WAITING_MAX and not lonely:
                answer = await shared.ask((tenant, one))
                if answer is not ALONE:
                    lost = one.required and answer.reason is not None
                    return _lost(answer) if lost else [answer]
        try:
            async with asyncio.timeout(CONNECTION_WAIT_S):
                await self._alone.acquire()
        except TimeoutError:
            raise Crowded from None
        try:
            results = await self._call([(tenant, one) for one in operations], self._busy_ms)
        except Permanent as error:
            if error.sqlstate == READS_TOO_MUCH:
                raise self._reads_too_much() from error
            raise
        finally:
            self._alone.release()
        if isinstance(results, list) and any(map(_was_cut, results)):
            raise self._reads_too_much()
        return results

    def _check_full(self, tenant: UUID, operations: Sequence[KvOperation], now: float) -> None:
        """A tenant that has just met its quota is told so at once; deletes go on."""
        met = self._full.get(tenant)
        if met is None or now - met >= FULL_S:
            return
        if any(one.op in GROWING for one in operations):
            self.counters.reject("quota", operations)
            raise RequestError("the tenant's quota is used up", code=QUOTA)

    @property
    def full(self) -> set[UUID]:
        """Tenants that met their quota in the last minute."""
        lately = time.monotonic() - ALONE_S
        return {tenant for tenant, met in self._full.items() if met > lately}

    def _reads_too_much(self) -> RequestError:
        return RequestError(reads_too_much(self.config), code="payload_too_large")

    async def _write_together(self, asked: Sequence[Asked]) -> list[Answer]:
        """One shared call. What it could not carry out, or all where it failed for a reason
        that may be one operation's own, goes alone."""
        try:
            results = await self._call([(tenant, _optional(one)) for tenant, one in asked], 0)
        except StoreError as error:
            if isinstance(error, Permanent) or error.sqlstate == LOCK_NOT_HAD:
                return [ALONE] * len(asked)
            raise
        assert isinstance(results, list), "nothing in a shared call is required"
        return [ALONE if one.reason == "busy" else one for one in results]

    async def _read_together(self, asked: Sequence[Asked]) -> list[Answer]:
        self.counters.reads_shared += len(asked) - 1
        results = await self._call(asked, 0)
        assert isinstance(results, list), "a read is never required"
        return [ALONE if _was_cut(one) else one for one in results]

    async def _call(self, asked: Sequence[Asked], wait_ms: int) -> list[KvResult] | KvLost:
        operations = [one for _, one in asked]
        bytes_max = self.config.read_bytes_max
        fetch = self.pool.fetch
        if any(one.op in kv_calls.WRITES for one in operations):
            rows = await kv_calls.kv_apply(
                fetch, asked, bytes_max=bytes_max, wait_ms=wait_ms, timeout_s=CALL_S
            )
        else:
            rows = await kv_calls.kv_read(fetch, asked, bytes_max=bytes_max, timeout_s=CALL_S)
        return kv_calls.results(operations, rows)

    def _unavailable(self, reason: str, operations: Sequence[KvOperation]) -> Refusal:
        self.counters.reject(reason, operations)
        return Refusal(
            "key/value state is not available at the moment",
            retry_after_s=RETRY_AFTER_S,
            code="kv_unavailable",
        )


class Crowded(TimeoutError):
    """The connections of calls that go alone are all taken, perhaps by those that wait for keys."""


def _is_a_held_key(error: Exception) -> bool:
    """What one busy key can bring about says nothing of the database."""
    return isinstance(error, Crowded) or getattr(error, "sqlstate", None) == LOCK_NOT_HAD


class Shedding:
    """After so many failed calls in a row, writes are refused before they wait for anything.

    One a second is let through, to find out. Reads and transactions are not refused, and a
    call that succeeds ends it. Pruning has time too while it lasts.
    """

    def __init__(self, after: int) -> None:
        self._after = after
        self._failures = 0
        self._trial_at = 0.0

    def active(self, now: float) -> bool:
        """Also false when nobody has asked for a while, so that somebody finds out."""
        return self._failures >= self._after and now < self._trial_at

    def refuses(self, now: float) -> bool:
        if self.active(now):
            return True
        self._trial_at = now + RETRY_AFTER_S
        return False

    def failed(self, now: float) -> None:
        self._failures += 1
        self._trial_at = now + RETRY_AFTER_S

    def succeeded(self) -> None:
        self._failures = 0


def reads_too_much(config: KvConfig) -> str:
    """A get cannot say that its value was left out, as a getMany can: so nothing is read."""
    return f"the values of one call's reads have at most {config.read_bytes_max} bytes"


def _was_cut(result: KvResult) -> bool:
    return result.operation.op == "get" and result.truncated


def _optional(one: KvOperation) -> KvOperation:
    """The same without `required`: alone in its request, it can be judged by its result."""
    return replace(one, required=False) if one.required else one


def _lost(result: KvResult) -> KvLost:
    assert result.reason is not None
    return KvLost(0, result.reason, result.version, result.value)


class Limits:
    """Rates of the metered tenants, in memory: every tenant but the default one.

    A bucket holds at most its burst. A call that wants more than a whole burst is let in
    when the bucket is full, and leaves it in debt, so that a large batch is slow and not
    impossible.
    """

    def __init__(self, config: KvConfig) -> None:
        self._config = config
        self._reads: OrderedDict[UUID, Bucket] = OrderedDict()
        self._writes: OrderedDict[UUID, Bucket] = OrderedDict()
        self._cell = Bucket(config.cell_rate, config.cell_rate)

    def wait_s(self, tenant: UUID, *, reads: int, writes: int, now: float) -> float:
        """Take what the call needs, or say in how many seconds that will be there."""
        if tenant == DEFAULT_TENANT:
            return 0.0
        config = self._config
        wanted = [(self._cell, reads + writes)]
        if reads:
            kept = self._reads, config.read_rate, config.read_burst
            wanted.append((self._bucket(*kept, tenant), reads))
        if writes:
            kept = self._writes, config.write_rate, config.write_burst
            wanted.append((self._bucket(*kept, tenant), writes))
        wait_s = max(bucket.wait_s(count, now) for bucket, count in wanted)
        if wait_s <= 0:
            for bucket, count in wanted:
                bucket.tokens -= count
        return wait_s

    def _bucket(
        self, kept: "OrderedDict[UUID, Bucket]", rate: int, burst: int, tenant: UUID
    ) -> "Bucket":
        bucket = kept.get(tenant)
        if bucket is None:
            bucket = kept[tenant] = Bucket(rate, burst)
            if len(kept) > self._config.tenants_max:
                kept.popitem(last=False)
        kept.move_to_end(tenant)
        return bucket


class Bucket:
    __slots__ = ("_burst", "_filled_at", "_rate", "tokens")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._filled_at = 0.0
        self.tokens = float(burst)

    def wait_s(self, count: int, now: float) -> float:
        if self._filled_at:
            gained = (now - self._filled_at) * self._rate
            self.tokens = min(self._burst, self.tokens + gained)
        self._filled_at = now
        return (min(count, self._burst) - self.tokens) / self._rate
