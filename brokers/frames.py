"""Frames: how a message lies in a segment, and how a segment becomes messages again.

Format 1. A frame is the JSON object that a pop returns, up to and including the payload
and without its closing brace:

    {"id":"<uuid>","transactionId":<literal>,"traceId":<literal|null>,"producerSub":<literal|null>,"data":<payload>

The frames of a segment are joined by one byte 0x1E, which is legal nowhere inside JSON
text, so a segment is split or completed in one pass whatever it carries. The payload's
bytes are the producer's own. `ends` holds four big-endian bytes a frame: the position
just behind it. Inside a literal every quote is escaped, therefore the first `,"data":`
of a frame is where its payload begins.

A transactionId travels and is compared as its canonical JSON literal (`literal`).

Imports nothing of ours. Used by services/ and store/.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from json.encoder import encode_basestring
from struct import pack

FORMAT = 1
SEPARATOR = b"\x1e"
TEXT_SEPARATOR = "\x1e"
FLAG_ENCRYPTED = 1
DATA = b',"data":'
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def literal(text: str) -> str:
    """The canonical JSON literal of an identifier: equal texts, equal literals, and back."""
    return encode_basestring(text)


def optional_literal(text: str | None) -> str:
    return "null" if text is None else encode_basestring(text)


def frame(
    message_id: str,
    transaction_literal: str,
    trace_id: str | None,
    producer_sub: str | None,
    payload: bytes,
) -> bytes:
    """One message as it lies in a segment."""
    head = (
        f'{{"id":"{message_id}","transactionId":{transaction_literal},'
        f'"traceId":{optional_literal(trace_id)},'
        f'"producerSub":{optional_literal(producer_sub)},"data":'
    )
    return head.encode() + payload


def frames_of(
    ids: Iterable[str],
    literals: Iterable[str],
    trace_ids: Iterable[str | None],
    producer_sub: str | None,
    payloads: Iterable[bytes],
) -> list[bytes]:
    """The frames of many messages of one producer; most have no trace."""
    sub = optional_literal(producer_sub)
    plain = f',"traceId":null,"producerSub":{sub},"data":'
    return [
        f'{{"id":"{one}","transactionId":{literal_}{plain}'.encode() + payload
        if trace_id is None
        else frame(one, literal_, trace_id, producer_sub, payload)
        for one, literal_, trace_id, payload in zip(ids, literals, trace_ids, payloads, strict=True)
    ]


def join(frames: list[bytes]) -> tuple[bytes, bytes]:
    """The `frames` and `ends` columns of a segment."""
    if len(frames) == 1:
        return frames[0], pack(">I", len(frames[0]))
    joined = SEPARATOR.join(frames)
    running = accumulate(map(len, frames))
    ends = [end + position for position, end in enumerate(running)]
    return joined, pack(f">{len(ends)}I", *ends)


_second_text: dict[int, str] = {}


def timestamp_text(epoch_us: int) -> str:
    """Microseconds since 1970 as `2026-07-30T11:02:44.512873Z`."""
    second, micro = divmod(epoch_us, 1_000_000)
    text = _second_text.get(second)
    if text is None:
        if len(_second_text) > 4096:
            _second_text.clear()
        text = (EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")
        if second < -30_610_224_000:  # years below 1000 are not padded by strftime
            text = text.rjust(19, "0")
        _second_text[second] = text
    return f"{text}.{micro:06d}Z"


def payload_start(frame_: bytes) -> int:
    """Where the payload of a frame begins; it ends with the frame."""
    return frame_.index(DATA) + len(DATA)


def transaction_of(frame_: bytes) -> bytes:
    """The transactionId literal of a frame: it starts behind 61 bytes of fixed length."""
    return frame_[61 : frame_.index(b',"traceId":', 61)]
