"""Malformed bodies, names, parameters and headers at every route: refused, never a 500.

Method: requests are written to a raw socket, because a client library would mend or refuse most of
them. A seeded generator builds a valid request for a route and then spoils some of it. Every answer
must be below 500 and a JSON body (or a bare 204), whatever was sent; and what was refused must have
left nothing behind.
"""

import gzip
import json
import random
import socket
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_from_bytes, urlsplit

import httpx
import pytest

from brokers.api.routes import ROUTES
from tests.wire_client import WireClient, ack_of, error_of, expect

REQUESTS = 4000
# Every route that answers JSON, and one that there is not.
# Pages, text for scrapers, and a description that may be YAML.
NOT_JSON = {"prometheus", "auth_login", "openapi_page", "openapi_asset", "openapi_schema"}
TARGETS = [(route.method, route.template) for route in ROUTES if route.handler not in NOT_JSON]
TARGETS.append(("GET", "/api/v1/no/such/route/:queue"))
TARGETS += 2 * [(method, template) for method, template in TARGETS if method == "POST"]
NAMED = (":queue", ":partition", ":group", ":name")
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "BREW"]
PARAMETERS = [
    "from",
    "to",
    "interval",
    "groupBy",
    "minLagSeconds",
    "deleteMetadata",
    "hostname",
    "workerId",
    "batch",
    "partitions",
    "timeout",
    "leaseSeconds",
    "autoAck",
    "consumerGroup",
    "subscriptionMode",
    "subscriptionFrom",
    "conflation",
    "autopilot",
    "namespace",
    "task",
    "queue",
    "group",
    "limit",
    "offset",
    "wait",
    "mode",
    "prefix",
    "after",
    "txn",
    "from",
    "to",
    "status",
    "state",
    "q",
    "cursor",
]
RAW_VALUES = [
    b"",
    b"abc",
    b"-1",
    b"0",
    b"1",
    b"1.5",
    b"+7",
    b"%205%20",
    b"1_000",
    b"1e3",
    b"%D9%A3",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"9" * 5000,
    b"true",
    b"TRUE",
    b"yes",
    b"%00",
    b"a%00b",
    b"%ED%A0%80",
    b"%FF",
    b"%",
    b"%zz",
    b"null",
    b"__QUEUE_MODE__",
    b"2026-02-30",
    b"0001-01-01T00:00:00Z",
    b"292277-01-01T00:00:00Z",
    b"1785409364000000000",
    b"x" * 300,
    b"';DROP%20TABLE%20queen_queue;--",
]
NAMES = [
    b"fuzz",
    b"",
    b"%20",
    b"%2F",
    b"a%2Fb",
    b"a%252Fb",
    b"..",
    b"%2E%2E",
    b".",
    b"%00",
    b"a%00",
    b"%ED%A0%80",
    b"%FF",
    b"%C3%28",
    b"%",
    b"%4",
    b"%zz",
    b"q%0A",
    b"q%0D%0AX:%20y",
    b"%E2%80%8B",
    "Zürich/東京/😀".encode(),
    quote("Zürich 東京 😀").encode(),
    b"x" * 255,
    b"x" * 256,
    b"%F0%9F%98%80" * 64,
    b"x" * 3000,
    b"{}",
    b"*",
    b"depth",
    b"partition",
    b"'--",
    b"\\",
    b'"',
]
# Values that take the place of something in a body, as JSON text.
TEXTS = [
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1.5",
    b"1e400",
    b"1" * 5000,
    b"9223372036854775808",
    b'""',
    b'" "',
    b'"\\u0000"',
    b'"a\\u0000b"',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\u00e9"',
    b'"' + b"n" * 256 + b'"',
    b'"' + b"n" * 70_000 + b'"',
    b'"\xed\xa0\x80"',
    b'"\xff"',
    b'"a\tb"',
    b"[]",
    b"{}",
    b"[null]",
    b"[[]]",
    b'{"a":1,"a":2}',
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"undefined",
    b"'x'",
    b"01",
    b"1.",
    b"+1",
    b"[" * 50_000,
    b"[" * 2_000 + b"]" * 2_000,
    b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
    b'"completed"',
    b'"failed"',
    b'"0190a7c0-0000-7000-8000-00000000dead"',
    b'"not-a-uuid"',
]
ID = b'"0190a7c0-0000-7000-8000-00000000dead"'
# The one 500 that the contract asks for: a trace for what is no partition's id.
NO_PARTITION_ID = b'{"error": "trace failed: partitionId is not a UUID"}'
HEADERS = [
    b"Content-Type: text/plain",
    b"Content-Type: APPLICATION/JSON; charset=latin-1",
    b"Content-Type: multipart/form-data",
    b"Content-Type: application/x-www-form-urlencoded",
    b"Content-Type:",
    b"Authorization: Bearer x",
    b"AUTHORIZATION: bearer \xff",
    b"X-Queen-Tenant: nobody",
    b"x-queen-tenant: \xe9",
    b"Cookie: sessionid=x; csrftoken=y",
    b"Accept: text/html",
    b"Accept: nonsense",
    b"Accept-Encoding: br",
    b"Origin: http://elsewhere",
    b"X-Forwarded-Host: a,b",
    b"X-HTTP-Method-Override: DELETE",
    b"If-None-Match: *",
    b"Range: bytes=0-1",
]


