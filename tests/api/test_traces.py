"""Traces: noted at a message, read again by message and by name.

Method: HTTP against the shared broker; names are the test's own, so counts are too.
"""

import uuid
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.wire_client import UNKNOWN_UUID, error_of, expect, segment

TRACES = "/api/v1/traces"
NAMES = f"{TRACES}/names"


@pytest.fixture
def name():
    return f"name-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def partition(wire, fresh_queue):
    wire.push(fresh_queue, 1, partition="p")
    [message] = wire.messages(fresh_queue)
    return message["partitionId"]


def note(wire, partition, transaction="t", data=1, **more):
    body = {"transactionId": transaction, "partitionId": partition, "data": data} | more
    answer = expect(wire.post(TRACES, body), 201).json()
    assert answer["success"] is True
    return answer["traceId"]


def of_message(wire, partition, transaction="t"):
    path = f"{TRACES}/{segment(partition)}/{segment(transaction)}"
    return expect(wire.get(path), 200).json()["traces"]


def by_name(wire, name, **params):
    return expect(wire.get(f"{TRACES}/by-name/{segment(name)}", **params), 200).json()


def test_a_trace_is_found_by_its_message_with_all_it_has(wire, partition, name):
    trace_id = note(
        wire,
        partition,
        data={"text": "ü"},
        consumerGroup="g",
        eventType="step",
        traceNames=[name, "a/b", name],
        worker_id="mine",
    )
    [trace] = of_message(wire, partition)
    created_at = trace.pop("created_at")
    assert created_at.endswith("Z") and len(created_at) == 27
    assert trace == {
        "id": trace_id,
        "event_type": "step",
        "data": {"text": "ü"},
        "consumer_group": "g",
        "worker_id": "seg-rust",
        "trace_names": [name, "a/b"],
    }


def test_defaults_and_order(wire, partition):
    ids = [note(wire, partition, data=no) for no in range(3)]
    traces = of_message(wire, partition)
    assert [one["id"] for one in traces] == ids
    assert [one["data"] for one in traces] == [0, 1, 2]
    assert (traces[0]["consumer_group"], traces[0]["event_type"]) == ("__QUEUE_MODE__", "info")
    assert traces[0]["trace_names"] == []


def test_data_comes_back_byte_for_byte(wire, partition):
    data = '{"b":1,"a":1,"a":2,"g":1E2,"i":9007199254740993,"s":"\\ud800\\u0000"}'
    body = f'{{"transactionId":"t","partitionId":"{partition}","data":{data}}}'
    expect(wire.post(TRACES, body), 201)
    assert f'"data":{data}}}' in wire.get(f"{TRACES}/{partition}/t").text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("one", ["one"]),
        (["a", 1, None, ["b"], "c"], ["a", "c"]),
        ({"a": 1}, []),
        (7, []),
        (None, []),
        ([], []),
    ],
)
def test_names_are_strings_or_one_string_and_all_else_is_ignored(wire, partition, given, kept):
    note(wire, partition, traceNames=given)
    assert of_message(wire, partition)[0]["trace_names"] == kept


def test_no_message_is_needed_and_nothing_has_no_traces(wire, partition):
    note(wire, partition, transaction="never pushed/at all")
    assert len(of_message(wire, partition, "never pushed/at all")) == 1
    assert of_message(wire, partition, "another") == []
    assert of_message(wire, str(uuid.uuid4())) == []
    assert of_message(wire, "no uuid") == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"transactionId": None}, "transactionId and partitionId are required"),
        ({"transactionId": ""}, "transactionId and partitionId are required"),
        ({"partitionId": None}, "transactionId and partitionId are required"),
        ({"data": None}, "data is required"),
        ({"transactionId": "a\x00"}, None),
        ({"transactionId": 1}, None),
        ({"consumerGroup": "\udc00"}, None),
        ({"eventType": "\x00"}, None),
        ({"traceNames": "\x00"}, None),
        ({"traceNames": ["n" * 256]}, None),
        ({"traceNames": [str(no) for no in range(65)]}, None),
    ],
)
def test_what_is_missing_or_cannot_be_stored_is_a_400(wire, change, text):
    body = {"transactionId": "t", "partitionId": UNKNOWN_UUID, "data": 1} | change
    told = error_of(wire.post(TRACES, body), 400)
    assert text is None or told == text


def test_a_partition_id_that_is_no_uuid_is_the_contracts_500(wire):
    body = {"transactionId": "t", "partitionId": "junk", "data": 1}
    assert error_of(wire.post(TRACES, body), 500).startswith("trace failed: ")


def test_data_that_is_too_large_is_a_413(wire, partition):
    body = {"transactionId": "t", "partitionId": partition, "data": "x" * 1_048_576}
    error_of(wire.post(TRACES, body), 413)
    assert of_message(wire, partition) == []


