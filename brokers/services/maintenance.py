"""Maintenance: what the operator has paused, and what the disk spool holds meanwhile.

In push maintenance every push goes to the spool, which is not drained; in pop maintenance
every pop is answered with nothing. Both are switches (flow/switches.py).

Imports domain, errors. Called by api/hot_system.py and services/{dead_letters,pop}.
"""

import asyncio
from typing import TYPE_CHECKING

from brokers.domain import PopRequest, PopResult, SpoolStatus
from brokers.errors import Refusal, StoreError

if TYPE_CHECKING:
    from brokers.runtime import Broker

PING_S = 2.0
RETRY_AFTER_S = 5
NO_REPLAY = "push maintenance is on: dead letters are not replayed, try again when it is over"


def spool_status(broker: "Broker") -> SpoolStatus:
    if broker.spool is None:
        return SpoolStatus(healthy=broker.ready)
    return broker.spool.status()


async def database_answers(broker: "Broker") -> bool:
    try:
        async with asyncio.timeout(PING_S):
            await broker.store.ping()
    except (StoreError, TimeoutError):
        return False
    return True


def check_replay(broker: "Broker") -> None:
    """A replay would write past the spool, before what waits there."""
    if broker.switches.push_maintenance:
        body = {"success": False, "result": "maintenance", "error": NO_REPLAY}
        raise Refusal(NO_REPLAY, retry_after_s=RETRY_AFTER_S, body=body | {"dlqRowRemoved": False})


def pops_paused(broker: "Broker") -> bool:
    return broker.switches.pop_maintenance


def paused_pop(request: PopRequest) -> PopResult:
    """What every pop is answered in pop maintenance; one that asked for conflation is told."""
    asked = request.conflation
    return PopResult(
        [], queue=request.queue or "", group=request.group, conflation=asked, paused=asked
    )
