"""The mesh, as the broker uses it: what hints of other brokers do here.

A hint marks rings, drops what is cached, or has something read again; it never creates
anything for a queue that nobody here asked for, and whatever needs the database waits in
one task of its own, bounded. All of it may be lost: the floor and the time limits of the
caches find the same a moment later.

Imports flow, runtime's Broker, services/{notify,written}, mesh. Used by services/background.py,
api/hot_system.py and the commands.
"""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from brokers.config import Config
from brokers.errors import StoreError
from brokers.services import notify, written
from mesh.hints import (
    Freed,
    Hint,
    KeysChanged,
    Look,
    Pushed,
    QueueChanged,
    Ready,
    Switched,
    Written,
)
from mesh.local import LocalLink
from mesh.node import Node, Settings

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

LOOKS_MAX = 1024
TELL_LOOK_S = 0.01


def node_settings(config: Config, *, listen: bool = True) -> Settings:
    """For the node of a broker, of the parent of workers, or of a hub."""
    mesh = config.mesh
    return Settings(
        server_id=config.server.server_id,
        peers=mesh.addresses,
        bind_addr=mesh.bind_addr,
        port=mesh.port,
        secret=mesh.secret.encode(),
        insecure=mesh.insecure,
        listen=listen,
        heartbeat_s=mesh.heartbeat_ms / 1000,
        dead_after_s=mesh.dead_threshold_ms / 1000,
    )


def wanted(config: Config) -> bool:
    """Whether this host has a node: without peers nothing is bound."""
    return config.mesh.enabled and bool(config.mesh.peers)


def attach(broker: "Broker", socket: Path | None = None, *, listen: bool = True) -> None:
    """Before the broker starts. `socket`: of the parent process that has the host's node."""
    hearer = Hearer(broker)
    if socket is not None:
        link = LocalLink(socket, broker.config.server.server_id, hearer.receive)
        broker.use_mesh(link)
        broker.run_also("mesh", link.run)
    elif wanted(broker.config):
        node = Node(node_settings(broker.config, listen=listen))
        node.receivers.append(hearer.receive)
        broker.use_mesh(node)
        broker.run_also("mesh", node.run)
    else:
        return
    broker.run_also("mesh looks", hearer.run)


def status(broker: "Broker") -> dict[str, Any]:
    """Of the host's node; without one, why there is none."""
    if broker.mesh is not None:
        return broker.mesh.status()
    enabled = broker.config.mesh.enabled
    return {"enabled": False, "reason": "no_peers" if enabled else "disabled"}


async def tell_all(config: Config, hint: Hint, *, within_s: float) -> int:
    """Tell the peers, and the node of this host, from a process that is none of them. Answers
    how many heard; the others find out by themselves, a moment later."""
    settings = node_settings(config, listen=False)
    anywhere = config.mesh.bind_addr in ("0.0.0.0", "::")
    own = ("127.0.0.1" if anywhere else config.mesh.bind_addr, config.mesh.port)
    settings = replace(settings, server_id="command", peers=tuple({own, *settings.peers}))
    node = Node(settings)
    node.offer(hint)
    running = asyncio.create_task(node.run(), name="mesh command")
    try:
        deadline = asyncio.get_running_loop().time() + within_s
        while asyncio.get_running_loop().time() < deadline:
            told = node.status()
            if told["servers_alive"] >= len(settings.peers) and not told["messages_queued"]:
                break
            await asyncio.sleep(TELL_LOOK_S)
        return int(node.status()["servers_alive"])
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class Hearer:
    """Applies hints. `receive` cannot wait; what must wait is done by `run`."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._looks: dict[tuple[UUID, str], None] = {}
        self._switches = False
        self._bell = asyncio.Event()

    def receive(self, hint: Hint) -> None:
        match hint:
            case Pushed():
                self._pushed(hint)
            case Freed():
                self._ready(hint, promote=False)
            case Ready():
                self._ready(hint, promote=True)
            case QueueChanged():
                self._queue_changed(hint)
            case Switched():
                self._switches = True
                self._bell.set()
            case Look():
                self._look(hint)
            case KeysChanged():
                self._broker.look_at_database()
            case Written():
                self._written(hint)

    def _pushed(self, hint: Pushed) -> None:
        broker, tenant = self._broker, _tenant(hint.tenant)
        if tenant is None:
            return
        broker.announce.heard_pushed(tenant, hint.queue_id, hint.partitions)
        if hint.whole:
            for ring in broker.announce.rings.of(hint.queue_id):
                broker.floor.nudge(ring)

    def _ready(self, hint: Ready, *, promote: bool) -> None:
        broker = self._broker
        rings = broker.announce.rings.of(hint.queue_id)
        for ring in rings:
            if hint.group is not None and ring.group != hint.group:
                continue
            for partition_id in hint.partition_ids:
                if promote:
                    ring.promote(partition_id)
                else:
                    ring.freed(partition_id)
            if hint.whole:
                broker.floor.nudge(ring)

    def _queue_changed(self, hint: QueueChanged) -> None:
        tenant = _tenant(hint.tenant)
        if tenant is not None:
            self._broker.queues.heard_changed(tenant, hint.queue, hint.queue_id)

    def _written(self, hint: Written) -> None:
        tenant = _tenant(hint.tenant)
        if tenant is not None or not hint.tenant:
            written.heard(self._broker, tenant, hint.topic)

    def _look(self, hint: Look) -> None:
        tenant = _tenant(hint.tenant)
        if tenant is not None and len(self._looks) < LOOKS_MAX:
            self._looks[tenant, hint.queue] = None
            self._bell.set()

    async def run(self) -> None:
        """What hints ask of the database, one after the other; until cancelled."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            try:
                if self._switches:
                    self._switches = False
                    await self._broker.switches.refresh()
                while self._looks:
                    place = next(iter(self._looks))
                    del self._looks[place]
                    await notify.heard(self._broker, *place)
            except StoreError as error:
                log.debug("mesh: %s", error.text)


def _tenant(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
