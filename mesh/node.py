"""The node: everything that one host says to its peers, and hears from them.

It dials the peers it was told of and listens for those that dial it; a session carries hints
both ways, whoever dialled. What is offered goes once to each peer, however many sessions
there are with it. What comes over a session goes to the receivers; a hub passes it on, once
and marked, to its other peers, and never back to where it came from.

Nothing here can wait, fail or be needed for correctness, as seen from whoever offers.

Imports hints, handshake, link, outbox, session. Used by local.py, brokers/services/mesh.py
and `manage.py mesh`.
"""

import asyncio
import ipaddress
import json
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mesh import hints
from mesh.channel import Channel
from mesh.handshake import (
    BROKER,
    HANDSHAKE_S,
    HUB,
    WATCHER,
    HandshakeError,
    Introduction,
    answer,
    new_instance,
)
from mesh.hints import Hint, Passed, Told
from mesh.link import READER_BYTES, Link, Resolve, resolve_by_system
from mesh.outbox import Outbox
from mesh.session import Counters, Session, SessionEnded

log = logging.getLogger(__name__)

UNPROVED_MAX = 64
SESSIONS_MAX = 256
WATCHERS_MAX = 8
BACKLOG = 64
LISTEN_AGAIN_S = 2.0
COMPLAIN_EVERY_S = 10.0

Receive = Callable[[Hint], None]


class NotAllowed(Exception):
    """Listening would open the control port to whoever reaches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`insecure` allows a listener beyond loopback without a secret. `listen` false: dial only."""

    server_id: str
    peers: tuple[tuple[str, int], ...] = ()
    bind_addr: str = "127.0.0.1"
    port: int = 6633
    secret: bytes = b""
    insecure: bool = False
    listen: bool = True
    heartbeat_s: float = 1.0
    dead_after_s: float = 5.0
    handshake_s: float = HANDSHAKE_S


