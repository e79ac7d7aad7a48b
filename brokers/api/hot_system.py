"""The handlers of the operator's own routes: maintenance, buffers, hints.

They answer at the raw door, because they are needed most while the database is away: then
they tell what this broker knows. Texts are the contract's; clients match on some of them.

Imports errors, payloads, services, wire. Used by hot.py.
"""

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec

from brokers.api import payloads
from brokers.api.payloads import NO_RAW
from brokers.api.wire import NAME_BYTES_MAX, Reply, check_identifier, json_text
from brokers.errors import RequestError
from brokers.services import maintenance as maintenance_service
from brokers.services import mesh as mesh_service
from brokers.services import notify as notify_service
from brokers.services import switches as switch_service
from brokers.services import workers as worker_service

if TYPE_CHECKING:
    from brokers.api.call import Call

PUSH_ON = "Maintenance mode ENABLED. All PUSHes routing to file buffer."
PUSH_OFF = "Maintenance mode DISABLED. Background processor will drain buffer to DB."
POP_SET_ON = "Pop maintenance mode ENABLED. All POP operations will return empty arrays."
POP_SET_OFF = "Pop maintenance mode DISABLED. Normal operation resumed."
POP_IS_ON = "Pop maintenance mode is ON. All POP operations return empty arrays."
POP_IS_OFF = "Pop maintenance mode is OFF. Normal operation."
MEGABYTE = 1_048_576


class EnabledBody(msgspec.Struct, gc=False):
    enabled: msgspec.Raw = NO_RAW


class NotifyBody(msgspec.Struct, gc=False):
    queue: str = ""
    partition: str | None = None


_enabled = msgspec.json.Decoder(EnabledBody)
_notify = msgspec.json.Decoder(NotifyBody)


async def maintenance_get(call: "Call") -> Reply:
    state = await switch_service.state_now(call.broker)
    spool = (await worker_service.spools(call.broker)).total
    return _json(
        maintenanceMode=state.push_maintenance,
        popMaintenanceMode=state.pop_maintenance,
        bufferedMessages=spool.pending,
        bufferHealthy=spool.healthy,
        bufferStats={
            "pendingCount": spool.pending,
            "failedCount": spool.failed,
            "dbHealthy": spool.healthy,
            # By the contract these are the finished files that wait for the drain.
            "failedFiles": {
                "count": spool.files,
                "totalBytes": spool.bytes,
                "totalMB": round(spool.bytes / MEGABYTE, 2),
                "failoverCount": spool.files,
                "qos0Count": 0,
            },
        },
    )


async def maintenance_set(call: "Call") -> Reply:
    enabled = _enabled_of(call)
    written = await switch_service.throw(call.broker, {switch_service.PUSH_MAINTENANCE: enabled})
    spool = (await worker_service.spools(call.broker)).total
    return _json(
        written,
        maintenanceMode=enabled,
        bufferedMessages=spool.pending,
        bufferHealthy=spool.healthy,
        message=PUSH_ON if enabled else PUSH_OFF,
    )


async def pop_maintenance_get(call: "Call") -> Reply:
    on = switch_service.state(call.broker).pop_maintenance
    return _json(popMaintenanceMode=on, message=POP_IS_ON if on else POP_IS_OFF)


async def pop_maintenance_set(call: "Call") -> Reply:
    enabled = _enabled_of(call)
    written = await switch_service.throw(call.broker, {switch_service.POP_MAINTENANCE: enabled})
    return _json(
        written, popMaintenanceMode=enabled, message=POP_SET_ON if enabled else POP_SET_OFF
    )


async def shared_state(call: "Call") -> Reply:
    """Brokers share nothing but the database: the contract has words for that."""
    state = switch_service.state(call.broker)
    return _json(
        enabled=False,
        reason="single_node_segments_broker",
        maintenance_mode=state.push_maintenance,
        pop_maintenance_mode=state.pop_maintenance,
    )


async def shared_state_stats(call: "Call") -> Reply:
    """What this broker sees of its peers; the maintenance flags either way."""
    state = switch_service.state(call.broker)
    return _json(
        **mesh_service.status(call.broker),
        maintenance_mode=state.push_maintenance,
        pop_maintenance_mode=state.pop_maintenance,
    )


async def inter_instance_stats(call: "Call") -> Reply:
    """The same, under its other name."""
    return await shared_state_stats(call)


async def buffers_status(call: "Call") -> Reply:
    """The contract's four, and under `spool` what else an operator has to see of it.

    Of several workers it tells the sum, and under `workers` what each has; `worker` is the
    one that answers.
    """
    answers, spools = await asyncio.gather(
        maintenance_service.database_answers(call.broker), worker_service.spools(call.broker)
    )
    spool = spools.total
    return _json(
        pending=spool.pending,
        failed=spool.failed,
        dbHealthy=spool.healthy and answers,
        worker=call.broker.config.server.worker,
        spool={
            "files": spool.files,
            "bytes": spool.total_bytes,
            "freeBytes": spool.free_bytes,
            "oldestSeconds": round(spool.oldest_age_s, 3),
            "setAside": {
                "files": spool.failed_files,
                "events": spool.failed_events,
                "bytes": spool.failed_bytes,
            },
        },
        **_of_each(spools),
    )


def _of_each(spools: worker_service.Spools) -> dict[str, Any]:
    if len(spools.by_worker) == 1:
        return {}
    rows: list[dict[str, Any]] = []
    for worker, one in sorted(spools.by_worker.items()):
        row = {"worker": worker, "answers": one is not None}
        if one is not None:
            row |= {"pending": one.pending, "failed": one.failed, "dbHealthy": one.healthy}
        rows.append(row)
    return {"workers": rows}


async def notify(call: "Call") -> Reply:
    said = payloads.decode(json_text(call.body), _notify.decode, NotifyBody)
    if not said.queue:
        raise RequestError("queue is required")
    check_identifier("queue", said.queue, NAME_BYTES_MAX)
    await notify_service.notify(call.broker, call.tenant, said.queue)
    return _json(status="ok")


def _enabled_of(call: "Call") -> bool:
    raw = bytes(payloads.decode(json_text(call.body), _enabled.decode, EnabledBody).enabled)
    if raw not in (b"true", b"false"):
        raise RequestError("enabled (boolean) is required")
    return raw == b"true"


def _json(written: bool = True, /, **document: Any) -> Reply:
    """`mirrored` false, as of the other switches: in force here only, until it is written."""
    if not written:
        document["mirrored"] = False
    return Reply(200, json.dumps(document).encode("ascii"))


HANDLERS = {
    handler.__name__: handler
    for handler in (
        maintenance_get,
        maintenance_set,
        pop_maintenance_get,
        pop_maintenance_set,
        shared_state,
        shared_state_stats,
        inter_instance_stats,
        buffers_status,
        notify,
    )
}
