"""POST /api/v1/kv, its path routes, the console's listings, and the operator's switches.

Method: HTTP against a real broker. Bodies that must reach the wire byte for byte are
written by hand.
"""

import concurrent.futures
import json
import re
import threading
import time
import uuid
from urllib.parse import quote

import pytest

from tests.wire_client import WireClient, error_of, expect

KV = "/api/v1/kv"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\Z")


@pytest.fixture
def ns() -> str:
    return f"ns-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def kv(wire, ns):
    """One operation of the test's namespace: its result."""

    def ask(op: str, key: str | None = "k", **more):
        [result] = batch(wire, operation(ns, op, key, **more))
        return result

    return ask


def operation(ns: str, op: str, key: str | None = "k", **more):
    one = {"op": op, "ns": ns} | ({} if key is None else {"key": key}) | more
    if op in ("put", "putIfAbsent", "incr") and not {"forever", "ttlSeconds"} & set(more):
        one["forever"] = True
    if op in ("put", "putIfAbsent"):
        one.setdefault("value", 1)
    return one


def batch(wire, *operations):
    answer = expect(wire.post(KV, {"operations": list(operations)}), 200).json()
    assert list(answer) == ["results"], answer
    assert [result["index"] for result in answer["results"]] == list(range(len(operations)))
    assert [r["op"] for r in answer["results"]] == [one["op"] for one in operations]
    return answer["results"]


def refused(wire, *operations, status=400):
    return error_of(wire.post(KV, {"operations": list(operations)}), status)


# --- what the operations do ---------------------------------------------------------------------


def test_what_is_put_is_got(kv):
    put = kv("put", value={"a": 1})
    assert put == {
        "index": 0,
        "op": "put",
        "applied": True,
        "key": "k",
        "value": {"a": 1},
        "version": put["version"],
    }
    assert put["version"] > 0
    got = kv("get")
    assert got["found"] is True
    assert (got["key"], got["value"], got["version"]) == ("k", {"a": 1}, put["version"])
    assert got["expiresAt"] is None
    assert TIME.match(got["updatedAt"])


def test_a_miss_is_a_200_that_says_so(kv):
    got = kv("get")
    assert got["found"] is False
    assert got["version"] == 0


def test_a_stored_null_is_not_an_absence(kv):
    kv("put", value=None)
    got = kv("get")
    assert (got["found"], got["value"]) == (True, None)


@pytest.mark.parametrize(
    "value",
    [
        b'{"b":1,"a":1,"a":2,"f":1.0,"g":1E2,"s":"\\u00e9"}',
        b'"\\ud800"', b'"x\\u0000y"', b"1e400",
        b'{"id":9007199254740993,"u":18446744073709551615}', b"1" * 5000, b'[ 1 ,  2 ]',
        '"東京 😀"'.encode(), b"-0.0", b"true",
    ],
)  # fmt: skip
def test_a_value_comes_back_byte_for_byte_from_every_read(wire, ns, value):
    body = b'{"operations":[{"op":"put","ns":"%b","key":"k","value": %b ,"forever":true}]}'
    answer = expect(wire.post(KV, body % (ns.encode(), value)), 200)
    assert b'"value":' + value + b"," in answer.content
    for operations in (
        [operation(ns, "get")],
        [operation(ns, "getMany", None, keys=["k"])],
        [operation(ns, "getPrefix", None, prefix="k")],
        [operation(ns, "putIfAbsent", value=1)],
        [operation(ns, "get"), operation(ns, "put", "other")],
    ):
        answer = expect(wire.post(KV, {"operations": operations}), 200)
        assert b'"value":' + value + b"," in answer.content
    assert b'"value":' + value + b"," in wire.get(f"{KV}/{ns}/k").content
    listed = wire.post("/api/v1/resources/kv/list", {"namespace": ns, "prefix": "k"})
    assert b'"value":' + value + b"," in listed.content


def test_put_if_absent_wins_once_and_the_loser_hears_what_is_there(kv):
    first = kv("putIfAbsent", value="mine")
    assert first["applied"] is True
    assert "reason" not in first
    second = kv("putIfAbsent", value="yours")
    assert second["applied"] is False
    assert (second["reason"], second["value"]) == ("exists", "mine")
    assert second["version"] == first["version"]
    assert kv("put", value="yours", expect=0)["reason"] == "exists"


