"""Dead letters: list them, purge them, move one back into a log.

Stations of a replay: find -> destination -> frame -> (move, one commit) -> announce. The
new message is `dlq:<id of the dead letter>`, so a replay whose answer was lost is found
out by the dedup window, and its row is kept. With another payload it is the same move: of
two operators who press at once, one moves the letter and the other finds it gone.

Imports frames, domain, encryption, store, services/maintenance. Called by
api/views/dead_letters.py and the admin.
"""

from dataclasses import dataclass
from functools import partial
from json import loads
from typing import TYPE_CHECKING
from uuid import UUID

from brokers import frames
from brokers.domain import NIL_ID
from brokers.encryption import KeyRing, UndecryptableError, bounded, unreadable
from brokers.errors import StoreError
from brokers.services import maintenance
from brokers.store import calls as hot_calls
from brokers.store import management_calls as calls
from brokers.store.calls import PartitionRow, PushGroup
from brokers.store.management_calls import DeadLetter, DeadLetterRow, PurgeStep

if TYPE_CHECKING:
    from brokers.runtime import Broker

PAGE_BYTES_MAX = 67_108_864
PURGE_ROWS_MAX = 5000
REPLAY_ROUNDS = 3
TIMER_GROUP = "__timer__"
TIMER = "a timer that could not be fired is not replayed: schedule it anew"
NO_KEY = "the destination encrypts its messages, and this broker has no key"
NO_KEY_FOR_EDIT = "the payload is encrypted, and this broker has no key; nothing was moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    tenant: UUID
    queue: str | None
    group: str | None
    limit: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """`queue` and `partition` None: where the message came from.

    `payload` is a JSON value in place of the letter's own. What the producer did not write
    is not told as the producer's: the new message has no `producerSub` then.
    """

    tenant: UUID
    dead_letter_id: UUID
    queue: str | None = None
    partition: str | None = None
    payload: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """`offset` and `message_id` are those of the new message, or of the one in its way."""

    dead_letter_id: str
    moved: bool
    queue: str
    partition: str
    group: str
    original_transaction_id: str
    transaction_id: str
    message_id: str
    offset: int | None


async def page(broker: "Broker", request: PageRequest) -> list[DeadLetterRow]:
    """Newest first. A page of large payloads ends early, but has at least one row.

    Encrypted payloads are opened; in place of one that cannot be stand null and the error.
    """
    rows = await calls.dead_letter_list(
        broker.reads.fetch,
        request.tenant,
        queue=request.queue,
        group=request.group,
        limit=request.limit,
        offset=request.offset,
        bytes_max=PAGE_BYTES_MAX,
    )
    size = sum(len(row.payload) for row in rows if row.encrypted)
    return await bounded(lambda: [_shown(broker.keys, row) for row in rows], size)


def _shown(keys: KeyRing, row: DeadLetterRow) -> DeadLetterRow:
    if not row.encrypted:
        return row
    try:
        payload = keys.open(row.payload)
    except UndecryptableError as error:
        payload = unreadable(error)
    return row._replace(payload=payload)


async def purge(broker: "Broker", tenant: UUID, queue: str, group: str | None) -> int:
    """Delete what there is now, in bounded steps; a failure leaves the rest for another call."""
    deleted = 0
    step: PurgeStep | None = None
    while True:
        async with broker.admission.call_slot("maint"):
            step = await calls.dead_letter_purge(
                broker.store.fetch, tenant, queue, group, after=step, rows_max=PURGE_ROWS_MAX
            )
        deleted += step.deleted
        if step.deleted < PURGE_ROWS_MAX:
            return deleted


async def newest_at(
    broker: "Broker", tenant: UUID, partition_uid: UUID, transaction_id: str
) -> UUID | None:
    """The newest dead letter of an address, to be replayed, whichever group gave up on it."""
    maintenance.check_replay(broker)
    found = await calls.dead_letter_find(
        broker.store.fetch,
        tenant,
        partition_uid=partition_uid,
        transaction=frames.literal(transaction_id),
    )
    return None if found is None else UUID(found.id)


