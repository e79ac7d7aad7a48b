"""Dead letters: list, purge, replay."""

from brokers.api.openapi.serializers import schema_of
from brokers.api.openapi.words import (
    ANYTHING,
    Operation,
    Query,
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
from brokers.api.serializers import ReplaySerializer

TAG = "dead letters"

COMPONENTS = {
    "DeadLetter": loose(
        "A message that a group gave up on",
        ("id", "partitionId", "transactionId", "queue", "partition", "consumerGroup", "data"),
        id=uuid(),
        partitionId=uuid(),
        queue=text(),
        partition=text(),
        consumerGroup=text(),
        transactionId=text(),
        errorMessage=maybe(text()),
        retryCount=whole(),
        producerSub=maybe(text()),
        createdAt=moment(),
        failedAt=moment(),
        data=ANYTHING,
        isEncrypted=truth(),
    ),
    "Replayed": loose(
        "",
        ("success", "result"),
        success=truth(),
        result=text("moved or duplicate"),
        queue=text(),
        partition=text(),
        consumerGroup=text(),
        dlqId=text(),
        originalTransactionId=text(),
        replayedAs=ref("PushOutcome"),
        dlqRowRemoved=maybe(truth()),
    ),
}

_GONE = {404: loose("", ("success", "error"), success=truth(), error=text(), message=text())}

OPERATIONS = {
    "dlq_list": Operation(
        "List dead letters, newest first",
        query=(
            Query("queue", name()),
            Query("consumerGroup", name()),
            Query("limit", whole(), "100 when absent, at most 1000"),
            Query("offset", whole()),
        ),
        answers={
            200: loose(
                "",
                ("messages", "pagination", "total"),
                messages=many(ref("DeadLetter")),
                pagination=loose(),
                total=whole("of this page"),
            )
        },
    ),
    "dlq_purge": Operation(
        "Delete the dead letters of a queue",
        query=(
            Query("queue", name(), required=True),
            Query("consumerGroup", name(), "all groups when absent"),
        ),
        answers={200: record(success=truth(), deleted=whole(), queue=text(), consumerGroup=text())},
    ),
    "dlq_replay": Operation(
        "Move a dead letter back into a log",
        "Where it came from, or to another queue or partition.",
        body=schema_of(ReplaySerializer),
        body_required=False,
        answers={200: ref("Replayed")},
        known_errors=_GONE,
    ),
    "message_retry": Operation(
        "Replay the newest dead letter of an address",
        answers={200: ref("Replayed")},
        known_errors=_GONE,
    ),
}
