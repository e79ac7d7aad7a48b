"""The routes about the whole cell: status, system, brokers and PostgreSQL over time.

They are nobody's in particular, so no tenant is asked for. Gauges of a bucket are told as mean,
least, greatest and last.

Imports domain, services/{analytics,status}, wire, base, windows. Used by urls.py.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from brokers.api.views.base import ManagementView, json_answer, timestamp
from brokers.api.views.windows import filters_of, told, window_of
from brokers.services import analytics, status
from brokers.store.history_calls import ALL, BrokerRow, Filters, SeriesRow, Window

BUSIEST_QUEUES = 50
# A broker that was not heard of for so long is not healthy.
HEARD_S = 180
# Where things stand in the arrays of queen_broker_series_v1.
COUNTS = (
    "pushRequests",
    "pushMessages",
    "popRequests",
    "popMessages",
    "ackRequests",
    "ackMessages",
    "ackSuccess",
    "ackFailed",
    "transactions",
    "dlqCount",
    "dbErrors",
    "lagMs",
    "lagCount",
)
LOOP_LAG, CPU_USER, CPU_SYSTEM, RSS, POOL_SIZE, POOL_IDLE, WAITING, PARKED, UPTIME = range(9)


class CellStatusView(ManagementView):
    """The totals of all tenants, as last counted, and what was done over the window."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        window, filters = window_of(query), filters_of(query)
        has = self.run(status.figures(self.broker, None, filters))
        brokers = self.run(analytics.broker_series(self.broker, window, None))
        points = _points(brokers, window)
        if filters != ALL:
            rows = self.run(
                analytics.queue_series(self.broker, None, "", filters, window, keys_max=1)
            )
            points = _filtered(points, rows, window)
        return json_answer(
            {
                **told(window),
                "pointCount": len(points),
                "throughput": points,
                "queues": {
                    "total": has.queues,
                    "partitions": has.partitions,
                    "namespaces": has.namespaces,
                    "tasks": has.tasks,
                },
                "messages": {
                    "total": has.total,
                    "pending": has.pending,
                    "processing": has.processing,
                    "completed": has.completed,
                    "failed": 0,
                    "deadLetter": has.dead_letters,
                },
                "leases": {"active": has.processing},
                "deadLetterQueue": {
                    "totalMessages": has.dead_letters,
                    "affectedQueues": has.dead_letter_queues,
                },
                "workers": _workers(brokers),
                "errors": {
                    name: sum(point[name] for point in points)
                    for name in ("dbErrors", "ackFailed", "dlqCount")
                },
                "statsAge": has.age_s,
            }
        )


class SystemMetricsView(ManagementView):
    """What each broker measured of its own process."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        window = window_of(query)
        rows = self.run(_brokers(self, query, window))
        by_host: dict[str, list[BrokerRow]] = defaultdict(list)
        for row in rows:
            by_host[row.server_id].append(row)
        replicas = [
            {
                "hostname": host,
                "workerId": 0,
                "timeSeries": [
                    {"timestamp": timestamp(row.bucket), "metrics": _measured(row)} for row in mine
                ],
            }
            for host, mine in sorted(by_host.items())
        ]
        return json_answer(
            {
                **told(window),
                "pointCount": len({row.bucket for row in rows}),
                "replicaCount": len(replicas),
                "replicas": replicas,
            }
        )


class WorkerMetricsView(ManagementView):
    """What all brokers did, each of them, and the busiest queues."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        window, filters = window_of(query), Filters(queue=filters_of(query).queue)
        rows = self.run(_brokers(self, query, window))
        points = _points(rows, window)
        queues = self.run(
            analytics.queue_series(
                self.broker, None, "queue", filters, window, keys_max=BUSIEST_QUEUES
            )
        )
        if filters.queue is not None:
            points = _filtered(points, queues, window)
        return json_answer(
            {
                **told(window),
                "pointCount": len(points),
                "timeSeries": points,
                "workers": _workers(rows),
                "queues": _queues(queues),
                "summary": _summary(points),
            }
        )


class PostgresStatsView(ManagementView):
    def get(self, request: Request) -> HttpResponse:
        text = self.run(status.postgres(self.broker))
        return HttpResponse(text.encode(), content_type="application/json")


