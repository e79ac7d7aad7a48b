"""Messages as one looks at them: browse, inspect, search, delete what is dead."""

from brokers.api.openapi.words import (
    ANYTHING,
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

TAG = "messages"

_STATUSES = ("pending", "processing", "completed", "dead_letter")

COMPONENTS = {
    "ShownMessage": loose(
        "A stored message, its payload under both names, and what became of it",
        ("id", "transactionId", "data", "payload", "partitionId", "partition", "queue"),
        id=uuid(),
        transactionId=text(),
        traceId=maybe(text()),
        producerSub=maybe(text()),
        data=ANYTHING,
        payload=ANYTHING,
        error=text("why the payload cannot be read"),
        partitionId=uuid(),
        partition=text(),
        queue=text(),
        createdAt=moment(),
        status=one_of(*_STATUSES),
        isEncrypted=truth(),
        leaseExpiresAt=maybe(moment()),
    ),
}

_WINDOW = (
    Query("from", text(), "an instant; an hour ago when absent"),
    Query("to", text(), "an instant, its minute included; now when absent"),
)
_SOME = record(messages=many(ref("ShownMessage")), total=whole("of this page"))

OPERATIONS = {
    "message_list": Operation(
        "Browse messages, newest first",
        query=(
            Query("queue", name()),
            Query("partition", name()),
            Query("namespace", name()),
            Query("task", name()),
            Query("status", one_of(*_STATUSES)),
            *_WINDOW,
            Query("limit", whole(), "200 when absent, at most 1000"),
            Query("offset", whole()),
        ),
        answers={200: _SOME},
    ),
    "message_search": Operation(
        "Search the payloads of a queue for a text",
        "A bounded look a call: go on with `cursor` until it is null.",
        query=(
            Query("queue", name(), required=True),
            Query("q", text(maxLength=1000), "the text", required=True),
            Query("partition", name()),
            *_WINDOW,
            Query("limit", whole(), "50 when absent, at most 200"),
            Query("cursor", text()),
        ),
        answers={
            200: record(
                messages=many(loose()),
                total=whole(),
                cursor=maybe(text()),
                scanned=record(segments=whole(), bytes=whole(), messages=whole()),
                encryptedNotSearched=whole(),
            )
        },
    ),
    "message_detail": Operation("Inspect a message", answers={200: ref("ShownMessage")}),
    "message_delete": Operation(
        "Delete the dead letters of a message",
        "A live message cannot be deleted singly.",
        answers={
            200: record(success=truth(), partitionId=text(), transactionId=text(), message=text())
        },
    ),
}
