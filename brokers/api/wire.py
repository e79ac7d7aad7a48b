"""The wire: bodies, queries and identifiers in, answers out; every limit is checked here.

A body is read in a stream and never beyond its limit, whether it came sized, chunked or
compressed. Query values are text until someone asks for a number. An identifier is
compared by code points, so nothing is trimmed or cut: what does not fit is refused.

Imports errors. Used by door.py, hot.py, payloads.py, auth.py.
"""

import asyncio
import json
import re
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

from brokers.errors import RequestError, error_body

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

NAME_BYTES_MAX = 255
TRANSACTION_ID_BYTES_MAX = 65_535
TIMER_KEY_BYTES_MAX = 512
# Text of at most so many characters is within the limit in any script.
NAME_SURELY_SHORT = NAME_BYTES_MAX // 4
TRANSACTION_ID_SURELY_SHORT = TRANSACTION_ID_BYTES_MAX // 4

INFLATE_STEP_BYTES = 262_144
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
INTEGER_MAX = 2**63 - 1
INTEGER_MIN = -(2**63)

_integer = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_booleans = {"true": True, "1": True, "false": False, "0": False}
_flags = _booleans | {"yes": True, "no": False}

JSON_HEADER = (b"content-type", b"application/json")


class Reply(NamedTuple):
    """An answer. No body and no headers on a 204."""

    status: int
    body: bytes = b""
    content_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


NO_CONTENT = Reply(204)


class ClientGone(Exception):
    """The client hung up before it had sent its whole request: nobody waits for an answer."""


# Bodies


async def read_body(scope: Scope, receive: Receive, bytes_max: int) -> bytes:
    """The whole body, decoded. Raises 400, 413 or 415, and ClientGone."""
    encoding = _framing(scope["headers"], bytes_max)
    message = await receive()
    if not encoding and message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > bytes_max:
            raise _too_large(bytes_max)
        return body
    inflate = _Inflate(bytes_max) if encoding else None
    parts: list[bytes] = []
    size = wire_size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        wire_size += len(chunk)
        if wire_size > bytes_max:
            raise _too_large(bytes_max)
        if inflate is None:
            parts.append(chunk)
        else:
            for piece in inflate.feed(chunk):
                size += len(piece)
                parts.append(piece)
                if len(piece) == INFLATE_STEP_BYTES:  # much from little: let others run
                    await asyncio.sleep(0)
        if not message.get("more_body"):
            break
        message = await receive()
    if inflate is not None:
        inflate.finish()
    return b"".join(parts)


