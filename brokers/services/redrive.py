"""Redrives: jobs that move the dead letters of a queue back into a log, many at a time.

A job is a row; any broker makes one, and whoever leads the task `redrive` works on all of
them. Stations of a step: letters -> destinations -> frames -> (move, one commit) -> announce.
The commit that moves letters moves the job's place as well, so a broker that dies at any
moment leaves each letter either moved or still to be moved, and the next leader goes on.

What a letter becomes is what a replay makes of it: a message `dlq:<id>` with its payload,
sealed where it was sealed, and where the destination encrypts. It is a push of its tenant's, and
within its quota: one that pushes too fast has the job wait, one that is full ends it.

Imports domain, encryption, frames, store, services/{dead_letters,maintenance,term}. Called by
services/leaders.py and api/views/redrive.py.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from brokers import frames
from brokers.encryption import KeyRing, UndecryptableError, bounded
from brokers.errors import Permanent, Refusal, RequestError, StoreError
from brokers.services.dead_letters import NO_KEY, TIMER, TIMER_GROUP
from brokers.services.term import Fenced, Term
from brokers.store import calls as hot_calls
from brokers.store import redrive_calls as calls
from brokers.store.calls import PartitionRow, PushGroup
from brokers.store.redrive_calls import Filter, RedriveLetter, RedriveMove, RedrivePage, RedriveRow

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

RATE_DEFAULT = 1000
RATE_MAX = 100_000
LOOK_EVERY_MS = 1000
# Bounds of a step, which holds its destinations' rows for one short commit.
STEP_ROWS_MAX = 500
STEP_BYTES_MAX = 4_194_304
STEP_LOOKS_MAX = 10_000
NAP_S = 0.25
# What a job waits when somebody holds what it needs, or its destination was changed under it.
AFTER_BUSY_MS = 100
AFTER_CHANGE_MS = 100
JOBS_AT_ONCE_MAX = 100
RUNNING_MAX = 100
KEEP_DAYS = 30
COUNT_ROWS_MAX = 200_000
STALE = "QN001"
LOCK_TIMEOUT = "55P03"

DELETED = "the queue was deleted"
FULL = f"{RUNNING_MAX} redrives are running: cancel one, or wait"
GONE = "Redrive not found"
DONE = "the redrive is done: start another one"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest:
    """A target that is None is where each letter came from; `rate` is letters a second."""

    tenant: UUID
    which: Filter
    target_queue: str | None = None
    target_partition: str | None = None
    rate: int = RATE_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """`before` is the place of a job, its `created_at` and id: only older ones are listed."""

    tenant: UUID
    state: str | None
    limit: int
    offset: int = 0
    before: tuple[datetime, str] | None = None


async def create(broker: "Broker", request: RedriveRequest) -> RedriveRow:
    if request.which.group == TIMER_GROUP:
        raise RequestError(TIMER)
    tenant, which = request.tenant, request.which
    try:
        total = await calls.redrive_count(
            broker.reads.fetch, tenant, which, rows_max=COUNT_ROWS_MAX
        )
    except StoreError as error:
        log.info("redrive of %s is not counted: %s", which.queue, error.text)
        total = None
    async with broker.admission.call_slot("maint"):
        outcome, redrive_id = await calls.redrive_create(
            broker.store.fetch,
            tenant,
            which,
            target_queue=request.target_queue,
            target_partition=request.target_partition,
            rate=request.rate,
            total=total,
            running_max=RUNNING_MAX,
            keep_days=KEEP_DAYS,
        )
    if outcome == "unknown":
        raise RequestError("Queue not found", code="not_found")
    if redrive_id is None:
        raise RequestError(FULL, code="conflict")
    return await _find(broker, tenant, redrive_id)


async def find(broker: "Broker", tenant: UUID, redrive_id: UUID | None) -> RedriveRow:
    """`redrive_id` None: something that is no id, and so nobody's."""
    if redrive_id is None:
        raise RequestError(GONE, code="not_found")
    rows = await calls.redrive_list(broker.reads.fetch, tenant, redrive_id=redrive_id)
    if not rows:
        raise RequestError(GONE, code="not_found")
    return rows[0]


async def page(broker: "Broker", request: ListRequest) -> list[RedriveRow]:
    return await calls.redrive_list(
        broker.reads.fetch,
        request.tenant,
        state=request.state,
        limit=request.limit,
        offset=request.offset,
        before=request.before,
    )


async def cancel(broker: "Broker", tenant: UUID, redrive_id: UUID | None) -> RedriveRow:
    """When this has answered no further letter moves. A job that is done stays done."""
    return await _turn(broker, tenant, redrive_id, "cancelled")