def test_traces_of_a_name_are_paged_oldest_first(wire, partition, fresh_queue, name):
    ids = [note(wire, partition, f"t{no}", traceNames=[name]) for no in range(5)]
    page = by_name(wire, name)
    assert [one["id"] for one in page["traces"]] == ids
    assert (page["total"], page["pagination"]) == (5, {"limit": 100, "offset": 0})
    first = page["traces"][0]
    assert first["transaction_id"] == "t0"
    assert (first["queue_name"], first["partition_name"]) == (fresh_queue, "p")
    assert (first["partition_id"], first["message_payload"]) == (partition, None)
    assert first["trace_names"] == [name] and first["data"] == 1

    page = by_name(wire, name, limit=2, offset=3)
    assert [one["id"] for one in page["traces"]] == ids[3:]
    assert (page["total"], page["pagination"]) == (5, {"limit": 2, "offset": 3})
    assert by_name(wire, name, offset=5)["traces"] == []
    assert by_name(wire, name, offset=5)["total"] == 5
    assert len(by_name(wire, name, limit=0)["traces"]) == 1, "the least limit is one"
    assert by_name(wire, name, limit=10**9)["pagination"]["limit"] == 1000
    assert by_name(wire, name, offset=-1)["pagination"]["offset"] == 0
    assert by_name(wire, name, offset=2**63 - 1)["traces"] == []


def test_a_page_of_a_name_may_have_times(wire, partition, name):
    ids = [note(wire, partition, f"t{no}", traceNames=[name]) for no in range(3)]
    at = [one["created_at"] for one in by_name(wire, name)["traces"]]
    assert [one["id"] for one in by_name(wire, name, **{"from": at[1]})["traces"]] == ids[1:]
    assert [one["id"] for one in by_name(wire, name, to=at[1])["traces"]] == ids[:2]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert by_name(wire, name, **{"from": later})["total"] == 0
    error_of(wire.get(f"{TRACES}/by-name/{name}", **{"from": "2026-02-30"}), 400)


@pytest.mark.parametrize("value", ["abc", "1.5", "9" * 30, "٣", "1_000", " 5 "])
@pytest.mark.parametrize("parameter", ["limit", "offset"])
def test_paging_that_is_no_number_is_a_400(wire, parameter, value):
    error_of(wire.get(NAMES, **{parameter: value}), 400)
    error_of(wire.get(f"{TRACES}/by-name/x", **{parameter: value}), 400)


def test_names_are_counted_most_recent_first(wire, partition, name):
    for transaction in ("t1", "t2", "t1"):
        note(wire, partition, transaction, traceNames=[name, f"{name}/ü"])
    note(wire, partition, traceNames=[name])
    answer = expect(wire.get(NAMES, limit=1000), 200).json()
    assert answer["pagination"] == {"limit": 1000, "offset": 0}
    assert answer["total"] >= 2
    mine = [one for one in answer["trace_names"] if one["trace_name"].startswith(name)]
    last_seen = [one.pop("last_seen") for one in mine]
    assert last_seen == sorted(last_seen, reverse=True) and last_seen[0].endswith("Z")
    assert mine == [
        {"trace_name": name, "trace_count": 4, "message_count": 3},
        {"trace_name": f"{name}/ü", "trace_count": 3, "message_count": 2},
    ]
    first = expect(wire.get(NAMES, limit=1), 200).json()
    assert [one["trace_name"] for one in first["trace_names"]] == [name]
    assert expect(wire.get(NAMES), 200).json()["pagination"] == {"limit": 50, "offset": 0}
    assert expect(wire.get(NAMES, offset=10**6), 200).json()["trace_names"] == []


def test_a_name_of_nothing_is_an_empty_page(wire, name):
    page = by_name(wire, name)
    assert (page["traces"], page["total"]) == ([], 0)


def test_traces_outlive_their_queue_at_their_address_but_not_by_name(
    wire, partition, fresh_queue, name
):
    trace_id = note(wire, partition, traceNames=[name])
    wire.delete(fresh_queue)
    assert [one["id"] for one in of_message(wire, partition)] == [trace_id]
    assert by_name(wire, name) | {"pagination": None} == {
        "traces": [],
        "total": 0,
        "pagination": None,
    }
    known = expect(wire.get(NAMES, limit=1000), 200).json()["trace_names"]
    assert name not in [one["trace_name"] for one in known]


def test_wrong_methods_and_heads(wire, http_head):
    for path in (NAMES, f"{TRACES}/by-name/x", f"{TRACES}/{UNKNOWN_UUID}/t"):
        answer = wire.post(path, {})
        error_of(answer, 405)
        assert answer.headers["allow"] == "GET, HEAD"
        head = http_head(path)
        assert (head.status_code, head.content) == (200, b"")
    assert wire.get(TRACES).headers["allow"] == "POST"


@pytest.fixture
def http_head(client):
    return client.head


def test_the_first_answers_of_an_empty_database(start_broker, fresh_database):
    broker = start_broker(on=fresh_database())
    with httpx.Client(base_url=broker.url, timeout=60.0) as http:
        empty = {"trace_names": [], "total": 0, "pagination": {"limit": 50, "offset": 0}}
        assert http.get(NAMES).json() == empty
        assert http.get(f"{TRACES}/by-name/x").json()["traces"] == []
        body = {"query_id": UNKNOWN_UUID, "partition_id": UNKNOWN_UUID}
        assert http.post("/streams/v1/state/get", json=body).json()["rows"] == []
        assert http.post("/streams/v1/cycle", json=body).json()["success"] is False
