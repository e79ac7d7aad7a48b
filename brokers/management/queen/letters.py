"""Verbs of dead letters: list, replay one, redrive many, purge.

Imports client, printing, queues. Used by main.py.
"""

import time
from argparse import ArgumentParser, Namespace
from typing import Any

from brokers.management.queen.client import NOTHING_THERE, SERVER_ERROR, Client, Failed, segment
from brokers.management.queen.printing import Printer
from brokers.management.queen.queues import confirmed, insist

LETTERS = "/api/v1/dlq"
REDRIVE = f"{LETTERS}/redrive"
WATCH_EVERY_S = 0.5
ENDED = ("done", "cancelled", "failed")


def add_to(verbs: Any, shared: ArgumentParser) -> None:
    noun = verbs.add_parser("dlq", help="dead letters").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    listed = noun.add_parser("list", parents=[shared], help="the newest first")
    listed.add_argument("queue", nargs="?")
    listed.add_argument("--group")
    listed.add_argument("--limit", type=int, default=100)
    listed.add_argument("--offset", type=int, default=0)
    listed.set_defaults(verb=list_letters)

    replayed = noun.add_parser("replay", parents=[shared], help="move one back into a log")
    replayed.add_argument("id")
    _destination(replayed)
    replayed.set_defaults(verb=replay)

    driven = noun.add_parser("redrive", parents=[shared], help="move all that fit, as a job")
    driven.add_argument("queue")
    driven.add_argument("--group")
    driven.add_argument("--error", help="whose error has this in it")
    driven.add_argument("--since", metavar="TIME", help="failed from then on")
    driven.add_argument("--until", metavar="TIME", help="failed before then")
    driven.add_argument("--rate", type=int, metavar="N", help="letters a second at most")
    driven.add_argument("--watch", action="store_true", help="until it is over")
    _destination(driven)
    driven.set_defaults(verb=redrive)

    for name, verb, about in (
        ("job", show_job, "how far a redrive is"),
        ("cancel", cancel_job, "end a redrive"),
        ("resume", resume_job, "let a redrive go on"),
    ):
        job = noun.add_parser(name, parents=[shared], help=about)
        job.add_argument("id")
        job.set_defaults(verb=verb)

    purged = noun.add_parser("purge", parents=[shared], help="delete those of a queue")
    purged.add_argument("queue")
    purged.add_argument("--group")
    confirmed(purged)
    purged.set_defaults(verb=purge)


def _destination(parser: ArgumentParser) -> None:
    parser.add_argument("--to-queue", help="instead of where it came from")
    parser.add_argument("--to-partition")


def list_letters(client: Client, printer: Printer, options: Namespace) -> int:
    answer = client.get(
        LETTERS,
        queue=options.queue,
        consumerGroup=options.group,
        limit=options.limit,
        offset=options.offset,
    )
    rows = answer.document["messages"]
    if printer.as_json:
        printer.answer(answer)
    elif rows:
        columns = ["id", "queue", "partition", "consumerGroup", "failedAt", "errorMessage"]
        printer.table(rows, [*columns, "data"])
    else:
        printer.said("nothing there")
    return 0 if rows else NOTHING_THERE


def replay(client: Client, printer: Printer, options: Namespace) -> None:
    body = {"queue": options.to_queue, "partition": options.to_partition}
    answer = client.post(f"{LETTERS}/{segment(options.id)}/replay", body=body)
    if printer.as_json:
        printer.answer(answer)
        return
    document = answer.document
    printer.line(
        f"{document['result']}: {document['queue']}/{document['partition']}"
        f" as {document['replayedAs']['transaction_id']}"
    )


def redrive(client: Client, printer: Printer, options: Namespace) -> None:
    asked = {
        "queue": options.queue,
        "consumerGroup": options.group,
        "error": options.error,
        "from": options.since,
        "to": options.until,
        "rate": options.rate,
    }
    body: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    destination = {"queue": options.to_queue, "partition": options.to_partition}
    if any(destination.values()):
        body["destination"] = {name: one for name, one in destination.items() if one is not None}
    answer = client.post(REDRIVE, body=body)
    job = answer.document
    while options.watch and job["state"] not in ENDED:
        time.sleep(WATCH_EVERY_S)
        answer = client.get(REDRIVE, str(job["id"]))
        job = answer.document
    if printer.as_json:
        printer.answer(answer)
    else:
        printer.members(job)
    if job["state"] == "failed":
        raise Failed(f"the redrive failed: {job['problem']}", SERVER_ERROR)


def show_job(client: Client, printer: Printer, options: Namespace) -> None:
    _told(printer, client.get(REDRIVE, options.id))


def cancel_job(client: Client, printer: Printer, options: Namespace) -> None:
    _told(printer, client.post(f"{REDRIVE}/{segment(options.id)}/cancel"))


def resume_job(client: Client, printer: Printer, options: Namespace) -> None:
    _told(printer, client.post(f"{REDRIVE}/{segment(options.id)}/resume"))


def purge(client: Client, printer: Printer, options: Namespace) -> int:
    insist(options, "deletes the dead letters")
    answer = client.delete(LETTERS, queue=options.queue, consumerGroup=options.group)
    if printer.as_json:
        printer.answer(answer)
    deleted = answer.document["deleted"]
    printer.said(f"{deleted} deleted")
    return 0 if deleted else NOTHING_THERE


def _told(printer: Printer, answer: Any) -> None:
    if printer.as_json:
        printer.answer(answer)
    else:
        printer.members(answer.document)
