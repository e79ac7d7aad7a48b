"""The answers of the streams' routes as bytes.

Imports frames, services/streams, store. Used by hot_streams.py.
"""

import json
from collections.abc import Sequence
from json.encoder import encode_basestring

from brokers.frames import timestamp_text
from brokers.services.streams import CycleRequest, CycleResult, RegisterRequest
from brokers.store.stream_calls import Registered, StateRow


def registered(request: RegisterRequest, answer: Registered) -> bytes:
    document = {
        "success": True,
        "query_id": answer.query_id,
        "name": request.name,
        "config_hash": request.config_hash,
        "fresh": answer.outcome == "fresh",
        "reset": answer.outcome == "reset",
    }
    return json.dumps(document, separators=(",", ":")).encode("ascii")


def state(rows: Sequence[StateRow]) -> bytes:
    """A value goes in as the bytes that came in."""
    parts = [
        b'{"key":%b,"value":%b,"updated_at":"%b"}'
        % (
            encode_basestring(row.key).encode(),
            row.value,
            timestamp_text(row.updated_us).encode("ascii"),
        )
        for row in rows
    ]
    return b'{"success":true,"rows":[' + b",".join(parts) + b"]}"


def cycle(request: CycleRequest, result: CycleResult) -> bytes:
    """One envelope for both: of what failed, nothing was done."""
    done = result.error is None
    document: dict[str, object] = {
        "success": done,
        "query_id": request.query_id,
        "partition_id": request.partition_id,
        "queueName": result.queue,
        "state_ops_applied": request.state_ops if done else 0,
        "push_results": [
            {
                "queue": one.queue,
                "partition": one.partition,
                "status": one.status,
                "baseOffset": one.base_offset,
            }
            for one in result.sinks
        ],
        "ack_result": None,
    }
    if request.ack is not None:
        document["ack_result"] = {
            "success": done,
            "count": result.completed,
            "lease_released": result.lease_released,
            "dlq": False,
        }
    if not done:
        document["error"] = result.error
    return json.dumps(document, separators=(",", ":")).encode("ascii")