def test_expect_fences_put_and_delete(kv):
    assert kv("put", expect=5)["reason"] == "absent"
    assert kv("get")["found"] is False
    version = kv("put", value=1)["version"]
    wrong = kv("put", value=2, expect=version + 1)
    assert (wrong["applied"], wrong["reason"]) == (False, "version")
    assert (wrong["value"], wrong["version"]) == (1, version)
    assert kv("delete", expect=version + 1)["reason"] == "version"
    newer = kv("put", value=2, expect=version)
    assert newer["applied"] is True
    assert newer["version"] > version
    assert kv("delete", expect=newer["version"])["applied"] is True
    gone = kv("delete", expect=newer["version"])
    assert (gone["reason"], gone["version"]) == ("absent", 0)


def test_a_delete_of_nothing_is_an_answer(kv):
    gone = kv("delete")
    assert (gone["applied"], gone["reason"], gone["version"]) == (False, "absent", 0)
    kv("put")
    assert kv("delete")["applied"] is True
    assert kv("get")["found"] is False


def test_an_expired_entry_is_gone_at_once_and_never_its_version_again(kv):
    version = kv("put", ttlSeconds=1)["version"]
    assert TIME.match(kv("get")["expiresAt"])
    time.sleep(1.1)
    assert kv("get")["found"] is False
    assert kv("getMany", None, keys=["k"])["missing"] == ["k"]
    assert kv("getPrefix", None, prefix="k")["rows"] == []
    assert kv("put", expect=version)["reason"] == "absent"
    assert kv("delete")["reason"] == "absent"
    assert kv("putIfAbsent")["version"] > version


def test_a_put_replaces_the_expiry(kv):
    kv("put", ttlSeconds=1000)
    kv("put")
    assert kv("get")["expiresAt"] is None


def test_incr_counts_from_nothing_and_keeps_its_window(kv):
    assert kv("incr", delta=5, ttlSeconds=1000)["value"] == 5
    window = kv("get")["expiresAt"]
    assert kv("incr", delta=-2)["value"] == 3
    assert kv("get")["expiresAt"] == window
    assert kv("incr", delta=0.5)["value"] == 3.5


def test_incr_refuses_beyond_its_bounds_and_writes_nothing(kv):
    refused = kv("incr", delta=11, max=10)
    assert (refused["applied"], refused["reason"], refused["version"]) == (False, "limit", 0)
    assert kv("get")["found"] is False
    version = kv("incr", delta=9, max=10)["version"]
    refused = kv("incr", delta=2, max=10)
    assert (refused["reason"], refused["value"], refused["version"]) == ("limit", 9, version)
    assert kv("incr", delta=1, max=10)["value"] == 10


def test_incr_of_what_is_no_number_is_type(kv):
    version = kv("put", value="12")["version"]
    refused = kv("incr", delta=1)
    assert (refused["applied"], refused["reason"]) == (False, "type")
    assert (refused["value"], refused["version"]) == ("12", version)


def test_get_many_names_what_is_missing(wire, ns, kv):
    for key in ("a", "b"):
        kv("put", key, value=key)
    found = kv("getMany", None, keys=["b", "x", "a"])
    assert [(row["key"], row["value"]) for row in found["rows"]] == [("b", "b"), ("a", "a")]
    assert set(found["rows"][0]) == {"key", "value", "version", "expiresAt", "updatedAt"}
    assert (found["missing"], found["truncated"]) == (["x"], False)


def test_a_prefix_is_paged_in_byte_order(kv):
    keys = ["p/a", "p/b", "p/%", "p/é", "p/_", "q"]
    for key in keys:
        kv("put", key, value=key)
    wanted = sorted(keys[:5], key=str.encode)
    seen, after = [], None
    while True:
        more = {} if after is None else {"after": after}
        page = kv("getPrefix", None, prefix="p/", limit=2, **more)
        seen += [row["key"] for row in page["rows"]]
        after = page["nextAfter"]
        assert page["truncated"] is (after is not None)
        if after is None:
            break
        assert after == seen[-1]
    assert seen == wanted
    assert [r["key"] for r in kv("getPrefix", None, prefix="p/%")["rows"]] == ["p/%"]
    bare = kv("getPrefix", None, prefix="q", keysOnly=True)["rows"][0]
    assert set(bare) == {"key", "version", "expiresAt", "updatedAt"}
    for limit in (0, -5):
        assert len(kv("getPrefix", None, prefix="p/", limit=limit)["rows"]) == 1
    assert len(kv("getPrefix", None, prefix="p/", limit=10**9)["rows"]) == 5


def test_operations_of_a_batch_are_answered_in_their_order(wire, ns):
    results = batch(
        wire,
        operation(ns, "put", "a", value=1),
        operation(ns, "get", "b"),
        operation(ns, "incr", "c", delta=3),
        operation(ns, "getMany", None, keys=["d"]),
        operation(ns, "getPrefix", None, prefix="a"),
        operation(ns, "delete", "e"),
    )
    assert results[0]["applied"] is True
    assert results[1]["found"] is False
    assert results[2]["value"] == 3
    assert results[3]["missing"] == ["d"]
    assert [row["key"] for row in results[4]["rows"]] == ["a"]
    assert results[5]["reason"] == "absent"
    assert batch(wire) == []


