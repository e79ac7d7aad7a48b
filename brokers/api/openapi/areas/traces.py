"""Traces: what was noted about messages."""

from brokers.api.openapi.words import (
    ANYTHING,
    Operation,
    Query,
    anything,
    loose,
    many,
    maybe,
    moment,
    name,
    record,
    ref,
    text,
    truth,
    uuid,
    whole,
)

TAG = "traces"

COMPONENTS = {
    "Trace": loose(
        "",
        ("id", "event_type", "trace_names", "data", "created_at"),
        id=uuid(),
        event_type=text(),
        consumer_group=text(),
        worker_id=text(),
        created_at=moment(),
        trace_names=many(text()),
        data=ANYTHING,
        transaction_id=text("by name"),
        partition_id=uuid("by name"),
        queue_name=maybe(text("by name")),
        partition_name=maybe(text("by name")),
        message_payload={"type": "null"},
    ),
}

_PAGE = (Query("limit", whole(), "at most 1000"), Query("offset", whole()))
_TAIL = {"total": whole(), "pagination": record(limit=whole(), offset=whole())}

OPERATIONS = {
    "trace_add": Operation(
        "Note something about a message",
        body=loose(
            "",
            ("transactionId", "partitionId", "data"),
            transactionId=text(),
            partitionId=uuid(),
            data=anything("at most 1 MiB, and not null"),
            consumerGroup=maybe(name()),
            eventType=maybe(name("info when absent")),
            traceNames=anything("names, or one name: the trace is found by each"),
        ),
        answers={201: record(success=truth(), traceId=uuid())},
    ),
    "traces_of_message": Operation(
        "The traces of a message, oldest first", answers={200: record(traces=many(ref("Trace")))}
    ),
    "traces_by_name": Operation(
        "The traces of a name, oldest first",
        query=(*_PAGE, Query("from", moment()), Query("to", moment())),
        answers={200: record(traces=many(ref("Trace")), **_TAIL)},
    ),
    "trace_names": Operation(
        "The names of traces",
        query=_PAGE,
        answers={
            200: record(
                trace_names=many(
                    record(
                        trace_name=text(),
                        trace_count=whole(),
                        message_count=whole(),
                        last_seen=moment(),
                    )
                ),
                **_TAIL,
            )
        },
    ),
}
