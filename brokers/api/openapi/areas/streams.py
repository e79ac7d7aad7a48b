"""Streams: register a query, read its state, commit a cycle."""

from brokers.api.openapi.words import (
    ANYTHING,
    Operation,
    anything,
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
    truth,
    uuid,
    whole,
)

TAG = "streams"

_ADDRESS = {"query_id": uuid(), "partition_id": uuid("of the source")}

COMPONENTS = {
    "StateOperation": loose(
        "",
        ("type",),
        type=one_of("upsert", "delete"),
        key=text(),
        value=anything("kept byte for byte"),
    ),
    "SinkItem": loose(
        "Without a queue it goes nowhere",
        queue=maybe(name()),
        partition=maybe(name("Default when absent")),
        payload=ANYTHING,
        data=anything("another name of payload"),
        messageId=maybe(uuid()),
        transactionId=maybe(text("messageId when absent")),
    ),
    "SourceAck": loose(
        "",
        transactionId=maybe(text("of the last message")),
        leaseId=maybe(text()),
        status=maybe(text("as of an ack; what is no success gives the batch back")),
        count=maybe(whole("needed where release_lease is false")),
    ),
}

OPERATIONS = {
    "stream_register": Operation(
        "Register a stream query",
        "A known name with another hash is a 409 unless `reset` is true, which drops its state.",
        body=loose(
            "",
            ("name", "source_queue", "config_hash"),
            name=name(),
            source_queue=name(),
            sink_queue=maybe(name()),
            config_hash=text(),
            reset=maybe(truth()),
        ),
        answers={
            200: record(
                success=truth(),
                query_id=uuid(),
                name=text(),
                config_hash=text(),
                fresh=truth(),
                reset=truth(),
            )
        },
    ),
    "stream_state_get": Operation(
        "Read the state of a query in a partition",
        body=loose(
            "",
            ("query_id", "partition_id"),
            **_ADDRESS,
            keys=maybe(many(text())),
            key_prefix=maybe(text()),
            ripe_at_or_before=maybe(number("ms; only entries whose `windowEnd` is not later")),
        ),
        answers={
            200: record(
                success=truth(),
                rows=many(record(key=text(), value=ANYTHING, updated_at=moment())),
            )
        },
    ),
    "stream_cycle": Operation(
        "Commit state, sink messages and the source's ack, all or nothing",
        "A cycle that is refused is a 200 with `success: false` and its `error`.",
        body=loose(
            "",
            ("query_id", "partition_id"),
            **_ADDRESS,
            consumer_group=maybe(name()),
            state_ops=maybe(many(ref("StateOperation"))),
            push_items=maybe(many(ref("SinkItem"))),
            ack=maybe(ref("SourceAck")),
            release_lease=maybe(truth("true when absent")),
        ),
        answers={
            200: loose(
                "",
                ("success", "query_id", "partition_id", "state_ops_applied", "push_results"),
                success=truth(),
                query_id=uuid(),
                partition_id=uuid(),
                queueName=maybe(text()),
                state_ops_applied=whole(),
                push_results=many(
                    record(
                        queue=text(),
                        partition=text(),
                        status=one_of("queued", "duplicate"),
                        baseOffset=maybe(whole()),
                    )
                ),
                ack_result=maybe(
                    record(success=truth(), count=whole(), lease_released=truth(), dlq=truth())
                ),
                error=text(),
            )
        },
    ),
}