def test_a_lost_required_operation_undoes_the_batch(wire, ns, kv):
    version = kv("put", "held", value="mine")["version"]
    answer = expect(
        wire.post(
            KV,
            {
                "operations": [
                    operation(ns, "put", "new"),
                    operation(ns, "putIfAbsent", "held", required=True),
                ]
            },
        ),
        200,
    ).json()
    assert answer == {
        "ok": False,
        "reason": "kv_precondition",
        "failedIndex": 1,
        "kvReason": "exists",
        "version": version,
        "value": "mine",
    }
    assert kv("get", "new")["found"] is False
    one = operation(ns, "put", "held", expect=version + 1, required=True)
    answer = expect(wire.post(KV, {"operations": [one]}), 200).json()
    assert (answer["ok"], answer["failedIndex"], answer["kvReason"]) == (False, 0, "version")
    assert batch(wire, operation(ns, "put", "held", expect=version, required=True))[0]["applied"]


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"op": "nope"}, {"op": None}, {"op": 3}, {"ns": None}, {"ns": ""},
        {"ns": "NOT A NAMESPACE"}, {"ns": "a/b"}, {"ns": "é"}, {"ns": "n" * 256}, {"ns": "a\n"},
        {"key": None}, {"key": ""},
        {"key": "a\x00b"}, {"key": "\ud800"}, {"key": 1}, {"expect": None}, {"expect": -1},
        {"expect": 1.5}, {"expect": "1"}, {"expect": True}, {"expect": 2**63}, {"required": 1},
        {"forever": 1}, {"forever": "true"}, {"tenant": "x"}, {"tenant": None},
    ],
)  # fmt: skip
def test_a_malformed_put_is_kv_bad_request(wire, ns, change):
    assert refused(wire, operation(ns, "put") | change) == "kv_bad_request"
    batch(wire, operation(ns, "get"))


@pytest.mark.parametrize(
    "change",
    [
        {"op": "incr"}, {"op": "incr", "delta": "1"}, {"op": "incr", "delta": None},
        {"op": "incr", "delta": True}, {"op": "incr", "delta": 1, "min": "0"},
        {"op": "incr", "delta": 1, "expect": 3}, {"op": "incr", "delta": 1, "expect": None},
        {"op": "putIfAbsent", "expect": 4}, {"op": "putIfAbsent", "expect": 0},
        {"op": "getMany"}, {"op": "getMany", "keys": []},
        {"op": "getMany", "keys": ["a", "a"]}, {"op": "getMany", "keys": [""]},
        {"op": "getMany", "keys": [1]}, {"op": "getMany", "keys": "a"},
        {"op": "getPrefix", "prefix": "a", "limit": "5"},
        {"op": "getPrefix", "prefix": "a", "limit": 1.5},
        {"op": "getPrefix", "prefix": "a", "limit": 2**64},
        {"op": "getPrefix", "prefix": "a", "keysOnly": 1},
        {"op": "getPrefix", "prefix": "a\x00"},
    ],
)  # fmt: skip
def test_a_malformed_operation_is_kv_bad_request(wire, ns, change):
    assert refused(wire, operation(ns, "put") | change) == "kv_bad_request"


def test_a_number_out_of_all_proportion_is_refused(wire, ns):
    body = '{"operations":[{"op":"incr","ns":"%s","key":"k","forever":true,"delta":%s}]}'
    for number in ("1e99999", "1" * 401):
        assert error_of(wire.post(KV, body % (ns, number)), 400) == "kv_bad_request"


@pytest.mark.parametrize(
    "expiry",
    [
        {}, {"forever": False}, {"ttlSeconds": None}, {"forever": None},
        {"ttlSeconds": 5, "forever": True},
    ],
)  # fmt: skip
@pytest.mark.parametrize("op", ["put", "putIfAbsent", "incr"])
def test_exactly_one_expiry_must_be_said(wire, ns, op, expiry):
    one = {"op": op, "ns": ns, "key": "k", "value": 1, "delta": 1} | expiry
    assert refused(wire, one) == "kv_expiry_not_specified"


@pytest.mark.parametrize("seconds", [0, -1, 1.5, "60", True, 2**63, 10**12])
def test_a_ttl_is_a_positive_number_of_seconds(wire, ns, seconds):
    assert refused(wire, operation(ns, "put", ttlSeconds=seconds)) == "kv_bad_request"


