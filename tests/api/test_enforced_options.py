"""Options that the original only tells, in force where a queue says `enforce`.

Method: HTTP against a real broker; ages are made in the database, not waited for.
"""

import pytest

from tests.wire_client import ack_of, error_of, expect


def grow_old(db, queue, seconds):
    """Everything that the queue holds becomes so many seconds older."""
    for table, columns in (
        ("queen_segment", ["created_at"]),
        ("queen_partition", ["oldest_live_at", "last_created_at"]),
    ):
        of = "partition_id" if table == "queen_segment" else "id"
        moved = ", ".join(f"{one} = {one} - make_interval(secs => {seconds})" for one in columns)
        db.execute(
            f"UPDATE {table} SET {moved} WHERE {of} IN (SELECT lane.id FROM queen_partition lane"
            " JOIN queen_queue queue ON queue.id = lane.queue_id WHERE queue.name = %s)",
            [queue],
        )


def test_nothing_is_enforced_by_default(wire, db, fresh_queue):
    options = wire.configure(fresh_queue, ttl=1, maxSize=1, retryDelay=60_000)["options"]
    assert (options["enforce"], options["requireLease"]) == (False, False)
    wire.push_each(fresh_queue, 1, 2)
    grow_old(db, fresh_queue, 100)
    [first, second] = wire.messages(fresh_queue)
    wire.ack(first, "failed")
    again, second = wire.messages(fresh_queue)
    body = {key: value for key, value in ack_of(second).items() if key != "leaseId"}
    assert wire.ack_batch(body)[0]["success"] is True
    assert again["data"] == 1


def test_a_message_older_than_its_ttl_is_not_delivered(wire, db, fresh_queue):
    wire.configure(fresh_queue, enforce=True, ttl=60)
    wire.push_each(fresh_queue, *range(7))
    grow_old(db, fresh_queue, 100)
    wire.push_each(fresh_queue, 7, 8)
    assert wire.payloads(fresh_queue) == [7, 8]
    assert wire.payloads(fresh_queue, consumerGroup="g", subscriptionMode="all") == [7, 8]


def test_a_queue_of_nothing_but_old_messages_is_empty_until_the_next(wire, db, fresh_queue):
    wire.configure(fresh_queue, enforce=True, ttl=60)
    wire.push(fresh_queue, 1)
    grow_old(db, fresh_queue, 100)
    assert wire.payloads(fresh_queue) == []
    wire.push(fresh_queue, 2)
    assert wire.payloads(fresh_queue) == [2]


def test_a_ttl_of_zero_is_no_limit_and_a_huge_one_is_none_either(wire, db, fresh_queue):
    wire.configure(fresh_queue, enforce=True, ttl=0, retryDelay=0)
    wire.push(fresh_queue, 1)
    grow_old(db, fresh_queue, 100_000)
    assert wire.payloads(fresh_queue) == [1]
    wire.configure(fresh_queue, ttl=9_223_372_036_854_775_807)
    assert wire.payloads(fresh_queue, consumerGroup="g", subscriptionMode="all") == [1]


def test_a_full_queue_refuses_items_one_by_one(wire, fresh_queue):
    wire.configure(fresh_queue, enforce=True, maxSize=5)
    rows = wire.push(fresh_queue, *range(8))
    assert [row["status"] for row in rows] == ["queued"] * 5 + ["failed"] * 3
    assert {row.get("error") for row in rows[5:]} == {"the queue is full (maxSize)"}
    assert wire.push(fresh_queue, 9, partition="other")[0]["status"] == "failed"
    assert wire.payloads(fresh_queue) == [0, 1, 2, 3, 4]


def test_a_duplicate_of_what_a_full_queue_holds_is_a_duplicate(wire, fresh_queue):
    wire.configure(fresh_queue, enforce=True, maxSize=2)
    wire.push(fresh_queue, 1, 2, ids=["a", "b"])
    rows = wire.push(fresh_queue, 1, 3, 2, ids=["a", "c", "b"])
    assert [row["status"] for row in rows] == ["duplicate", "failed", "duplicate"]


def test_a_full_queue_refuses_nothing_of_its_neighbour(wire, fresh_queue):
    wire.configure(fresh_queue, enforce=True, maxSize=1)
    other = f"{fresh_queue}-other"
    items = [{"queue": name, "payload": 1} for name in (fresh_queue, other) * 3]
    statuses = [row["status"] for row in wire.push_items(*items)]
    assert statuses == ["queued", "queued", "failed", "queued", "failed", "queued"]


