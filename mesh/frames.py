"""Frames: how bytes on a mesh connection are cut into pieces.

    u32 length (big-endian; of what follows) | u8 type | body

The length is looked at before anything is allocated for it. A type that is not known is
skipped by whoever reads it; the top bit of the type is the mark of a frame that a hub has
passed on, which no hub passes on again.

Imports nothing of ours. Used by handshake.py, channel.py, session.py.
"""

import asyncio
import struct

FRAME_BYTES_MAX = 16 * 1024 * 1024
MARK = 0x80

CHALLENGE, HELLO, WELCOME, HEARTBEAT = 1, 2, 3, 4

_HEAD = struct.Struct(">IB")


class FrameError(Exception):
    """The other end does not speak as we do: the connection is of no use any more."""


def frame(kind: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body) + 1, kind) + body


async def read_frame(
    reader: asyncio.StreamReader, bytes_max: int = FRAME_BYTES_MAX
) -> tuple[int, bytes]:
    """The next frame's type and body. Raises FrameError, and IncompleteReadError at the end."""
    length, kind = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    if not 1 <= length <= bytes_max:
        raise FrameError(f"a frame of {length} bytes")
    return kind, await reader.readexactly(length - 1)