@pytest.mark.parametrize("prefix", [{}, {"prefix": ""}, {"prefix": None}])
def test_a_prefix_must_be_something(wire, ns, prefix):
    one = {"op": "getPrefix", "ns": ns} | prefix
    assert refused(wire, one) == "kv_prefix_required"


def test_a_key_may_be_named_once_in_a_batch(wire, ns):
    for second in (
        operation(ns, "get"),
        operation(ns, "delete"),
        operation(ns, "getMany", None, keys=["x", "k"]),
    ):
        assert refused(wire, operation(ns, "put"), second) == "kv_bad_request"
    batch(wire, operation(ns, "put"), operation(f"{ns}-b", "get"))


def test_what_is_too_large_is_413(wire, ns):
    exact = "x" * (65_536 - 2)
    assert batch(wire, operation(ns, "put", value=exact))[0]["applied"]
    assert refused(wire, operation(ns, "put", value=exact + "x"), status=413) == "payload_too_large"
    assert batch(wire, operation(ns, "put", "é" * 256))[0]["applied"]
    for one in (
        operation(ns, "put", "é" * 257),
        operation(ns, "get", "k" * 513),
        operation(ns, "getMany", None, keys=["k" * 513]),
    ):
        assert refused(wire, one, status=413) == "payload_too_large"


def test_the_reads_of_a_call_are_bounded_together(start_broker, fresh_database):
    """A getMany and a page say that they are cut short; a get cannot, so the call is refused."""
    broker = start_broker(on=fresh_database(), QUEEN_KV_MAX_READ_BYTES="1000")
    ns, value = "bounded", "x" * 498
    keys = [f"k{number}" for number in range(6)]
    gets = [operation(ns, "get", key) for key in keys]
    with WireClient.at(broker.url) as wire:
        batch(wire, *[operation(ns, "put", key, value=value) for key in keys])
        assert all(one["found"] for one in batch(wire, *gets[:2]))
        answer = wire.post(KV, {"operations": gets[:3]})
        assert error_of(answer, 413) == "payload_too_large"
        answer = wire.post(KV, {"operations": [operation(ns, "put", "new"), *gets[:3]]})
        assert error_of(answer, 413) == "payload_too_large"
        assert batch(wire, operation(ns, "get", "new"))[0]["found"] is False
        bundle = {"operations": [], "kv": [operation(ns, "put", "new"), *gets[:3]]}
        answer = expect(wire.post("/api/v1/transaction", bundle), 200).json()
        assert (answer["success"], answer["reason"]) == (False, "payload_too_large")
        many = operation(ns, "getMany", None, keys=keys[2:])
        page = operation(ns, "getPrefix", None, prefix="k", after="k1")
        first, found, cut = batch(wire, gets[0], many, page)
        assert first["found"] and found["truncated"] and len(found["rows"]) == 1
        assert (cut["rows"], cut["truncated"], cut["nextAfter"]) == ([], True, "k1")
        [again] = batch(wire, page)
        assert [row["key"] for row in again["rows"]] == ["k2", "k3"]


def test_single_gets_of_many_callers_do_not_share_their_bytes(start_broker, fresh_database):
    broker = start_broker(on=fresh_database(), QUEEN_KV_MAX_READ_BYTES="1000")
    with WireClient.at(broker.url) as wire:
        batch(wire, *[operation("ns", "put", f"k{no}", value="x" * 900) for no in range(32)])

    def ask(number: int) -> list[bool]:
        with WireClient.at(broker.url) as wire:
            barrier.wait()
            one = operation("ns", "get", f"k{number}")
            many = operation("ns", "getMany", None, keys=[f"k{number}"])
            return [
                batch(wire, one)[0]["found"] and len(batch(wire, many)[0]["rows"]) == 1
                for _ in range(10)
            ]

    barrier = threading.Barrier(32)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        assert all(all(found) for found in pool.map(ask, range(32)))


def test_a_batch_is_bounded_in_operations_and_keys(wire, ns):
    gets = [operation(ns, "get", f"k{n}") for n in range(257)]
    assert len(batch(wire, *gets[:256])) == 256
    assert refused(wire, *gets) == "kv_bad_request"
    many = operation(ns, "getMany", None, keys=[f"k{n}" for n in range(1025)])
    assert refused(wire, many) == "kv_bad_request"


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"null", b"{}", b'{"operations":{}}', b'{"operations":[1]}',
     b'{"operations":[null]}', b"[" * 100_000,
     b'{"operations":[{"op":"get","ns":"a","key":"\xff"}]}'],
)  # fmt: skip
def test_a_body_of_the_wrong_shape_is_kv_bad_request(wire, body):
    assert error_of(wire.http.post(KV, content=body), 400) == "kv_bad_request"