class Node:
    """`receivers` are called in the loop for every hint that comes over a session."""

    def __init__(
        self, settings: Settings, *, hub: bool = False, resolve: Resolve = resolve_by_system
    ) -> None:
        self.settings = settings
        self.resolve = resolve
        self.counters = Counters()
        self.receivers: list[Receive] = []
        self.introduction = Introduction(
            server_id=settings.server_id,
            instance=new_instance(),
            nonce=b"",
            role=HUB if hub else BROKER,
            heartbeat_ms=round(settings.heartbeat_s * 1000),
        )
        self.port = settings.port
        self.running = False
        self._hub = hub
        self._links = [Link(self, host, port) for host, port in settings.peers]
        self._sessions: dict[Session, None] = {}
        self._watchers: dict[Session, None] = {}
        self._passed = 0
        # Where a hint must go to reach every peer once: (instance, outbox).
        self._targets: list[tuple[str, Outbox]] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unproved = 0
        self._complain_at = 0.0
        self.aim()

    # As the broker and the local hub see it

    def offer(self, hint: Hint) -> None:
        """Tell every peer, soon. Never waits and never fails: what does not fit is dropped."""
        for _, outbox in self._targets:
            outbox.offer(hint)
        if self._watchers:
            self._show(self.settings.server_id, hint, marked=False)

    async def run(self) -> None:
        """Listen and dial until cancelled; a port that is taken is tried again."""
        self.running = True
        try:
            for link in self._links:
                self._keep(asyncio.create_task(link.run(), name=f"mesh link {link.name}"))
            while self.settings.listen and self._server is None:
                try:
                    await self.listen()
                except (OSError, NotAllowed) as error:
                    log.error("mesh: cannot listen, peers cannot dial this broker: %s", error)
                    await asyncio.sleep(LISTEN_AGAIN_S)
            await asyncio.Event().wait()
        finally:
            await self.close()

    async def listen(self) -> None:
        """Raises OSError when the port cannot be had, NotAllowed when it must not be."""
        address, port = self.settings.bind_addr, self.settings.port
        found = await asyncio.get_running_loop().getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        where = found[0][4]
        if not (self.settings.secret or self.settings.insecure or is_loopback(str(where[0]))):
            raise NotAllowed(f"{address} is not loopback, and there is no secret")
        self._server = await asyncio.start_server(
            self._accept,
            str(where[0]),
            port,
            family=found[0][0],
            limit=READER_BYTES,
            backlog=BACKLOG,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("mesh: listening on %s port %d", address, self.port)

    async def close(self) -> None:
        self.running = False
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def status(self) -> dict[str, Any]:
        """The figures of GET /internal/api/shared-state/stats, but for the maintenance flags."""
        counters = self.counters
        peers = [
            {
                "host": link.host,
                "port": link.port,
                "connected": link.session is not None,
                "resolved": bool(link.address),
                "resolved_ip": link.address or None,
                "server_id": link.session.peer.server_id if link.session else None,
                "self": link.is_self,
            }
            for link in self._links
        ]
        alive = {session.peer.instance for session in self._sessions if session.alive}
        dead = sum(not link.is_self and link.instance not in alive for link in self._links)
        return {
            "enabled": True,
            "running": self.running,
            "server_id": self.settings.server_id,
            "transport": "tcp-mesh",
            "port": self.port,
            "listening": self._server is not None,
            "role": self.introduction.role,
            "peer_count": len(self._links),
            "peers": peers,
            "servers_alive": len(alive),
            "servers_dead": dead,
            "servers": sorted(
                {
                    session.peer.server_id or session.peer.instance
                    for session in self._sessions
                    if session.alive
                }
            ),
            "eph_members": len(alive) + 1,
            "messages_sent": counters.sent,
            "messages_received": counters.received,
            "messages_dropped": self.dropped,
            "messages_queued": sum(len(outbox) for _, outbox in self._targets),
            "signature_failures": counters.handshake_failures + counters.forged,
            "handshake_failures": counters.handshake_failures + counters.forged,
            "sequence_rejections": 0,
            "frames_skipped": counters.skipped,
        }

    @property
    def dropped(self) -> int:
        """Hints that no peer will get, or not every peer."""
        outboxes = {id(link.outbox): link.outbox for link in self._links}
        outboxes |= {id(session.outbox): session.outbox for session in self._sessions}
        return self.counters.dropped + sum(outbox.dropped for outbox in outboxes.values())

    # As links and accepted connections see it

    def hears(self, instance: str) -> bool:
        """Whether there is a session with that peer."""
        return any(session.peer.instance == instance for session in self._sessions)

    def session(
        self, channel: Channel, peer: Introduction, outbox: Outbox, address: str
    ) -> Session:
        return Session(
            channel,
            peer,
            outbox,
            received=self._received,
            # What a watcher is shown is said to no peer.
            counters=Counters() if peer.role == WATCHER else self.counters,
            heartbeat_s=self.settings.heartbeat_s,
            dead_after_s=self.settings.dead_after_s,
            address=address,
        )

    async def talk(self, session: Session) -> None:
        """Run a session among the others until it ends. Raises SessionEnded."""
        self._sessions[session] = None
        self.aim()
        try:
            await session.run()
        finally:
            del self._sessions[session]
            self.aim()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._unproved >= UNPROVED_MAX or len(self._sessions) >= SESSIONS_MAX:
            self.counters.handshake_failures += 1
            writer.transport.abort()
            return
        self._unproved += 1
        self._keep(asyncio.create_task(self._accepted(reader, writer), name="mesh accepted"))

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = str((writer.get_extra_info("peername") or ("",))[0])
        try:
            peer, channel = await answer(
                reader,
                writer,
                self.settings.secret,
                self.introduction,
                deadline_s=self.settings.handshake_s,
            )
        except HandshakeError as error:
            self.counters.handshake_failures += 1
            self._complain(address, error)
            writer.transport.abort()
            return
        except BaseException:
            writer.transport.abort()
            raise
        finally:
            self._unproved -= 1
        if peer.instance == self.introduction.instance:
            channel.close()
            return
        session = self.session(channel, peer, Outbox(), address)
        try:
            if peer.role == WATCHER:
                await self._be_watched(session)
            else:
                log.info("mesh: %s dialled from %s", peer.server_id, address)
                for link in self._links:
                    link.hurry()
                await self._talk_to_dialler(session)
        except SessionEnded as error:
            log.info("mesh: %s from %s is gone: %s", peer.server_id, address, error)

    async def _talk_to_dialler(self, session: Session) -> None:
        """Its outbox goes with it; a link keeps its own."""
        try:
            await self.talk(session)
        finally:
            self.counters.dropped += session.outbox.dropped + len(session.outbox)

    def _complain(self, address: str, error: HandshakeError) -> None:
        """Whoever knocks all day is said now and then, and counted each time."""
        now = time.monotonic()
        level = logging.WARNING if now >= self._complain_at else logging.DEBUG
        if now >= self._complain_at:
            self._complain_at = now + COMPLAIN_EVERY_S
        log.log(level, "mesh: %s was not let in: %s", address, error)

    async def _be_watched(self, session: Session) -> None:
        """It hears what passes, and is no peer: nothing that it says is heard."""
        if len(self._watchers) >= WATCHERS_MAX:
            session.close()
            return
        session.outbox.offer(Told(json.dumps(self.status()).encode()))
        self._watchers[session] = None
        try:
            await session.run()
        finally:
            del self._watchers[session]

    def _received(self, session: Session, hint: Hint, marked: bool) -> None:
        if session in self._watchers or isinstance(hint, Told | Passed):
            return
        for receive in self.receivers:
            receive(hint)
        if self._hub and not marked:
            for instance, outbox in self._targets:
                if instance != session.peer.instance:
                    outbox.offer(hint, marked=True)
        if self._watchers:
            self._show(session.peer.server_id, hint, marked=marked)

    def _show(self, origin: str, hint: Hint, *, marked: bool) -> None:
        self._passed += 1
        kind, body = hints.encode(hint)
        passed = Passed(origin, marked, kind, body, self._passed)
        for watcher in self._watchers:
            watcher.outbox.offer(passed)

    def aim(self) -> None:
        """Each peer once: over the link that we dialled, else over its own newest session.

        A link that is down keeps what it is offered, unless its peer hears us otherwise.
        """
        dialled = {link.session for link in self._links}
        chosen: dict[str, Outbox] = {}
        for link in self._links:
            if link.session in self._sessions:
                chosen.setdefault(link.instance, link.outbox)
        for session in reversed(self._sessions):
            if session not in dialled:
                chosen.setdefault(session.peer.instance, session.outbox)
        targets = list(chosen.items())
        for link in self._links:
            if link.session is None and not link.is_self and link.instance not in chosen:
                targets.append((link.instance, link.outbox))
        self._targets = targets

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address == "localhost"
