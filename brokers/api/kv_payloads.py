"""Key/value bodies, from bytes to checked operations: one parser for every door.

The batch route, the path routes and the rider of a transaction read an operation alike. A
value is never decoded; its bytes are cut out. What is wrong is told with a code of the
contract's closed list, and in words beside it.

Imports config, domain, errors, payloads, wire. Used by hot.py and hot_kv.py.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from brokers.api import payloads
from brokers.api.payloads import NO_RAW
from brokers.api.wire import INTEGER_MAX, identifier_problem, json_text
from brokers.config import KvConfig
from brokers.domain import KvOperation
from brokers.errors import RequestError

RIDER_OPS_MAX = 64
RIDER_KEYS_MAX = 256
TTL_MAX_S = 3_153_600_000
PAGE_LIMIT = 100
LIST_LIMIT_MAX = 1000
# So many entries the pages of one call may have in all.
PAGE_ENTRIES_MAX = 10_000
NUMBER_CHARACTERS_MAX = 400
NAMESPACE_MAX = 255
WRITES_WITH_EXPIRY = frozenset({"put", "putIfAbsent", "incr"})
OPS = frozenset({"get", "getMany", "getPrefix", "put", "putIfAbsent", "delete", "incr"})

_namespace = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]*", re.ASCII)
_integer = re.compile(rb"-?[0-9]{1,19}")
_number = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?0*[0-9]{1,4})?")

T = TypeVar("T")


class KvOperationBody(msgspec.Struct, gc=False, rename="camel"):
    op: str | None = None
    ns: str | None = None
    key: str | None = None
    keys: list[str] | None = None
    prefix: str | None = None
    after: str | None = None
    limit: msgspec.Raw = NO_RAW
    keys_only: msgspec.Raw = NO_RAW
    value: msgspec.Raw = NO_RAW
    ttl_seconds: msgspec.Raw = NO_RAW
    forever: msgspec.Raw = NO_RAW
    expect: msgspec.Raw = NO_RAW
    required: msgspec.Raw = NO_RAW
    delta: msgspec.Raw = NO_RAW
    min: msgspec.Raw = NO_RAW
    max: msgspec.Raw = NO_RAW
    tenant: msgspec.Raw = NO_RAW


class KvBody(msgspec.Struct, gc=False):
    operations: list[KvOperationBody]


class KvPathBody(msgspec.Struct, gc=False, rename="camel"):
    """The body of a PUT or DELETE; what the path says is not said again."""

    value: msgspec.Raw = NO_RAW
    ttl_seconds: msgspec.Raw = NO_RAW
    forever: msgspec.Raw = NO_RAW
    expect: msgspec.Raw = NO_RAW
    required: msgspec.Raw = NO_RAW
    op: msgspec.Raw = NO_RAW
    ns: msgspec.Raw = NO_RAW
    namespace: msgspec.Raw = NO_RAW
    key: msgspec.Raw = NO_RAW
    tenant: msgspec.Raw = NO_RAW


class KvListBody(msgspec.Struct, gc=False, rename="camel"):
    namespace: str | None = None
    prefix: str | None = None
    after: str | None = None
    limit: msgspec.Raw = NO_RAW
    keys_only: msgspec.Raw = NO_RAW
    include_expired: msgspec.Raw = NO_RAW


@dataclass(frozen=True, slots=True)
class Page:
    namespace: str
    prefix: str
    after: str | None
    limit: int
    keys_only: bool
    include_expired: bool


_batch = msgspec.json.Decoder(KvBody)
_path = msgspec.json.Decoder(KvPathBody)
_list = msgspec.json.Decoder(KvListBody)
_rider = msgspec.json.Decoder(list[KvOperationBody])


def batch(body: bytes, config: KvConfig) -> list[KvOperation]:
    bodies = _decoded(body, _batch.decode, KvBody).operations
    return _checked(bodies, config, ops_max=config.ops_max, keys_max=config.keys_max)


def rider(raw: bytes, config: KvConfig) -> list[KvOperation]:
    """The `kv` array of a transaction, already cut out of its body."""
    if raw in (b"", b"null"):
        return []
    bodies = _decoded(raw, _rider.decode, list[KvOperationBody])
    for index, one in enumerate(bodies):
        if one.op == "getPrefix":
            raise RequestError(
                f"operation {index}: getPrefix is not allowed in a transaction",
                code="kv_get_prefix_not_allowed_in_transaction",
            )
    return _checked(
        bodies,
        config,
        ops_max=min(config.ops_max, RIDER_OPS_MAX),
        keys_max=min(config.keys_max, RIDER_KEYS_MAX),
    )


def path_operation(op: str, params: dict[str, str], body: bytes, config: KvConfig) -> KvOperation:
    """One operation of a path route. Only a PUT must have a body."""
    said = KvPathBody()
    if op == "put" or body.strip(b" \t\r\n"):
        said = _decoded(body, _path.decode, KvPathBody)
    for name in ("op", "ns", "namespace", "key", "tenant"):
        if bytes(getattr(said, name)):
            raise _bad(f"{name} must not stand in the body: the path says it")
    one = KvOperationBody(
        op=op,
        ns=params["ns"],
        key=params["key"],
        value=said.value,
        ttl_seconds=said.ttl_seconds,
        forever=said.forever,
        expect=said.expect,
        required=said.required,
    )
    [operation] = _checked([one], config, ops_max=1, keys_max=1)
    return operation


def page(body: bytes, config: KvConfig) -> Page:
    said = _decoded(body, _list.decode, KvListBody)
    limit = _whole(said.limit, "limit")
    return Page(
        namespace=_checked_namespace(said.namespace, "namespace"),
        prefix="" if not said.prefix else _checked_key(said.prefix, "prefix", config),
        after=None if not said.after else _checked_key(said.after, "after", config),
        limit=min(max(PAGE_LIMIT if limit is None else limit, 1), LIST_LIMIT_MAX),
        keys_only=_flag(said.keys_only, "keysOnly"),
        include_expired=_flag(said.include_expired, "includeExpired"),
    )


def _decoded(body: bytes, decode: Callable[[bytes], T], shape: type[T]) -> T:
    try:
        return payloads.decode(json_text(body), decode, shape)
    except RequestError as error:
        error.code = "kv_bad_request"
        raise


def _checked(
    bodies: Sequence[KvOperationBody], config: KvConfig, *, ops_max: int, keys_max: int
) -> list[KvOperation]:
    if len(bodies) > ops_max:
        raise _bad(f"at most {ops_max} operations a call")
    operations = []
    for index, one in enumerate(bodies):
        try:
            operations.append(_operation(one, config))
        except RequestError as error:
            error.text = f"operation {index}: {error.text}"
            raise
    _check_keys(operations, keys_max)
    pages = sum(one.op == "getPrefix" for one in bodies)
    for operation in operations:
        operation.limit = min(operation.limit, max(PAGE_ENTRIES_MAX // max(pages, 1), 1))
    return operations


def _check_keys(operations: Sequence[KvOperation], keys_max: int) -> None:
    """A key may be named once in a call; a prefix names none, but counts as one."""
    named: set[tuple[str, str]] = set()
    count = 0
    for one in operations:
        keys = one.keys if one.op == "getMany" else [one.key]
        count += len(keys)
        if count > keys_max:
            raise _bad(f"at most {keys_max} keys a call")
        if one.op == "getPrefix":
            continue
        for key in keys:
            address = (one.namespace, key)
            if address in named:
                raise _bad("a key may be named only once in a call")
            named.add(address)


def _operation(one: KvOperationBody, config: KvConfig) -> KvOperation:
    op = one.op
    if op is None or op not in OPS:
        raise _bad("op must be one of " + ", ".join(sorted(OPS)))
    if bytes(one.tenant):
        raise _bad("tenant must not stand in an operation")
    made = KvOperation(op=op, namespace=_checked_namespace(one.ns, "ns"))
    if op == "getMany":
        if not one.keys:
            raise _bad("getMany needs keys")
        made.keys = [_checked_key(key, "keys", config) for key in one.keys]
    elif op == "getPrefix":
        _page_of(made, one, config)
    else:
        made.key = _checked_key(one.key, "key", config)
    if op in ("put", "putIfAbsent"):
        made.value = bytes(one.value)
        if not made.value:
            raise _bad(f"{op} needs a value")
        if len(made.value) > config.value_bytes_max:
            raise _too_large(f"the value is larger than {config.value_bytes_max} bytes")
    if op == "incr":
        delta = _number_of(one.delta, "delta")
        if delta is None:
            raise _bad("incr needs a delta")
        made.delta = delta
        made.low, made.high = _number_of(one.min, "min"), _number_of(one.max, "max")
    if op in WRITES_WITH_EXPIRY:
        made.ttl_s = _expiry(one)
    if op in ("put", "putIfAbsent", "delete", "incr"):
        made.required = _flag(one.required, "required")
        made.expect = _expectation(op, one)
    return made


def _page_of(made: KvOperation, one: KvOperationBody, config: KvConfig) -> None:
    if not one.prefix:
        raise RequestError("getPrefix needs a prefix", code="kv_prefix_required")
    made.key = _checked_key(one.prefix, "prefix", config)
    made.after = None if not one.after else _checked_key(one.after, "after", config)
    limit = _whole(one.limit, "limit")
    made.limit = min(max(PAGE_LIMIT if limit is None else limit, 1), config.prefix_limit)
    made.keys_only = _flag(one.keys_only, "keysOnly")


def _expiry(one: KvOperationBody) -> int | None:
    """Seconds to live, None for ever: exactly one of the two is said."""
    seconds = _whole(one.ttl_seconds, "ttlSeconds")
    forever = _flag(one.forever, "forever")
    if (seconds is not None) == forever:
        raise RequestError(
            "exactly one of ttlSeconds and forever must be given", code="kv_expiry_not_specified"
        )
    if seconds is not None and not 0 < seconds <= TTL_MAX_S:
        raise _bad(f"ttlSeconds must be within 1..{TTL_MAX_S}")
    return seconds


def _expectation(op: str, one: KvOperationBody) -> int | None:
    """Whoever wrote `expect` meant to be fenced: a null is a mistake and never "absent"."""
    raw = bytes(one.expect)
    if raw == b"null":
        raise _bad("expect must be a version, not null")
    expect = _whole(one.expect, "expect")
    if op in ("putIfAbsent", "incr") and expect is not None:
        raise _bad(f"{op} takes no expect")
    if op == "putIfAbsent":
        return 0
    if expect is not None and expect < 0:
        raise _bad("expect must not be negative")
    return expect


def _checked_namespace(name: str | None, field: str) -> str:
    if name is None:
        raise _bad(f"{field} is required")
    if len(name) > NAMESPACE_MAX or not _namespace.fullmatch(name):
        raise _bad(
            f"{field} must be 1 to {NAMESPACE_MAX} letters, digits and . _ : -,"
            " and begin with a letter, a digit or _"
        )
    return name


def _checked_key(key: str | None, field: str, config: KvConfig) -> str:
    if not key:
        raise _bad(f"{field} must not be empty")
    problem = identifier_problem(key, config.key_bytes_max)
    if problem is None:
        return key
    if identifier_problem(key, INTEGER_MAX) is None:
        raise _too_large(f"{field} {problem}")
    raise _bad(f"{field} {problem}")


def _flag(value: msgspec.Raw, field: str) -> bool:
    raw = bytes(value)
    if raw in (b"", b"null", b"false"):
        return False
    if raw == b"true":
        return True
    raise _bad(f"{field} must be true or false")


def _whole(value: msgspec.Raw, field: str) -> int | None:
    raw = bytes(value)
    if raw in (b"", b"null"):
        return None
    number = int(raw) if _integer.fullmatch(raw) else None
    if number is None or not -INTEGER_MAX <= number <= INTEGER_MAX:
        raise _bad(f"{field} must be an integer of at most 64 bits")
    return number


def _number_of(value: msgspec.Raw, field: str) -> str | None:
    """A JSON number as it was written: PostgreSQL counts with it exactly."""
    raw = bytes(value)
    if raw in (b"", b"null"):
        return None
    if len(raw) > NUMBER_CHARACTERS_MAX or not _number.fullmatch(raw):
        raise _bad(f"{field} must be a number of at most {NUMBER_CHARACTERS_MAX} characters")
    return raw.decode("ascii")


def _bad(text: str) -> RequestError:
    return RequestError(text, code="kv_bad_request")


def _too_large(text: str) -> RequestError:
    return RequestError(text, code="payload_too_large")
