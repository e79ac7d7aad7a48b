"""Verbs of consumer groups: list, describe, delete; lag; seek.

Imports client, printing, queues. Used by main.py.
"""

import json
from argparse import ArgumentParser, Namespace
from typing import Any

from brokers.management.queen.client import NOTHING_THERE, Client, Failed, segment
from brokers.management.queen.printing import Printer
from brokers.management.queen.queues import confirmed, insist

GROUPS = "/api/v1/consumer-groups"
ROWS_MAX = 10_000
BEGINNING = "1970-01-01T00:00:00Z"


def add_to(verbs: Any, shared: ArgumentParser) -> None:
    noun = verbs.add_parser("groups", help="consumer groups").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    listed = noun.add_parser("list", parents=[shared], help="all groups, queue by queue")
    listed.add_argument("--queue", help="of this one alone")
    listed.set_defaults(verb=list_groups)
    described = noun.add_parser("describe", parents=[shared], help="one, partition by partition")
    described.add_argument("group")
    described.set_defaults(verb=describe)
    deleted = noun.add_parser("delete", parents=[shared], help="its cursors, and its subscription")
    deleted.add_argument("group")
    deleted.add_argument("--queue", help="at this one alone")
    deleted.add_argument("--keep-subscription", action="store_true")
    confirmed(deleted)
    deleted.set_defaults(verb=delete)

    lagging = verbs.add_parser("lag", parents=[shared], help="partitions that are behind")
    lagging.add_argument("--min-seconds", type=int, default=0, help="behind by so much at least")
    lagging.set_defaults(verb=lag)

    moved = verbs.add_parser("seek", parents=[shared], help="move the cursors of a group")
    moved.add_argument("group")
    moved.add_argument("queue")
    moved.add_argument("--partition", help="of this one alone")
    where = moved.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="TIME", help="ISO 8601, as 2026-01-31T12:00:00Z")
    where.add_argument("--to-beginning", action="store_true")
    where.add_argument("--to-end", action="store_true")
    moved.set_defaults(verb=seek)


def list_groups(client: Client, printer: Printer, options: Namespace) -> int:
    answer = client.get(GROUPS, limit=ROWS_MAX)
    rows = [one for one in answer.document if options.queue in (None, one["queueName"])]
    columns = ["name", "queueName", "state", "members", "totalLag", "maxTimeLag"]
    return _listed(printer, rows, [*columns, "subscriptionMode", "conflation"])


def describe(client: Client, printer: Printer, options: Namespace) -> int:
    answer = client.get(GROUPS, options.group)
    if printer.as_json:
        printer.answer(answer)
    else:
        for queue, place in answer.document.items():
            rows = [one | {"queue": queue} for one in place["partitions"]]
            columns = ["queue", "partition", "offsetLag", "timeLagSeconds", "totalConsumed"]
            printer.table(rows, [*columns, "leaseActive"])
    return 0 if answer.document else NOTHING_THERE


def delete(client: Client, printer: Printer, options: Namespace) -> int:
    insist(options, "deletes the group's cursors")
    path = f"{GROUPS}/{segment(options.group)}"
    if options.queue is not None:
        path += f"/queues/{segment(options.queue)}"
    answer = client.delete(path, deleteMetadata=not options.keep_subscription)
    _told(printer, answer.document, answer.raw)
    document = answer.document
    return 0 if document["deletedPartitions"] or document.get("metadataDeleted") else NOTHING_THERE


def lag(client: Client, printer: Printer, options: Namespace) -> int:
    answer = client.get(f"{GROUPS}/lagging", minLagSeconds=options.min_seconds, limit=ROWS_MAX)
    columns = ["consumer_group", "queue_name", "partition_name", "offset_lag", "time_lag_seconds"]
    return _listed(printer, answer.document, [*columns, "oldest_unconsumed_at"])


def seek(client: Client, printer: Printer, options: Namespace) -> None:
    path = f"{GROUPS}/{segment(options.group)}/queues/{segment(options.queue)}"
    if options.partition is not None:
        path += f"/partitions/{segment(options.partition)}"
    if options.to_end:
        body: dict[str, Any] = {"toEnd": True}
    else:
        body = {"timestamp": BEGINNING if options.to_beginning else options.to}
    answer = client.post(f"{path}/seek", body=body)
    document = answer.document
    _told(printer, document, answer.raw)
    if document.get("success") is False:
        raise Failed(str(document.get("error")))


def _listed(printer: Printer, rows: list[dict[str, Any]], columns: list[str]) -> int:
    if printer.as_json:
        printer.line(json.dumps(rows, ensure_ascii=False))
    elif rows:
        printer.table(rows, columns)
    else:
        printer.said("nothing there")
    return 0 if rows else NOTHING_THERE


def _told(printer: Printer, document: dict[str, Any], raw: bytes) -> None:
    if printer.as_json:
        printer.line(raw.decode("utf-8", "replace"))
    else:
        printer.members(document)
