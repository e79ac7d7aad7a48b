"""Queues: configure, list, describe, depth, delete; pause, resume, purge."""

from brokers.api.openapi.serializers import schema_of
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
from brokers.api.serializers import OptionsSerializer, PurgeSerializer

TAG = "queues"

_COUNTS = {"total": whole(), "pending": whole(), "processing": whole()}
_HEAD = {
    "id": uuid(),
    "name": text(),
    "namespace": text(),
    "task": text(),
    "createdAt": moment(),
    "paused": truth(),
}
_STATS = record(**_COUNTS, completed=whole(), failed={"type": "null"}, deadLetter=whole())
_SEGMENTS = record(segments=whole(), messages=whole())

COMPONENTS = {
    "QueueOptions": schema_of(OptionsSerializer),
    "QueueSummary": record(
        "With figures as they were last counted",
        **_HEAD,
        partitions=whole(),
        retainedBytes=whole(),
        segments=_SEGMENTS,
        messages=record(**_COUNTS),
    ),
    "PartitionDetail": record(
        id=uuid(),
        name=text(),
        createdAt=moment(),
        stats=_STATS,
        oldestMessage=maybe(moment()),
        newestMessage=maybe(moment()),
    ),
    "QueueDetail": record(
        **_HEAD,
        options=loose(),
        totals=_STATS,
        retainedBytes=whole(),
        segments=_SEGMENTS,
        partitions=many(ref("PartitionDetail")),
    ),
    "Depth": record(
        "What a group has yet to consume",
        queue=text(),
        group=maybe(text()),
        pending=whole(),
        processing=whole("leased"),
        ready=whole(),
        partitionsPending=whole(),
        partitionsReady=whole(),
        conflation=truth(),
        effectivePending=whole(),
        effectiveReady=whole(),
        partitions=many(
            record(partition=text(), pending=whole(), processing=whole(), ready=whole())
        ),
    ),
    "Purged": loose(
        "What is gone; `purged` is false where `partitionsBusy` were given up or there is more",
        ("purged", "queue", "partitions", "messages", "segments", "bytes", "deadLetters"),
        purged=truth(),
        queue=text(),
        partition=text(),
        partitions=whole(),
        messages=whole(),
        segments=whole(),
        bytes=whole(),
        deadLetters=whole(),
        partitionsBusy=whole(),
        more=truth("time ran out: purge again"),
    ),
}

_PAUSED = {200: record(queue=text(), paused=truth(), changed=truth())}

_PAGE = (
    Query("limit", whole(), "partitions: 10000 when absent, and at most"),
    Query("offset", whole()),
)
_MORE = "Totals are over all partitions. Where there are more, `x-queen-next-offset` says so. "

OPERATIONS = {
    "configure": Operation(
        "Create or edit a queue",
        "`merge` keeps what is not named and restores the default of what is null; `replace`"
        " restores the defaults of all that is not named. Options may stand at the top as well.",
        body=loose(
            "",
            ("queue",),
            queue=name(),
            namespace=maybe(name()),
            task=maybe(name()),
            mode=maybe(one_of("merge", "replace")),
            options=maybe(ref("QueueOptions")),
        ),
        answers={
            200: record(
                configured=truth(),
                queueId=uuid(),
                partitionId={"type": "null"},
                queue=text(),
                namespace=text(),
                task=text(),
                storage={"const": "segments"},
                options=loose("every option that is in force now"),
            )
        },
    ),
    "queue_list": Operation(
        "List queues",
        answers={
            200: record(
                queues=many(ref("QueueSummary")),
                kvBytes=whole("of the tenant's key/value state, as last counted"),
                timerBytes=whole("of its timers"),
                kvRows=whole("live key/value entries"),
            )
        },
    ),
    "queue_detail": Operation(
        "Describe a queue", _MORE, query=_PAGE, answers={200: ref("QueueDetail")}
    ),
    "queue_depth": Operation(
        "How much a group has yet to consume",
        _MORE,
        query=(Query("group", name(), "the slowest of all when absent"), *_PAGE),
        answers={200: ref("Depth")},
    ),
    "queue_delete": Operation(
        "Delete a queue and all it holds",
        "Also a 200 when there was none.",
        answers={
            200: loose(
                "",
                ("deleted", "queue", "existed"),
                deleted=truth(),
                queue=text(),
                existed=truth(),
                message=text(),
            )
        },
    ),
    "queue_pause": Operation(
        "Pause a queue",
        "Pops answer 204, parked ones stay parked; pushes and acks go on.",
        body=loose(),
        body_required=False,
        answers=_PAUSED,
    ),
    "queue_resume": Operation(
        "Resume a queue",
        "Parked pops are rung.",
        body=loose(),
        body_required=False,
        answers=_PAUSED,
    ),
    "queue_purge": Operation(
        "Delete the messages of a queue",
        "What it holds at that moment, for every group. Dead letters stay unless asked for.",
        body=schema_of(PurgeSerializer),
        body_required=False,
        answers={200: ref("Purged")},
    ),
    "partition_purge": Operation(
        "Delete the messages of one partition",
        body=schema_of(PurgeSerializer),
        body_required=False,
        answers={200: ref("Purged")},
    ),
}
