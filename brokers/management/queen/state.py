"""Verbs of timers and of key/value state.

Imports client, printing. Used by main.py.
"""

import json
from argparse import ArgumentParser, Namespace
from base64 import b64decode, b64encode
from typing import Any
from uuid import uuid4

from brokers.management.queen.client import NOTHING_THERE, Client, Failed
from brokers.management.queen.printing import Printer

TIMERS = "/api/v1/timers"
KV = "/api/v1/kv"
KV_LIST = "/api/v1/resources/kv/list"
KV_NAMESPACES = "/api/v1/resources/kv/namespaces"


def add_to(verbs: Any, shared: ArgumentParser) -> None:
    _add_timers(verbs, shared)
    _add_entries(verbs, shared)


def _add_timers(verbs: Any, shared: ArgumentParser) -> None:
    noun = verbs.add_parser("timers", help="messages that are due later").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    listed = noun.add_parser("list", parents=[shared], help="pending ones, by key")
    listed.add_argument("queue")
    listed.add_argument("--after", help="the last key of the page before")
    listed.add_argument("--limit", type=int, default=100)
    listed.set_defaults(verb=list_timers)
    counted = noun.add_parser("count", parents=[shared], help="pending ones with a prefix")
    counted.add_argument("queue")
    counted.add_argument("prefix", help="of their keys")
    counted.set_defaults(verb=count_timers)
    shown = noun.add_parser("show", parents=[shared], help="one, with its payload")
    shown.add_argument("queue")
    shown.add_argument("key")
    shown.set_defaults(verb=show_timer)
    scheduled = noun.add_parser("schedule", parents=[shared], help="or replace, one")
    scheduled.add_argument("queue")
    scheduled.add_argument("key")
    scheduled.add_argument("payload", metavar="JSON")
    scheduled.add_argument("--in", dest="delay_s", type=float, required=True, metavar="S")
    scheduled.add_argument("--partition")
    scheduled.add_argument("--id", help="the transactionId of the message; made up without it")
    scheduled.set_defaults(verb=schedule_timer)
    cancelled = noun.add_parser("cancel", parents=[shared], help="one that is pending")
    cancelled.add_argument("queue")
    cancelled.add_argument("key")
    cancelled.set_defaults(verb=cancel_timer)


def _add_entries(verbs: Any, shared: ArgumentParser) -> None:
    noun = verbs.add_parser("kv", help="key/value state").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    namespaces = noun.add_parser("namespaces", parents=[shared], help="all, with their sizes")
    namespaces.set_defaults(verb=list_namespaces)
    listed = noun.add_parser("list", parents=[shared], help="entries of a namespace, by key")
    listed.add_argument("namespace")
    listed.add_argument("--prefix")
    listed.add_argument("--after", help="the last key of the page before")
    listed.add_argument("--limit", type=int, default=100)
    listed.set_defaults(verb=list_entries)
    for name, verb, about in (("get", get_entry, "one"), ("delete", delete_entry, "one")):
        one = noun.add_parser(name, parents=[shared], help=about)
        one.add_argument("namespace")
        one.add_argument("key")
        one.set_defaults(verb=verb)
        if name == "delete":
            one.add_argument("--expect", type=int, help="only this version")
    put = noun.add_parser("put", parents=[shared], help="one")
    put.add_argument("namespace")
    put.add_argument("key")
    put.add_argument("value", metavar="JSON")
    put.add_argument("--expect", type=int, help="only over this version; 0: only if there is none")
    lasting = put.add_mutually_exclusive_group(required=True)
    lasting.add_argument("--ttl", type=int, metavar="S")
    lasting.add_argument("--forever", action="store_true")
    put.set_defaults(verb=put_entry)


def list_timers(client: Client, printer: Printer, options: Namespace) -> int:
    answer = client.get(TIMERS, options.queue, after=options.after, limit=options.limit)
    rows = answer.document["rows"]
    if printer.as_json:
        printer.answer(answer)
    elif rows:
        columns = ["timerKey", "partition", "deliverAt", "attempts", "lastError", "txn"]
        printer.table(rows, columns)
        if answer.document["truncated"]:
            printer.said(f"more: --after {answer.document['nextAfter']}")
    else:
        printer.said("nothing there")
    return 0 if rows else NOTHING_THERE


def count_timers(client: Client, printer: Printer, options: Namespace) -> int:
    answer = client.get(TIMERS, options.queue, mode="count", prefix=options.prefix)
    count = answer.document["count"]
    if printer.as_json:
        printer.answer(answer)
    printer.said(str(count))
    return 0 if count else NOTHING_THERE


