"""Consumer groups over HTTP: list, lagging, detail, subscription, seek, delete.

Method: HTTP against a real broker. Figures that a list shows are those of the last count, so the
tests that look at them ask for a count first.
"""

import threading
import uuid
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.wire_client import WireClient, error_of, expect, segment

GROUPS = "/api/v1/consumer-groups"
GROUP_FIELDS = {
    "name": str,
    "topics": list,
    "queueName": str,
    "members": int,
    "partitionCursors": int,
    "partitionsWithLag": int,
    "totalLag": int,
    "maxTimeLag": int,
    "state": str,
    "storage": str,
    "conflation": bool,
}
BEGINNING = {"timestamp": "1970-01-01T00:00:00Z"}
TO_END = {"toEnd": True}
TENANTS = {"QUEEN_TENANCY_HEADER": "true", "QUEEN_KV_TRUSTED_PROXY": "true"}


@pytest.fixture
def group():
    return f"group-{uuid.uuid4().hex[:12]}"


def count(wire):
    expect(wire.post("/api/v1/stats/refresh"), 200)


def listed(wire, group):
    rows = expect(wire.get(GROUPS, limit=10_000), 200).json()
    return {row["queueName"]: row for row in rows if row["name"] == group}


def described(wire, group, **params):
    return expect(wire.get(f"{GROUPS}/{segment(group)}", **params), 200).json()


def seek_path(group, queue, partition=None):
    path = f"{GROUPS}/{segment(group)}/queues/{segment(queue)}"
    return f"{path}/seek" if partition is None else f"{path}/partitions/{segment(partition)}/seek"


def seek(wire, group, queue, body, partition=None):
    return expect(wire.post(seek_path(group, queue, partition), body), 200).json()


def delete(wire, group, queue=None, **params):
    path = f"{GROUPS}/{segment(group)}"
    if queue is not None:
        path += f"/queues/{segment(queue)}"
    return expect(wire.http.delete(path, params=params, headers=wire.headers), 200).json()


def drain(wire, queue, group, **params):
    """Everything that is there for the group, acked."""
    params = {"consumerGroup": group, "subscriptionMode": "all", "batch": 100} | params
    data = []
    while messages := wire.messages(queue, **params):
        data += [message["data"] for message in messages]
        for message in messages:
            assert wire.ack(message)["success"]
    return data


def test_a_group_is_listed_at_each_of_its_queues(wire, fresh_queue, group):
    wire.push(fresh_queue, *range(5))
    [message] = wire.messages(fresh_queue, consumerGroup=group, subscriptionMode="all", batch=1)
    wire.ack(message)
    other = f"{fresh_queue}-b"
    wire.push(other, 1)
    wire.messages(other, consumerGroup=group)
    count(wire)
    rows = listed(wire, group)
    assert set(rows) == {fresh_queue, other}
    row = rows[fresh_queue]
    for name, kind in GROUP_FIELDS.items():
        assert type(row[name]) is kind, name
    assert row["topics"] == [fresh_queue]
    assert row["members"] == row["partitionCursors"] == row["partitionsWithLag"] == 1
    assert row["totalLag"] == 4
    assert row["storage"] == "segments"
    assert row["state"] == "Stable"
    assert row["subscriptionMode"] == "all"
    assert row["subscriptionTimestamp"] is None
    assert row["subscriptionCreatedAt"].endswith("Z")
    assert rows[other]["totalLag"] == 0
    assert rows[other]["state"] == "Dead"
    assert rows[other]["subscriptionMode"] == "new"
    assert rows[other]["subscriptionTimestamp"].endswith("Z")


def test_a_group_is_listed_before_it_was_ever_counted(wire, fresh_queue, group):
    wire.push(fresh_queue, 1, 2)
    wire.messages(fresh_queue, consumerGroup=group, subscriptionMode="all", batch=1)
    assert listed(wire, group)[fresh_queue]["totalLag"] == 2


