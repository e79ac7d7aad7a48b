"""Consumer groups: list, lagging, detail, where they begin, seek, delete."""

from brokers.api.openapi.words import (
    Operation,
    Query,
    loose,
    many,
    maybe,
    moment,
    number,
    one_of,
    record,
    ref,
    text,
    truth,
    uuid,
    whole,
)

TAG = "groups"

COMPONENTS = {
    "Group": loose(
        "A group at a queue, as last counted",
        ("name", "queueName", "totalLag", "maxTimeLag", "state"),
        name=text(),
        topics=many(text()),
        queueName=text(),
        members=whole(),
        partitionCursors=whole(),
        partitionsWithLag=whole(),
        totalLag=whole("messages"),
        maxTimeLag=whole("s"),
        state=one_of("Stable", "Lagging", "Dead"),
        storage=text(),
        subscriptionMode=maybe(text()),
        subscriptionTimestamp=maybe(moment()),
        subscriptionCreatedAt=maybe(moment()),
        conflation=truth(),
    ),
    "Lagging": record(
        "",
        consumer_group=text(),
        queue_name=text(),
        partition_name=text(),
        partition_id=uuid(),
        worker_id={"type": "null"},
        offset_lag=whole(),
        time_lag_seconds=whole(),
        lag_hours=number(),
        oldest_unconsumed_at=moment(),
        last_consumed_at={"type": "null"},
    ),
}

_PAGE = (Query("limit", whole(), "at most 10000"), Query("offset", whole()))
_MORE = "A full page has a next one at `x-queen-next-offset`. "
_TARGET = loose(
    "The end, or an instant",
    toEnd=maybe(truth()),
    timestamp=maybe(moment()),
)
_NAMED = {"success": truth(), "consumerGroup": text()}
_SOUGHT = {"queueName": text(), "seekToEnd": truth(), "targetTimestamp": maybe(text())}
_FORGET = (Query("deleteMetadata", truth(), "the subscription as well: true when absent"),)
_DELETED = {"deletedPartitions": whole(), "metadataDeleted": truth()}

OPERATIONS = {
    "group_list": Operation(
        "List groups, by queue", _MORE, query=_PAGE, answers={200: many(ref("Group"))}
    ),
    "group_lagging": Operation(
        "The partitions in which groups lag",
        _MORE,
        query=(Query("minLagSeconds", whole(), "3600 when absent"), *_PAGE),
        answers={200: many(ref("Lagging"))},
    ),
    "group_detail": Operation(
        "A group at all its queues",
        _MORE,
        query=_PAGE,
        answers={
            200: {
                "type": "object",
                "additionalProperties": record(conflation=truth(), partitions=many(loose())),
            }
        },
    ),
    "group_delete": Operation(
        "Forget a group",
        query=_FORGET,
        answers={200: record(**_NAMED, **_DELETED)},
    ),
    "group_queue_delete": Operation(
        "Forget a group at one queue",
        query=_FORGET,
        answers={200: record(**_NAMED, queueName=text(), **_DELETED)},
    ),
    "group_start": Operation(
        "Where a group begins in partitions that it has not touched yet",
        body=loose("", ("subscriptionTimestamp",), subscriptionTimestamp=moment()),
        answers={200: record(**_NAMED, newTimestamp=text(), rowsUpdated=whole())},
    ),
    "group_seek": Operation(
        "Move a group in all partitions of a queue",
        body=_TARGET,
        answers={200: record(**_NAMED, **_SOUGHT, partitionsUpdated=whole())},
    ),
    "group_partition_seek": Operation(
        "Move a group in one partition",
        "To the end without a body.",
        body=_TARGET,
        body_required=False,
        answers={200: record(**_NAMED, **_SOUGHT, partitionName=text(), updated=truth())},
    ),
}
