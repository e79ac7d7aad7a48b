"""Verbs of messages: push, pop, tail, ack.

A payload goes out as it was given, and as JSON comes in as it was stored.

Imports client, printing. Used by main.py.
"""

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from typing import Any

from brokers.management.queen.client import (
    NOTHING_THERE,
    SERVER_ERROR,
    USER_ERROR,
    Client,
    Failed,
    segment,
)
from brokers.management.queen.printing import Printer, cell

PUSH_BATCH = 500
WAIT_MARGIN_S = 15.0
TAIL_GROUP = "queen-tail"
TAIL_WAIT_S = 20.0
TAIL_BATCH = 100
BACKOFF_S = (0.5, 1.0, 2.0, 5.0)
SHOWN = ("partition", "id", "transactionId", "deliveryAttempt", "createdAt", "data")


def add_to(verbs: Any, shared: ArgumentParser) -> None:
    pushed = verbs.add_parser("push", parents=[shared], help="push messages to a queue")
    pushed.set_defaults(verb=push)
    pushed.add_argument("queue")
    pushed.add_argument(
        "payloads", nargs="*", metavar="JSON", help="one message each; none: lines of stdin"
    )
    pushed.add_argument("--partition")
    pushed.add_argument("--id", help="its transactionId, where there is one message")
    pushed.add_argument("--text", action="store_true", help="payloads are texts, not JSON")

    popped = verbs.add_parser("pop", parents=[shared], help="take messages under a lease")
    popped.set_defaults(verb=pop)
    popped.add_argument("queue")
    popped.add_argument("--partition")
    popped.add_argument("--batch", type=int, default=1)
    popped.add_argument("--partitions", type=int, help="most partitions at once")
    popped.add_argument("--group", help="consumer group; queue mode without one")
    popped.add_argument("--from", dest="start", choices=("new", "all"), help="of a new group")
    popped.add_argument("--wait", type=float, metavar="S", help="seconds, for a first message")
    popped.add_argument("--lease", type=int, metavar="S", help="seconds; the queue's without it")
    done = popped.add_mutually_exclusive_group()
    done.add_argument("--auto-ack", action="store_true", help="no lease: they are done at once")
    done.add_argument("--ack", action="store_true", help="ack them once they are printed")

    tailed = verbs.add_parser("tail", parents=[shared], help="show messages as they come")
    tailed.set_defaults(verb=tail)
    tailed.add_argument("queue")
    tailed.add_argument("--partition")
    tailed.add_argument("--follow", "-f", action="store_true", help="go on until interrupted")
    tailed.add_argument(
        "--group", default=TAIL_GROUP, help=f"whose cursor moves ({TAIL_GROUP} without it)"
    )
    tailed.add_argument(
        "--from", dest="start", choices=("new", "all"), help="of a new group; new with --follow"
    )
    tailed.add_argument("--limit", type=int, help="end after so many messages")

    acked = verbs.add_parser("ack", parents=[shared], help="say what became of a message")
    acked.set_defaults(verb=ack)
    acked.add_argument("partition_id")
    acked.add_argument("transaction_id")
    acked.add_argument("--lease", help="the leaseId of the pop")
    acked.add_argument("--group")
    acked.add_argument(
        "--status", default="completed", choices=("completed", "failed", "retry", "dlq")
    )
    acked.add_argument("--error", help="why, where it failed")


def push(client: Client, printer: Printer, options: Namespace) -> int:
    given = options.payloads or (line.rstrip("\n") for line in sys.stdin if line.strip())
    failed = 0
    for batch in _batches(_payload(one, as_text=options.text) for one in given):
        if options.id is not None and len(options.payloads) != 1:
            raise Failed("--id is for one message")
        items = [_item(options, payload) for payload in batch]
        body = b'{"items":[' + b",".join(items) + b"]}"
        answer = client.post("/api/v1/push", body=body)
        if printer.as_json:
            printer.answer(answer)
        else:
            columns = ["status", "message_id", "transaction_id", "error"]
            printer.table(answer.document, columns)
        failed += sum(one["status"] in ("failed", "error") for one in answer.document)
    if failed:
        raise Failed(f"{failed} messages were not stored", SERVER_ERROR)
    return 0


def _item(options: Namespace, payload: str) -> bytes:
    item = {"queue": options.queue}
    if options.partition is not None:
        item["partition"] = options.partition
    if options.id is not None:
        item["transactionId"] = options.id
    return (json.dumps(item)[:-1] + ',"payload":' + payload + "}").encode()


