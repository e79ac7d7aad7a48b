"""The mesh inside one host: a hub in the parent process, and a link in each worker.

`manage.py broker --workers N` has one parent and N workers. The parent runs the host's one
node (mesh/node.py), when there are peers, and always a LocalHub; each worker has a LocalLink
instead of a node. Frames are those of the mesh, over a Unix socket that only this account
may open, so without proof and MAC.

A hint of a worker goes to the other workers and to all links of the node. One that came over
a link goes to the workers only (a hub passes it on to its other links by itself: node.py).
A hint never comes back to the worker that offered it.

    parent                                       worker
        node = Node(settings) or None                link = LocalLink(path, server_id, receive)
        hub = LocalHub(path, node)                   task = create_task(link.run())
        await hub.start()                            link.offer(hint)
        await hub.stop()                             task.cancel()

Imports channel, frames, handshake, hints, link, node, outbox, session. Used by whoever starts
workers, and in them by brokers/services/mesh.py.
"""

import asyncio
import contextlib
import json
import logging
import os
import random
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mesh.channel import Channel
from mesh.frames import FrameError
from mesh.handshake import HandshakeError, Introduction, introduce, meet, new_instance
from mesh.hints import Hint, Told
from mesh.link import BACKOFF_MAX_S, BACKOFF_MIN_S, READER_BYTES
from mesh.node import Node
from mesh.outbox import Outbox
from mesh.session import Counters, Session, SessionEnded

log = logging.getLogger(__name__)

PATH_BYTES_MAX = 100
HEARTBEAT_S = 1.0
DEAD_AFTER_S = 5.0
WORKERS_MAX = 256
NO_PEERS = {"enabled": False, "reason": "no_peers"}


class LocalHub:
    """The parent's end. Lives in one event loop; nothing here is needed for correctness."""

    def __init__(self, path: Path, node: Node | None = None) -> None:
        """`path`: of the Unix socket, at most 100 bytes; it is made, mode 0600, and an old one
        is replaced. `node`: the host's node, started and stopped by whoever made it; None when
        there are no peers: then the workers hear only each other.
        """
        self._path = path
        self._node = node
        self._counters = Counters()
        self._workers: dict[Session, None] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        if node is not None:
            node.receivers.append(self._tell_workers)

    async def start(self) -> None:
        """Listen. Raises OSError when the socket cannot be made. Before the workers start, or
        after: they dial until they are let in."""
        self._server = await asyncio.start_unix_server(
            self._accept, sock=_listener(self._path), limit=READER_BYTES
        )
        self._keep(asyncio.create_task(self._tell_status(), name="mesh status"))

    async def stop(self) -> None:
        """Close every worker's link and remove the socket; the node is not stopped."""
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(OSError):
                self._path.unlink()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._node is not None:
            with contextlib.suppress(ValueError):
                self._node.receivers.remove(self._tell_workers)

    @property
    def workers(self) -> int:
        """How many are connected."""
        return len(self._workers)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) > WORKERS_MAX:
            writer.transport.abort()
            return
        self._keep(asyncio.create_task(self._accepted(reader, writer), name="mesh worker"))

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            peer = await meet(reader)
        except HandshakeError as error:
            log.warning("mesh: a worker was not let in: %s", error)
            writer.transport.abort()
            return
        except BaseException:
            writer.transport.abort()
            raise
        outbox = Outbox()
        outbox.offer(self._told())
        session = _session(Channel(reader, writer), peer, outbox, self._received, self._counters)
        self._workers[session] = None
        try:
            await session.run()
        except SessionEnded as error:
            log.info("mesh: worker %s is gone: %s", peer.server_id, error)
        finally:
            del self._workers[session]

    def _received(self, session: Session, hint: Hint, marked: bool) -> None:
        for worker in self._workers:
            if worker is not session:
                worker.outbox.offer(hint)
        if self._node is not None:
            self._node.offer(hint)

    def _tell_workers(self, hint: Hint) -> None:
        for worker in self._workers:
            worker.outbox.offer(hint)

    def _told(self) -> Told:
        status = NO_PEERS if self._node is None else self._node.status()
        return Told(json.dumps(status).encode())

    async def _tell_status(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self._workers:
                self._tell_workers(self._told())

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class LocalLink:
    """A worker's end: the same `offer`, `run` and `status` as a Node has."""

    def __init__(self, path: Path, server_id: str, receive: Callable[[Hint], None]) -> None:
        """`receive` is called in the loop for each hint of the other workers and of peers; it
        must not wait, and what it raises is logged and forgotten."""
        self._path = path
        self._receive = receive
        self._introduction = Introduction(
            server_id=server_id, instance=new_instance(), nonce=b"", heartbeat_ms=1000
        )
        self._outbox = Outbox()
        self._counters = Counters()
        self._status: dict[str, Any] = dict(NO_PEERS)
        self.connected = False

    def offer(self, hint: Hint) -> None:
        """Tell the others, soon. Never waits and never fails: what does not fit is dropped."""
        self._outbox.offer(hint)

    async def run(self) -> None:
        """Dial the hub, and again whenever it is lost (250 ms .. 5 s); until cancelled."""
        backoff_s = BACKOFF_MIN_S
        while True:
            try:
                await self._once()
            except SessionEnded as error:
                log.info("mesh: the parent's hub is lost: %s", error)
                backoff_s = BACKOFF_MIN_S
            except (FrameError, OSError) as error:
                log.debug("mesh: no way to the parent's hub: %s", error)
            await asyncio.sleep(backoff_s * random.uniform(0.8, 1.0))
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    def status(self) -> dict[str, Any]:
        """What the parent last told of the host's node (Node.status), at most two heartbeats
        old; `{"enabled": False, "reason": "no_peers"}` while there is none."""
        return dict(self._status)

    async def _once(self) -> None:
        reader, writer = await asyncio.open_unix_connection(str(self._path), limit=READER_BYTES)
        introduce(writer, self._introduction)
        hub = Introduction(server_id="hub", instance="", nonce=b"")
        channel = Channel(reader, writer)
        self.connected = True
        try:
            await _session(channel, hub, self._outbox, self._received, self._counters).run()
        finally:
            self.connected = False
            self._status = dict(NO_PEERS)

    def _received(self, session: Session, hint: Hint, marked: bool) -> None:
        if isinstance(hint, Told):
            self._status = json.loads(hint.document)
        else:
            self._receive(hint)


def _session(
    channel: Channel,
    peer: Introduction,
    outbox: Outbox,
    received: Callable[[Session, Hint, bool], None],
    counters: Counters,
) -> Session:
    return Session(
        channel,
        peer,
        outbox,
        received=received,
        counters=counters,
        heartbeat_s=HEARTBEAT_S,
        dead_after_s=DEAD_AFTER_S,
    )


def _listener(path: Path) -> socket.socket:
    """A socket that nobody else may open, not even for the moment between bind and chmod."""
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise OSError(f"the path of a socket must be short: {path}")
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    listener.setblocking(False)
    return listener
