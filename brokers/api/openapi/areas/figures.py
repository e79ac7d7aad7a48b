"""Figures: status, analytics, aggregates; and which partitions changed."""

from brokers.api.openapi.words import (
    Operation,
    Query,
    loose,
    many,
    maybe,
    moment,
    name,
    one_of,
    record,
    text,
    truth,
    uuid,
    whole,
)

TAG = "figures"

_WINDOW = (
    Query("from", text(), "an instant; an hour ago when absent"),
    Query("to", text(), "an instant; now when absent"),
)
_QUEUE = Query("queue", name())
_FILTERS = (_QUEUE, Query("namespace", name()), Query("task", name()))
_LIMIT = Query("limit", whole(), "the busiest so many")
_PAGE = (Query("limit", whole()), Query("offset", whole()))
_GROUP_BY = Query("groupBy", one_of("namespace", "task", "queue"))
_RANGE = record(**{"from": moment(), "to": moment()})
_TOLD = {"timeRange": _RANGE, "bucketMinutes": whole()}
_COUNTED = record(
    total=whole(), pending=whole(), processing=whole(), completed=whole(), deadLetter=whole()
)
_SERIES = many(loose())
_ENTRY = loose(
    "",
    ("queue",),
    queue=name(),
    since=maybe(moment("what was written since")),
    after=maybe(text("`next` of the page before")),
    limit=maybe(whole("1000 when absent, and at most")),
)

OPERATIONS = {
    "cell_status": Operation(
        "The whole cell: totals as last counted, and what was done over a window",
        query=(*_WINDOW, *_FILTERS),
        answers={
            200: loose(
                "",
                ("timeRange", "bucketMinutes", "throughput", "queues", "messages", "workers"),
                **_TOLD,
                pointCount=whole(),
                throughput=_SERIES,
                queues=loose(),
                messages=_COUNTED,
                leases=loose(),
                deadLetterQueue=loose(),
                workers=_SERIES,
                errors=loose(),
                statsAge=maybe(whole("s")),
            )
        },
    ),
    "status_queues": Operation(
        "Queues with their figures, as last counted",
        query=(*_WINDOW, *_FILTERS, *_PAGE),
        answers={
            200: record(
                queues=many(
                    loose(
                        "",
                        ("id", "name", "partitions", "messages"),
                        id=uuid(),
                        name=text(),
                        namespace=text(),
                        task=text(),
                        createdAt=moment(),
                        partitions=whole(),
                        messages=_COUNTED,
                    )
                ),
                pagination=loose(),
            )
        },
    ),
    "status_queue": Operation(
        "One queue as it is, and a page of its partitions",
        query=_PAGE,
        answers={
            200: loose(
                "",
                ("queue", "totals", "partitions"),
                queue=loose("", ("id", "name", "config"), id=uuid(), name=text(), config=loose()),
                totals=_COUNTED,
                partitions=_SERIES,
                pagination=loose(),
            )
        },
    ),
    "status_analytics": Operation(
        "Messages pushed over time",
        query=(Query("interval", one_of("minute", "hour", "day")), *_WINDOW, *_FILTERS),
        answers={
            200: record(
                dataPoints=many(record(timestamp=moment(), messages=whole())),
                interval=text(),
                **{"from": moment(), "to": moment()},
            )
        },
    ),
    "queue_lag": Operation(
        "How old messages were when they were delivered, the newest bucket first",
        query=(*_WINDOW, _QUEUE, _LIMIT),
        answers={
            200: many(
                record(
                    queueName=text(),
                    popCount=whole(),
                    avgLagMs=maybe(whole()),
                    maxLagMs=maybe(whole()),
                    bucketMinutes=whole(),
                    bucketTime=moment(),
                )
            )
        },
    ),
    "queue_operations": Operation(
        "What was done at queues",
        query=(*_WINDOW, _QUEUE, _LIMIT),
        answers={200: record(**_TOLD, series=_SERIES, queues=many(text()))},
    ),
    "parked_replicas": Operation(
        "How many pops waited, at which broker",
        query=(*_WINDOW, _QUEUE, _LIMIT),
        answers={200: record(**_TOLD, series=_SERIES, replicas=_SERIES)},
    ),
    "retention_history": Operation(
        "What retention deleted",
        query=(*_WINDOW, _QUEUE, _GROUP_BY, _LIMIT),
        answers={
            200: loose(
                "",
                ("timeRange", "bucketMinutes", "series", "totals"),
                **_TOLD,
                series=_SERIES,
                totals=loose(),
                rows=_SERIES,
            )
        },
    ),
    "workload": Operation(
        "What namespaces, tasks or queues did and hold, and the tenant in all",
        query=(*_WINDOW, *_FILTERS, _GROUP_BY, _LIMIT),
        answers={
            200: record(
                **_TOLD, groupBy=text(), buckets=many(moment()), rows=_SERIES, tenant=loose()
            )
        },
    ),
    "liveness": Operation(
        "How many partitions of queues are written to",
        query=(*_FILTERS, _LIMIT),
        answers={200: record(capturedAt=moment(), rows=_SERIES)},
    ),
    "system_metrics": Operation(
        "What each broker measured of its own process",
        query=(*_WINDOW, Query("hostname", text()), Query("workerId", text())),
        answers={200: record(**_TOLD, pointCount=whole(), replicaCount=whole(), replicas=_SERIES)},
    ),
    "worker_metrics": Operation(
        "What all brokers did, each of them, and the busiest queues",
        query=(*_WINDOW, _QUEUE, Query("hostname", text()), Query("workerId", text())),
        answers={
            200: record(
                **_TOLD,
                pointCount=whole(),
                timeSeries=_SERIES,
                workers=_SERIES,
                queues=_SERIES,
                summary=loose(),
            )
        },
    ),
    "postgres_stats": Operation("What PostgreSQL tells of itself", answers={200: loose()}),
    "overview": Operation(
        "What a tenant has in sum, as last counted",
        answers={
            200: loose(
                "",
                ("queues", "partitions", "messages", "lag", "throughput", "timestamp"),
                queues=whole(),
                partitions=whole(),
                namespaces=whole(),
                tasks=whole(),
                messages=loose(),
                lag=loose(),
                throughput=loose(),
                timestamp=moment(),
                statsAge=maybe(whole("s")),
            )
        },
    ),
    "namespaces": Operation(
        "The namespaces of queues", query=_PAGE, answers={200: record(namespaces=_SERIES)}
    ),
    "tasks": Operation("The tasks of queues", query=_PAGE, answers={200: record(tasks=_SERIES)}),
    "partitions_changed": Operation(
        "Which partitions of some queues were written",
        body=loose("", ("entries",), entries=many(_ENTRY, maxItems=64)),
        answers={
            200: record(
                safeTime=moment("everything before it is visible"),
                safeTimeDegraded=truth(),
                entries=_SERIES,
            )
        },
    ),
    "metrics_json": Operation("Metrics of this broker as JSON", answers={200: loose()}),
}