class _Inflate:
    """One gzip member, decoded step by step and never beyond the limit."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size = 0
        self._decoder = zlib.decompressobj(wbits=31)

    def feed(self, chunk: bytes) -> Iterable[bytes]:
        full = False  # a full step may leave output behind in the decoder, all input taken
        while chunk or full:
            if self._decoder.eof:
                if not chunk:
                    return
                raise RequestError("bad body: bytes behind the end of the gzip data")
            try:
                piece = self._decoder.decompress(chunk, INFLATE_STEP_BYTES)
            except zlib.error:
                raise RequestError("bad body: not gzip data") from None
            self._size += len(piece)
            if self._size > self._bytes_max:
                raise _too_large(self._bytes_max)
            yield piece
            full = len(piece) == INFLATE_STEP_BYTES
            chunk = self._decoder.unconsumed_tail or self._decoder.unused_data

    def finish(self) -> None:
        if not self._decoder.eof:
            raise RequestError("bad body: the gzip data is cut short")


def _framing(headers: Iterable[tuple[bytes, bytes]], bytes_max: int) -> bool:
    """Whether the body is compressed; refuses a declared size over the limit at once."""
    gzip = False
    for name, value in headers:
        if name == b"content-length":
            digits = value.strip()
            if not digits.isdigit() or len(digits) > 19:
                raise RequestError("bad Content-Length")
            if int(digits) > bytes_max:
                raise _too_large(bytes_max)
        elif name == b"content-encoding":
            coding = value.strip().lower()
            if coding in (b"gzip", b"x-gzip") and not gzip:
                gzip = True
            elif coding not in (b"", b"identity"):
                raise RequestError(
                    "Content-Encoding must be gzip or identity",
                    code="unsupported_encoding",
                    headers=(("accept-encoding", "gzip, identity"),),
                )
    return gzip


def _too_large(bytes_max: int) -> RequestError:
    return RequestError(f"the body is larger than {bytes_max} bytes", code="body_too_large")


def json_text(body: bytes) -> bytes:
    """The body as JSON text: valid UTF-8, without the byte order mark that some put first."""
    if body.startswith(BYTE_ORDER_MARK):
        body = body[3:]
    if not body.isascii():
        try:
            body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RequestError(
                f"bad body: not UTF-8 (byte {error.start})", code="bad_body"
            ) from None
    return body


# Queries


def parse_query(raw: bytes) -> dict[str, str]:
    """Form encoding; of a repeated key the last wins. Bytes that are no UTF-8 become lone
    surrogates, which no reader of a value below lets pass."""
    query: dict[str, str] = {}
    for pair in raw.split(b"&"):
        name, _, value = pair.partition(b"=")
        if name:
            query[_form_decoded(name)] = _form_decoded(value)
    return query


def _form_decoded(raw: bytes) -> str:
    if b"+" in raw:
        raw = raw.replace(b"+", b" ")
    if b"%" in raw:
        raw = unquote_to_bytes(raw)
    return raw.decode("utf-8", "surrogateescape")


def query_integer(query: dict[str, str], name: str, default: int | None = None) -> int | None:
    text = query.get(name)
    if not text:
        return default
    if _integer.fullmatch(text) is None:
        raise RequestError(f"{name} must be an integer of at most 64 bits")
    value = int(text)
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise RequestError(f"{name} must be an integer of at most 64 bits")
    return value


def query_boolean(query: dict[str, str], name: str, default: bool = False) -> bool:
    text = query.get(name)
    if not text:
        return default
    value = _booleans.get(text)
    if value is None:
        raise RequestError(f"{name} must be true or false")
    return value


def query_flag(query: dict[str, str], name: str, default: bool) -> bool:
    """A truth of a management route, which has more words for it."""
    text = query.get(name)
    if text is not None and text.lower() in _flags:
        return _flags[text.lower()]
    return query_boolean(query, name, default)


def query_name(query: dict[str, str], name: str, bytes_max: int = NAME_BYTES_MAX) -> str | None:
    """An identifier; an empty one counts as absent."""
    text = query.get(name)
    if not text:
        return None
    check_identifier(name, text, bytes_max)
    return text


# Identifiers


def check_identifier(
    field: str, value: str, bytes_max: int = NAME_BYTES_MAX, index: int | None = None
) -> None:
    """Refuse a NUL, a lone surrogate, and more than `bytes_max` bytes of UTF-8."""
    problem = identifier_problem(value, bytes_max)
    if problem is not None:
        where = field if index is None else f"{field} of item {index}"
        raise RequestError(f"{where} {problem}")


def identifier_problem(value: str, bytes_max: int) -> str | None:
    if "\x00" in value:
        return "must not contain NUL"
    if value.isascii():
        size = len(value)
    else:
        try:
            size = len(value.encode("utf-8"))
        except UnicodeEncodeError:
            return "must not contain a lone surrogate"
    if size > bytes_max:
        return f"must be at most {bytes_max} bytes of UTF-8"
    return None


# Answers


class Client(Protocol):
    """Who asked, and may hang up while it is worked for."""

    def watch(self, hung_up: Callable[[], None]) -> None:
        """Call that once, when the client hangs up or has done so already."""

    def unwatch(self) -> bool:
        """Call nothing any more; whether the client has hung up."""


class AsgiClient:
    """A client behind ASGI: it is heard of by a `receive` that somebody has to wait in."""

    __slots__ = ("_receive", "_watcher")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None

    def watch(self, hung_up: Callable[[], None]) -> None:
        def heard(watcher: asyncio.Task[None]) -> None:
            if not watcher.cancelled():
                watcher.exception()  # a receive that breaks is a client that is gone
                hung_up()

        self._watcher = asyncio.create_task(_hang_up(self._receive))
        self._watcher.add_done_callback(heard)

    def unwatch(self) -> bool:
        assert self._watcher is not None, "nobody watches"
        gone = self._watcher.done()
        self._watcher.cancel()
        return gone


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(client: Client, work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Do `work` while listening for the client's hang-up.

    A hang-up cancels the work and raises ClientGone. When work had its result first, the
    answer says whether the hang-up has been heard since: no byte has been sent yet, so the
    caller can still take the result back.
    """
    task = asyncio.current_task()
    assert task is not None, "the door runs in a task"
    working, cancelled = True, False

    def hung_up() -> None:
        nonlocal cancelled
        if working:
            cancelled = True
            task.cancel()

    client.watch(hung_up)
    try:
        result = await work
    except asyncio.CancelledError:
        if cancelled and task.uncancel() == 0:
            raise ClientGone from None
        raise  # the server wants this request to end
    finally:
        working = False
        gone = client.unwatch()
    if cancelled:  # the work finished although it was cancelled: the order is used up
        task.uncancel()
    return result, gone


async def send_reply(send: Send, reply: Reply, *, head: bool = False) -> None:
    """Two ASGI messages; a 204 carries neither a body nor a Content-Length."""
    if reply.status == 204:
        start: Message = {"type": "http.response.start", "status": 204, "headers": reply.headers}
        await send(start)
        await send({"type": "http.response.body", "body": b""})
        return
    await send(
        {
            "type": "http.response.start",
            "status": reply.status,
            "headers": [
                (b"content-type", reply.content_type),
                (b"content-length", b"%d" % len(reply.body)),
                *reply.headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": b"" if head else reply.body})


async def send_json(
    send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    await send_reply(send, Reply(status, body, headers=headers))


def error_reply(error: BaseException) -> Reply:
    """The answer that the error table gives, as strictly valid JSON."""
    status, document = error_body(error)
    headers: tuple[tuple[str, str], ...] = getattr(error, "headers", ())
    encoded = tuple((name.encode("ascii"), value.encode("latin-1")) for name, value in headers)
    return Reply(status, json.dumps(document).encode("ascii"), headers=encoded)