def test_nothing_of_a_refused_batch_is_written(wire, ns, kv):
    assert refused(wire, operation(ns, "put", "a"), operation(ns, "put", "b", ttlSeconds=0))
    assert kv("get", "a")["found"] is False


# --- path routes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["k", "a/b", "a//b/", "..", "a b+c%", "é東😀", "?x=1#y", "\n", "list"]
)
def test_a_key_is_put_got_and_deleted_by_its_path(wire, ns, key):
    encoded = key.replace(".", "%2E") if key == ".." else quote(key, safe="")
    path = f"{KV}/{ns}/{encoded}"
    body = json.dumps({"value": [1], "forever": True})
    put = expect(wire.http.put(path, content=body), 200).json()
    assert (put["op"], put["applied"], put["key"], put["value"]) == ("put", True, key, [1])
    got = expect(wire.get(path), 200)
    assert got.headers["etag"] == f'"{put["version"]}"'
    assert got.json()["found"] is True
    assert (got.json()["value"], got.json()["key"]) == ([1], key)
    [same] = batch(wire, operation(ns, "get", key))
    assert same["version"] == put["version"]
    wrong = wire.http.request("DELETE", path, content=json.dumps({"expect": put["version"] + 1}))
    assert expect(wrong, 200).json()["reason"] == "version"
    assert expect(wire.http.delete(path), 200).json()["applied"] is True
    missing = expect(wire.get(path), 200)
    assert missing.json()["found"] is False
    assert "etag" not in missing.headers


def test_a_slash_in_a_key_path_is_written_as_it_is(wire, ns):
    body = json.dumps({"value": 1, "ttlSeconds": 60})
    expect(wire.http.put(f"{KV}/{ns}/a/b", content=body), 200)
    assert expect(wire.get(f"{KV}/{ns}/a%2Fb"), 200).json()["found"] is True


def test_path_routes_take_no_query_string(wire, ns):
    body = json.dumps({"value": 1, "forever": True})
    for answer in (
        wire.get(f"{KV}/{ns}/k", x="1"),
        wire.http.put(f"{KV}/{ns}/k?ttl=5", content=body),
        wire.http.delete(f"{KV}/{ns}/k?a"),
        wire.get("/api/v1/resources/kv/namespaces", x="1"),
        wire.post("/api/v1/resources/kv/list?x=1", {"namespace": ns}),
    ):
        assert error_of(answer, 400) == "kv_no_query_string"


@pytest.mark.parametrize("name", ["op", "ns", "namespace", "key", "tenant"])
def test_a_path_body_does_not_say_what_the_path_says(wire, ns, name):
    body = json.dumps({"value": 1, "forever": True, name: "x"})
    assert error_of(wire.http.put(f"{KV}/{ns}/k", content=body), 400) == "kv_bad_request"
    answer = wire.http.request("DELETE", f"{KV}/{ns}/k", content=json.dumps({name: "x"}))
    assert error_of(answer, 400) == "kv_bad_request"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        *[
            (path, 400, "kv_bad_request")
            for path in ("n%20s/k", "ns/", "/k", "ns/%00", "ns/%FF", "%FF/k")
        ],
        ("ns/" + "k" * 513, 413, "payload_too_large"),
    ],
)  # fmt: skip
def test_a_path_that_names_no_key_is_refused_with_its_code(wire, path, status, code):
    assert error_of(wire.get(f"{KV}/{path}"), status) == code


def test_a_put_by_path_says_its_expiry_and_its_value(wire, ns):
    path = f"{KV}/{ns}/k"
    assert error_of(wire.http.put(path, content=b'{"value":1}'), 400) == "kv_expiry_not_specified"
    assert error_of(wire.http.put(path, content=b'{"forever":true}'), 400) == "kv_bad_request"
    assert error_of(wire.http.put(path), 400) == "kv_bad_request"
    lost = wire.http.put(path, content=b'{"value":1,"forever":true,"expect":9,"required":true}')
    assert expect(lost, 200).json()["kvReason"] == "absent"


# --- the console's listings ---------------------------------------------------------------------


def test_namespaces_are_listed_while_they_hold_a_row(wire, ns, kv):
    def listed():
        answer = expect(wire.get("/api/v1/resources/kv/namespaces"), 200).json()
        names = [one["namespace"] for one in answer["namespaces"]]
        assert names == sorted(names, key=str.encode)
        return {one["namespace"]: one["keys"] for one in answer["namespaces"]}

    assert ns not in listed()
    kv("put", "a")
    kv("put", "b")
    assert listed()[ns] == 2
    kv("delete", "a")
    kv("delete", "b")
    assert ns not in listed()