def _payload(given: str, *, as_text: bool) -> str:
    if as_text:
        return json.dumps(given)
    try:
        json.loads(given, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Failed(f"not JSON ({error}): {given[:80]}; --text pushes it as a text") from None
    return given


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _batches(payloads: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for one in payloads:
        batch.append(one)
        if len(batch) == PUSH_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def pop(client: Client, printer: Printer, options: Namespace) -> int:
    wait_s = options.wait or 0.0
    answer = client.get(
        _pop_path(options),
        batch=options.batch,
        partitions=None if options.partition is not None else options.partitions,
        consumerGroup=options.group,
        subscriptionMode=options.start,
        autoAck=options.auto_ack or None,
        leaseSeconds=options.lease,
        wait=True if wait_s > 0 else None,
        timeout=int(wait_s * 1000) if wait_s > 0 else None,
        timeout_s=wait_s + WAIT_MARGIN_S,
    )
    if not answer.raw or not answer.document["messages"]:
        printer.said("nothing there")
        return NOTHING_THERE
    document = answer.document
    if printer.as_json:
        printer.answer(answer)
    else:
        printer.table(document["messages"], SHOWN)
        if document["leaseId"]:
            printer.said(f"lease {document['leaseId']}")
    return _ack_all(client, document["messages"]) if options.ack else 0


def _ack_all(client: Client, messages: list[dict[str, Any]]) -> int:
    body = {
        "consumerGroup": messages[0]["consumerGroup"],
        "acknowledgments": [
            {name: one[name] for name in ("transactionId", "partitionId", "leaseId")}
            for one in messages
        ],
    }
    refused = [
        one["error"]
        for one in client.post("/api/v1/ack/batch", body=body).document
        if not one["success"]
    ]
    if refused:
        raise Failed(f"{len(refused)} acks were refused: {refused[0]}")
    return 0


def tail(client: Client, printer: Printer, options: Namespace) -> int:
    """Messages are done for the group once they were sent here: at most once."""
    start = options.start or ("new" if options.follow else "all")
    shown = failures = 0
    while options.limit is None or shown < options.limit:
        left = TAIL_BATCH if options.limit is None else min(options.limit - shown, TAIL_BATCH)
        try:
            answer = client.get(
                _pop_path(options),
                batch=left,
                partitions=None if options.partition is not None else 0,
                consumerGroup=options.group,
                subscriptionMode=start,
                autoAck=True,
                wait=options.follow,
                timeout=int(TAIL_WAIT_S * 1000),
                timeout_s=TAIL_WAIT_S + WAIT_MARGIN_S,
            )
        except Failed as failed:
            if not options.follow or (failed.code != SERVER_ERROR and not failed.retry_after_s):
                raise
            printer.complain(f"{failed.text}; trying again")
            time.sleep(failed.retry_after_s or BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1
            continue
        failures = 0
        for text, message in messages_of(answer.raw):
            _show(printer, text, message)
            shown += 1
        if not (answer.raw or options.follow):
            break
    return 0 if shown else NOTHING_THERE


def _show(printer: Printer, text: str, message: dict[str, Any]) -> None:
    """One line a message; as JSON just as it came."""
    if printer.as_json:
        printer.line(text)
        return
    printer.line(f"{message['createdAt']}  {cell(message['partition'])}  {cell(message['data'])}")


def messages_of(raw: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each message of a pop's answer: as it stands there, and what it means.

    Inside a string a quote is escaped, so that this text are found nowhere but
    before the messages.
    """
    text = raw.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    position = text.find('"messages":[')
    if position < 0:
        return
    position += len('"messages":[')
    while text[position] != "]":
        message, end = decoder.raw_decode(text, position)
        yield text[position:end], message
        position = end + (text[end] == ",")


def ack(client: Client, printer: Printer, options: Namespace) -> int:
    body = {
        "partitionId": options.partition_id,
        "transactionId": options.transaction_id,
        "leaseId": options.lease,
        "consumerGroup": options.group,
        "status": options.status,
        "error": options.error,
    }
    answer = client.post("/api/v1/ack", body=body)
    [outcome] = answer.document
    if printer.as_json:
        printer.answer(answer)
    if not outcome["success"]:
        raise Failed(outcome["error"], USER_ERROR)
    if outcome["dlq"]:
        printer.said("dead-lettered")
    else:
        printer.said("it was done already" if outcome["noop"] else options.status)
    return 0


def _pop_path(options: Namespace) -> str:
    path = f"/api/v1/pop/queue/{segment(options.queue)}"
    if options.partition is not None:
        path += f"/partition/{segment(options.partition)}"
    return path