async def _brokers(
    view: ManagementView, query: Mapping[str, str], window: Window
) -> list[BrokerRow]:
    """Of one host if it is named; `workerId` is 0 for every one, so any other finds none."""
    if query.get("workerId") not in (None, "", "0"):
        return []
    host = query.get("hostname") or None
    if host is not None and ("\x00" in host or not host.isprintable()):
        return []
    return await analytics.broker_series(view.broker, window, host)


def _points(rows: Iterable[BrokerRow], window: Window) -> list[dict[str, Any]]:
    """One for each bucket, all brokers together."""
    by_bucket: dict[datetime, list[BrokerRow]] = defaultdict(list)
    for row in rows:
        by_bucket[row.bucket].append(row)
    return [_point(bucket, mine, window) for bucket, mine in sorted(by_bucket.items())]


def _point(bucket: datetime, rows: Sequence[BrokerRow], window: Window) -> dict[str, Any]:
    counts = {name: sum(row.counts[no] for row in rows) for no, name in enumerate(COUNTS)}
    lag_ms, lagged = counts.pop("lagMs"), counts["lagCount"]
    idle = [row.means[POOL_IDLE] for row in rows]
    size = sum(row.means[POOL_SIZE] for row in rows)
    loop = [row.means[LOOP_LAG] / 1000 for row in rows]
    return {
        "timestamp": timestamp(bucket),
        **counts,
        **_rates(counts["pushMessages"], counts["popMessages"], counts["ackMessages"], window),
        "avgEventLoopLagMs": round(sum(loop) / len(loop), 3),
        "maxEventLoopLagMs": round(max(row.loop_lag_max_us for row in rows) / 1000, 3),
        "avgLagMs": lag_ms // lagged if lagged else None,
        "maxLagMs": max(row.pop_lag_max_ms for row in rows) if lagged else None,
        "dbConnections": round(size - sum(idle), 2),
        "avgFreeSlots": round(sum(idle), 2),
        "minFreeSlots": sum(row.lows[POOL_IDLE] for row in rows),
        "jobsDone": counts["pushRequests"],
        "avgJobQueueSize": round(sum(row.means[WAITING] for row in rows), 2),
        "maxJobQueueSize": sum(row.highs[WAITING] for row in rows),
        "backoffSize": 0,
        "cpuUserUs": round(sum(row.means[CPU_USER] for row in rows)),
        "cpuSystemUs": round(sum(row.means[CPU_SYSTEM] for row in rows)),
        "rssBytes": round(sum(row.means[RSS] for row in rows)),
        "parkedCount": round(sum(row.means[PARKED] for row in rows), 2),
    }


def _filtered(
    points: Sequence[dict[str, Any]], rows: Iterable[SeriesRow], window: Window
) -> list[dict[str, Any]]:
    """The points with what was counted for some queues alone; health stays that of brokers."""
    counted: dict[str, list[SeriesRow]] = defaultdict(list)
    for row in rows:
        counted[timestamp(row.bucket)].append(row)
    health = {point["timestamp"]: point for point in points}
    answer = []
    for at in sorted(health.keys() | counted.keys()):
        point = dict(health.get(at) or _point(datetime.fromisoformat(at), [_NOBODY], window))
        mine = counted[at]
        lagged = sum(row.pop_lag_count for row in mine)
        pushed = sum(row.push_messages for row in mine)
        popped = sum(row.pop_messages for row in mine)
        acked = sum(row.ack_success + row.ack_failed for row in mine)
        point |= {
            "pushRequests": sum(row.push_requests for row in mine),
            "pushMessages": pushed,
            "popRequests": sum(row.pop_requests for row in mine),
            "popMessages": popped,
            "ackRequests": sum(row.ack_requests for row in mine),
            "ackMessages": acked,
            "ackSuccess": sum(row.ack_success for row in mine),
            "ackFailed": sum(row.ack_failed for row in mine),
            "transactions": sum(row.transactions for row in mine),
            "dlqCount": sum(row.dead_letters for row in mine),
            "lagCount": lagged,
            "avgLagMs": sum(row.pop_lag_ms for row in mine) // lagged if lagged else None,
            "maxLagMs": max(row.pop_lag_max_ms for row in mine) if lagged else None,
            "parkedCount": round(sum(row.parked for row in mine), 2),
            **_rates(pushed, popped, acked, window),
        }
        point["jobsDone"] = point["pushRequests"]
        answer.append(point)
    return answer


def _rates(pushed: int, popped: int, acked: int, window: Window) -> dict[str, float]:
    seconds = 60 * window.minutes
    return {
        "pushPerSecond": round(pushed / seconds, 3),
        "popPerSecond": round(popped / seconds, 3),
        "ackPerSecond": round(acked / seconds, 3),
    }


