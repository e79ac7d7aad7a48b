"""Key/value answers as bytes: values are spliced in as they are stored.

Imports domain. Used by hot_kv.py and render.py.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from json.encoder import encode_basestring

from brokers.domain import KvEntry, KvLost, KvResult
from brokers.store.kv_calls import ListedEntry

TIME = '"%Y-%m-%dT%H:%M:%S.%fZ"'


def results(found: Sequence[KvResult]) -> bytes:
    parts = [element(index, one) for index, one in enumerate(found)]
    return b'{"results":[' + b",".join(parts) + b"]}"


def element(index: int, one: KvResult, extra: bytes = b"") -> bytes:
    """One result object; `extra` goes in behind its index."""
    operation = one.operation
    head = b'{"index":%d%b,"op":"%b",' % (index, extra, operation.op.encode())
    if operation.op == "get":
        if one.entry is not None:
            return head + b'"found":true,' + _entry(one.entry)[1:]
        return head + (
            b'"found":false,"key":%b,"value":null,"version":0,"expiresAt":null,'
            b'"updatedAt":null}' % _text(operation.key)
        )
    if operation.op in ("getMany", "getPrefix"):
        rows = b",".join(map(_entry, one.entries))
        tail = b"true" if one.truncated else b"false"
        if operation.op == "getMany":
            missing = b",".join(map(_text, one.missing))
            return head + b'"rows":[%b],"missing":[%b],"truncated":%b}' % (rows, missing, tail)
        last = one.entries[-1].key if one.entries else operation.after
        after = _text(last) if one.truncated and last else b"null"
        return head + b'"rows":[%b],"truncated":%b,"nextAfter":%b}' % (rows, tail, after)
    reason = b"" if one.reason is None else b',"reason":"%b"' % one.reason.encode()
    return head + b'"applied":%b,"key":%b,"value":%b,"version":%d%b}' % (
        b"true" if one.applied else b"false",
        _text(operation.key),
        b"null" if one.value is None else one.value,
        one.version,
        reason,
    )


def lost(one: KvLost) -> bytes:
    return b'{"ok":false,"reason":"kv_precondition",%b}' % lost_fields(one)


def lost_fields(one: KvLost) -> bytes:
    return b'"failedIndex":%d,"kvReason":"%b","version":%d,"value":%b' % (
        one.no,
        one.reason.encode(),
        one.version,
        b"null" if one.value is None else one.value,
    )


def namespaces(found: Sequence[tuple[str, int]], *, truncated: bool) -> bytes:
    parts = [b'{"namespace":%b,"keys":%d}' % (_text(name), keys) for name, keys in found]
    return b'{"namespaces":[' + b",".join(parts) + (b'],"truncated":true}' if truncated else b"]}")


def page(entries: Sequence[ListedEntry]) -> bytes:
    rows = b",".join(
        _entry(KvEntry(*one[:5]))[:-1]
        + (b',"expired":true}' if one.expired else b',"expired":false}')
        for one in entries
    )
    truncated = bool(entries) and entries[-1].more
    return b'{"rows":[%b],"truncated":%b,"nextAfter":%b,"bytes":%d}' % (
        rows,
        b"true" if truncated else b"false",
        _text(entries[-1].key) if truncated else b"null",
        sum(len(one.value or b"") for one in entries),
    )


def _entry(one: KvEntry) -> bytes:
    value = b"" if one.value is None else b'"value":%b,' % one.value
    return b'{"key":%b,%b"version":%d,"expiresAt":%b,"updatedAt":%b}' % (
        _text(one.key),
        value,
        one.version,
        b"null" if one.expires_at is None else _time(one.expires_at),
        _time(one.updated_at),
    )


def _time(moment: datetime) -> bytes:
    return moment.astimezone(UTC).strftime(TIME).encode()


def _text(text: str) -> bytes:
    return encode_basestring(text).encode()