def test_a_transaction_into_a_full_queue_rolls_back(wire, fresh_queue):
    wire.configure(fresh_queue, enforce=True, maxSize=1)
    wire.push(fresh_queue, 1)
    answer = wire.transaction({"type": "push", "queue": fresh_queue, "payload": 2})
    assert (answer["success"], answer["reason"]) == (False, "db_error")
    assert wire.depth(fresh_queue)["pending"] == 1


@pytest.mark.parametrize("status", ["failed", "retry"])
def test_a_nacked_message_waits_for_its_retry_delay(wire, db, fresh_queue, status):
    wire.configure(fresh_queue, enforce=True, retryDelay=600_000)
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    assert wire.ack(message, status)["success"] is True
    wire.push(fresh_queue, 2)
    assert wire.payloads(fresh_queue) == []
    assert wire.payloads(fresh_queue, "Default") == []
    db.execute("UPDATE queen_cursor SET retry_at = now() WHERE retry_at IS NOT NULL")
    assert wire.payloads(fresh_queue, "Default") == [1, 2]


def test_a_parked_pop_gets_a_nacked_message_when_its_delay_is_over(wire, fresh_queue):
    wire.configure(fresh_queue, enforce=True, retryDelay=400)
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    wire.ack(message, "failed")
    assert wire.payloads(fresh_queue) == []
    assert wire.payloads(fresh_queue, wait=True, timeout=20_000) == [1]


@pytest.fixture
def delayed(wire, fresh_queue):
    """A queue with two messages, the first of which was nacked and waits for ten minutes."""
    wire.configure(fresh_queue, enforce=True, retryDelay=600_000)
    wire.push(fresh_queue, 1, 2)
    [message, _] = wire.messages(fresh_queue, consumerGroup="g", subscriptionMode="all")
    assert wire.ack(message, "failed")["success"] is True
    assert wire.payloads(fresh_queue, consumerGroup="g") == []
    return fresh_queue


@pytest.mark.parametrize("partition", ["", "/partitions/Default"])
def test_a_seek_waits_for_no_retry_delay(wire, delayed, partition):
    path = f"/api/v1/consumer-groups/g/queues/{delayed}{partition}/seek"
    expect(wire.post(path, {"timestamp": "1970-01-01T00:00:00Z"}), 200)
    assert wire.payloads(delayed, consumerGroup="g") == [1, 2]


def test_a_group_that_was_deleted_waits_for_no_retry_delay(wire, delayed):
    expect(wire.http.delete(f"/api/v1/consumer-groups/g/queues/{delayed}"), 200)
    assert wire.payloads(delayed, consumerGroup="g", subscriptionMode="all") == [1, 2]


def test_what_comes_after_a_purge_waits_for_nothing_that_was_purged(wire, delayed):
    expect(wire.post(f"{wire.queue_path(delayed)}/purge"), 200)
    wire.push(delayed, 3)
    assert wire.payloads(delayed, consumerGroup="g") == [3]


def test_an_ack_behind_a_nacked_message_ends_its_retry_delay(wire, fresh_queue):
    wire.configure(fresh_queue, enforce=True, retryDelay=600_000)
    wire.push(fresh_queue, 1, 2)
    [message, _] = wire.messages(fresh_queue)
    wire.ack(message, "failed")
    bare = {key: value for key, value in ack_of(message).items() if key != "leaseId"}
    assert wire.ack_batch(bare)[0]["success"] is True
    assert wire.payloads(fresh_queue) == [2]


def test_an_ack_without_a_lease_is_refused_where_one_is_required(wire, fresh_queue):
    wire.configure(fresh_queue, requireLease=True)
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    bare = {key: value for key, value in ack_of(message).items() if key != "leaseId"}
    [refused] = wire.ack_batch(bare)
    assert refused["success"] is False
    assert refused["error"] == "this queue requires the leaseId of the message with every ack"
    answer = wire.transaction({"type": "ack", **bare})
    assert (answer["success"], answer["reason"]) == (False, "ack_rejected")
    assert wire.ack(message)["success"] is True


def test_options_of_the_wrong_type_are_refused(wire, fresh_queue):
    for options in ({"enforce": "yes"}, {"requireLease": 1}):
        body = {"queue": fresh_queue, "options": options}
        error_of(wire.post("/api/v1/configure", body), 400)
