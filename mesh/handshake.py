"""The handshake: who is there, and proof that both know the secret.

    listener -> dialler   CHALLENGE  its introduction, with a fresh nonce
    dialler -> listener   HELLO      its introduction, with a fresh nonce, and its proof
    listener -> dialler   WELCOME    its proof

Proofs and the keys of the session are HMACs, under QUEEN_SYNC_SECRET, of both introductions
as they stood on the wire. Each side chose one of the nonces, so nothing that was recorded
proves anything a second time; each direction has a key of its own, so nothing can be
reflected. Whoever has not proved the secret is told the listener's name and nothing else.

The whole handshake has one deadline, so a peer that sends a byte a second gets no further
than one that sends nothing; frames are small until it is over.

Imports frames, channel. Used by link.py, node.py.
"""

import asyncio
import hmac
import secrets
import struct

import msgspec

from mesh.channel import Channel
from mesh.frames import CHALLENGE, HELLO, WELCOME, FrameError, frame, read_frame

VERSION = b"queen mesh 1"
HANDSHAKE_S = 5.0
HELLO_BYTES_MAX = 4096
NONCE_BYTES = 32
BROKER, HUB, WATCHER = "broker", "hub", "watcher"


class HandshakeError(Exception):
    """The other end did not prove what it must, or not in time."""


class Introduction(msgspec.Struct, omit_defaults=True):
    """`instance` is drawn at each start: two brokers of one name are still two."""

    server_id: str
    instance: str
    nonce: bytes
    role: str = BROKER
    heartbeat_ms: int = 1000


class Signed(msgspec.Struct):
    """An introduction as bytes, and the HMAC that proves the secret."""

    introduction: bytes = b""
    proof: bytes = b""


_introductions = msgspec.msgpack.Decoder(Introduction)
_signed = msgspec.msgpack.Decoder(Signed)


class _Keys:
    """All that follows from the secret and the two introductions."""

    def __init__(self, secret: bytes, listener: bytes, dialler: bytes) -> None:
        lengths = struct.pack(">II", len(listener), len(dialler))
        self._root = hmac.digest(secret, VERSION + lengths + listener + dialler, "sha256")

    def derive(self, purpose: bytes) -> bytes:
        return hmac.digest(self._root, purpose, "sha256")


async def dial(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    secret: bytes,
    own: Introduction,
    *,
    deadline_s: float = HANDSHAKE_S,
) -> tuple[Introduction, Channel]:
    """The dialler's part: who the listener is, and the channel to it."""
    try:
        async with asyncio.timeout(deadline_s):
            challenge = await _read(reader, CHALLENGE)
            theirs = _read_introduction(challenge.introduction)
            ours = _with_nonce(own)
            keys = _Keys(secret, challenge.introduction, ours)
            _write(writer, HELLO, Signed(ours, keys.derive(b"dialler's proof")))
            welcome = await _read(reader, WELCOME)
    except (TimeoutError, FrameError, asyncio.IncompleteReadError, OSError) as error:
        raise HandshakeError(_text(error)) from error
    if not hmac.compare_digest(welcome.proof, keys.derive(b"listener's proof")):
        raise HandshakeError("the listener does not know our secret")
    channel = Channel(
        reader,
        writer,
        send_key=keys.derive(b"dialler's frames"),
        receive_key=keys.derive(b"listener's frames"),
    )
    return theirs, channel


async def answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    secret: bytes,
    own: Introduction,
    *,
    deadline_s: float = HANDSHAKE_S,
) -> tuple[Introduction, Channel]:
    """The listener's part: who dialled, and the channel to it."""
    try:
        async with asyncio.timeout(deadline_s):
            ours = _with_nonce(own)
            _write(writer, CHALLENGE, Signed(ours))
            hello = await _read(reader, HELLO)
    except (TimeoutError, FrameError, asyncio.IncompleteReadError, OSError) as error:
        raise HandshakeError(_text(error)) from error
    keys = _Keys(secret, ours, hello.introduction)
    if not hmac.compare_digest(hello.proof, keys.derive(b"dialler's proof")):
        raise HandshakeError("whoever dialled does not know our secret")
    theirs = _read_introduction(hello.introduction)
    _write(writer, WELCOME, Signed(b"", keys.derive(b"listener's proof")))
    channel = Channel(
        reader,
        writer,
        send_key=keys.derive(b"listener's frames"),
        receive_key=keys.derive(b"dialler's frames"),
    )
    return theirs, channel


def introduce(writer: asyncio.StreamWriter, own: Introduction) -> None:
    """Inside one host, where the socket's file mode is the proof: only say who we are."""
    _write(writer, HELLO, Signed(_with_nonce(own)))


async def meet(reader: asyncio.StreamReader, *, deadline_s: float = HANDSHAKE_S) -> Introduction:
    """Who introduced itself on a socket of this host."""
    try:
        async with asyncio.timeout(deadline_s):
            hello = await _read(reader, HELLO)
    except (TimeoutError, FrameError, asyncio.IncompleteReadError, OSError) as error:
        raise HandshakeError(_text(error)) from error
    return _read_introduction(hello.introduction)


def new_instance() -> str:
    return secrets.token_hex(16)


def _with_nonce(own: Introduction) -> bytes:
    fresh = msgspec.structs.replace(own, nonce=secrets.token_bytes(NONCE_BYTES))
    return msgspec.msgpack.encode(fresh)


def _write(writer: asyncio.StreamWriter, kind: int, signed: Signed) -> None:
    writer.write(frame(kind, msgspec.msgpack.encode(signed)))


async def _read(reader: asyncio.StreamReader, wanted: int) -> Signed:
    kind, body = await read_frame(reader, HELLO_BYTES_MAX)
    if kind != wanted:
        raise HandshakeError(f"a frame of type {kind} where {wanted} was due")
    try:
        return _signed.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise HandshakeError("a hello that cannot be read") from None


def _read_introduction(body: bytes) -> Introduction:
    try:
        introduction = _introductions.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise HandshakeError("an introduction that cannot be read") from None
    if len(introduction.nonce) < NONCE_BYTES:
        raise HandshakeError("a nonce that is too short")
    if not introduction.server_id.isprintable():
        raise HandshakeError("a name that cannot be printed")
    return introduction


def _text(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "not in time"
    if isinstance(error, asyncio.IncompleteReadError):
        return "closed by the other end (which may not know our secret)"
    return str(error)