def test_a_queue_without_groups_is_listed_under_the_queue_mode(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    wire.messages(fresh_queue)
    row = listed(wire, "__QUEUE_MODE__")[fresh_queue]
    assert row["subscriptionMode"] is row["subscriptionTimestamp"] is None
    assert row["subscriptionCreatedAt"] is None


def test_the_list_comes_in_pages(wire, fresh_queue, group):
    for number in range(3):
        wire.push(fresh_queue, 1)
        wire.messages(fresh_queue, consumerGroup=f"{group}-{number}")
    names, offset = [], 0
    while True:
        page = expect(wire.get(GROUPS, limit=2, offset=offset), 200)
        names += [(row["name"], row["queueName"]) for row in page.json()]
        if "x-queen-next-offset" not in page.headers:
            break
        offset = int(page.headers["x-queen-next-offset"])
    assert len(names) == len(set(names))
    assert {(f"{group}-{number}", fresh_queue) for number in range(3)} <= set(names)
    assert expect(wire.get(GROUPS, limit=0), 200).json()
    assert expect(wire.get(GROUPS, offset=10**15), 200).json() == []


def test_a_group_is_described_by_queue_and_partition(wire, fresh_queue, group):
    wire.push(fresh_queue, 1, 2, partition="a")
    wire.push(fresh_queue, 3, partition="b")
    [message] = wire.messages(
        fresh_queue, "a", consumerGroup=group, subscriptionMode="all", batch=1
    )
    assert described(wire, group)[fresh_queue]["partitions"][0]["leaseActive"] is True
    wire.ack(message)
    queue = described(wire, group)[fresh_queue]
    assert queue["conflation"] is False
    first, second = queue["partitions"]
    assert first["partition"] == "a" and second["partition"] == "b"
    assert first["totalConsumed"] == 1 and first["offsetLag"] == 1
    assert first["leaseActive"] is False and first["workerId"] is first["lastConsumedAt"] is None
    assert second["totalConsumed"] == 0 and second["offsetLag"] == 1
    assert second["timeLagSeconds"] >= 0
    assert described(wire, "nobody-knows-it") == {}


def test_a_detail_comes_in_pages(wire, fresh_queue, group):
    for number in range(5):
        wire.push(fresh_queue, 1, partition=f"p{number}")
    wire.messages(fresh_queue, consumerGroup=group)
    path = f"{GROUPS}/{group}"
    first = expect(wire.get(path, limit=3), 200)
    assert [one["partition"] for one in first.json()[fresh_queue]["partitions"]] == [
        "p0",
        "p1",
        "p2",
    ]
    assert first.headers["x-queen-next-offset"] == "3"
    second = expect(wire.get(path, limit=3, offset=3), 200)
    assert [one["partition"] for one in second.json()[fresh_queue]["partitions"]] == ["p3", "p4"]
    assert "x-queen-next-offset" not in second.headers
    assert expect(wire.get(path, offset=5), 200).json() == {}


def test_what_lags_for_long_enough_is_told(wire, fresh_queue, group, db):
    wire.push(fresh_queue, 1, 2)
    wire.messages(fresh_queue, consumerGroup=group, subscriptionMode="all", batch=1)
    age(db, fresh_queue, hours=2)
    count(wire)
    rows = expect(wire.get(f"{GROUPS}/lagging", limit=10_000), 200).json()
    [row] = [row for row in rows if row["consumer_group"] == group]
    assert row["queue_name"] == fresh_queue and row["partition_name"] == "Default"
    assert uuid.UUID(row["partition_id"])
    assert row["offset_lag"] == 2
    assert 7200 <= row["time_lag_seconds"] < 7300
    assert row["lag_hours"] == pytest.approx(2, abs=0.05)
    assert row["oldest_unconsumed_at"].endswith("Z")
    assert row["worker_id"] is row["last_consumed_at"] is None
    assert listed(wire, group)[fresh_queue]["state"] == "Lagging"
    fewer = expect(wire.get(f"{GROUPS}/lagging", minLagSeconds=8000, limit=10_000), 200).json()
    assert group not in {row["consumer_group"] for row in fewer}
    assert seek(wire, group, fresh_queue, TO_END)["partitionsUpdated"] == 1
    rows = expect(wire.get(f"{GROUPS}/lagging", limit=10_000), 200).json()
    assert group not in {row["consumer_group"] for row in rows}


def age(db, queue, **by):
    """Let all that a queue holds have been stored so long ago."""
    where = "queue_id = (SELECT id FROM queen_queue WHERE name = %s)"
    gap = timedelta(**by)
    db.execute(
        "UPDATE queen_segment SET created_at = created_at - %s WHERE partition_id IN"
        f" (SELECT id FROM queen_partition WHERE {where})",
        [gap, queue],
    )
    db.execute(
        "UPDATE queen_partition SET oldest_live_at = oldest_live_at - %s,"
        f" last_created_at = last_created_at - %s WHERE {where}",
        [gap, gap, queue],
    )


def test_a_seek_to_the_beginning_delivers_everything_again_at_once(wire, fresh_queue, group):
    for number in range(4):
        wire.push(fresh_queue, number, partition=f"p{number}")
    assert sorted(drain(wire, fresh_queue, group)) == [0, 1, 2, 3]
    answer = seek(wire, group, fresh_queue, BEGINNING)
    assert answer == {
        "success": True,
        "consumerGroup": group,
        "queueName": fresh_queue,
        "seekToEnd": False,
        "targetTimestamp": BEGINNING["timestamp"],
        "partitionsUpdated": 4,
    }
    assert sorted(drain(wire, fresh_queue, group)) == [0, 1, 2, 3]


def test_a_seek_wakes_a_parked_pop(wire, fresh_queue, group, client):
    wire.push(fresh_queue, "again")
    assert drain(wire, fresh_queue, group) == ["again"]
    with httpx.Client(base_url=client.base_url, timeout=30) as other:
        answers = []
        waiting = threading.Thread(
            target=lambda: answers.append(
                WireClient(other).messages(
                    fresh_queue, consumerGroup=group, wait=True, timeout=20_000
                )
            )
        )
        waiting.start()
        seek(wire, group, fresh_queue, BEGINNING)
        waiting.join(15)
    assert [message["data"] for message in answers[0]] == ["again"]


def test_a_seek_to_the_end_skips_what_is_there_and_nothing_else(wire, fresh_queue, group):
    wire.push(fresh_queue, 1, 2)
    answer = seek(wire, group, fresh_queue, TO_END)
    assert (answer["seekToEnd"], answer["targetTimestamp"]) == (True, None)
    wire.push(fresh_queue, 3)
    assert drain(wire, fresh_queue, group) == [3]


def test_a_seek_to_an_instant_begins_with_what_was_stored_then(wire, fresh_queue, group):
    wire.push(fresh_queue, "old")
    stored = wire.messages(fresh_queue, consumerGroup=f"{group}-x", subscriptionMode="all")
    wire.push(fresh_queue, "new")
    at = datetime.fromisoformat(stored[0]["createdAt"]) + timedelta(microseconds=1)
    seek(wire, group, fresh_queue, {"timestamp": at.isoformat()})
    assert drain(wire, fresh_queue, group) == ["new"]
    seek(wire, group, fresh_queue, {"timestamp": stored[0]["createdAt"]})
    assert drain(wire, fresh_queue, group) == ["old", "new"]
    later = datetime.now(UTC) + timedelta(days=1)
    seek(wire, group, fresh_queue, {"timestamp": later.isoformat()})
    assert drain(wire, fresh_queue, group) == []


def test_a_seek_ends_a_live_lease_and_counts_retries_anew(wire, fresh_queue, group):
    wire.configure(fresh_queue, retryLimit=1)
    wire.push(fresh_queue, 1)
    params = {"consumerGroup": group, "subscriptionMode": "all"}
    [message] = wire.messages(fresh_queue, **params)
    assert wire.ack(message, "failed")["success"]
    [held] = wire.messages(fresh_queue, **params)
    seek(wire, group, fresh_queue, BEGINNING)
    late = wire.ack(held)
    assert late["success"] is False
    [again] = wire.messages(fresh_queue, **params)
    assert again["deliveryAttempt"] == 1
    # The budget is whole again: one failure more does not dead-letter.
    assert wire.ack(again, "failed")["dlq"] is False
    [last] = wire.messages(fresh_queue, **params)
    assert wire.ack(last)["success"]


@pytest.mark.parametrize("body", [None, "", {}, TO_END])
def test_one_partition_is_put_to_its_end_where_nothing_else_is_said(wire, fresh_queue, group, body):
    wire.push(fresh_queue, 1, partition="a/b é")
    wire.push(fresh_queue, 2, partition="other")
    wire.messages(fresh_queue, consumerGroup=group, subscriptionMode="all", partitions=1, batch=1)
    seek(wire, group, fresh_queue, BEGINNING)
    answer = seek(wire, group, fresh_queue, body, "a/b é")
    assert answer == {
        "success": True,
        "consumerGroup": group,
        "queueName": fresh_queue,
        "partitionName": "a/b é",
        "seekToEnd": True,
        "targetTimestamp": None,
        "updated": True,
    }
    assert drain(wire, fresh_queue, group) == [2]
    answer = seek(wire, group, fresh_queue, BEGINNING, "a/b é")
    assert answer["seekToEnd"] is False
    assert drain(wire, fresh_queue, group) == [1]


def test_a_seek_of_what_is_not_there_is_404(wire, fresh_queue, group):
    answer = wire.post(seek_path(group, fresh_queue), TO_END)
    assert expect(answer, 404).json() == {
        "success": False,
        "error": "Queue not found or has no partitions",
        "consumerGroup": group,
        "queueName": fresh_queue,
        "partitionsUpdated": 0,
    }
    wire.configure(fresh_queue)
    expect(wire.post(seek_path(group, fresh_queue), TO_END), 404)
    wire.push(fresh_queue, 1)
    answer = wire.post(seek_path(group, fresh_queue, "nowhere"), TO_END)
    assert expect(answer, 404).json() == {"success": False, "error": "Partition not found"}
    assert described(wire, group) == {}, "a seek that found nothing leaves no subscription"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"toEnd": False},
        {"toEnd": None, "timestamp": None},
        {"toEnd": "yes"},
        {"toEnd": 1},
        {"timestamp": ""},
        {"timestamp": "yesterday"},
        {"timestamp": 1_700_000_000},
        {"timestamp": ["2026-01-01T00:00:00Z"]},
        {"timestamp": "2026-13-01T00:00:00Z"},
        {"timestamp": "9" * 1000},
    ],
)
def test_a_seek_that_does_not_say_where_to_is_400(wire, fresh_queue, group, body):
    wire.push(fresh_queue, 1)
    told = error_of(wire.post(seek_path(group, fresh_queue), body), 400)
    if body in ({}, {"toEnd": False}):
        assert told == "Must specify toEnd=true or a timestamp"
    if body:
        error_of(wire.post(seek_path(group, fresh_queue, "Default"), body), 400)


