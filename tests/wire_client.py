"""A client of the message plane for tests: every route as one short call.

It checks nothing but that the HTTP status is one of the route's ordinary ones, so
that a test reads as what it claims and a 500 is never taken for an empty queue.

Used by tests/api and tests/process. Imports nothing of ours.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx

Json = dict[str, Any]

ZERO_UUID = "00000000-0000-0000-0000-000000000000"
UNKNOWN_UUID = "0190a7c0-0000-7000-8000-00000000dead"

INVALID_LEASE = "invalid or expired lease"
CONSUMER_NOT_FOUND = "consumer not found"
FOREIGN_PARTITION = "partition not owned by tenant"
ALREADY_COMMITTED = "already committed: the cursor moved past this message before this ack"
UNRESOLVABLE = (
    "unresolvable: transaction not in the ack window (hash purged or never pushed); "
    "if leased, the message redelivers"
)


def segment(name: str) -> str:
    """A name as one path segment; dots too, for clients fold dot segments away."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="")


class WireClient:
    def __init__(self, http: httpx.Client, headers: dict[str, str] | None = None) -> None:
        self.http = http
        self.headers = headers or {}

    @classmethod
    @contextmanager
    def at(cls, url: str, headers: dict[str, str] | None = None) -> Iterator["WireClient"]:
        """A client of a broker of the test's own."""
        with httpx.Client(base_url=url, timeout=60.0, verify=False) as http:
            yield cls(http, headers)

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.http.get(path, params=as_query(params), headers=self.headers)

    def post(self, path: str, body: Any = None, **arguments: Any) -> httpx.Response:
        headers = self.headers | arguments.pop("headers", {})
        if body is not None:
            arguments["content"] = body if isinstance(body, bytes | str) else json.dumps(body)
        return self.http.post(path, headers=headers, **arguments)

    # --- push -------------------------------------------------------------------------------

    def post_items(self, *items: Any) -> httpx.Response:
        return self.post("/api/v1/push", {"items": list(items)})

    def push_items(self, *items: Json) -> list[Json]:
        return expect(self.post_items(*items), 201).json()

    def push(
        self,
        queue: str,
        *payloads: Any,
        partition: str | None = None,
        ids: list[str] | None = None,
    ) -> list[Json]:
        items = [{"queue": queue, "payload": payload} for payload in payloads]
        for number, item in enumerate(items):
            if partition is not None:
                item["partition"] = partition
            if ids is not None:
                item["transactionId"] = ids[number]
        return self.push_items(*items)

    def push_each(self, queue: str, *payloads: Any, **options: Any) -> list[Json]:
        """One request a payload, so that every message has its own commit."""
        return [row for payload in payloads for row in self.push(queue, payload, **options)]

    # --- pop --------------------------------------------------------------------------------

    def get_pop(self, queue: str | None, partition: str | None = None, **params: Any):
        path = "/api/v1/pop"
        if queue is not None:
            path += f"/queue/{segment(queue)}"
        if partition is not None:
            path += f"/partition/{segment(partition)}"
        return self.get(path, **params)

    def pop(self, queue: str | None, partition: str | None = None, **params: Any) -> Json:
        """The answer of a pop; ``{"messages": []}`` for a bare 204."""
        answer = expect(self.get_pop(queue, partition, **params), 200, 204)
        if answer.status_code == 204:
            assert answer.content == b""
            return {"messages": []}
        return answer.json()

    def messages(self, queue: str | None, partition: str | None = None, **params: Any):
        return self.pop(queue, partition, **params)["messages"]

    def payloads(self, queue: str | None, partition: str | None = None, **params: Any):
        return [message["data"] for message in self.messages(queue, partition, **params)]

    # --- ack, lease, transaction ------------------------------------------------------------

    def ack(self, message: Json, status: Any = "completed", **changes: Any) -> Json:
        """Ack one message as a client would: its own group and lease, unless changed."""
        body = ack_of(message, status) | {"consumerGroup": message["consumerGroup"]} | changes
        [result] = expect(self.post("/api/v1/ack", body), 200).json()
        return result

    def ack_batch(self, *acks: Json, group: str | None = None) -> list[Json]:
        body = {"acknowledgments": list(acks)}
        if group is not None:
            body["consumerGroup"] = group
        return expect(self.post("/api/v1/ack/batch", body), 200).json()

    def extend(self, lease_id: str, body: Any = None) -> Json:
        path = f"/api/v1/lease/{segment(lease_id)}/extend"
        return expect(self.post(path, body), 200).json()

    def transaction(self, *operations: Json, **more: Any) -> Json:
        body = {"operations": list(operations)} | more
        return expect(self.post("/api/v1/transaction", body), 200).json()

    # --- queues -----------------------------------------------------------------------------

    def configure(self, queue: str, mode: str | None = None, **options: Any) -> Json:
        body: Json = {"queue": queue, "options": options}
        if mode is not None:
            body["mode"] = mode
        return expect(self.post("/api/v1/configure", body), 200).json()

    def queue_path(self, queue: str) -> str:
        return f"/api/v1/resources/queues/{segment(queue)}"

    def queue(self, queue: str) -> Json:
        return expect(self.get(self.queue_path(queue)), 200).json()

    def depth(self, queue: str, **params: Any) -> Json:
        return expect(self.get(f"{self.queue_path(queue)}/depth", **params), 200).json()

    def delete(self, queue: str) -> Json:
        answer = self.http.delete(self.queue_path(queue), headers=self.headers)
        return expect(answer, 200).json()

    # --- dead letters -----------------------------------------------------------------------

    def dead_letters(self, queue: str, **params: Any) -> list[Json]:
        return expect(self.get("/api/v1/dlq", queue=queue, **params), 200).json()["messages"]

    def replay(self, dead_letter_id: str, body: Any = None) -> httpx.Response:
        return self.post(f"/api/v1/dlq/{segment(dead_letter_id)}/replay", body)

    def retry(self, partition_id: str, transaction_id: str) -> httpx.Response:
        path = f"/api/v1/messages/{segment(partition_id)}/{segment(transaction_id)}/retry"
        return self.post(path)


def ack_of(message: Json, status: Any = "completed", **more: Any) -> Json:
    """The item of an ack (or of an ack operation) for a popped message, with its lease."""
    item = {
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "status": status,
    }
    if message.get("leaseId"):
        item["leaseId"] = message["leaseId"]
    return item | more


def outlive_lease() -> None:
    """Let a lease of one second run out: here the clock itself is the input of the test."""
    time.sleep(1.1)


def expect(answer: httpx.Response, *statuses: int) -> httpx.Response:
    assert answer.status_code in statuses, f"{answer.status_code}: {answer.text[:500]}"
    return answer


def error_of(answer: httpx.Response, status: int) -> str:
    """The error text of an answer that must be a JSON object in valid UTF-8."""
    expect(answer, status)
    assert answer.headers["content-type"].startswith("application/json")
    body = json.loads(answer.content.decode("utf-8"))
    assert isinstance(body, dict), body
    assert isinstance(body["error"], str) and body["error"], body
    return body["error"]


def as_query(params: Json) -> Json:
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in params.items()
    }
