"""Redrives: move the dead letters of a queue, many at a time; and what they died of."""

from brokers.api.openapi.words import (
    Operation,
    Query,
    loose,
    many,
    maybe,
    moment,
    name,
    number,
    one_of,
    record,
    ref,
    text,
    uuid,
    whole,
)

TAG = "dead letters"

_STATES = one_of("running", "done", "cancelled", "failed")

COMPONENTS = {
    "Redrive": record(
        "A job that moves dead letters; a partition or queue that is null is each letter's own",
        id=uuid(),
        queue=text(),
        consumerGroup=maybe(text()),
        error=maybe(text()),
        **{"from": maybe(moment())},
        to=moment(),
        destination=record(queue=maybe(text()), partition=maybe(text())),
        rate=whole("letters a second"),
        state=_STATES,
        waitingFor=maybe(text()),
        total=maybe(whole()),
        scanned=whole(),
        moved=whole(),
        skipped=whole(),
        problem=maybe(text("why it failed, or why some were skipped")),
        createdAt=moment(),
        updatedAt=moment(),
        finishedAt=maybe(moment()),
    ),
}

_JOB = {200: ref("Redrive")}

OPERATIONS = {
    "redrive_create": Operation(
        "Start to move dead letters back into a log",
        body=loose(
            "",
            ("queue",),
            queue=name(),
            consumerGroup=maybe(name()),
            error=maybe(text("what the error has to hold", minLength=1, maxLength=1000)),
            **{"from": maybe(moment())},
            to=maybe(moment()),
            destination=maybe(loose(queue=name(), partition=name())),
            rate=maybe(whole("letters a second", minimum=1, maximum=100_000)),
        ),
        answers={201: ref("Redrive")},
    ),
    "redrive_list": Operation(
        "List redrives, newest first",
        query=(
            Query("state", _STATES),
            Query("limit", whole(), "100 when absent, at most 1000"),
            Query("offset", whole()),
        ),
        answers={200: record(redrives=many(ref("Redrive")), pagination=loose(), total=whole())},
    ),
    "redrive_detail": Operation("Watch a redrive", answers=_JOB),
    "redrive_cancel": Operation("Stop a redrive; no further letter moves", answers=_JOB),
    "redrive_resume": Operation("Let a redrive run again", answers=_JOB),
    "dlq_signatures": Operation(
        "What the newest dead letters of a queue died of",
        query=(
            Query("queue", name(), required=True),
            Query("limit", whole(), "200 when absent, at most 1000"),
        ),
        answers={
            200: loose(
                "",
                ("queue", "rowsNow", "sample", "signatures", "byDay"),
                queue=text(),
                rowsNow=whole(),
                sample=whole(),
                retryCounts=many(whole()),
                groups=many(text()),
                oldest=maybe(moment()),
                newest=maybe(moment()),
                avgBytes=whole(),
                signatures=many(record(text=text(), n=whole(), share=number())),
                byDay=many(record(day=text(), n=whole())),
            )
        },
    ),
}