def test_a_namespace_is_listed_page_by_page(wire, ns, kv):
    for key in ("a1", "a2", "a3", "b1"):
        kv("put", key, value="x" * 8)
    kv("put", "a2", ttlSeconds=1)

    def page(**body):
        return expect(wire.post("/api/v1/resources/kv/list", {"namespace": ns} | body), 200).json()

    whole = page()
    assert [row["key"] for row in whole["rows"]] == ["a1", "a2", "a3", "b1"]
    assert (whole["truncated"], whole["nextAfter"], whole["bytes"]) == (False, None, 31)
    assert set(whole["rows"][0]) == {
        "key", "value", "version", "expiresAt", "updatedAt", "expired",
    }  # fmt: skip
    first = page(prefix="a", limit=2)
    assert (first["truncated"], first["nextAfter"]) == (True, "a2")
    assert [row["key"] for row in page(prefix="a", after="a2")["rows"]] == ["a3"]
    bare = page(keysOnly=True)
    assert bare["bytes"] == 0
    assert "value" not in bare["rows"][0]
    time.sleep(1.1)
    assert [row["key"] for row in page()["rows"]] == ["a1", "a3", "b1"]
    expired = [row for row in page(includeExpired=True)["rows"] if row["expired"]]
    assert [row["key"] for row in expired] in (["a2"], [])  # unless it was pruned already
    empty = expect(wire.post("/api/v1/resources/kv/list", {"namespace": "none"}), 200).json()
    assert empty == {"rows": [], "truncated": False, "nextAfter": None, "bytes": 0}
    for body in ({}, {"namespace": "a b"}, {"namespace": ns, "limit": "x"}):
        assert error_of(wire.post("/api/v1/resources/kv/list", body), 400) == "kv_bad_request"


# --- in a transaction ---------------------------------------------------------------------------


def push_op(queue, *ids):
    items = [{"queue": queue, "payload": 1, "transactionId": one} for one in ids]
    return {"type": "push", "items": items}


def test_a_rider_commits_with_its_bundle_and_its_results_come_behind(wire, ns, kv, fresh_queue):
    answer = wire.transaction(
        push_op(fresh_queue, "a", "b"),
        kv=[operation(ns, "putIfAbsent", "once", value={"v": 1}), operation(ns, "get", "none")],
    )
    assert answer["success"] is True
    assert [r["index"] for r in answer["results"]] == [0, 1, 2, 3]
    once, none = answer["results"][2:]
    assert (once["type"], once["op"], once["applied"], once["value"]) == (
        "kv", "putIfAbsent", True, {"v": 1},
    )  # fmt: skip
    assert (none["type"], none["found"]) == ("kv", False)
    assert kv("get", "once")["version"] == once["version"]


def test_a_rider_may_come_alone_and_an_empty_one_may_not(wire, ns, kv):
    assert wire.transaction(kv=[operation(ns, "incr", delta=2)])["results"][0]["value"] == 2
    assert kv("get")["value"] == 2
    assert wire.post("/api/v1/transaction", {"operations": [], "kv": []}).status_code == 400


def test_a_lost_required_rider_rolls_the_bundle_back(wire, ns, kv, fresh_queue):
    version = kv("put", "once", value="first")["version"]
    answer = wire.transaction(
        push_op(fresh_queue, "a", "b"),
        kv=[
            operation(ns, "put", "other"),
            operation(ns, "putIfAbsent", "once", required=True),
        ],
    )
    assert (answer["success"], answer["reason"], answer["results"]) == (
        False,
        "kv_precondition",
        [],
    )
    assert (answer["failedIndex"], answer["kvReason"]) == (3, "exists")
    assert (answer["version"], answer["value"]) == (version, "first")
    assert kv("get", "other")["found"] is False
    assert wire.messages(fresh_queue) == []
    # Without required the bundle commits and the operation says that it did not apply.
    answer = wire.transaction(push_op(fresh_queue, "a"), kv=[operation(ns, "putIfAbsent", "once")])
    assert (answer["success"], answer["results"][1]["reason"]) == (True, "exists")
    assert len(wire.messages(fresh_queue)) == 1


def test_a_bundle_that_rolls_back_takes_its_rider_with_it(wire, ns, kv, fresh_queue):
    wire.push(fresh_queue, 1, ids=["dup"])
    answer = wire.transaction(push_op(fresh_queue, "dup"), kv=[operation(ns, "put")])
    assert answer["reason"] == "duplicate"
    assert kv("get")["found"] is False


