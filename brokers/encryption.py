"""Encryption at rest: a payload in an envelope, sealed under one key and opened with a ring.

The envelope is JSON, so that a segment stays JSON text whatever lies in it:

    {"encrypted":"<base64>","iv":"<base64 of 16 bytes>","authTag":"<base64 of 16 bytes>"}

The cipher is AES-256-GCM; its nonce is the first 12 bytes of the iv, drawn anew for every
payload. The other four name the key, so that a ring of many keys is not tried one by one;
they decide nothing: a foreign envelope, where they are random, is tried with every key.

Whether a payload lies in an envelope is told by the flag stored beside it, never by its
shape. Nothing here falls back to plain text: without a key there is no envelope, and what
no key opens is an error.

Imports frames. Used by store/sealing.py, services/ and runtime.py.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Sequence
from json import dumps
from typing import TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from brokers import frames

T = TypeVar("T")

NONCE_BYTES, IV_BYTES, TAG_BYTES = 12, 16, 16
KEY_ID_DOMAIN = b"queen encryption key id:"
# About three milliseconds of work: more is done beside the event loop.
INLINE_BYTES_MAX = 1_048_576

DAMAGED = "it was damaged"
NO_KEYS = "this broker has no encryption key"
NO_KEY_FITS = "no key of this broker fits"


class UndecryptableError(Exception):
    """An envelope that this ring cannot open; the text may be shown to a consumer."""

    def __init__(self, why: str) -> None:
        super().__init__(f"payload cannot be decrypted: {why}")


class NoKey(Exception):
    """Something should be sealed and there is no current key: a caller forgot to ask."""


class Envelope(msgspec.Struct):
    """Bytes become base64 on the way out, and must be base64 on the way in."""

    encrypted: bytes
    iv: bytes
    authTag: bytes


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Envelope).decode


class Key:
    """One key: `id` is four bytes that say nothing about it to who does not have it."""

    __slots__ = ("cipher", "id")

    def __init__(self, text: str) -> None:
        raw = bytes.fromhex(text)
        self.cipher = AESGCM(raw)
        self.id = hashlib.sha256(KEY_ID_DOMAIN + raw).digest()[: IV_BYTES - NONCE_BYTES]


class KeyRing:
    """The current key, which seals and opens, and older ones, which only open.

    Keys come as the 64 hexadecimal digits that config.py has checked; "" is no current key.
    """

    def __init__(self, current: str = "", old: Sequence[str] = ()) -> None:
        self._current = Key(current) if current else None
        self._keys = ([self._current] if self._current else []) + [Key(one) for one in old]

    def __repr__(self) -> str:
        return f"<KeyRing of {len(self._keys)}>"

    @property
    def can_seal(self) -> bool:
        return self._current is not None

    def seal(self, payload: bytes) -> bytes:
        """The envelope of a payload. Raises NoKey."""
        key = self._current
        if key is None:
            raise NoKey
        nonce = os.urandom(NONCE_BYTES)
        sealed = key.cipher.encrypt(nonce, payload, None)
        return _encode(Envelope(sealed[:-TAG_BYTES], nonce + key.id, sealed[-TAG_BYTES:]))

    def open(self, envelope: bytes) -> bytes:
        """The payload, byte for byte as it was sealed. Raises UndecryptableError."""
        if not self._keys:
            raise UndecryptableError(NO_KEYS)
        try:
            read = _decode(envelope)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise UndecryptableError(DAMAGED) from None
        if len(read.iv) != IV_BYTES or len(read.authTag) != TAG_BYTES:
            raise UndecryptableError(DAMAGED)
        nonce, key_id = read.iv[:NONCE_BYTES], read.iv[NONCE_BYTES:]
        sealed = read.encrypted + read.authTag
        for key in sorted(self._keys, key=lambda one: one.id != key_id):
            try:
                return key.cipher.decrypt(nonce, sealed, None)
            except InvalidTag:
                continue
        known = any(key.id == key_id for key in self._keys)
        raise UndecryptableError(DAMAGED if known else NO_KEY_FITS)

    def seal_frame(self, frame: bytes) -> bytes:
        """The message with its payload sealed; ids, transactionId and subject stay readable."""
        start = frames.payload_start(frame)
        return frame[:start] + self.seal(frame[start:])

    def open_frame(self, frame: bytes) -> bytes:
        """The message with its payload. Raises UndecryptableError."""
        start = frames.payload_start(frame)
        return frame[:start] + self.open(frame[start:])


def unreadable_frame(frame: bytes, error: UndecryptableError) -> bytes:
    """A message that cannot be opened, as a consumer gets it: without data, and with the error.

    Never with the envelope, which a consumer would take for data.
    """
    return frame[: frames.payload_start(frame)] + unreadable(error) + b',"isEncrypted":true'


def unreadable(error: UndecryptableError) -> bytes:
    """What stands behind `"data":` where there should be a payload: null, and why."""
    return b'null,"error":' + dumps(str(error)).encode()


async def bounded(work: Callable[[], T], size_bytes: int) -> T:
    """Do `work` here, or beside the event loop when it goes through many bytes."""
    if size_bytes <= INLINE_BYTES_MAX:
        return work()
    return await asyncio.to_thread(work)
