"""The broker as a running thing: its connections, its state, its tasks.

One Broker per process and event loop. It starts at once and finds the database when the
database comes: until then it is alive and not ready. What it holds in memory may all be
lost; PostgreSQL has what matters.

Imports store, flow, metrics, encryption, message_ids, mesh.hints. Used by api/, services/
and the commands.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async

from brokers import metrics
from brokers.cell_metrics import CellMetrics
from brokers.config import Config
from brokers.domain import Spooling
from brokers.encryption import KeyRing
from brokers.errors import StoreError
from brokers.flow.access import Access
from brokers.flow.acks import Acks
from brokers.flow.admission import WAIT_S, Admission
from brokers.flow.announce import Announcer
from brokers.flow.claims import Claims
from brokers.flow.coalesce import SingleFlight
from brokers.flow.ending import ended
from brokers.flow.floor import Floor
from brokers.flow.gates import Gates
from brokers.flow.history import History
from brokers.flow.kv import Kv
from brokers.flow.quotas import Quotas
from brokers.flow.reasons import Reasons
from brokers.flow.recent import Recent
from brokers.flow.registry import Registry
from brokers.flow.siblings import Siblings
from brokers.flow.sleep import Alarm
from brokers.flow.switches import POP_MAINTENANCE, PUSH_MAINTENANCE, Switches
from brokers.flow.tally import Tally
from brokers.flow.traffic import Traffic
from brokers.leader_metrics import LeaderMetrics
from brokers.message_ids import Minter
from brokers.store import calls, chore_calls, install
from brokers.store.combine import BUSY_LANES, Aside, PushCombiner
from brokers.store.directory import Directory, PartitionKey
from brokers.store.pool import AWAY_WAIT_S, Lane, Pool
from brokers.timer_metrics import TimerMetrics
from mesh.hints import Hint, QueueChanged, Switched

log = logging.getLogger(__name__)

T = TypeVar("T")

PING_S = 5.0
WATCH_EVERY_S = 1.0
REGISTRY_MB = 1_048_576
HOUSEKEEPING_EVERY_S = 5.0
HOUSEKEEPING_STEPS_MAX = 20
RECLAIM_ROWS = 5000
TXN_ROWS = 5000
CALL_FROM_THREAD_S = 60.0


class Store:
    """The pool, as services see it: `fetch` for a statement, `ping` for a round trip."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.fetch = pool.fetch
        self.stats = pool.stats

    async def fetch_one(self, statement: str, parameters: Any = None) -> Any:
        rows = await self._pool.fetch(statement, parameters)
        return rows[0] if rows else None

    async def ping(self) -> None:
        await calls.ping(self._pool.fetch, timeout_s=PING_S)


class Spool(Aside, Spooling, Protocol):
    """The disk spool, as the running broker sees it."""

    def database(self, *, up: bool) -> None:
        """The database was looked at, and is there or is not."""

    def maintenance(self, on: bool) -> None:
        """Push maintenance was switched."""

    async def clear(self, keys: Collection[PartitionKey], timeout_s: float) -> bool:
        """Whether none of these partitions lies in the spool, within that time."""

    def closing(self) -> None:
        """Nobody waits for a hand-over any more."""

    async def stop(self) -> None: ...


class Mesh(Protocol):
    """Where hints go: a node of our own, or the link to the one of our parent process."""

    def offer(self, hint: Hint) -> None: ...

    def status(self) -> dict[str, Any]: ...


class Queues:
    """What management tells the running broker about queues that it changed."""

    def __init__(self, directory: Directory, announce: Announcer, gates: Gates) -> None:
        self._directory = directory
        self._announce = announce
        self._gates = gates

    def forget(self, tenant: UUID, queue: str, *, deleted: bool = False, queue_id: int = 0) -> None:
        """A queue was configured or deleted: believe nothing old, and let its waiters look."""
        known = self.heard_changed(tenant, queue, queue_id)
        self._announce.tell(QueueChanged(str(tenant), queue, deleted, known or queue_id))

    def heard_changed(self, tenant: UUID, queue: str, queue_id: int = 0) -> int:
        """The same, when somebody else says so; the id that we knew the queue by, 0 for none."""
        known = self._directory.queues.get((tenant, queue))
        self._directory.forget_queue(tenant, queue)
        ids = set() if known is None else {known.id}
        if queue_id:
            ids.add(queue_id)
        for one in ids:
            self._announce.rings.rouse(one)
        if ids:
            self._gates.ring_all(lambda key: key[0] in ids)
        return 0 if known is None else known.id