def test_what_a_rider_may_not_be(wire, ns):
    def answer_of(status, *riders, **more):
        body = {"operations": []} | {"kv": list(riders)} | more
        return expect(wire.post("/api/v1/transaction", body), status).json()

    prefix = operation(ns, "getPrefix", None, prefix="a")
    gets = [operation(ns, "get", f"k{n}") for n in range(65)]
    many = operation(ns, "getMany", None, keys=[f"k{n}" for n in range(257)])
    for code, riders in (
        ("kv_get_prefix_not_allowed_in_transaction", [prefix]),
        ("kv_bad_request", gets),
        ("kv_bad_request", [many]),
        ("kv_bad_request", [operation(ns, "put"), operation(ns, "get")]),
        ("kv_expiry_not_specified", [{"op": "put", "ns": ns, "key": "k", "value": 1}]),
        ("kv_bad_request", [1]),
    ):
        answer = answer_of(400, *riders)
        assert (answer["success"], answer["reason"], answer["error"]) == (
            False,
            "bad_request",
            code,
        )
        assert answer["results"] == []
    large = answer_of(200, operation(ns, "put", value="x" * 65_536))
    assert (large["success"], large["reason"]) == (False, "payload_too_large")
    assert wire.post("/api/v1/transaction", {"operations": [], "kv": {}}).status_code == 400
    assert len(answer_of(200, *gets[:64])["results"]) == 64


# --- switches, tenants, and a database that does not keep up ------------------------------------


def test_an_operator_can_pause_kv_and_everything_else_goes_on(start_broker, fresh_database):
    database = fresh_database()
    first, second = start_broker(on=database), start_broker(on=database)
    path = "/api/v1/system/kv-timers"
    with WireClient.at(first.url) as one, WireClient.at(second.url) as two:
        state = expect(one.get(path), 200).json()
        assert state.pop("quotaAgeMs") >= 0
        assert state == {
            "kvEnabled": True, "timersScheduleEnabled": True, "timersFireEnabled": True,
            "quotaTenants": 0, "quotaHot": 0,
        }  # fmt: skip
        batch(one, operation("ns", "put"))
        for body in ({}, {"other": True}, {"kv": None}, {"kv": 1}, {"kv": "false"}):
            error_of(one.post(path, body), 400)
        answer = expect(one.post(path, {"kv": False}), 200).json()
        assert (answer["kvEnabled"], answer["mirrored"]) == (False, True)
        assert answer["timersFireEnabled"] is True
        paused = one.post(KV, {"operations": [operation("ns", "get")]})
        assert error_of(paused, 503) == "kv_disabled"
        assert int(paused.headers["retry-after"]) >= 1
        for answer in (
            one.get(f"{KV}/ns/k"),
            one.get("/api/v1/resources/kv/namespaces"),
            one.post("/api/v1/resources/kv/list", {"namespace": "ns"}),
        ):
            assert error_of(answer, 503) == "kv_disabled"
        body = {"operations": [push_op("q", "a")], "kv": [operation("ns", "put")]}
        assert error_of(one.post("/api/v1/transaction", body), 403) == "kv_disabled"
        assert one.transaction(push_op("q", "a"))["success"] is True
        deadline = time.monotonic() + 3
        while expect(two.get(path), 200).json()["kvEnabled"]:
            assert time.monotonic() < deadline, "the other broker has not heard"
            time.sleep(0.05)
        assert error_of(two.get(f"{KV}/ns/k"), 503) == "kv_disabled"
        expect(two.post(path, {"kv": True, "timersFire": False}), 200)
        assert two.get(f"{KV}/ns/k").json()["found"] is True
    third = start_broker(on=database)
    with WireClient.at(third.url) as three:
        state = expect(three.get(path), 200).json()
        assert (state["kvEnabled"], state["timersFireEnabled"]) == (True, False)


def test_tenants_have_namespaces_of_their_own_and_rates(start_broker, ns):
    broker = start_broker(
        QUEEN_TENANCY_HEADER="true", QUEEN_KV_TRUSTED_PROXY="true", QUEEN_KV_REQUIRE_GRANT="false",
        QUEEN_KV_WRITE_RATE="1", QUEEN_KV_WRITE_BURST="3",
    )  # fmt: skip
    tenant = {"x-queen-tenant": str(uuid.uuid4())}
    with WireClient.at(broker.url) as default, WireClient.at(broker.url, tenant) as other:
        batch(default, operation(ns, "put", value="theirs"))
        assert batch(other, operation(ns, "get"))[0]["found"] is False
        assert batch(other, operation(ns, "putIfAbsent"))[0]["applied"] is True
        assert batch(default, operation(ns, "get"))[0]["value"] == "theirs"
        listed = expect(other.get("/api/v1/resources/kv/namespaces"), 200).json()
        assert listed == {"namespaces": [{"namespace": ns, "keys": 1}]}
        for _ in range(2):
            batch(other, operation(ns, "put"))
        refused = other.post(KV, {"operations": [operation(ns, "put")]})
        assert error_of(refused, 429) == "rate_limited"
        assert int(refused.headers["retry-after"]) >= 1
        assert batch(other, operation(ns, "get"))[0]["found"] is True
        for _ in range(20):
            batch(default, operation(ns, "put"))


