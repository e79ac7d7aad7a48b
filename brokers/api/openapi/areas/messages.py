"""The message plane: push, pop, ack, lease, transaction."""

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
    one_of,
    record,
    ref,
    text,
    truth,
    uuid,
    whole,
)

TAG = "messages"

_STATUS = text(
    "absent, null, completed, success, acked, ok: done; retry: once more, at no charge; dlq: to"
    " the dead letters; anything else: failed"
)
_ACK = {
    "transactionId": text(),
    "partitionId": text(),
    "status": maybe(_STATUS),
    "leaseId": maybe(text("of the pop; without it no lease is checked")),
    "error": maybe(text("kept with a dead letter")),
}
_GROUP = maybe(name("queue mode when absent"))
_ITEM = {
    "queue": name(),
    "partition": maybe(name("Default when absent")),
    "transactionId": maybe(text("the deduplication key; minted when absent", maxLength=65_535)),
}

COMPONENTS = {
    "PushItem": loose("", ("queue", "payload"), **_ITEM, payload=anything("kept byte for byte")),
    "PushOutcome": loose(
        "What became of one item",
        ("index", "message_id", "transaction_id", "queueName", "status"),
        index=whole(),
        message_id=uuid("of a duplicate its original's, all zeros when that is gone"),
        transaction_id=text(),
        queueName=text(),
        status=one_of("queued", "duplicate", "buffered", "failed", "error"),
        error=text("why it failed"),
    ),
    "Message": loose(
        "A message under a lease",
        ("id", "transactionId", "data", "createdAt", "partitionId", "partition", "leaseId"),
        id=uuid(),
        transactionId=text(),
        traceId=maybe(text()),
        data=ANYTHING,
        producerSub=maybe(text()),
        createdAt=moment(),
        partitionId=uuid(),
        partition=text(),
        leaseId=text("empty after an auto-ack"),
        consumerGroup=text(),
        deliveryAttempt=whole(),
        queue=text("on a discovery"),
    ),
    "Delivery": loose(
        "What a pop claimed",
        ("success", "queue", "leaseId", "consumerGroup", "messages"),
        success=truth(),
        queue=text("empty on a discovery"),
        partition=text("the first one claimed"),
        partitionId=text(),
        leaseId=text("one for all partitions of the answer"),
        consumerGroup=text(),
        partitionsClaimed=whole(),
        messages=many(ref("Message")),
        conflation=truth(),
        conflationConflict=truth(),
        paused=truth(),
        autopilot=loose(),
    ),
    "Ack": loose("", ("transactionId", "partitionId"), **_ACK, consumerGroup=_GROUP),
    "AckItem": loose("", ("transactionId", "partitionId"), **_ACK),
    "AckOutcome": loose(
        "`success`: the instruction was carried out",
        ("index", "transactionId", "success", "error", "leaseReleased", "dlq", "noop"),
        index=whole(),
        transactionId=text(),
        success=truth(),
        error=maybe(text()),
        leaseReleased=truth(),
        dlq=truth(),
        noop=truth(),
        conflated=whole(),
    ),
    "PushOperation": loose(
        "Items, or one item written flat into the operation",
        ("type",),
        type={"const": "push"},
        items=many(ref("TransactionItem")),
        **_ITEM,
        payload=ANYTHING,
        data=anything("another name of payload"),
        traceId=anything("a UUID, or it is not kept"),
    ),
    "TransactionItem": loose(
        "", ("queue",), **_ITEM, payload=ANYTHING, data=ANYTHING, traceId=ANYTHING
    ),
    "AckOperation": loose(
        "",
        ("type", "transactionId", "partitionId"),
        type={"const": "ack"},
        **_ACK,
        consumerGroup=_GROUP,
    ),
}

_POP = (
    Query("batch", whole(), "most messages, 200 when absent, at most 10000"),
    Query("autoAck", truth(), "commit inside the pop: at most once"),
    Query("wait", truth(), "wait for a first message"),
    Query("timeout", whole(), "how long to wait, in ms; 30000 when absent"),
    Query("leaseSeconds", whole(), "the queue's leaseTime when absent"),
    Query("consumerGroup", name(), "queue mode when absent"),
    Query("subscriptionMode", text(), "of a new group: `new` from now, `all` from the oldest"),
    Query("subscriptionFrom", text(), "of a new group: `now`, or a time"),
    Query("conflation", truth(), "only the newest message of each partition; needs a group"),
)
_SEVERAL = Query("partitions", whole(), "most partitions of one call, 1 when absent; 0: no limit")
_AUTOPILOT = Query("autopilot", truth(), "let the broker choose what is absent")
_POPPED = {200: ref("Delivery"), 204: None}
_NOTHING = "204 when there is nothing: idle, delayed, paused, or the wait is over. "

OPERATIONS = {
    "push": Operation(
        "Push messages",
        "Each item has its own outcome: a 201 may hold failed ones. Items of one partition are"
        " stored together and in order.",
        body=record(items=many(ref("PushItem"))),
        answers={201: many(ref("PushOutcome"))},
    ),
    "pop_queue": Operation(
        "Pop from a queue", _NOTHING, query=(*_POP, _SEVERAL, _AUTOPILOT), answers=_POPPED
    ),
    "pop_partition": Operation("Pop from one partition", _NOTHING, query=_POP, answers=_POPPED),
    "pop_discovery": Operation(
        "Pop from all queues of a namespace or task",
        _NOTHING + "One of the two is required.",
        query=(*_POP, _SEVERAL, Query("namespace", name()), Query("task", name())),
        answers=_POPPED,
    ),
    "ack": Operation(
        "Acknowledge one message",
        "Completing a message completes everything below it in its partition.",
        body=ref("Ack"),
        answers={200: many(ref("AckOutcome"))},
    ),
    "ack_batch": Operation(
        "Acknowledge messages",
        "In one call the lowest failed, retry or dlq of a partition wins: what is completed above"
        " it is delivered again.",
        body=loose(
            "",
            ("acknowledgments",),
            acknowledgments=many(ref("AckItem")),
            consumerGroup=_GROUP,
        ),
        answers={200: many(ref("AckOutcome"))},
    ),
    "lease_extend": Operation(
        "Extend a lease",
        "Never shortens one and never revives a dead one.",
        body=loose(seconds=maybe(whole("60 when absent"))),
        body_required=False,
        answers={
            200: record(
                leaseId=text(),
                success=truth(),
                renewed=whole("partitions"),
                newExpiresAt=maybe(moment()),
                expiresAt=maybe(moment()),
                lease_expires_at=maybe(moment()),
            )
        },
    ),
    "transaction": Operation(
        "Push and acknowledge, all or nothing",
        "A rollback is a 200 with `success: false` and a `reason`. `kv` and `timers` ride along.",
        body=loose(
            "",
            ("operations",),
            operations=many({"anyOf": [ref("PushOperation"), ref("AckOperation")]}),
            requiredLeases=maybe(many(text())),
            kv=anything("operations as of POST /api/v1/kv"),
            timers=anything("operations as of POST /api/v1/timers"),
        ),
        answers={
            200: loose(
                "",
                ("success",),
                transactionId=text(),
                success=truth(),
                results=many(loose()),
                reason=text(),
                error=text(),
            )
        },
    ),
}
