"""Verbs of queues: list, describe, depth, configure, delete, pause, resume, purge.

Imports client, printing. Used by main.py.
"""

import json
from argparse import ArgumentParser, Namespace
from typing import Any

from brokers.management.queen.client import NOTHING_THERE, Client, Failed, segment
from brokers.management.queen.printing import Printer

QUEUES = "/api/v1/resources/queues"


def add_to(verbs: Any, shared: ArgumentParser) -> None:
    noun = verbs.add_parser("queue", help="queues as a whole").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )

    def action(name: str, verb: Any, about: str, *, queue: bool = True) -> ArgumentParser:
        parser: ArgumentParser = noun.add_parser(name, parents=[shared], help=about)
        parser.set_defaults(verb=verb)
        if queue:
            parser.add_argument("queue")
        return parser

    listed = action("list", list_queues, "all queues", queue=False)
    listed.add_argument("--namespace")
    listed.add_argument("--task")
    action("describe", describe, "one queue, its options and partitions")
    action("depth", depth, "what a group has yet to consume").add_argument("--group")
    configured = action("configure", configure, "create it, or change options of it")
    configured.add_argument(
        "options", nargs="*", metavar="NAME=VALUE", help="leaseTime=30, ttl=null (its default)"
    )
    configured.add_argument(
        "--replace", action="store_true", help="options that are not named get their defaults"
    )
    confirmed(action("delete", delete, "it, and all it holds"))
    action("pause", pause, "nothing is popped from it")
    action("resume", resume, "it is popped from again")
    purged = action("purge", purge, "delete its messages")
    purged.add_argument("--partition", help="of this one alone")
    purged.add_argument("--dead-letters", action="store_true", help="those too")
    confirmed(purged)


def confirmed(parser: ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="it is meant: this cannot be undone")


def insist(options: Namespace, what: str) -> None:
    """What cannot be undone needs a --yes."""
    if not options.yes:
        raise Failed(f"this {what} and cannot be undone: add --yes")


def list_queues(client: Client, printer: Printer, options: Namespace) -> int:
    answer = client.get(QUEUES)
    rows = [
        one
        for one in answer.document["queues"]
        if options.namespace in (None, one["namespace"]) and options.task in (None, one["task"])
    ]
    if printer.as_json:
        printer.line(json.dumps(rows, ensure_ascii=False))
    elif rows:
        flat = [
            one | one["messages"] | {"state": "paused" if one.get("paused") else "open"}
            for one in rows
        ]
        columns = ["name", "state", "partitions", "total", "pending", "processing"]
        printer.table(flat, [*columns, "retainedBytes"])
    else:
        printer.said("nothing there")
    return 0 if rows else NOTHING_THERE


def describe(client: Client, printer: Printer, options: Namespace) -> None:
    answer = client.get(QUEUES, options.queue)
    if printer.as_json:
        printer.answer(answer)
        return
    document = answer.document
    partitions = document.pop("partitions")
    printer.members(document)
    if partitions:
        printer.line("")
        printer.table(
            [one | one["stats"] for one in partitions],
            ["name", "total", "pending", "processing", "deadLetter", "newestMessage", "id"],
        )


def depth(client: Client, printer: Printer, options: Namespace) -> None:
    path = f"{QUEUES}/{segment(options.queue)}/depth"
    answer = client.get(path, group=options.group)
    if printer.as_json:
        printer.answer(answer)
        return
    document = answer.document
    partitions = document.pop("partitions")
    printer.members(document)
    if partitions:
        printer.line("")
        printer.table(partitions, ["partition", "pending", "processing", "ready"])


def configure(client: Client, printer: Printer, options: Namespace) -> None:
    named: dict[str, Any] = {}
    for one in options.options:
        name, equals, value = one.partition("=")
        if not equals:
            raise Failed(f"{one}: an option is NAME=VALUE")
        named[name] = _value(value)
    body = {
        "queue": options.queue,
        "mode": "replace" if options.replace else "merge",
        "options": named,
    }
    answer = client.post("/api/v1/configure", body=body)
    known = answer.document["options"].keys() | {"namespace", "task"}
    unknown = sorted(named.keys() - known)
    if printer.as_json:
        printer.answer(answer)
    else:
        printer.members(answer.document["options"])
    if unknown:
        raise Failed(f"not an option, and ignored: {', '.join(unknown)}")


def delete(client: Client, printer: Printer, options: Namespace) -> int:
    insist(options, "deletes the queue with all it holds")
    answer = client.delete(QUEUES, options.queue)
    if printer.as_json:
        printer.answer(answer)
    printer.said("deleted" if answer.document["deleted"] else "there was no such queue")
    return 0 if answer.document["existed"] else NOTHING_THERE


def pause(client: Client, printer: Printer, options: Namespace) -> None:
    _pause(client, printer, options, "pause")


def resume(client: Client, printer: Printer, options: Namespace) -> None:
    _pause(client, printer, options, "resume")


def _pause(client: Client, printer: Printer, options: Namespace, verb: str) -> None:
    answer = client.post(f"{QUEUES}/{segment(options.queue)}/{verb}")
    if printer.as_json:
        printer.answer(answer)
    document = answer.document
    state = "paused" if document["paused"] else "open"
    printer.said(state if document["changed"] else f"it was {state} already")


def purge(client: Client, printer: Printer, options: Namespace) -> int:
    insist(options, "deletes the messages")
    path = f"{QUEUES}/{segment(options.queue)}"
    if options.partition is not None:
        path += f"/partitions/{segment(options.partition)}"
    body = {"deadLetters": options.dead_letters}
    answer = client.post(f"{path}/purge", body=body)
    messages = answer.document["messages"]
    while answer.document["more"]:
        # A request ends after a while; each begins where the last one ended.
        printer.said(f"{messages} messages so far")
        answer = client.post(f"{path}/purge", body=body)
        messages += answer.document["messages"]
    document = answer.document
    if printer.as_json:
        printer.answer(answer)
    else:
        printer.members(document)
    if not document["purged"]:
        raise Failed("partitions were busy: purge again")
    return 0 if messages or document["deadLetters"] else NOTHING_THERE


def _value(text: str) -> Any:
    """JSON where it is some, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
