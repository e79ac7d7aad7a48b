"""Key/value state."""

from brokers.api.openapi.words import (
    ANYTHING,
    Operation,
    loose,
    many,
    maybe,
    moment,
    one_of,
    record,
    ref,
    text,
    truth,
    whole,
)

TAG = "key/value"

_WRITE = {
    "value": ANYTHING,
    "ttlSeconds": whole(minimum=1),
    "forever": {"const": True},
    "expect": whole("apply only to this version; 0: only if there is none", minimum=0),
}

COMPONENTS = {
    "KvOperation": loose(
        "Writes need exactly one of ttlSeconds and forever",
        ("op", "ns"),
        op=one_of("get", "getMany", "getPrefix", "put", "putIfAbsent", "delete", "incr"),
        ns=text(pattern="^[A-Za-z0-9_][A-Za-z0-9._:-]{0,254}$"),
        key=text(),
        keys=many(text()),
        prefix=text(),
        after=maybe(text()),
        limit=whole(),
        keysOnly=truth(),
        **_WRITE,
        required=truth("a lost precondition undoes the whole call"),
        delta={"type": "number"},
        min={"type": "number"},
        max={"type": "number"},
    ),
    "KvResult": loose(
        "Of a read `found`, `rows` or `missing`; of a write `applied`, or the `reason` why not",
        ("index", "op"),
        index=whole(),
        op=text(),
        found=truth(),
        applied=truth(),
        key=text(),
        value=ANYTHING,
        version=whole(),
        reason=text(),
        rows=many(loose()),
        missing=many(text()),
        truncated=truth(),
        nextAfter=maybe(text()),
        expiresAt=maybe(moment()),
        updatedAt=maybe(moment()),
    ),
}

_LOST = record("A required precondition was lost: nothing was applied", ok=truth(), reason=text())

OPERATIONS = {
    "kv_batch": Operation(
        "Read and write entries, all or nothing",
        body=record(operations=many(ref("KvOperation"))),
        answers={
            200: {"anyOf": [record(results=many(ref("KvResult"))), _LOST]},
        },
    ),
    "kv_get": Operation("Read an entry", answers={200: ref("KvResult")}),
    "kv_put": Operation(
        "Write an entry",
        body=loose(**_WRITE),
        answers={200: {"anyOf": [ref("KvResult"), _LOST]}},
    ),
    "kv_delete": Operation(
        "Delete an entry",
        body=loose(expect=_WRITE["expect"]),
        body_required=False,
        answers={200: {"anyOf": [ref("KvResult"), _LOST]}},
    ),
    "kv_namespaces": Operation(
        "List namespaces",
        answers={
            200: loose(
                "`truncated` where 10000 are told: there may be more",
                ("namespaces",),
                namespaces=many(record(namespace=text(), keys=whole())),
                truncated=truth(),
            )
        },
    ),
    "kv_list": Operation(
        "List the entries of a namespace",
        body=loose(
            "",
            ("namespace",),
            namespace=text(),
            prefix=maybe(text()),
            after=maybe(text()),
            limit=whole(),
            keysOnly=truth(),
            includeExpired=truth(),
        ),
        answers={
            200: record(
                rows=many(loose()), truncated=truth(), nextAfter=maybe(text()), bytes=whole()
            )
        },
    ),
}
