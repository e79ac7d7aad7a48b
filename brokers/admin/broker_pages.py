"""Brokers: which were seen lately and how they are, their mesh, and what lies in their spools.

What PostgreSQL knows of all brokers is a minute old: each writes down its last minute, and what
lies in its spool. A broker whose database is away cannot: of its spool nothing is known then, and
least of all that it is empty. What the broker that answers knows (its peers, its own disk) is of
this moment.

Imports deeds, models, services/{mesh,workers}, site, things. Registered by registered.py.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse

from brokers.admin import deeds
from brokers.admin.site import Page, site
from brokers.admin.things import Section, ago, duration
from brokers.domain import SpoolStatus
from brokers.models import BrokerHistory, SpoolFile
from brokers.runtime import Broker
from brokers.services import mesh, workers
from brokers.services.workers import Spools

SEEN = timedelta(hours=1)
# A broker that wrote nothing down for so long is told as silent.
SILENT = timedelta(seconds=150)
ROWS_MAX = 500
FILES_SHOWN = 200
MEGABYTE = 1_048_576
NOTE = (
    "As each wrote down its latest minute, within the last hour. A broker without its database"
    " writes nothing down, while its spool may grow."
)


def overview(request: HttpRequest) -> HttpResponse:
    told, spools = deeds.ask(_here)
    sections = [_brokers(), _peers(told), _spools(spools), _marks()]
    return site().render(request, "console/sections.html", "Brokers and spools", sections=sections)


async def _here(broker: Broker) -> tuple[dict[str, Any], Spools]:
    return mesh.status(broker), await workers.spools(broker)


def _brokers() -> Section:
    now = datetime.now(UTC)
    heard = BrokerHistory.objects.filter(bucket__gte=now - SEEN)
    by_broker = heard.order_by("server_id", "-bucket").distinct("server_id")
    latest = list(by_broker[: ROWS_MAX + 1])
    rows = [
        (
            one.server_id,
            _heard(one, now),
            *_told_spool(one, now),
            one.push_messages,
            one.pop_messages,
            one.ack_messages,
            one.db_errors,
            one.parked,
            f"{one.loop_lag_max_us / 1000:.1f} ms",
            f"{(one.cpu_user + one.cpu_system) / 100:.0f} %",
            f"{one.rss_bytes / MEGABYTE:.0f} MB",
            f"{one.pool_size - one.pool_idle} of {one.pool_size}",
            duration(timedelta(seconds=one.uptime_s)),
        )
        for one in latest[:ROWS_MAX]
    ]
    return Section(
        title="Brokers seen",
        columns=(
            "Broker", "Heard of", "Spool: waiting", "Spool: bytes", "Spool: set aside", "Pushed",
            "Popped", "Acked", "Database errors", "Pops waiting", "Loop late by at most", "CPU",
            "Memory", "Connections in use", "Up for",
        ),
        rows=rows,
        note=NOTE + (f" The first {ROWS_MAX}." if len(latest) > ROWS_MAX else ""),
        empty="No broker has written down a minute in the last hour.",
    )  # fmt: skip


def _is_silent(row: BrokerHistory, now: datetime) -> bool:
    return now - row.bucket > SILENT


def _heard(row: BrokerHistory, now: datetime) -> str:
    silent = "silent, last " if _is_silent(row, now) else ""
    return f"{silent}{row.bucket:%H:%M} UTC, {ago(row.bucket)} ago"


def _told_spool(row: BrokerHistory, now: datetime) -> tuple[Any, ...]:
    """Of a broker that is silent by now: what it told, as that."""
    told = (row.spool_pending, row.spool_bytes, row.spool_failed)
    if row.spool_pending is None:
        return ("unknown",) * 3
    if _is_silent(row, now):
        return tuple(f"unknown, last {one}" for one in told)
    return told


def _peers(told: dict[str, Any]) -> Section:
    columns = ("Peer", "Connected", "Broker", "Address")
    if not told.get("enabled"):
        why = {"no_peers": "no peers are configured", "disabled": "it is switched off"}
        reason = why.get(str(told.get("reason")), str(told.get("reason")))
        return Section(title="Mesh", columns=columns, rows=[], empty=f"There is none: {reason}.")
    rows = [
        (
            f"{one['host']}:{one['port']}",
            "itself" if one["self"] else ("yes" if one["connected"] else "no"),
            one["server_id"] or "-",
            one["resolved_ip"] or "-",
        )
        for one in told["peers"]
    ]
    note = (
        f"As the host of this broker ({told['server_id']}) sees it: {told['servers_alive']} alive,"
        f" {told['servers_dead']} dead; {told['messages_dropped']} hints dropped since the start."
    )
    return Section(title="Mesh", columns=columns, rows=rows, note=note)


def _spools(spools: Spools) -> Section:
    rows = [
        (f"worker {worker}", *_spool(status)) for worker, status in sorted(spools.by_worker.items())
    ]
    return Section(
        title="Spool of this broker",
        columns=(
            "Worker", "Messages waiting", "Oldest", "Bytes", "Files set aside",
            "Messages set aside", "Writes failed", "Bytes free", "Database takes it",
        ),
        rows=rows,
        note="Of the broker that answers, and of this moment.",
    )  # fmt: skip


def _spool(status: SpoolStatus | None) -> tuple[Any, ...]:
    """A worker that does not answer has an unknown spool, and not an empty one."""
    if status is None:
        return ("does not answer",) + ("unknown",) * 7
    return (
        status.pending,
        duration(timedelta(seconds=status.oldest_age_s)) if status.pending else "-",
        status.total_bytes,
        status.failed_files,
        status.failed_events,
        status.failed,
        status.free_bytes,
        "yes" if status.healthy else "no",
    )


def _marks() -> Section:
    found = list(SpoolFile.objects.order_by("spool_id", "file")[: FILES_SHOWN + 1])
    rows = [
        (one.server_id, one.spool_id, one.file, one.done, ago(one.oldest_accepted_at),
         f"{ago(one.updated_at)} ago")
        for one in found[:FILES_SHOWN]
    ]  # fmt: skip
    return Section(
        title="Spool files being drained",
        columns=("Broker", "Spool", "File", "Messages stored", "Oldest accepted", "Moved"),
        rows=rows,
        note=f"The first {FILES_SHOWN}." if len(found) > FILES_SHOWN else "",
        empty="No broker drains a spool.",
    )


site().add_page(
    Page(
        name="brokers",
        title="Brokers and spools",
        route="brokers-seen/",
        permission="brokers.view_brokerhistory",
        view=overview,
    )
)
