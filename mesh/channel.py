"""A channel: frames to and from one peer that has proved itself, each with number and MAC.

    body on the wire    u64 number | 16 bytes of MAC | body

The number counts the frames of one direction from 0 and is never sent twice; the MAC covers
number, type and body under the key of that direction. A frame that was recorded, reordered,
left out or made up by somebody else ends the channel. Without keys (the Unix socket inside
one host) frames are bare.

Imports frames. Used by handshake.py, session.py, local.py.
"""

import asyncio
import hmac
import struct

from mesh.frames import FRAME_BYTES_MAX, FrameError, frame, read_frame

MAC_BYTES = 16
WRITE_HIGH_BYTES = 262_144

_NUMBER = struct.Struct(">Q")
_HEAD_BYTES = _NUMBER.size + MAC_BYTES


class ForgedFrame(FrameError):
    """A frame that does not follow the last one, or was not made by the peer."""


class Channel:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        send_key: bytes = b"",
        receive_key: bytes = b"",
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._send_key = send_key
        self._receive_key = receive_key
        self._sent = 0
        self._received = 0
        writer.transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)

    def seal(self, kind: int, body: bytes) -> bytes:
        """The next frame of ours, as it goes over the wire."""
        if not self._send_key:
            return frame(kind, body)
        number = _NUMBER.pack(self._sent)
        self._sent += 1
        return frame(kind, number + _mac(self._send_key, number, kind, body) + body)

    async def write(self, data: bytes) -> None:
        """Hand it to the kernel; waits while the peer takes nothing."""
        self._writer.write(data)
        await self._writer.drain()

    async def read(self) -> tuple[int, bytes]:
        """Type and body of the next frame. Raises ForgedFrame, FrameError, or what ends it."""
        kind, body = await read_frame(self._reader, FRAME_BYTES_MAX)
        if not self._receive_key:
            return kind, body
        if len(body) < _HEAD_BYTES:
            raise ForgedFrame("a frame without a MAC")
        number, mac = body[: _NUMBER.size], body[_NUMBER.size : _HEAD_BYTES]
        body = body[_HEAD_BYTES:]
        expected = _mac(self._receive_key, _NUMBER.pack(self._received), kind, body)
        # The number is judged by the MAC: ours is the one that must have been signed.
        if not hmac.compare_digest(mac, expected) or number != _NUMBER.pack(self._received):
            raise ForgedFrame("a frame that is forged, or out of turn")
        self._received += 1
        return kind, body

    def close(self) -> None:
        """At once: what is unsent is lost, as hints may be."""
        self._writer.transport.abort()


def _mac(key: bytes, number: bytes, kind: int, body: bytes) -> bytes:
    message = b"".join((number, bytes((kind,)), body))
    return hmac.digest(key, message, "sha256")[:MAC_BYTES]