async def resume(broker: "Broker", tenant: UUID, redrive_id: UUID | None) -> RedriveRow:
    """Let a job run again that was cancelled or failed; one that runs goes on."""
    row = await _turn(broker, tenant, redrive_id, "running")
    if row.state == "done":
        raise RequestError(DONE, code="conflict")
    return row


async def _turn(broker: "Broker", tenant: UUID, redrive_id: UUID | None, state: str) -> RedriveRow:
    if redrive_id is None:
        raise RequestError(GONE, code="not_found")
    async with broker.admission.call_slot("maint"):
        was = await calls.redrive_turn(
            broker.store.fetch, tenant, redrive_id, state, running_max=RUNNING_MAX
        )
    if was is None:
        raise RequestError(GONE, code="not_found")
    if was == "full":
        raise RequestError(FULL, code="conflict")
    return await _find(broker, tenant, redrive_id)


async def _find(broker: "Broker", tenant: UUID, redrive_id: UUID) -> RedriveRow:
    [row] = await calls.redrive_list(broker.reads.fetch, tenant, redrive_id=redrive_id)
    return row


# The task


async def wanted(broker: "Broker") -> bool:
    """Whether any job runs and may move letters. In push maintenance a job would write past
    the spool, before what waits there: it waits."""
    if broker.switches.push_maintenance:
        return False
    return bool(await calls.redrive_due(broker.store.fetch, limit=1))


async def cycle(broker: "Broker", term: Term) -> None:
    """Step by step, whichever job may go first, until none runs or the term is over."""
    while not term.is_over():
        if broker.switches.push_maintenance:
            return
        due = await calls.redrive_due(broker.store.fetch, limit=JOBS_AT_ONCE_MAX)
        if not due:
            return
        for redrive_id, wait_us in due:
            if wait_us or term.is_over():
                break
            await step(broker, term, redrive_id)
        else:
            continue
        await asyncio.sleep(min(due[0][1] / 1e6, NAP_S))


async def step(broker: "Broker", term: Term, redrive_id: UUID) -> None:
    """One commit of one job. What stands in its way for good ends the job; what may give way lets
    it wait, while others go on."""
    try:
        wait_ms = await _step(broker, term, redrive_id)
    except Permanent as error:
        if error.sqlstate != STALE:
            await _fail(broker, term, redrive_id, error.text)
            return
        wait_ms = AFTER_CHANGE_MS
    except StoreError as error:
        if error.sqlstate != LOCK_TIMEOUT:
            raise
        log.info("redrive %s: somebody holds a partition or a letter", redrive_id)
        wait_ms = AFTER_BUSY_MS
    if wait_ms and not await calls.redrive_pause(
        broker.store.fetch, term.token, redrive_id, wait_ms=wait_ms
    ):
        raise Fenced


async def _step(broker: "Broker", term: Term, redrive_id: UUID) -> int:
    """How many ms the job is to wait beyond the pace of its rate."""
    page = await calls.redrive_letters(
        broker.store.fetch,
        redrive_id,
        rows_max=STEP_ROWS_MAX,
        bytes_max=STEP_BYTES_MAX,
        looks_max=STEP_LOOKS_MAX,
    )
    if page is None:
        return 0
    if page.queue_gone:
        await _fail(broker, term, redrive_id, DELETED)
        return 0
    places = await _places(broker, page)
    if places is None:
        return AFTER_CHANGE_MS
    if not broker.keys.can_seal and any(
        place.encryption_enabled and not letter.encrypted
        for letter, (_, _, place) in zip(page.letters, places, strict=True)
    ):
        await _fail(broker, term, redrive_id, NO_KEY)
        return 0
    size = sum(len(letter.payload) for letter in page.letters)
    try:
        await broker.quotas.admit_push(page.tenant, len(page.letters), size)
    except Refusal as error:
        return round(1000 * error.retry_after_s)
    except RequestError as error:
        await _fail(broker, term, redrive_id, error.text)
        return 0
    ids = broker.ids.mint_many(len(page.letters))
    move = await bounded(lambda: _move(broker.keys, page, places, ids), size)
    try:
        async with broker.admission.slot("maint"):
            done = await calls.redrive_step(
                broker.store.fetch,
                term.token,
                redrive_id,
                page,
                move,
                wait_ms=broker.config.push.busy_ms,
            )
    except StoreError as error:
        if not error.outcome_unknown:
            # The job comes again and again, and would use up a quota without storing anything.
            broker.quotas.take_back(page.tenant, len(page.letters), size)
        raise
    if done.verdict != "moved":
        broker.quotas.take_back(page.tenant, len(page.letters), size)
    if done.verdict == "fenced":
        raise Fenced
    if done.verdict == "moved":
        _announce(broker, page, places, move, done.kept or [])
    return 0


