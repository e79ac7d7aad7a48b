"""Messages, to be looked at: browse, inspect one, search by text; and why letters died.

Nothing here consumes anything. Payloads are opened where a key fits; in place of one that
cannot be opened stand null and the error. Every call is bounded, and says so when its bound
was met: what it did not look at is never passed off as not being there.

Imports encryption, frames, store. Called by api/views/messages.py and dead_letters.py.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from brokers import frames
from brokers.encryption import KeyRing, UndecryptableError, bounded
from brokers.errors import RequestError
from brokers.store import message_calls as calls
from brokers.store.message_calls import Inspected, MessageRow, Page, Place, Sample, Segment

if TYPE_CHECKING:
    from brokers.runtime import Broker

# What a page may weigh; beyond it rows come without their payloads.
PAGE_BYTES_MAX = 67_108_864
# How deep one may page: what comes later is found by narrowing `from` and `to`.
PAGE_END_MAX = 50_000
LANES_MAX = 5000
# Partitions are put in order by seconds: so many more are looked at than could be needed.
LANES_SPARE = 100
STAMP = timedelta(seconds=1)
LOOKS_MAX = 20_000
INSPECT_SEGMENTS_MAX = 5000
INSPECT_BYTES_MAX = 67_108_864
SEARCH_LANES_MAX = 1000
SEARCH_SEGMENTS_MAX = 5000
SEARCH_BYTES_MAX = 33_554_432
SAMPLE_COUNT_MAX = 200_000
SIGNATURES_MAX = 8
SIGNATURE_CHARACTERS = 120

# In place of ids that do not fit into what was fetched of an omitted payload's frame.
NO_HEAD = b'{"id":null,"transactionId":null,"traceId":null,"producerSub":null'
CLOSED = "it is encrypted"
TOO_DEEP = f"offset and limit end behind {PAGE_END_MAX} messages: narrow from and to"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseRequest:
    """`since` is included, `until` is not."""

    tenant: UUID
    queue: str | None
    partition: str | None
    namespace: str | None
    task: str | None
    status: str | None
    since: datetime
    until: datetime
    limit: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """`text` are bytes as a producer wrote them into its JSON."""

    tenant: UUID
    queue: str
    partition: str | None
    text: bytes
    since: datetime
    until: datetime
    limit: int
    after: Place


class Shown(NamedTuple):
    """A frame, cut before its payload, and what stands behind `"data":`."""

    head: bytes
    payload: bytes
    problem: str | None


class Hit(NamedTuple):
    partition_uid: str
    partition: str
    offset: int
    created_at: datetime
    frame: bytes


class Found(NamedTuple):
    hits: list[Hit]
    reached: Place | None
    segments: int
    bytes: int
    messages: int
    encrypted: int


async def browse(
    broker: "Broker", request: BrowseRequest, *, may_open: bool = True
) -> tuple[Page, list[Shown]]:
    """The newest messages first, and each as it may be shown."""
    end = request.offset + request.limit
    if end > PAGE_END_MAX:
        raise RequestError(TOO_DEEP)
    if request.until < datetime.now(UTC) or request.status == "dead_letter":
        # What was written before `until` may lie anywhere, and letters mostly lie where nothing is
        # written any more: the partitions that were written last are not enough.
        page = await _page(broker, request, LANES_MAX)
    else:
        page = await _page(broker, request, min(end + LANES_SPARE, LANES_MAX))
        # A status may be that of few: then they are not enough, either.
        if request.status is not None and not _newest(page, request):
            page = await _page(broker, request, LANES_MAX)
    keys = broker.keys if may_open else None
    size = sum(len(row.frame) for row in page.rows if row.encrypted and may_open)
    return page, await bounded(lambda: [_row_shown(keys, row) for row in page.rows], size)


async def _page(broker: "Broker", request: BrowseRequest, lanes_max: int) -> Page:
    return await calls.message_list(
        broker.reads.fetch,
        request.tenant,
        queue=request.queue,
        partition=request.partition,
        namespace=request.namespace,
        task=request.task,
        status=request.status,
        since=request.since,
        until=request.until,
        limit=request.limit,
        offset=request.offset,
        lanes_max=lanes_max,
        looks_max=max(LOOKS_MAX, request.offset + request.limit),
        bytes_max=PAGE_BYTES_MAX,
    )


def _newest(page: Page, request: BrowseRequest) -> bool:
    """Whether what was not looked at is older than all of the page."""
    if page.others_until is None:
        return True
    full = len(page.rows) >= request.limit
    return full and page.rows[-1].created_at > page.others_until + STAMP


def _row_shown(keys: KeyRing | None, row: MessageRow) -> Shown:
    cut = row.frame.find(frames.DATA)
    if not row.whole:
        return Shown(row.frame[:cut] if cut >= 0 else NO_HEAD, b"null", None)
    return _shown(keys, row.frame[:cut], row.frame[cut + len(frames.DATA) :], row.encrypted)


def _shown(keys: KeyRing | None, head: bytes, payload: bytes, encrypted: bool) -> Shown:
    """Without keys, for who may not see it, an encrypted payload stays closed."""
    if not encrypted:
        return Shown(head, payload, None)
    if keys is None:
        return Shown(head, b"null", CLOSED)
    try:
        return Shown(head, keys.open(payload), None)
    except UndecryptableError as error:
        return Shown(head, b"null", str(error))


def transaction_hash(head: bytes) -> str:
    """A short name of a transactionId: of its literal, so equal ids have equal names."""
    end = head.find(b',"traceId":', 61)
    return hashlib.blake2b(head[61 : max(end, 61)], digest_size=8).hexdigest()


async def inspect(
    broker: "Broker",
    tenant: UUID,
    partition_uid: UUID,
    transaction_id: str,
    *,
    may_open: bool = True,
) -> tuple[Inspected, Shown] | None:
    """One message by its address, or the dead letter that is left of it."""
    found = await calls.message_get(
        broker.reads.fetch,
        tenant,
        partition_uid,
        frames.literal(transaction_id),
        segments_max=INSPECT_SEGMENTS_MAX,
        bytes_max=INSPECT_BYTES_MAX,
    )
    if found is None:
        return None
    if found.frame is None:
        assert found.payload is not None
        head = frames.frame(
            found.message_id, frames.literal(transaction_id), None, found.producer_sub, b""
        )[: -len(frames.DATA)]
        payload = found.payload
    else:
        start = frames.payload_start(found.frame)
        head, payload = found.frame[: start - len(frames.DATA)], found.frame[start:]
    keys = broker.keys if may_open else None
    shown = await bounded(lambda: _shown(keys, head, payload, found.encrypted), len(payload))
    return found, shown


async def delete(broker: "Broker", tenant: UUID, partition_uid: UUID, transaction_id: str) -> int:
    """Delete the dead letters of an address; a live message stays where it is."""
    async with broker.admission.call_slot("maint"):
        return await calls.dead_letter_delete(
            broker.store.fetch, tenant, partition_uid, frames.literal(transaction_id)
        )


async def search(broker: "Broker", request: SearchRequest) -> Found | None:
    """One bounded look for a text in payloads; None when there is no such queue."""
    step = await calls.message_search(
        broker.reads.fetch,
        request.tenant,
        queue=request.queue,
        partition=request.partition,
        text=request.text,
        since=request.since,
        until=request.until,
        after=request.after,
        hits_max=request.limit,
        lanes_max=SEARCH_LANES_MAX,
        segments_max=SEARCH_SEGMENTS_MAX,
        bytes_max=SEARCH_BYTES_MAX,
    )
    if step is None:
        return None
    size = sum(len(segment.frames) for segment in step.segments)
    hits, stopped = await bounded(lambda: _hits(step.segments, request), size)
    return Found(
        hits,
        stopped or step.reached,
        step.looked_segments,
        step.looked_bytes,
        step.looked_messages,
        step.encrypted,
    )


def _hits(segments: list[Segment], request: SearchRequest) -> tuple[list[Hit], Place | None]:
    """Messages whose payload has the text, at most as many as asked for; and where the last of
    them was, when that was not all."""
    hits: list[Hit] = []
    for hit in _matching(segments, request):
        if len(hits) == request.limit:
            return hits, Place(hits[-1].partition, hits[-1].offset)
        hits.append(hit)
    return hits, None


def _matching(segments: list[Segment], request: SearchRequest) -> Iterator[Hit]:
    for segment in segments:
        begin = request.after.offset if segment.partition == request.after.partition else -1
        for no, frame in enumerate(segment.frames.split(frames.SEPARATOR)):
            offset = segment.base + no
            if offset <= begin or (segment.flags and segment.flags[no] & frames.FLAG_ENCRYPTED):
                continue
            if request.text in memoryview(frame)[frames.payload_start(frame) :].tobytes():
                yield Hit(
                    segment.partition_uid, segment.partition, offset, segment.created_at, frame
                )


# Signatures


class Signatures(NamedTuple):
    sample: Sample
    texts: list[tuple[str, int]]
    days: list[tuple[str, int]]


async def signatures(broker: "Broker", tenant: UUID, queue: str, limit: int) -> Signatures:
    """What the newest dead letters of a queue died of, the most frequent first."""
    sample = await calls.dead_letter_sample(
        broker.reads.fetch, tenant, queue, limit=limit, count_max=SAMPLE_COUNT_MAX
    )
    texts = Counter(fold(error) for error, *_ in sample.letters)
    days = Counter(
        failed_at.astimezone(UTC).date().isoformat() for _, _, _, failed_at, _ in sample.letters
    )
    return Signatures(sample, texts.most_common(SIGNATURES_MAX), sorted(days.items()))


_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_HEX = re.compile(r"\b(?:0x)?(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{16,}\b")
_DATE = re.compile(
    r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)
_INTEGER = re.compile(r"(?<![\w.])-?\d+(?![\w]|\.\d)")
_BLANKS = re.compile(r"\s+")


def fold(error: str) -> str:
    """The signature of an error: what two failures of one kind have in common."""
    for pattern, name in ((_UUID, "<id>"), (_DATE, "<date>"), (_HEX, "<id>"), (_INTEGER, "<n>")):
        error = pattern.sub(name, error)
    return _BLANKS.sub(" ", error).strip()[:SIGNATURE_CHARACTERS]