async def replay(broker: "Broker", request: ReplayRequest) -> Replayed | None:
    """Move the dead letter; None when it is gone. What fails has changed nothing.

    An encrypted one stays as it is, with its flag, wherever it goes: a replay never makes a
    secret readable in a table. One that nobody could read there is refused, and all are in
    push maintenance. It is a push of the tenant's, which its quota may refuse.
    """
    maintenance.check_replay(broker)
    tenant, message_id, keys = request.tenant, broker.ids.mint(), broker.keys
    for attempt in range(REPLAY_ROUNDS):
        letter = await calls.dead_letter_find(
            broker.store.fetch, tenant, dead_letter_id=request.dead_letter_id
        )
        if letter is None:
            return None
        if letter.group == TIMER_GROUP:
            raise StoreError(TIMER)
        if request.payload is not None:
            letter = await _edited(keys, letter, request.payload)
        elif letter.encrypted:
            await _check_readable(keys, letter.payload)
        if not attempt:
            await broker.quotas.admit_push(tenant, 1, len(letter.payload))
        queue = letter.queue if request.queue is None else request.queue
        partition = letter.partition if request.partition is None else request.partition
        async with broker.admission.call_slot("maint"):
            [place] = await hot_calls.partition_ensure(
                broker.store.fetch, tenant, [(queue, partition)]
            )
        if place is None:
            continue
        if place.encryption_enabled and not letter.encrypted:
            if not keys.can_seal:
                raise StoreError(NO_KEY)
            payload = await bounded(partial(keys.seal, letter.payload), len(letter.payload))
            letter = letter._replace(payload=payload, encrypted=True)
        async with broker.admission.call_slot("maint"):
            result = await calls.dead_letter_replay(
                broker.store.fetch,
                letter.id,
                _message(letter, place, message_id),
                wait_ms=broker.config.push.busy_ms,
            )
        if result.verdict == "gone":
            return None
        if result.verdict == "stale":
            continue
        moved = result.verdict == "moved"
        if moved:
            broker.announce.pushed([(tenant, queue, partition, place.queue_id, place.id, 1)])
        return Replayed(
            dead_letter_id=letter.id,
            moved=moved,
            queue=queue,
            partition=partition,
            group=letter.group,
            original_transaction_id=loads(letter.transaction_id),
            transaction_id=_transaction_id(letter),
            message_id=message_id if moved else NIL_ID,
            offset=result.offset,
        )
    raise StoreError("the destination keeps changing: retry")


async def _check_readable(keys: KeyRing, payload: bytes) -> None:
    try:
        await bounded(partial(keys.open, payload), len(payload))
    except UndecryptableError as error:
        raise StoreError(f"{error}; nothing was moved") from None


async def _edited(keys: KeyRing, letter: DeadLetter, payload: bytes) -> DeadLetter:
    """The letter with another payload, in an envelope if its own lies in one."""
    letter = letter._replace(producer_sub=None)
    if not letter.encrypted:
        return letter._replace(payload=payload)
    if not keys.can_seal:
        raise StoreError(NO_KEY_FOR_EDIT)
    return letter._replace(payload=await bounded(partial(keys.seal, payload), len(payload)))


def _message(letter: DeadLetter, place: PartitionRow, message_id: str) -> PushGroup:
    """The flush of one message: a new id and transactionId, the payload as it was."""
    literal = frames.literal(_transaction_id(letter))
    frame = frames.frame(message_id, literal, None, letter.producer_sub, letter.payload)
    joined, ends = frames.join([frame])
    return PushGroup(
        partition_id=place.id,
        queue_id=place.queue_id,
        version=place.version,
        frames=joined,
        ends=ends,
        transactions=literal,
        flags=bytes([frames.FLAG_ENCRYPTED]) if letter.encrypted else None,
        first_id=message_id,
        last_id=message_id,
    )


def _transaction_id(letter: DeadLetter) -> str:
    return f"dlq:{letter.id}"