class Raw:
    """HTTP/1.1 over a socket, with nothing of a request checked or mended."""

    def __init__(self, base_url: str) -> None:
        url = urlsplit(base_url)
        self.address = (url.hostname or "127.0.0.1", url.port or 80)
        self.socket: socket.socket | None = None

    def ask(
        self, method: str, target: bytes, body: bytes = b"", headers: tuple[bytes, ...] = ()
    ) -> tuple[int, dict[str, str], bytes]:
        lines = [method.encode() + b" " + target + b" HTTP/1.1", b"Host: broker", *headers]
        if body or method in ("POST", "PUT", "PATCH"):
            lines.append(b"Content-Length: %d" % len(body))
        message = b"\r\n".join(lines) + b"\r\n\r\n" + body
        for attempt in (1, 2):
            kept = self.socket is not None
            if self.socket is None:
                self.socket = socket.create_connection(self.address, timeout=20)
            try:
                self.socket.sendall(message)
                return self.answer(method)
            except (ConnectionError, EOFError):
                # A kept connection may have been closed after the last answer; a new one not.
                self.close()
                if attempt == 2 or not kept:
                    raise
        raise AssertionError("unreachable")

    def answer(self, method: str) -> tuple[int, dict[str, str], bytes]:
        assert self.socket is not None
        file = self.socket.makefile("rb")
        status_line = file.readline()
        if not status_line:
            raise EOFError("closed without an answer")
        status = int(status_line.split()[1])
        headers: dict[str, str] = {}
        while (line := file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        body = b""
        if method != "HEAD" and status not in (204, 304):
            body = b"".join(self.body(file, headers))
        if headers.get("connection", "").lower() == "close" or (
            body and not headers.keys() & {"content-length", "transfer-encoding"}
        ):
            self.close()
        return status, headers, body

    @staticmethod
    def body(file: Any, headers: dict[str, str]) -> Iterator[bytes]:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int(file.readline(), 16):
                yield file.read(size)
                file.readline()
            file.readline()
        elif "content-length" in headers:
            yield file.read(int(headers["content-length"]))
        else:
            yield file.read()

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None


@pytest.fixture
def raw(client: httpx.Client) -> Iterator[Raw]:
    raw = Raw(str(client.base_url))
    yield raw
    raw.close()


@pytest.fixture
def wire(client: httpx.Client) -> WireClient:
    return WireClient(client)


class Spoiler:
    """Builds requests that are wrong in one or several places; the same ones for a seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def request(self) -> tuple[str, bytes, bytes, tuple[bytes, ...]]:
        method, template = self.dice.choice(TARGETS)
        target = b"/".join(map(self.segment, template.split("/")))
        if self.dice.random() < 0.05:
            target += self.dice.choice([b"/", b"//", b"/x", b"?", b"#", b";a=b", b"%2F"])
        query = b"&".join(self.parameter() for _ in range(self.dice.choice([0, 0, 1, 2, 4])))
        if query:
            target += b"?" + query
        body = b""
        if method in ("POST", "PUT") or template.startswith("/api/v1/kv/"):
            body = self.body(template)
        headers = tuple(self.dice.sample(HEADERS, self.dice.choice([0, 0, 0, 1, 2])))
        if body and self.dice.random() < 0.06:
            body, headers = self.compressed(body, headers)
        if self.dice.random() < 0.05:
            method = self.dice.choice(METHODS)
        return method, target, body, headers

    def segment(self, part: str) -> bytes:
        if part in NAMED:
            return quote_from_bytes(self.dice.choice(NAMES), safe=b"%\\\"'{}*").encode()
        if part.startswith((":", "*")):
            return self.dice.choice([str(uuid.UUID(int=7)).encode(), b"not-a-uuid", *NAMES[:12]])
        return part.encode()

    def parameter(self) -> bytes:
        name = self.dice.choice(PARAMETERS)
        if name == "wait":
            return self.dice.choice([b"wait=true&timeout=5", b"wait=abc", b"wait=", b"wait"])
        return name.encode() + b"=" + self.dice.choice(RAW_VALUES)

    def body(self, template: str) -> bytes:
        fields = {
            "/api/v1/push": self.push,
            "/api/v1/timers": self.timers,
            "/api/v1/ack": self.ack,
            "/api/v1/ack/batch": self.ack_batch,
            "/api/v1/transaction": self.transaction,
            "/api/v1/configure": self.configure,
            "/api/v1/kv": self.kv_batch,
            "/api/v1/kv/:ns/*key": self.kv_fields,
            "/api/v1/resources/kv/list": self.kv_list,
            "/streams/v1/queries": self.stream_query,
            "/streams/v1/state/get": self.stream_state,
            "/streams/v1/cycle": self.stream_cycle,
            "/api/v1/traces": self.trace,
            "/api/v1/system/kv-timers": self.switches,
            "/api/v1/system/maintenance": self.no_maintenance,
            "/api/v1/system/maintenance/pop": self.no_maintenance,
        }.get(template, self.other)
        text = fields()
        if self.dice.random() < 0.25:
            text = self.damaged(text)
        return text

    def damaged(self, text: bytes) -> bytes:
        at = self.dice.randrange(len(text) + 1)
        return self.dice.choice(
            [
                text[:at],
                text[:at] + bytes([self.dice.randrange(256)]) + text[at:],
                text[:at] + text[at + 1 :],
                b"\xef\xbb\xbf" + text,
                text + text,
                text + b"]",
                b"",
                b" \r\n\t ",
                text.decode("utf-8", "replace").encode("utf-16"),
                b"\x00" * 10,
                bytes(self.dice.randrange(256) for _ in range(40)),
            ]
        )

    def compressed(
        self, body: bytes, headers: tuple[bytes, ...]
    ) -> tuple[bytes, tuple[bytes, ...]]:
        packed = gzip.compress(body, 1)
        encoding, sent = self.dice.choice(
            [
                (b"gzip", packed),
                (b"GZIP", packed),
                (b"gzip", packed[: len(packed) // 2]),
                (b"gzip", packed + b"trailing"),
                (b"gzip", body),
                (b"br", body),
                (b"deflate", packed),
                (b"gzip, gzip", gzip.compress(packed)),
                (b"", body),
            ]
        )
        return sent, (*headers, b"Content-Encoding: " + encoding)

    def value(self, usual: bytes, spoiled: float = 0.12) -> bytes:
        return self.dice.choice(TEXTS) if self.dice.random() < spoiled else usual

    def record(self, **fields: bytes) -> bytes:
        """An object, with a key now and then left out, doubled or unknown."""
        listed = list(fields.items())
        if self.dice.random() < 0.1:
            listed.pop(self.dice.randrange(len(listed)))
        if listed and self.dice.random() < 0.05:
            listed.append(self.dice.choice(listed))
        if self.dice.random() < 0.1:
            listed.append(("unknown", self.dice.choice(TEXTS)))
        return b"{" + b",".join(b'"%s":%s' % (k.encode(), v) for k, v in listed) + b"}"

    def array(self, make: Any) -> bytes:
        return self.value(
            b"[" + b",".join(make() for _ in range(self.dice.choice([0, 1, 1, 2, 5]))) + b"]", 0.05
        )

    def item(self) -> bytes:
        item = self.record(
            queue=self.value(b'"fuzz"'),
            partition=self.value(b'"p"'),
            payload=self.value(b'{"n":1}', 0.3),
            transactionId=self.value(b'"t-%d"' % self.dice.randrange(50)),
            traceId=self.value(b"null"),
            producerSub=self.value(b'"x"'),
        )
        return self.value(item, 0.04)

    def push(self) -> bytes:
        return self.record(items=self.array(self.item))

    def ack(self) -> bytes:
        return self.record(
            transactionId=self.value(b'"t-1"'),
            partitionId=self.value(b'"0190a7c0-0000-7000-8000-00000000dead"'),
            status=self.value(b'"completed"'),
            consumerGroup=self.value(b'"g"'),
            leaseId=self.value(b'"0190a7c0-0000-7000-8000-00000000dead"'),
            error=self.value(b'"why"', 0.3),
        )

    def ack_batch(self) -> bytes:
        return self.record(consumerGroup=self.value(b'"g"'), acknowledgments=self.array(self.ack))

    def operation(self) -> bytes:
        kind = self.dice.choice([b'"push"', b'"ack"', b'"Push"', b'"kv"', b"null", b"7"])
        inner = self.dice.choice([self.item(), self.ack()])
        if kind == b'"push"' and self.dice.random() < 0.5:
            return self.record(type=kind, items=self.array(self.item))
        return inner[:-1] + b',"type":' + kind + b"}" if inner[:1] == b"{" else inner

    def transaction(self) -> bytes:
        return self.record(
            operations=self.array(self.operation),
            requiredLeases=self.value(b"[]", 0.3),
            kv=self.value(self.dice.choice([b"null", self.array(self.kv_operation)]), 0.2),
            timers=self.value(self.dice.choice([b"null", self.array(self.timer)]), 0.2),
        )

    def configure(self) -> bytes:
        names = ["leaseTime", "retryLimit", "delayedProcessing", "windowBuffer", "minPopWaitTime"]
        names += ["retentionEnabled", "retentionSeconds", "dedupWindowSeconds", "maxDeliveries"]
        names += ["deadLetterQueue", "encryptionEnabled", "retentionSinkHold", "priority", "ttl"]
        chosen = self.dice.sample(names, 3)
        return self.record(
            queue=self.value(b'"fuzz-configured"'),
            namespace=self.value(b"null"),
            task=self.value(b"null"),
            mode=self.value(b'"merge"'),
            options=self.value(self.record(**{one: self.value(b"1", 0.5) for one in chosen})),
        )

    def timer(self) -> bytes:
        return self.record(
            op=self.value(self.dice.choice([b'"schedule"', b'"reschedule"', b'"cancel"'])),
            queue=self.value(b'"fuzz"'),
            timerKey=self.value(b'"k-%d"' % self.dice.randrange(50)),
            delayMs=self.value(self.dice.choice([b"0", b"-5", b"100", b"600000"])),
            txn=self.value(b'"t-%d"' % self.dice.randrange(50)),
            payload=self.value(self.dice.choice([b'"e30="', b'"bnVsbA=="', b'"e30"', b'"/w=="'])),
            partition=self.value(b'"p"'),
            payloadZstd=self.value(b"null"),
            encrypted=self.value(b"null"),
        )

    def timers(self) -> bytes:
        return self.record(operations=self.array(self.timer))

    def kv_operation(self) -> bytes:
        ops = [b"get", b"getMany", b"getPrefix", b"put", b"putIfAbsent", b"delete", b"incr", b"x"]
        return self.value(
            self.record(
                op=self.value(b'"%b"' % self.dice.choice(ops), 0.05),
                ns=self.value(b'"fuzz"', 0.05),
                key=self.value(b'"k-%d"' % self.dice.randrange(20)),
                keys=self.array(lambda: self.value(b'"m-%d"' % self.dice.randrange(500))),
                prefix=self.value(b'"k"'),
                after=self.value(b"null", 0.3),
                limit=self.value(b"5", 0.3),
                value=self.value(b'{"n":1}', 0.3),
                ttlSeconds=self.value(b"null", 0.1),
                forever=self.value(b"true", 0.1),
                expect=self.value(self.dice.choice([b"0", b"1"]), 0.2),
                required=self.value(b"false", 0.2),
                delta=self.value(b"1", 0.2),
                min=self.value(b"null", 0.2),
                max=self.value(b"null", 0.2),
            ),
            0.04,
        )

    def kv_batch(self) -> bytes:
        return self.record(operations=self.array(self.kv_operation))

    def kv_fields(self) -> bytes:
        return self.record(value=self.value(b"1"), forever=self.value(b"true"))

    def kv_list(self) -> bytes:
        return self.record(namespace=self.value(b'"fuzz"'), limit=self.value(b"5", 0.3))

    def stream_query(self) -> bytes:
        return self.record(
            name=self.value(b'"fuzz"'),
            source_queue=self.value(b'"fuzz"'),
            sink_queue=self.value(b'"fuzz"', 0.3),
            config_hash=self.value(b'"h"'),
            reset=self.value(b"false"),
        )

    def stream_state(self) -> bytes:
        return self.record(
            query_id=self.value(ID),
            partition_id=self.value(ID),
            keys=self.array(lambda: self.value(b'"k"')),
            key_prefix=self.value(b'"k"', 0.3),
            ripe_at_or_before=self.value(b"1785409364000", 0.3),
        )

    def stream_cycle(self) -> bytes:
        kinds = [b'"upsert"', b'"upsert"', b'"delete"', b'"x"', b"7"]
        return self.record(
            query_id=self.value(ID),
            partition_id=self.value(ID),
            consumer_group=self.value(b'"g"'),
            state_ops=self.array(
                lambda: self.record(
                    type=self.dice.choice(kinds),
                    key=self.value(b'"k"'),
                    value=self.value(b'{"windowEnd":5}', 0.5),
                )
            ),
            push_items=self.array(self.item),
            ack=self.value(
                self.record(
                    transactionId=self.value(b'"t"'),
                    leaseId=self.value(ID),
                    status=self.value(b'"completed"', 0.2),
                    count=self.value(b"1", 0.2),
                ),
                0.2,
            ),
            release_lease=self.value(b"true", 0.2),
        )

    def trace(self) -> bytes:
        return self.record(
            transactionId=self.value(b'"t"'),
            partitionId=ID,
            data=self.value(b'{"n":1}', 0.4),
            traceNames=self.value(b'["a"]', 0.4),
            eventType=self.value(b'"info"'),
            consumerGroup=self.value(b'"g"'),
        )

    def switches(self) -> bytes:
        """Never one that would pause what the other requests are about."""
        return self.record(kv=self.value(b"true", 0.3), timersFire=self.value(b"true", 0.3))

    def no_maintenance(self) -> bytes:
        return self.record(enabled=self.dice.choice([b"false", b"false", b"null", b"1", b'"true"']))

    def other(self) -> bytes:
        return self.record(seconds=self.value(b"60", 0.5), queue=self.value(b'"fuzz"', 0.5))


def check_answer(method: str, status: int, headers: dict[str, str], body: bytes) -> None:
    assert status < 500, "a server error"
    if method == "HEAD":
        return
    if status == 204:
        assert body == b"" and "content-length" not in headers
        return
    assert headers.get("content-type", "").startswith("application/json"), "not JSON"
    answer = json.loads(body.decode("utf-8"), parse_constant=lambda name: pytest.fail(name))
    if status >= 400:
        assert isinstance(answer, dict) and isinstance(answer["error"], str) and answer["error"]
    assert not 300 <= status < 400, "a redirect"
    if status == 405:
        assert headers["allow"]


def test_no_request_however_malformed_gets_a_server_error_or_a_body_that_is_not_json(
    raw: Raw, wire: WireClient, fresh_queue: str
):
    spoiler = Spoiler(20260730)
    for n in range(REQUESTS):
        method, target, body, headers = spoiler.request()
        told = f"request {n}: {method} {target[:300]!r} {headers} {body[:300]!r}"
        try:
            status, answered, text = raw.ask(method, target, body, headers)
            if status == 400 and "json" not in answered.get("content-type", ""):
                # The HTTP server itself refuses a request that it cannot read.
                assert text == b"" or b"nvalid" in text or b"Bad " in text, text
                continue
            if text == NO_PARTITION_ID:
                continue
            check_answer(method, status, answered, text)
        except Exception as error:
            pytest.fail(f"{told}\n{type(error).__name__}: {error}")

    queue = fresh_queue
    assert expect(wire.get("/health"), 200).json()["status"] == "healthy"
    wire.push(queue, {"still": "here"})
    assert wire.payloads(queue, autoAck=True) == [{"still": "here"}]


BAD_ITEMS = {
    "no queue": b'{"payload":1}',
    "no payload": b'{"queue":"Q"}',
    "a numeric queue": b'{"queue":7,"payload":1}',
    "a null queue": b'{"queue":null,"payload":1}',
    "a NUL in the queue": b'{"queue":"Q\\u0000","payload":1}',
    "a lone surrogate in the queue": b'{"queue":"\\udc00","payload":1}',
    "a queue of 256 bytes": b'{"queue":"%s","payload":1}' % (b"q" * 256),
    "a numeric partition": b'{"queue":"Q","partition":7,"payload":1}',
    "a NUL in the partition": b'{"queue":"Q","partition":"\\u0000","payload":1}',
    "a partition of 256 bytes": b'{"queue":"Q","partition":"%s","payload":1}'
    % ("é".encode() * 128),
    "a numeric transactionId": b'{"queue":"Q","payload":1,"transactionId":7}',
    "a NUL in the transactionId": b'{"queue":"Q","payload":1,"transactionId":"\\u0000"}',
    "a surrogate in the transactionId": b'{"queue":"Q","payload":1,"transactionId":"\\ud800"}',
    "a transactionId of 65536 bytes": b'{"queue":"Q","payload":1,"transactionId":"%s"}'
    % (b"t" * 65_536),
    "invalid UTF-8 in the payload": b'{"queue":"Q","payload":"\xff"}',
    "a payload that is not JSON": b'{"queue":"Q","payload":NaN}',
    "a number": b"7",
    "null": b"null",
    "an array": b"[]",
}


@pytest.mark.parametrize("bad", BAD_ITEMS)
def test_a_push_with_one_bad_item_stores_nothing_at_all(
    wire: WireClient, fresh_queue: str, bad: str
):
    queue = fresh_queue
    good = json.dumps({"queue": queue, "payload": 1}).encode()
    item = BAD_ITEMS[bad].replace(b'"Q', b'"' + queue.encode())

    for items in (good + b"," + item, item + b"," + good):
        answer = wire.post("/api/v1/push", b'{"items":[' + items + b"]}")
        assert error_of(answer, 400)

    assert wire.get(wire.queue_path(queue)).status_code == 404


@pytest.mark.parametrize(
    "bad",
    [
        b'{"type":"fly"}',
        b'{"type":null}',
        b"{}",
        b"7",
        b'{"type":"push","payload":1}',
        b'{"type":"push","items":[{"queue":"\\u0000"}]}',
        b'{"type":"push","items":{}}',
        b'{"type":"ack"}',
        b'{"type":"ack","transactionId":"\\u0000","partitionId":"0190a7c0-0000-7000-8000-0000000"}',
    ],
)
def test_a_transaction_with_one_bad_operation_writes_nothing_at_all(
    wire: WireClient, fresh_queue: str, bad: bytes
):
    queue = fresh_queue
    good = json.dumps({"type": "push", "queue": queue, "payload": 1}).encode()

    for operations in (good + b"," + bad, bad + b"," + good):
        answer = wire.post("/api/v1/transaction", b'{"operations":[' + operations + b"]}")
        assert error_of(answer, 400)

    assert wire.get(wire.queue_path(queue)).status_code == 404


@pytest.mark.parametrize(
    "bad",
    [
        {"leaseTime": "soon"},
        {"leaseTime": 1e30},
        {"leaseTime": -1},
        {"retryLimit": 1.5},
        {"deadLetterQueue": "maybe"},
        {"windowBuffer": [1]},
        {"retentionSinkHold": "no spaces"},
        {"retentionSinkHoldMaxSeconds": 1},
    ],
)
def test_a_configure_with_one_bad_option_writes_nothing_at_all(
    wire: WireClient, fresh_queue: str, bad: dict[str, Any]
):
    queue = fresh_queue
    [option] = bad

    answer = wire.post("/api/v1/configure", {"queue": queue, "options": {"ttl": 5} | bad})

    assert option in error_of(answer, 400)
    assert wire.get(wire.queue_path(queue)).status_code == 404


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 4000\r\n\r\n%s",
        b"Transfer-Encoding: chunked\r\n\r\nfff\r\n%s",
        b"Transfer-Encoding: chunked\r\n\r\nnot hex\r\n%s\r\n0\r\n\r\n",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n%s",
        b"Content-Length: -1\r\n\r\n%s",
        b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n%s",
    ],
)
def test_a_push_whose_body_never_comes_whole_stores_nothing(
    raw: Raw, wire: WireClient, fresh_queue: str, framing: bytes
):
    body = json.dumps({"items": [{"queue": fresh_queue, "payload": 1}]}).encode()
    with socket.create_connection(raw.address, timeout=20) as half:
        half.sendall(b"POST /api/v1/push HTTP/1.1\r\nHost: broker\r\n" + framing % body)
        half.shutdown(socket.SHUT_WR)
        said = b"".join(iter(lambda: half.recv(65536), b""))

    assert said == b"" or said.startswith(b"HTTP/1.1 400"), said
    assert wire.get(wire.queue_path(fresh_queue)).status_code == 404


def test_an_ack_batch_with_one_bad_entry_moves_no_cursor(wire: WireClient, fresh_queue: str):
    queue = fresh_queue
    wire.push(queue, 1, 2)
    first, second = wire.messages(queue)
    good = ack_of(first)
    for bad in (
        7,
        None,
        [],
        good | {"transactionId": "\0"},
        good | {"transactionId": 7},
        good | {"partitionId": 7},
        good | {"leaseId": 7},
        {"transactionId": "x"},
    ):
        answer = wire.post("/api/v1/ack/batch", {"acknowledgments": [good, bad]})
        assert error_of(answer, 400), bad

    assert wire.ack(first)["noop"] is False
    assert wire.ack(second)["leaseReleased"] is True