@pytest.mark.parametrize("body", ["[]", "nonsense", '{"toEnd":', '"x"', b"\xff"])
def test_a_body_that_is_no_object_is_400(wire, fresh_queue, group, body):
    error_of(wire.post(seek_path(group, fresh_queue), body), 400)
    error_of(wire.post(f"{GROUPS}/{group}/subscription", body), 400)


def test_a_group_without_a_name_cannot_be_put_anywhere(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    error_of(wire.post(seek_path("", fresh_queue), TO_END), 400)
    error_of(wire.post(seek_path("", fresh_queue, "Default"), TO_END), 400)
    assert described(wire, "") == {}


def test_a_group_that_is_deleted_starts_over(wire, fresh_queue, group):
    wire.push(fresh_queue, 1, partition="a")
    wire.push(fresh_queue, 2, partition="b")
    assert sorted(drain(wire, fresh_queue, group)) == [1, 2]
    assert delete(wire, group) == {
        "success": True,
        "consumerGroup": group,
        "deletedPartitions": 2,
        "metadataDeleted": True,
    }
    assert described(wire, group) == {}
    assert listed(wire, group) == {}
    assert sorted(drain(wire, fresh_queue, group)) == [1, 2]
    answer = delete(wire, group, fresh_queue)
    assert answer == {
        "success": True,
        "consumerGroup": group,
        "queueName": fresh_queue,
        "deletedPartitions": 2,
        "metadataDeleted": True,
    }
    # It has a subscription again, from now on.
    assert drain(wire, fresh_queue, group, subscriptionMode="new") == []


@pytest.mark.parametrize("word", ["false", "0", "no"])
def test_a_group_that_keeps_its_subscription_starts_where_that_does(wire, fresh_queue, group, word):
    wire.push(fresh_queue, "before")
    assert drain(wire, fresh_queue, group, subscriptionMode="new") == []
    wire.push(fresh_queue, "after")
    assert drain(wire, fresh_queue, group) == ["after"]
    answer = delete(wire, group, fresh_queue, deleteMetadata=word)
    assert answer["deletedPartitions"] == 1 and answer["metadataDeleted"] is False
    assert listed(wire, group)[fresh_queue]["subscriptionMode"] == "new"
    assert drain(wire, fresh_queue, group) == ["after"]


def test_to_delete_a_group_that_nobody_knows_is_no_error(wire, fresh_queue, group):
    assert delete(wire, group)["deletedPartitions"] == 0
    assert delete(wire, group, fresh_queue)["metadataDeleted"] is False
    error_of(wire.http.delete(f"{GROUPS}/{group}", params={"deleteMetadata": "perhaps"}), 400)


def test_a_changed_start_is_for_partitions_that_are_not_touched_yet(wire, fresh_queue, group):
    wire.push(fresh_queue, "seen", partition="a")
    assert drain(wire, fresh_queue, group) == ["seen"]
    wire.push(fresh_queue, "unread", partition="b")
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat().replace("+00:00", "Z")
    path = f"{GROUPS}/{group}/subscription"
    answer = expect(wire.post(path, {"subscriptionTimestamp": later}), 200).json()
    assert answer == {
        "success": True,
        "consumerGroup": group,
        "newTimestamp": later,
        "rowsUpdated": 1,
    }
    assert listed(wire, group)[fresh_queue]["subscriptionTimestamp"][:19] == later[:19]
    assert drain(wire, fresh_queue, group) == []
    wire.push(fresh_queue, "next", partition="a")
    assert drain(wire, fresh_queue, group) == ["next"]


def test_a_start_that_is_no_instant_is_400_and_of_an_unknown_group_changes_nothing(wire, group):
    path = f"{GROUPS}/{group}/subscription"
    for value in (None, "", "soon", 5, True, {}, "9" * 1000):
        error_of(wire.post(path, {"subscriptionTimestamp": value}), 400)
    error_of(wire.post(path), 400)
    body = {"subscriptionTimestamp": "2026-01-01T00:00:00Z"}
    assert expect(wire.post(path, body), 200).json()["rowsUpdated"] == 0


@pytest.mark.parametrize("text", ["x", "1.5", "1e3", "9" * 30])
def test_a_page_or_a_lag_that_is_no_number_is_400(wire, text):
    error_of(wire.get(GROUPS, limit=text), 400)
    error_of(wire.get(f"{GROUPS}/lagging", minLagSeconds=text), 400)
    error_of(wire.get(f"{GROUPS}/g", offset=text), 400)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", GROUPS),
        ("PUT", f"{GROUPS}/g"),
        ("POST", f"{GROUPS}/lagging"),
        ("GET", f"{GROUPS}/g/subscription"),
        ("GET", f"{GROUPS}/g/queues/q"),
        ("GET", f"{GROUPS}/g/queues/q/seek"),
        ("DELETE", f"{GROUPS}/g/queues/q/partitions/p/seek"),
    ],
)
def test_another_method_is_405(wire, method, path):
    expect(wire.http.request(method, path), 405)


