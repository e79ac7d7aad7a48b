"""A link: the way to one peer that we were told of, dialled again whenever it is lost.

The name is resolved at each dial, so a peer may come back at another address. The outbox
stays while the link is down, bounded, and what is old news by then is dropped.

Imports handshake, outbox, session. Used by node.py.
"""

import asyncio
import logging
import random
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from mesh.handshake import HandshakeError, dial
from mesh.outbox import Outbox
from mesh.session import Session, SessionEnded

if TYPE_CHECKING:
    from mesh.node import Node

log = logging.getLogger(__name__)

BACKOFF_MIN_S = 0.25
BACKOFF_MAX_S = 5.0
# One of our own addresses among the peers, as a list shared by all of them has.
SELF_RETRY_S = 60.0
CONNECT_S = 5.0
ADDRESSES_MAX = 8
STALE_S = 3.0
READER_BYTES = 262_144

# (host, port) -> addresses to try, in this order
Resolve = Callable[[str, int], Awaitable[list[str]]]


async def resolve_by_system(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Link:
    """`session` is None while it is down; `instance` is who answered last."""

    def __init__(self, node: "Node", host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.outbox = Outbox()
        self.session: Session | None = None
        self.instance = ""
        self.address = ""
        self.is_self = False
        self._node = node
        self._down_since = time.monotonic()
        self._complaint = ""
        self._hurry = asyncio.Event()

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"

    async def run(self) -> None:
        """Dial for ever; a session that lasted starts the backoff anew."""
        backoff_s = BACKOFF_MIN_S
        while True:
            began = time.monotonic()
            try:
                await self._once()
            except SessionEnded as error:
                log.info("mesh: link to %s lost: %s", self.name, error)
                self._complaint = ""
            except (HandshakeError, OSError, TimeoutError, UnicodeError) as error:
                self._complain(str(error) or type(error).__name__)
            except Exception:
                log.exception("mesh: link to %s", self.name)
            if time.monotonic() - began > BACKOFF_MAX_S:
                backoff_s = BACKOFF_MIN_S
            if self.is_self:
                await asyncio.sleep(SELF_RETRY_S)
            if await self._hurried(backoff_s * random.uniform(0.8, 1.0)):
                backoff_s = BACKOFF_MIN_S
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    def hurry(self) -> None:
        """A peer has come up, which may be this one: do not wait out the backoff."""
        self._hurry.set()

    async def _hurried(self, timeout_s: float) -> bool:
        self._hurry.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._hurry.wait()
        except TimeoutError:
            return False
        return True

    def _complain(self, text: str) -> None:
        """A peer that is away is said once, not at every dial."""
        if text != self._complaint:
            log.info("mesh: no link to %s: %s", self.name, text)
            self._complaint = text

    async def _once(self) -> None:
        """Resolve, connect, prove, and talk until the session ends."""
        node = self._node
        reader, writer = await self._connect()
        try:
            peer, channel = await dial(
                reader,
                writer,
                node.settings.secret,
                node.introduction,
                deadline_s=node.settings.handshake_s,
            )
        except HandshakeError:
            node.counters.handshake_failures += 1
            writer.transport.abort()
            raise
        except BaseException:
            writer.transport.abort()
            raise
        self.is_self = peer.instance == node.introduction.instance
        if self.is_self:
            channel.close()
            node.aim()
            log.info("mesh: %s is this broker itself", self.name)
            return
        self.instance = peer.instance
        if node.hears(peer.instance):
            self.outbox.drop_told()
        elif time.monotonic() - self._down_since > STALE_S:
            self.outbox.drop_stale()
        self.session = node.session(channel, peer, self.outbox, self.address)
        log.info("mesh: link to %s (%s) is up", self.name, peer.server_id)
        try:
            await node.talk(self.session)
        finally:
            self.session = None
            self._down_since = time.monotonic()
            node.aim()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        problem: Exception = OSError("the name has no address")
        async with asyncio.timeout(CONNECT_S):
            addresses = await self._node.resolve(self.host, self.port)
        for address in addresses[:ADDRESSES_MAX]:
            self.address = address
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await asyncio.open_connection(address, self.port, limit=READER_BYTES)
            except (OSError, TimeoutError) as error:
                problem = error
        raise problem