def _workers(rows: Iterable[BrokerRow]) -> list[dict[str, Any]]:
    """Every broker that the window saw, with its latest gauges."""
    by_host: dict[str, list[BrokerRow]] = defaultdict(list)
    for row in rows:
        by_host[row.server_id].append(row)
    now = datetime.now(UTC)
    answer = []
    for host, mine in sorted(by_host.items()):
        last = mine[-1]
        counts = {
            name: sum(row.counts[no] for row in mine)
            for no, name in enumerate(COUNTS)
            if name != "lagMs"
        }
        silent_s = (now - last.bucket).total_seconds() - 60 * (last.minutes - 1)
        answer.append(
            {
                "hostname": host,
                "workerId": 0,
                "lastSeen": timestamp(last.bucket),
                "healthy": silent_s < HEARD_S,
                "uptimeSeconds": last.lasts[UPTIME],
                **counts,
                "avgEventLoopLagMs": round(last.means[LOOP_LAG] / 1000, 3),
                "maxEventLoopLagMs": round(max(row.loop_lag_max_us for row in mine) / 1000, 3),
                "dbConnections": last.lasts[POOL_SIZE] - last.lasts[POOL_IDLE],
                "freeSlots": last.lasts[POOL_IDLE],
                "rssBytes": last.lasts[RSS],
                "parkedCount": last.lasts[PARKED],
            }
        )
    return answer


def _queues(rows: Iterable[SeriesRow]) -> list[dict[str, Any]]:
    by_name: dict[str, list[SeriesRow]] = defaultdict(list)
    for row in rows:
        by_name[row.key].append(row)
    answer = []
    for name, mine in by_name.items():
        lagged = sum(row.pop_lag_count for row in mine)
        answer.append(
            {
                "queueName": name,
                "pushMessages": sum(row.push_messages for row in mine),
                "popMessages": sum(row.pop_messages for row in mine),
                "ackMessages": sum(row.ack_success + row.ack_failed for row in mine),
                "avgLagMs": sum(row.pop_lag_ms for row in mine) // lagged if lagged else None,
                "maxLagMs": max(row.pop_lag_max_ms for row in mine) if lagged else None,
            }
        )
    return sorted(answer, key=lambda one: (-one["pushMessages"], one["queueName"]))


def _summary(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = [name for name in COUNTS if name not in ("lagMs", "lagCount")]
    return {name: sum(point[name] for point in points) for name in names} | {
        "maxLagMs": max((point["maxLagMs"] or 0 for point in points), default=0),
        "maxEventLoopLagMs": max((point["maxEventLoopLagMs"] for point in points), default=0),
    }


def _measured(row: BrokerRow) -> dict[str, Any]:
    return {
        "cpu": {"user_us": _gauge(row, CPU_USER), "system_us": _gauge(row, CPU_SYSTEM)},
        "memory": {"rss_bytes": _gauge(row, RSS)},
        "database": {
            "pool_size": _gauge(row, POOL_SIZE),
            "pool_idle": _gauge(row, POOL_IDLE),
            "pool_active": {
                "avg": round(row.means[POOL_SIZE] - row.means[POOL_IDLE], 2),
                "min": max(row.lows[POOL_SIZE] - row.highs[POOL_IDLE], 0),
                "max": max(row.highs[POOL_SIZE] - row.lows[POOL_IDLE], 0),
                "last": row.lasts[POOL_SIZE] - row.lasts[POOL_IDLE],
            },
        },
        "uptime_seconds": _gauge(row, UPTIME),
        "threadpool": None,
        "shared_state": {"enabled": False, "servers_alive": 0, "servers_dead": 0},
    }


def _gauge(row: BrokerRow, no: int) -> dict[str, float]:
    return {
        "avg": round(row.means[no], 2),
        "min": row.lows[no],
        "max": row.highs[no],
        "last": row.lasts[no],
    }


_NOBODY = BrokerRow(
    bucket=datetime(2000, 1, 1, tzinfo=UTC),
    server_id="",
    minutes=0,
    counts=[0] * len(COUNTS),
    pop_lag_max_ms=0,
    loop_lag_max_us=0,
    means=[0.0] * 9,
    lows=[0] * 9,
    highs=[0] * 9,
    lasts=[0] * 9,
    spool=[None] * 3,
)