class Broker:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.ready = False
        self.counters = metrics.Counters()
        self.ids = Minter()
        self.keys = KeyRing(config.encryption.key, config.encryption.keys_old)
        self.admission = Admission(config.admission)
        self.gates = Gates()
        self.tally = Tally()
        self.directory = Directory(ttl_s=config.jobs.cache_refresh_ms / 1000)
        self.announce = Announcer(self.gates, self.tally, self.directory)
        self.traffic = Traffic(self)
        self.queues = Queues(self.directory, self.announce, self.gates)
        self.registry = Registry(bytes_max=config.ack.registry_mb * REGISTRY_MB)
        self.loop_lag_ms = 0.0
        name = f"queen {config.server.server_id}"[:60]
        self._pool = Pool(config.postgres, size=config.postgres.pool_size, name=name)
        self.store = Store(self._pool)
        # Management reads take their time here, and no connection from the message plane.
        self._read_pool = Pool(
            config.postgres,
            size=config.postgres.read_pool_size,
            name=f"{name} reads"[:60],
            statement_ms=config.postgres.read_timeout_ms,
        )
        self.reads = Store(self._read_pool)
        self.access = Access(config, self.store.fetch)
        self.quotas = Quotas(config, self.reads.fetch)
        self.switches = Switches(self.store.fetch)
        self.switches.listeners.append(self._switched)
        # None in a process that has none.
        self.spool: Spool | None = None
        self.mesh: Mesh | None = None
        # None in a broker that is one process.
        run_dir = config.server.run_dir
        self.siblings = None if run_dir is None else Siblings(self, run_dir)
        self.kv = Kv(config, name=f"{name} kv")
        push_lanes = [Lane(config.postgres, name=f"{name} push") for _ in range(1 + BUSY_LANES)]
        self.claim_lane = Lane(config.postgres, name=f"{name} pop")
        self.ack_lane = Lane(config.postgres, name=f"{name} ack")
        self.sweeper_lane = Lane(config.postgres, name=f"{name} sweeper")
        self.drain_lane = Lane(config.postgres, name=f"{name} drain")
        # Of its own: a pool that is busy is not a database that is away.
        self._watch_lane = Lane(config.postgres, name=f"{name} watch")
        self._lanes = [
            *push_lanes,
            self.claim_lane,
            self.ack_lane,
            self.sweeper_lane,
            self.drain_lane,
            self._watch_lane,
        ]
        self._look = asyncio.Event()
        self._away = Reasons("the database is not ready")
        self._server_started: datetime | None = None
        self.timer_alarm = Alarm()
        self.timer_metrics = TimerMetrics()
        self.leader_metrics = LeaderMetrics()
        self.cell_metrics = CellMetrics()
        self.lookups: SingleFlight[Any, Any] = SingleFlight()
        self.recent = Recent(config.status.fresh_ms / 1000)
        self.directory.changed.append(self.recent.written)
        self.claims = Claims(self)
        self.acks = Acks(self)
        self.floor = Floor(self)
        self.history = History(self)
        self.push_combiner = PushCombiner(
            config=config.push,
            keys=self.keys,
            directory=self.directory,
            lane=push_lanes[0],
            busy_lanes=push_lanes[1:],
            slot=self.traffic.giving_way.slot,
            announce=self.announce.pushed,
        )
        self._background: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._collector: metrics.BrokerCollector | None = None

    def combined(self) -> list[tuple[str, int, int, Collection[float]]]:
        """(op, calls, items, seconds of the latest calls) of everything that shares calls."""
        push, pop, ack = self.push_combiner, self.claims.coalescer, self.acks.coalescer
        return [
            ("push", push.flushes, push.flushed_items, push.durations),
            ("pop", pop.calls, pop.items, pop.durations),
            ("ack", ack.calls, ack.items, ack.durations),
        ]

    def tenant_filter(self, tenant: UUID) -> UUID | None:
        """The tenant that ids must belong to; None while tenancy is off."""
        return tenant if self.config.tenants else None

    def run_also(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Something above us that runs from our start to our stop; said before the start."""
        self._background.append((name, work))

    async def start(self) -> None:
        """Return at once; the database is found, and its schema applied, in the background."""
        self._loop = asyncio.get_running_loop()
        if self.keys.can_seal:
            log.info("encryption service initialized (AES-256-GCM)")
        await self._pool.open()
        await self._read_pool.open()
        await self.kv.open()
        self._collector = metrics.register(self)
        for name, work in (
            ("push combiner", self.push_combiner.run()),
            ("database watch", self._watch_database()),
            ("housekeeping", self._keep_house()),
            ("history", self.history.run()),
            ("floor", self.floor.run()),
            ("switches", self.switches.run()),
            ("loop lag", self._measure_lag()),
            ("quotas", self.quotas.run()),
            *self.access.background(),
            ("admission", self.traffic.run()),
        ):
            self._keep_running(name, work)
        for name, begin in self._background:
            self._keep_running(name, begin())

    def _keep_running(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        def told(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.critical("%s has ended, restart this broker", name, exc_info=error)

        task = asyncio.create_task(work, name=name)
        task.add_done_callback(told)
        self._tasks.append(task)

    def use_spool(self, spool: Spool) -> None:
        """Where pushes go while the database is away; said before the start."""
        self.spool = spool
        self.push_combiner.aside = spool

    def use_mesh(self, mesh: Mesh) -> None:
        """Where hints go; said before the start."""
        self.mesh = mesh
        self.announce.outlet = mesh.offer
        self.switches.written_listeners.append(self._tell_switched)

    def _tell_switched(self, written: Mapping[str, bool]) -> None:
        for name, on in written.items():
            self.announce.tell(Switched(name, on))

    def look_at_database(self) -> None:
        """A call failed in a way that lets doubt: look now, not at the next turn."""
        self._look.set()

    async def drain(self) -> None:
        """Parked pops answer, no new lease is given, what is being pushed is stored."""
        self.gates.close()
        self.timer_alarm.close()
        if self.spool is not None:
            self.spool.closing()
        await self.push_combiner.drained()

    async def stop(self) -> None:
        await ended(self._tasks)
        if self.ready:
            await self.history.flush()
        await self.push_combiner.stop()
        if self.spool is not None:
            await self.spool.stop()
        await self.claims.stop()
        await self.acks.coalescer.stop()
        await self.floor.stop()
        await self.lookups.stop()
        self.announce.rings.alarm.close()
        for lane in self._lanes:
            await lane.close()
        # A pool waits some seconds for its own tasks: all of them at once.
        await asyncio.gather(self.kv.stop(), self._read_pool.close(), self._pool.close())
        if self._collector is not None:
            metrics.unregister(self._collector)
        self.ready = False

    def call_from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a service in our loop for a view that runs in a thread."""
        assert self._loop is not None, "the broker was not started"
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(CALL_FROM_THREAD_S)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise StoreError("the call took too long", outcome_unknown=True) from None

    def _switched(self, changed: frozenset[str]) -> None:
        if POP_MAINTENANCE in changed and self.switches.pop_maintenance:
            self.gates.ring_everyone()
        if PUSH_MAINTENANCE in changed and self.spool is not None:
            self.spool.maintenance(self.switches.push_maintenance)

    async def _watch_database(self) -> None:
        """Apply the schema once the database is there, then keep `ready` true to life."""
        schema_applied = False
        while True:
            try:
                if not schema_applied:
                    await self._apply_schema()
                    await self.switches.refresh()
                    await self._tell_floor()
                    schema_applied = True
                self._meet(await self._look_twice())
            except install.SchemaMismatch as error:
                self._away.tell(str(error))
                self._now_ready(False)
            except StoreError as error:
                self._away.tell(self._watch_lane.failure or error.text)
                self._now_ready(False)
            except Exception as error:
                self._away.tell(str(error))
                self._now_ready(False)
            else:
                self._now_ready(True)
                await self.access.look(self._watch_lane.fetch)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_EVERY_S if self.ready else WATCH_EVERY_S / 4):
                    await self._look.wait()
            self._look.clear()

    async def _look_twice(self) -> datetime:
        """A connection that broke may be all that broke; only a new one tells."""
        connected = self._watch_lane.connected
        try:
            return await calls.ping_writable(self._watch_lane.fetch, timeout_s=PING_S)
        except StoreError:
            if not connected or self._watch_lane.connected:
                raise
            return await calls.ping_writable(self._watch_lane.fetch, timeout_s=PING_S)

    def _meet(self, server_started: datetime) -> None:
        """A server that was restarted may be a promoted standby that lacks the last commits, or
        a restored backup: an id that we knew may be another queue's by now. Nothing in memory
        is believed any more, and whoever waits looks again.
        """
        met, self._server_started = self._server_started, server_started
        if met in (None, server_started):
            return
        log.info("the database was restarted, or is another one: what was known of it is forgotten")
        self.directory.forget_everything()
        self.recent.forget()
        self.access.doubt()
        self.announce.rings.drop_all()
        self.gates.ring_everyone()

    async def _apply_schema(self) -> None:
        # The pool would only say that it waited in vain; a lane knows why.
        await calls.ping_writable(self._watch_lane.fetch, timeout_s=PING_S)
        await self.store.ping()
        if self.config.server.apply_schema:
            installed = await sync_to_async(install.apply_schema, thread_sensitive=False)(
                self.config
            )
            if installed:
                log.info("schema applied, %d procedures installed", len(installed))
        else:
            await sync_to_async(install.check_schema, thread_sensitive=False)(self.config)

    def _now_ready(self, ready: bool) -> None:
        if ready != self.ready:
            log.info("database %s", "connected" if ready else "lost")
        self.ready = ready
        self._pool.away = self._read_pool.away = self.kv.pool.away = not ready
        self.admission.wait_s = WAIT_S if ready else AWAY_WAIT_S
        if ready:
            self._away.forget()
        else:
            # Calls in flight need not wait for their time limit: their answers do not come.
            for lane in self._lanes:
                lane.abort()
        if self.spool is not None:
            self.spool.database(up=ready)

    async def _keep_house(self) -> None:
        """Bounded steps behind the traffic: expired transaction slots, deleted queues' rows."""
        while True:
            await asyncio.sleep(HOUSEKEEPING_EVERY_S)
            if not self.ready:
                continue
            try:
                await self._tell_floor()
                await self._clear_slots()
                await self._reclaim()
            except StoreError as error:
                log.info("housekeeping: %s", error.text)

    async def _tell_floor(self) -> None:
        """Before queues are configured here, and again and again: what is not told is forgotten."""
        await chore_calls.txn_floor_set(self.store.fetch, self.config.jobs.txn_floor_s)

    async def _clear_slots(self) -> None:
        async with self.admission.slot("maint"):
            await chore_calls.txn_slot_clear(
                self.store.fetch, longest_s=self.config.jobs.txn_floor_s, rows_max=TXN_ROWS
            )

    async def _reclaim(self) -> None:
        for _ in range(HOUSEKEEPING_STEPS_MAX):
            async with self.admission.slot("maint"):
                removed = await chore_calls.queue_reclaim(self.store.fetch, rows_max=RECLAIM_ROWS)
            if not removed:
                return

    async def _measure_lag(self) -> None:
        """How late the loop is, on average since the start."""
        total_s, samples, every_s = 0.0, 0, 0.5
        while True:
            due = time.monotonic() + every_s
            await asyncio.sleep(every_s)
            late_s = max(time.monotonic() - due, 0.0)
            total_s += late_s
            samples += 1
            self.history.loop_lag_max_ms = max(self.history.loop_lag_max_ms, 1000 * late_s)
            self.loop_lag_ms = 1000 * total_s / samples


_current: Broker | None = None
_opening: asyncio.Task[None] | None = None


def current() -> Broker | None:
    return _current


def set_current(broker: Broker | None) -> None:
    global _current
    _current = broker


def current_or_open(prepare: Callable[[Broker], None] = lambda broker: None) -> Broker:
    """The process's broker; under a foreign ASGI server it is opened by the first request."""
    global _current, _opening
    if _current is None:
        from django.conf import settings

        _current = Broker(settings.QUEEN_CONFIG)
        prepare(_current)
        _opening = asyncio.get_running_loop().create_task(_current.start(), name="open broker")
    return _current