# Where a letter goes: queue, partition, and its row.
Place = tuple[str, str, PartitionRow]


async def _places(broker: "Broker", page: RedrivePage) -> list[Place] | None:
    """The destination of each letter; None when one was deleted while it was being made.

    A letter that goes back to where it came from needs no look: making its partition would
    bring back a queue that is deleted right now.
    """
    if page.target_queue is None and page.target_partition is None:
        return [(page.queue, letter.partition, _own(letter)) for letter in page.letters]
    queue = page.queue if page.target_queue is None else page.target_queue
    names = [
        letter.partition if page.target_partition is None else page.target_partition
        for letter in page.letters
    ]
    distinct = list(dict.fromkeys(names))
    if not distinct:
        return []
    async with broker.admission.slot("maint"):
        rows = await hot_calls.partition_ensure(
            broker.store.fetch, page.tenant, [(queue, name) for name in distinct]
        )
    found = dict(zip(distinct, rows, strict=True))
    places: list[Place] = []
    for name in names:
        row = found[name]
        if row is None:
            return None
        places.append((queue, name, row))
    return places


def _own(letter: RedriveLetter) -> PartitionRow:
    return PartitionRow(
        letter.queue_id, letter.version, letter.encryption_enabled, letter.partition_id, ""
    )


def _move(keys: KeyRing, page: RedrivePage, places: list[Place], ids: list[str]) -> RedriveMove:
    """The flush of a page, one group a partition. What nobody could read there is left out."""
    move = RedriveMove()
    open_groups: dict[int, _Group] = {}
    for letter, (_, _, place), message_id in zip(page.letters, places, ids, strict=True):
        payload, encrypted = letter.payload, letter.encrypted
        if encrypted:
            try:
                keys.open(payload)
            except UndecryptableError as error:
                move.skipped += 1
                move.problem = str(error)
                continue
        elif place.encryption_enabled:
            payload, encrypted = keys.seal(payload), True
        group = open_groups.get(place.id)
        if group is None:
            group = open_groups[place.id] = _Group(len(open_groups) + 1, place)
        group.add(letter, message_id, payload, encrypted=encrypted)
        move.letters.append(letter.id)
        move.numbers.append(group.number)
    move.groups = [group.flush() for group in open_groups.values()]
    return move


class _Group:
    """The messages of one destination, in their order."""

    def __init__(self, number: int, place: PartitionRow) -> None:
        self.number = number
        self._place = place
        self._ids: list[str] = []
        self._frames: list[bytes] = []
        self._literals: list[str] = []
        self._flags = bytearray()

    def add(
        self, letter: RedriveLetter, message_id: str, payload: bytes, *, encrypted: bool
    ) -> None:
        literal = frames.literal(f"dlq:{letter.id}")
        self._ids.append(message_id)
        self._literals.append(literal)
        self._frames.append(frames.frame(message_id, literal, None, letter.producer_sub, payload))
        self._flags.append(frames.FLAG_ENCRYPTED if encrypted else 0)

    def flush(self) -> PushGroup:
        joined, ends = frames.join(self._frames)
        return PushGroup(
            partition_id=self._place.id,
            queue_id=self._place.queue_id,
            version=self._place.version,
            frames=joined,
            ends=ends,
            transactions=frames.TEXT_SEPARATOR.join(self._literals),
            flags=bytes(self._flags) if any(self._flags) else None,
            first_id=self._ids[0],
            last_id=self._ids[-1],
        )


def _announce(
    broker: "Broker",
    page: RedrivePage,
    places: list[Place],
    move: RedriveMove,
    kept: list[int],
) -> None:
    written = Counter(
        move.groups[number - 1].partition_id
        for no, number in enumerate(move.numbers, start=1)
        if no not in kept
    )
    names = {place.id: (queue, name, place) for queue, name, place in places}
    news = []
    for partition_id, count in written.items():
        queue, name, place = names[partition_id]
        news.append((page.tenant, queue, name, place.queue_id, partition_id, count))
    broker.announce.pushed(news)


async def _fail(broker: "Broker", term: Term, redrive_id: UUID, problem: str) -> None:
    log.warning("redrive %s: %s", redrive_id, problem)
    if not await calls.redrive_fail(broker.store.fetch, term.token, redrive_id, problem):
        raise Fenced
