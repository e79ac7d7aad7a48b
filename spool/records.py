r"""Records: one message as it lies in a spool file.

    marker 4 bytes  b"\x1eQS1"
    length u32 BE   of the body
    crc32  u32 BE   over the four bytes of the length, then the body
    body            {"queue":<literal>,"partition":<literal>,"acceptedAt":<microseconds>
                    [,"tenant":"<uuid>"][,"encrypted":true][,"unclear":true],<message>}

The message is the members of a JSON object without its braces, its id first; all but
that is opaque here. Inside a literal every quote is escaped, therefore the first
`,"id":"` of a body is where the message begins. 0x1E is legal nowhere inside JSON text,
so a body that holds one is damaged, and behind damage the next marker is found by
searching. These bytes never change: what a release wrote, every later one reads.

Imports errors. Used by everything here, and by whoever spools.
"""

from collections.abc import Sequence
from json.encoder import encode_basestring
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import msgspec

from spool.errors import DamagedRecord

MARKER = b"\x1eQS1"
SEPARATOR = b"\x1e"
HEAD = Struct(">4sII")
HEAD_BYTES = HEAD.size
LENGTH = Struct(">I")
# A body of 64 MiB, encrypted and in base64, with its names: beyond is damage, or refused.
BODY_BYTES_MAX = 128 * 1024 * 1024
MESSAGE = b',"id":"'
ID_START = len(MESSAGE) - 1
ID_END = ID_START + 36


class Whereabouts(NamedTuple):
    """The partition that a record is for; tenant None is the default tenant."""

    tenant: str | None
    queue: str
    partition: str


class Record(msgspec.Struct, frozen=True):
    """One accepted message on its way to the store.

    A msgspec.Struct and no dataclass, because a frozen dataclass costs a microsecond more,
    which is a fifth of what reading a record takes.

    `message` begins with `"id":"<uuid>"` and has no braces. `accepted_us` is microseconds
    since 1970. `unclear`: its push was sent, and nobody knows whether it was committed.
    """

    queue: str
    partition: str
    accepted_us: int
    message: bytes
    tenant: str | None = None
    encrypted: bool = False
    unclear: bool = False

    @property
    def message_id(self) -> str:
        return self.message[ID_START:ID_END].decode("ascii", "replace")

    @property
    def whereabouts(self) -> Whereabouts:
        return Whereabouts(self.tenant, self.queue, self.partition)

    def as_unclear(self) -> "Record":
        return msgspec.structs.replace(self, unclear=True)


class BodyHead(msgspec.Struct, frozen=True):
    """What stands in a body before the message. Fields of later releases are passed over."""

    queue: str
    partition: str
    acceptedAt: int
    tenant: str | None = None
    encrypted: bool = False
    unclear: bool = False


_decode_head = msgspec.json.Decoder(BodyHead).decode


def encode(record: Record) -> bytes:
    """The record as it lies in a file. Raises ValueError for what could not be read back."""
    head = (
        f'{{"queue":{encode_basestring(record.queue)}'
        f',"partition":{encode_basestring(record.partition)}'
        f',"acceptedAt":{record.accepted_us}'
    )
    if record.tenant is not None:
        head += f',"tenant":{encode_basestring(record.tenant)}'
    if record.encrypted:
        head += ',"encrypted":true'
    if record.unclear:
        head += ',"unclear":true'
    body = b"%b,%b}" % (head.encode(), record.message)
    if len(body) > BODY_BYTES_MAX:
        raise ValueError(f"a spool record has at most {BODY_BYTES_MAX} bytes")
    if SEPARATOR in record.message or not is_message(record.message):
        raise ValueError("a spool record holds a message that begins with its id")
    length = LENGTH.pack(len(body))
    return b"%b%b%b%b" % (MARKER, length, LENGTH.pack(crc32(body, crc32(length))), body)


def encode_many(records: Sequence[Record]) -> bytes:
    return b"".join(map(encode, records))


def decode(body: bytes) -> Record:
    """The record of a body whose checksum was right."""
    message_at = body.find(MESSAGE)
    if message_at < 0 or body[-1:] != b"}":
        raise DamagedRecord("a body without a message")
    message = body[message_at + 1 : -1]
    if not is_message(message):
        raise DamagedRecord("a message without an id")
    try:
        head = _decode_head(body[:message_at] + b"}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedRecord(f"a body without its head: {error}") from None
    return Record(
        head.queue,
        head.partition,
        head.acceptedAt,
        message,
        head.tenant,
        head.encrypted,
        head.unclear,
    )


def is_message(message: bytes) -> bool:
    return message.startswith(MESSAGE[1:]) and message[ID_END : ID_END + 1] == b'"'