def show_timer(client: Client, printer: Printer, options: Namespace) -> int:
    answer = client.get(TIMERS, options.queue, options.key)
    document = answer.document
    if printer.as_json:
        printer.answer(answer)
    elif document["found"]:
        if not (document["encrypted"] or document["payloadZstd"]):
            document["payload"] = b64decode(document["payload"]).decode("utf-8", "replace")
        printer.members(document)
    else:
        printer.said("nothing there")
    return 0 if document["found"] else NOTHING_THERE


def schedule_timer(client: Client, printer: Printer, options: Namespace) -> int:
    operation = {
        "op": "schedule",
        "queue": options.queue,
        "timerKey": options.key,
        "delayMs": int(options.delay_s * 1000),
        "payload": b64encode(_json(options.payload).encode()).decode("ascii"),
        "txn": str(uuid4()) if options.id is None else options.id,
    }
    if options.partition is not None:
        operation["partition"] = options.partition
    answer = client.post(TIMERS, body={"operations": [operation]})
    [outcome] = answer.document["results"]
    if printer.as_json:
        printer.answer(answer)
    else:
        printer.members(outcome)
    if not outcome["ok"]:
        raise Failed(f"not scheduled: {outcome['status']}")
    return 0


def cancel_timer(client: Client, printer: Printer, options: Namespace) -> int:
    answer = client.delete(TIMERS, options.queue, options.key)
    status = answer.document["status"]
    if printer.as_json:
        printer.answer(answer)
    printer.said(status)
    if status == "too_late":
        raise Failed("it is about to be delivered")
    return 0 if answer.document["ok"] else NOTHING_THERE


def list_namespaces(client: Client, printer: Printer, options: Namespace) -> int:
    answer = client.get(KV_NAMESPACES)
    rows = answer.document["namespaces"]
    if printer.as_json:
        printer.answer(answer)
    elif rows:
        printer.table(rows, ["namespace", "keys"])
    else:
        printer.said("nothing there")
    return 0 if rows else NOTHING_THERE


def list_entries(client: Client, printer: Printer, options: Namespace) -> int:
    body: dict[str, Any] = {"namespace": options.namespace, "limit": options.limit}
    body |= {"prefix": options.prefix or "", "after": options.after}
    answer = client.post(KV_LIST, body=body)
    rows = answer.document["rows"]
    if printer.as_json:
        printer.answer(answer)
    elif rows:
        printer.table(rows, ["key", "version", "expiresAt", "updatedAt", "value"])
        if answer.document["truncated"]:
            printer.said(f"more: --after {answer.document['nextAfter']}")
    else:
        printer.said("nothing there")
    return 0 if rows else NOTHING_THERE


def get_entry(client: Client, printer: Printer, options: Namespace) -> int:
    answer = client.get(KV, options.namespace, options.key)
    document = answer.document
    if printer.as_json:
        printer.answer(answer)
    elif document["found"]:
        printer.line(json.dumps(document["value"], ensure_ascii=False))
    else:
        printer.said("nothing there")
    return 0 if document["found"] else NOTHING_THERE


def put_entry(client: Client, printer: Printer, options: Namespace) -> int:
    lasting = '"forever":true' if options.forever else f'"ttlSeconds":{options.ttl}'
    expect = "" if options.expect is None else f',"expect":{options.expect}'
    body = f'{{"value":{_json(options.value)},{lasting}{expect}}}'
    answer = client.call("PUT", (KV, options.namespace, options.key), body=body.encode())
    return _written(printer, answer)


def delete_entry(client: Client, printer: Printer, options: Namespace) -> int:
    body = None if options.expect is None else {"expect": options.expect}
    answer = client.call("DELETE", (KV, options.namespace, options.key), body=body)
    return _written(printer, answer)


def _written(printer: Printer, answer: Any) -> int:
    document = answer.document
    if printer.as_json:
        printer.answer(answer)
    if document.get("applied"):
        printer.said(f"version {document['version']}")
        return 0
    reason = str(document.get("reason"))
    if reason == "absent":
        printer.said("nothing there")
        return NOTHING_THERE
    raise Failed(f"not applied: {reason}")


def _json(given: str) -> str:
    """What was given, if it is JSON."""
    try:
        json.loads(given)
    except (ValueError, RecursionError) as error:
        raise Failed(f"not JSON ({error}): {given[:80]}") from None
    return given
