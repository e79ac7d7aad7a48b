"""Timers: messages that are due later."""

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
    ref,
    text,
    truth,
    uuid,
    whole,
)

TAG = "timers"

_KEY = text(maxLength=512)

COMPONENTS = {
    "TimerOperation": loose(
        "`schedule` and `reschedule` are the same; both need delayMs, txn and payload",
        ("op", "queue", "timerKey"),
        op=one_of("schedule", "reschedule", "cancel"),
        queue=name(),
        partition=maybe(name("Default when absent")),
        timerKey=_KEY,
        delayMs=whole("from now; a negative one is due at once"),
        txn=maybe(text("the transactionId of the message")),
        payload=text("JSON, as base64", contentEncoding="base64"),
        payloadZstd=truth(),
        encrypted=truth(),
    ),
    "TimerOutcome": loose(
        "What became of an operation",
        ("ok", "status", "queue", "timerKey", "txn"),
        ok=truth(),
        status=one_of("scheduled", "rescheduled", "cancelled", "absent", "too_late"),
        queue=text(),
        timerKey=text(),
        txn=maybe(text()),
        messageId=uuid(),
        deliverAt=moment(),
    ),
}

OPERATIONS = {
    "timers_apply": Operation(
        "Schedule and cancel timers",
        body=record(operations=many(ref("TimerOperation"))),
        answers={200: record(results=many(ref("TimerOutcome")))},
    ),
    "timers_read": Operation(
        "List the pending timers of a queue, or count them",
        query=(
            Query("mode", one_of("list", "count")),
            Query("prefix", text(), "of the keys to count; required there"),
            Query("after", text(), "the last key of the page before"),
            Query("limit", whole(), "100 when absent"),
        ),
        answers={
            200: loose(
                rows=many(loose()),
                truncated=truth(),
                nextAfter=maybe(text()),
                count=whole("with mode=count; `truncated` where there are more than 100000"),
            )
        },
    ),
    "timer_peek": Operation(
        "Show a pending timer",
        "Also a 200 when there is none.",
        answers={200: loose("", ("found",), found=truth())},
    ),
    "timer_cancel": Operation(
        "Cancel a timer",
        query=(Query("txn", text(), "echoed"),),
        answers={200: ref("TimerOutcome")},
    ),
}
