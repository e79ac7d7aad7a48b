"""How rows are written on a page: figures digit for digit, times, payloads as they were sent.

Imports domain, frames, store rows. Used by queue_pages.py.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

from django.urls import reverse

from brokers import frames
from brokers.domain import DEFAULT_TENANT, QUEUE_MODE
from brokers.services.messages import Shown
from brokers.store.dashboard_calls import LaggingGroup, PartitionRow
from brokers.store.message_calls import Inspected, MessageRow
from brokers.store.status_calls import QueuePageRow

UNKNOWN = "unknown"
# Of a payload in a list; the whole one is on the message's own page.
PAYLOAD_CHARACTERS_MAX = 2000
# Of a payload on its own page: browsers slow down with more. The API gives it all.
WHOLE_CHARACTERS_MAX = 2_000_000
SPANS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
# Segments of a path that a browser would resolve or drop.
ODD = ("", ".", "..")


def exact(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def span(seconds: float | None) -> str:
    """3 d 4 h, 12 min 5 s, 4.2 s."""
    if seconds is None:
        return UNKNOWN
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    left, parts = round(seconds), list[str]()
    for size, name in SPANS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {name}")
            left %= size
        elif parts:
            break
    return " ".join(parts)


def moment(at: datetime | None) -> str:
    return "never" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(at: datetime | None) -> str:
    return "never" if at is None else f"{span((datetime.now(UTC) - at).total_seconds())} ago"


def option(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value) or "(none)"


def name_of(name: str) -> str:
    return name or "(empty name)"


def queue_address(name: str, tenant: UUID, query: Mapping[str, str] | None = None) -> str:
    """The page of a queue. A name that no path can carry goes into the query."""
    told = dict(query or {})
    if tenant != DEFAULT_TENANT:
        told["tenant"] = str(tenant)
    path = reverse("live:queues")
    if is_odd(name):
        told["name"] = name
    else:
        path += quote(name, safe="/")
    return f"{path}?{urlencode(told)}" if told else path


def is_odd(name: str) -> bool:
    return any(part in ODD for part in name.split("/"))


def queue_row(row: QueuePageRow, tenant: UUID) -> dict[str, Any]:
    return {
        "name": name_of(row.name),
        "href": queue_address(row.name, tenant),
        "namespace": row.namespace,
        "task": row.task,
        "partitions": exact(row.partitions),
        "total": exact(row.total),
        "pending": exact(row.pending),
        "processing": exact(row.processing),
        "completed": exact(row.completed),
        "dead_letters": exact(row.dead_letters),
        "has_dead": row.dead_letters > 0,
    }


def group_row(row: LaggingGroup) -> dict[str, Any]:
    return {
        "name": "(queue mode)" if row.group == QUEUE_MODE else name_of(row.group),
        "lag": exact(row.lag),
        "partitions": exact(row.partitions_lagging),
        "cursors": exact(row.cursors),
        "oldest": "none" if row.lag == 0 else span(row.oldest_s),
        "mode": row.mode,
        "conflation": row.conflation,
        "counted": "not yet" if row.age_s is None else f"{span(row.age_s)} ago",
    }


def partition_row(row: PartitionRow, link: Callable[..., str]) -> dict[str, Any]:
    return {
        "name": name_of(row.name),
        "pending": exact(row.pending),
        "processing": exact(row.processing),
        "kept": exact(row.last_offset - row.log_start + 1),
        "first": exact(row.log_start),
        "last": "none" if row.last_offset < 0 else exact(row.last_offset),
        "written": ago(row.last_write_at),
        "messages": f"{link(partition=row.name, offset=None)}#messages" if row.name else None,
    }


def message(row: MessageRow, payload: Shown, tenant: UUID) -> dict[str, Any]:
    head = _head(payload.head)
    text, left = _cut(payload.payload.decode("utf-8", "replace"), PAYLOAD_CHARACTERS_MAX)
    where = {"partition": row.partition_uid, "transaction": head.get("transactionId") or ""}
    if tenant != DEFAULT_TENANT:
        where["tenant"] = str(tenant)
    return {
        "id": head.get("id"),
        "transaction": head.get("transactionId"),
        "partition": name_of(row.partition),
        "offset": exact(row.offset),
        "created": moment(row.created_at),
        "age": ago(row.created_at),
        "status": row.status.replace("_", " "),
        "groups": f"{row.consumed_by} of {row.groups} groups have it" if row.groups else "",
        "encrypted": row.encrypted,
        "problem": payload.problem,
        "payload": text if row.whole else None,
        "left": left,
        "href": f"{reverse('live:message')}?{urlencode(where)}" if where["transaction"] else None,
    }


def inspected(found: Inspected, payload: Shown, tenant: UUID) -> dict[str, Any]:
    head = _head(payload.head)
    whole = payload.payload.decode("utf-8", "replace")
    text, left = _cut(whole, WHOLE_CHARACTERS_MAX)
    queue = found.columns["name"]
    return {
        "id": found.message_id,
        "transaction": head.get("transactionId"),
        "trace": head.get("traceId"),
        "producer": found.producer_sub,
        "queue": name_of(queue),
        "queue_href": queue_address(queue, tenant),
        "partition": name_of(found.partition),
        "offset": exact(found.offset),
        "created": moment(found.created_at),
        "status": found.queue_status.replace("_", " "),
        "dead": found.dead,
        "error": found.error,
        "retries": found.retry_count,
        "encrypted": found.encrypted,
        "problem": payload.problem,
        "bytes": exact(len(payload.payload)),
        "payload": text,
        "left": left,
    }


def _cut(text: str, most: int) -> tuple[str, str | None]:
    """What is shown of it, and how many characters are not."""
    if len(text) <= most:
        return text, None
    return text[:most], exact(len(text) - most)


def _head(head: bytes) -> dict[str, Any]:
    """The ids of a frame that was cut before its payload."""
    cut = head.find(frames.DATA)
    told = head if cut < 0 else head[:cut]
    try:
        ids = json.loads(told + b"}")
    except ValueError:
        return {}
    return ids if isinstance(ids, dict) else {}