def test_a_database_that_does_not_keep_up_is_a_503_here_and_nowhere_else(
    start_broker, fresh_database, fresh_queue
):
    database = fresh_database()
    broker = start_broker(on=database)
    with database.connect(autocommit=False) as holder, WireClient.at(broker.url) as wire:
        holder.execute("LOCK TABLE queen_kv IN ACCESS EXCLUSIVE MODE")
        started = time.monotonic()
        for one in (operation("ns", "put"), operation("ns", "get")):
            answer = wire.post(KV, {"operations": [one]})
            assert error_of(answer, 503) == "kv_unavailable"
            assert int(answer.headers["retry-after"]) >= 1
        assert time.monotonic() - started < 15
        assert wire.push(fresh_queue, 1)[0]["status"] == "queued"
        holder.rollback()
        assert batch(wire, operation("ns", "put"), operation("ns", "get", "x"))[0]["applied"]


def test_after_failures_in_a_row_a_write_is_refused_before_it_waits(
    start_broker, fresh_database, eventually
):
    database = fresh_database()
    broker = start_broker(on=database, QUEEN_KV_STANDALONE_SHED_AFTER="1")
    with database.connect(autocommit=False) as holder, WireClient.at(broker.url) as wire:
        holder.execute("LOCK TABLE queen_kv IN ACCESS EXCLUSIVE MODE")
        assert error_of(wire.post(KV, {"operations": [operation("ns", "get")]}), 503)
        answer = wire.post(KV, {"operations": [operation("ns", "put")]})
        assert error_of(answer, 503) == "kv_unavailable"
        assert int(answer.headers["retry-after"]) >= 1
        text = wire.get("/metrics/prometheus").text
        assert 'queen_kv_ops_total{op="put",outcome="shed",path="route"} 1.0' in text
        holder.rollback()
        body = {"operations": [operation("ns", "put")]}
        eventually(lambda: wire.post(KV, body).status_code == 200)
        assert all(wire.post(KV, body).status_code == 200 for _ in range(5))


def test_one_held_key_does_not_hold_up_the_others(wire, ns, kv, second_connection):
    kv("put", "held")
    holder = second_connection()
    holder.execute("SELECT 1 FROM queen_kv WHERE ns = %s FOR UPDATE", [ns])
    started = time.monotonic()
    assert kv("put", "free")["applied"] is True
    assert time.monotonic() - started < 1
    assert error_of(wire.post(KV, {"operations": [operation(ns, "put", "held")]}), 503)
    holder.rollback()
    assert kv("put", "held")["applied"] is True


def test_what_kv_does_is_counted(wire, ns, kv):
    kv("put")
    kv("get")
    lost = operation(ns, "putIfAbsent", required=True)
    expect(wire.post(KV, {"operations": [lost]}), 200)
    assert wire.transaction(kv=[lost])["reason"] == "kv_precondition"
    text = wire.get("/metrics/prometheus").text
    assert 'queen_kv_ops_total{op="put",outcome="applied",path="route"}' in text
    for path in ("route", "transaction"):
        assert f'queen_kv_ops_total{{op="putIfAbsent",outcome="exists",path="{path}"}}' in text
    for name in (
        'queen_kv_bytes_total{direction="written"}', 'queen_kv_bytes_total{direction="read"}',
        'queen_kv_op_duration_milliseconds{quantile="0.99"}', 'queen_kv_pool{state="size"}',
        'queen_kv_read_rejected_total{reason="rate_limited"}', "queen_kv_expired_not_pruned ",
        "queen_kv_singleflight_coalesced_total", "queen_kv_expired_not_pruned_capped",
        "queen_kv_expiry_lag_seconds",
    ):  # fmt: skip
        assert name in text


def test_one_of_sixteen_racers_creates_a_key_at_any_of_two_brokers(client, start_broker, ns):
    second = start_broker()
    bases = [str(client.base_url), second.url]

    def race(number: int) -> list[bool]:
        with WireClient.at(bases[number % 2]) as wire:
            barrier.wait()
            applied = []
            for turn in range(30):
                [result] = batch(wire, operation(ns, "putIfAbsent", f"k{turn}", value=number))
                applied.append(result["applied"])
            return applied

    barrier = threading.Barrier(16)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        rounds = zip(*pool.map(race, range(16)), strict=True)
    assert [sum(applied) for applied in rounds] == [1] * 30
