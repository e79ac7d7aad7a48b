"""Watching: ask a running broker or hub what it sees, or what passes through it.

A watcher proves the secret as a peer does, and is no peer: it is told the node's status
first (Told), and then every hint that passes (Passed). It is told nothing else, and what it
says is not heard.

Imports handshake, hints, link, outbox, session. Used by `manage.py mesh`.
"""

import asyncio
from collections.abc import Callable

from mesh import hints
from mesh.handshake import WATCHER, Introduction, dial, new_instance
from mesh.hints import Hint, Passed
from mesh.link import READER_BYTES
from mesh.outbox import Outbox
from mesh.session import Counters, Session

HEARTBEAT_S = 1.0
DEAD_AFTER_S = 5.0
CONNECT_S = 5.0


async def watch(host: str, port: int, secret: bytes, tell: Callable[[Hint], None]) -> None:
    """Hand over what comes until it ends. Raises OSError, TimeoutError, HandshakeError, and
    SessionEnded at last."""
    async with asyncio.timeout(CONNECT_S):
        reader, writer = await asyncio.open_connection(host, port, limit=READER_BYTES)
    own = Introduction(server_id="watcher", instance=new_instance(), nonce=b"", role=WATCHER)
    try:
        peer, channel = await dial(reader, writer, secret, own)
    except BaseException:
        writer.transport.abort()
        raise

    def received(session: Session, hint: Hint, marked: bool) -> None:
        tell(hint)

    session = Session(
        channel,
        peer,
        Outbox(),
        received=received,
        counters=Counters(),
        heartbeat_s=HEARTBEAT_S,
        dead_after_s=DEAD_AFTER_S,
    )
    await session.run()


def line(passed: Passed) -> str:
    """A hint that passed, for people."""
    hint = hints.decode(passed.type, passed.body)
    mark = " (passed on)" if passed.marked else ""
    if hint is None:
        return f"{passed.origin}{mark}: a frame of type {passed.type}"
    values = " ".join(
        f"{name}={getattr(hint, name)!r}" for name in hint.__struct_fields__ if getattr(hint, name)
    )
    return f"{passed.origin}{mark}: {hint.kind} {values}"