def test_a_group_is_its_tenants_alone(start_broker, fresh_queue, group):
    broker = start_broker(**TENANTS)
    mine, theirs = ({"x-queen-tenant": str(uuid.uuid4())} for _ in range(2))
    with WireClient.at(broker.url, mine) as wire, WireClient.at(broker.url, theirs) as other:
        wire.push(fresh_queue, 1)
        assert drain(wire, fresh_queue, group) == [1]
        assert described(other, group) == {}
        assert expect(other.get(GROUPS), 200).json() == []
        assert expect(other.get(f"{GROUPS}/lagging", minLagSeconds=0), 200).json() == []
        expect(other.post(seek_path(group, fresh_queue), BEGINNING), 404)
        expect(other.post(seek_path(group, fresh_queue, "Default"), BEGINNING), 404)
        body = {"subscriptionTimestamp": "2026-01-01T00:00:00Z"}
        answer = other.post(f"{GROUPS}/{group}/subscription", body)
        assert expect(answer, 200).json()["rowsUpdated"] == 0
        assert delete(other, group)["deletedPartitions"] == 0
        assert delete(other, group, fresh_queue)["deletedPartitions"] == 0
        assert described(wire, group)[fresh_queue]["partitions"][0]["offsetLag"] == 0
        assert drain(wire, fresh_queue, group) == []
