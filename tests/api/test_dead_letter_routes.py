"""The dead-letter routes: list, purge, replay by address and by row id.

Method: HTTP against a real broker; messages die by a `dlq` ack.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.wire_client import UNKNOWN_UUID, ZERO_UUID, ack_of, error_of, expect

ROW_KEYS = {
    "id",
    "transactionId",
    "partitionId",
    "queue",
    "partition",
    "consumerGroup",
    "errorMessage",
    "retryCount",
    "data",
    "producerSub",
    "createdAt",
    "failedAt",
}


def kill(wire, queue: str, payload, transaction_id: str | None = None, **params) -> dict:
    """Push a message, pop it and let it die; returns the message as it was popped."""
    ids = None if transaction_id is None else [transaction_id]
    wire.push(queue, payload, partition=params.pop("partition", None), ids=ids)
    return kill_next(wire, queue, **params)


def kill_next(wire, queue: str, **params) -> dict:
    [message] = wire.messages(queue, batch=1, **params)
    assert wire.ack(message, "dlq", error="why not")["dlq"] is True
    return message


GROUP_A = {"consumerGroup": "a", "subscriptionMode": "all"}
GROUP_B = {"consumerGroup": "b", "subscriptionMode": "all"}


# --- the list -----------------------------------------------------------------------------------


def test_a_dead_letter_has_the_contracted_fields(wire, fresh_queue):
    message = kill(wire, fresh_queue, {"a": [1]}, "t1", partition="p")
    answer = expect(wire.get("/api/v1/dlq", queue=fresh_queue), 200).json()
    assert answer["total"] == 1
    assert (answer["pagination"]["limit"], answer["pagination"]["offset"]) == (100, 0)
    [row] = answer["messages"]
    assert set(row) >= ROW_KEYS
    assert row["transactionId"] == "t1"
    assert row["partitionId"] == message["partitionId"]
    assert (row["queue"], row["partition"]) == (fresh_queue, "p")
    assert row["consumerGroup"] == "__QUEUE_MODE__"
    assert row["errorMessage"] == "why not"
    assert isinstance(row["retryCount"], int)
    assert row["data"] == {"a": [1]}
    assert row["producerSub"] is None
    assert row["createdAt"] == row["failedAt"]
    assert row["failedAt"].endswith("Z")
    assert row["id"] not in (message["id"], message["partitionId"])


def test_the_list_is_newest_first_and_paged(wire, fresh_queue):
    for number in range(5):
        kill(wire, fresh_queue, number)
    rows = wire.dead_letters(fresh_queue)
    assert [row["data"] for row in rows] == [4, 3, 2, 1, 0]
    page = expect(wire.get("/api/v1/dlq", queue=fresh_queue, limit=2, offset=1), 200).json()
    assert [row["data"] for row in page["messages"]] == [3, 2]
    assert page["total"] == 2, "the length of this page"
    assert (page["pagination"]["limit"], page["pagination"]["offset"]) == (2, 1)
    assert wire.dead_letters(fresh_queue, offset=5) == []


def test_the_list_may_be_narrowed_to_a_group_and_ignores_what_it_does_not_know(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    kill_next(wire, fresh_queue, **GROUP_A)
    kill_next(wire, fresh_queue, **GROUP_B)
    both = wire.dead_letters(fresh_queue)
    assert sorted(row["consumerGroup"] for row in both) == ["a", "b"]
    [only_a] = wire.dead_letters(fresh_queue, consumerGroup="a")
    assert only_a["consumerGroup"] == "a"
    ignored = {"partition": "x", "from": "2999-01-01T00:00:00Z", "to": "junk"}
    assert wire.dead_letters(fresh_queue, **ignored) == both


def test_the_dead_letters_of_an_unknown_queue_are_an_empty_list(wire, fresh_queue):
    answer = expect(wire.get("/api/v1/dlq", queue=fresh_queue), 200).json()
    assert (answer["messages"], answer["total"]) == ([], 0)


@pytest.mark.parametrize("parameter", ["limit", "offset"])
@pytest.mark.parametrize("value", ["abc", "1.5", "9" * 30, "-1"])
def test_an_odd_page_is_a_400_or_clamped_but_never_a_500(wire, fresh_queue, parameter, value):
    expect(wire.get("/api/v1/dlq", queue=fresh_queue, **{parameter: value}), 200, 400)


# --- replay in place ----------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["address", "row"])
def test_a_replay_moves_a_dead_letter_to_the_tail_of_its_partition(wire, fresh_queue, by):
    message = kill(wire, fresh_queue, {"keep": 1.0}, "t1", partition="p")
    wire.push(fresh_queue, "in between", partition="p")
    [row] = wire.dead_letters(fresh_queue)

    if by == "address":
        answer = expect(wire.retry(message["partitionId"], "t1"), 200).json()
    else:
        answer = expect(wire.replay(row["id"]), 200).json()

    assert answer["success"] is True
    assert answer["result"] == "moved"
    assert (answer["queue"], answer["partition"]) == (fresh_queue, "p")
    assert answer["consumerGroup"] == "__QUEUE_MODE__"
    assert answer["dlqId"] == row["id"]
    assert answer["originalTransactionId"] == "t1"
    assert answer["dlqRowRemoved"] is True
    replayed = answer["replayedAs"]
    assert replayed["status"] == "queued"
    assert replayed["transaction_id"] == f"dlq:{row['id']}"
    assert replayed["queueName"] == fresh_queue
    assert replayed["offset"] == 2
    assert isinstance(replayed["index"], int)
    assert replayed["message_id"] != message["id"]

    assert wire.dead_letters(fresh_queue) == []
    between, again = wire.messages(fresh_queue)
    assert between["data"] == "in between"
    assert again["data"] == {"keep": 1.0}
    assert again["id"] == replayed["message_id"]
    assert again["transactionId"] == replayed["transaction_id"]
    assert again["createdAt"] >= between["createdAt"] > message["createdAt"]
    assert again["deliveryAttempt"] == 1


@pytest.mark.parametrize("body", [b"", b"{}", b"  ", b'{"queue":null,"partition":null}'])
def test_a_replay_without_a_destination_is_in_place(wire, fresh_queue, body):
    kill(wire, fresh_queue, 1, partition="p")
    [row] = wire.dead_letters(fresh_queue)
    answer = expect(wire.http.post(f"/api/v1/dlq/{row['id']}/replay", content=body), 200).json()
    assert (answer["queue"], answer["partition"]) == (fresh_queue, "p")
    assert wire.payloads(fresh_queue, "p") == [1]


def test_a_second_replay_finds_it_gone(wire, fresh_queue):
    message = kill(wire, fresh_queue, 1, "t1")
    [row] = wire.dead_letters(fresh_queue)
    expect(wire.replay(row["id"]), 200)

    by_row = expect(wire.replay(row["id"]), 404).json()
    assert by_row["success"] is False
    assert by_row["result"] == "gone"
    assert by_row["dlqId"] == row["id"]
    assert by_row["error"] == "Message not found"
    assert isinstance(by_row["message"], str)

    by_address = expect(wire.retry(message["partitionId"], "t1"), 404).json()
    assert by_address["success"] is False
    assert by_address["partitionId"] == message["partitionId"]
    assert by_address["transactionId"] == "t1"
    assert by_address["error"] == "Message not found"
    assert isinstance(by_address["message"], str)
    assert wire.payloads(fresh_queue) == [1]


@pytest.mark.parametrize("by", ["address", "row"])
def test_of_concurrent_replays_one_moves_and_the_others_find_it_gone(wire, fresh_queue, by):
    message = kill(wire, fresh_queue, 1, "t1")
    [row] = wire.dead_letters(fresh_queue)

    def replay(_):
        if by == "address":
            return wire.retry(message["partitionId"], "t1").status_code
        return wire.replay(row["id"]).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(replay, range(6)))

    assert sorted(statuses) == [200] + [404] * 5
    assert wire.payloads(fresh_queue) == [1]


def test_a_replay_by_address_takes_the_newest_row_and_leaves_the_other_groups_theirs(
    wire, fresh_queue
):
    wire.push(fresh_queue, 1, ids=["t1"])
    kill_next(wire, fresh_queue, **GROUP_A)
    message = kill_next(wire, fresh_queue, **GROUP_B)
    answer = expect(wire.retry(message["partitionId"], "t1"), 200).json()
    assert answer["consumerGroup"] == "b"
    assert [row["consumerGroup"] for row in wire.dead_letters(fresh_queue)] == ["a"]
    answer = expect(wire.retry(message["partitionId"], "t1"), 200).json()
    assert answer["consumerGroup"] == "a"
    assert wire.dead_letters(fresh_queue) == []


@pytest.mark.parametrize("by", ["address", "row"])
def test_a_replay_that_is_there_already_keeps_the_row_and_writes_nothing(wire, fresh_queue, by):
    message = kill(wire, fresh_queue, "dead", "t1")
    [row] = wire.dead_letters(fresh_queue)
    wire.push(fresh_queue, "taken", ids=[f"dlq:{row['id']}"])

    if by == "address":
        answer = expect(wire.retry(message["partitionId"], "t1"), 200).json()
    else:
        answer = expect(wire.replay(row["id"]), 200).json()

    assert answer["result"] == "duplicate"
    assert answer["dlqRowRemoved"] is False
    assert answer["replayedAs"]["status"] == "duplicate"
    assert answer["replayedAs"]["message_id"] == ZERO_UUID
    assert answer["replayedAs"]["offset"] == 1
    assert [each["id"] for each in wire.dead_letters(fresh_queue)] == [row["id"]]
    assert wire.payloads(fresh_queue) == ["taken"]


def test_a_live_message_cannot_be_replayed(wire, fresh_queue):
    wire.push(fresh_queue, 1, ids=["t1"])
    [message] = wire.messages(fresh_queue)
    expect(wire.retry(message["partitionId"], "t1"), 404)
    assert wire.ack(message)["success"] is True


@pytest.mark.parametrize("row_id", [UNKNOWN_UUID, "not-a-uuid", "é/ %", "0"])
def test_an_unknown_or_malformed_row_is_gone(wire, row_id):
    answer = expect(wire.replay(row_id), 404).json()
    assert (answer["success"], answer["result"]) == (False, "gone")
    assert answer["dlqId"] == row_id


@pytest.mark.parametrize("partition_id", [UNKNOWN_UUID, "not-a-uuid"])
def test_an_unknown_or_malformed_address_is_a_404(wire, partition_id):
    answer = expect(wire.retry(partition_id, "t/1"), 404).json()
    assert answer["error"] == "Message not found"
    assert (answer["partitionId"], answer["transactionId"]) == (partition_id, "t/1")


def test_an_id_with_any_letters_is_an_address(wire, fresh_queue):
    nasty = "a/b?c#d %2F é\n"
    message = kill(wire, fresh_queue, 1, nasty)
    answer = expect(wire.retry(message["partitionId"], nasty), 200).json()
    assert answer["originalTransactionId"] == nasty


# --- replay elsewhere ---------------------------------------------------------------------------


def test_a_replay_may_name_another_queue_and_partition_and_creates_them(wire, fresh_queue):
    kill(wire, fresh_queue, 1, partition="p")
    [row] = wire.dead_letters(fresh_queue)
    target = f"{fresh_queue}-target"
    body = {"queue": f"  {target} ", "partition": " q "}
    answer = expect(wire.replay(row["id"], body), 200).json()
    assert (answer["queue"], answer["partition"]) == (target, "q")
    assert answer["replayedAs"]["queueName"] == target
    assert answer["replayedAs"]["offset"] == 0
    assert wire.payloads(target, "q") == [1]
    assert wire.payloads(fresh_queue) == []


def test_an_omitted_half_of_a_destination_keeps_the_sources(wire, fresh_queue):
    target = f"{fresh_queue}-target"
    kill(wire, fresh_queue, 1, partition="p")
    [row] = wire.dead_letters(fresh_queue)
    answer = expect(wire.replay(row["id"], {"queue": target}), 200).json()
    assert (answer["queue"], answer["partition"]) == (target, "p")

    kill(wire, fresh_queue, 2, partition="p")
    [row] = wire.dead_letters(fresh_queue)
    answer = expect(wire.replay(row["id"], {"partition": "elsewhere"}), 200).json()
    assert (answer["queue"], answer["partition"]) == (fresh_queue, "elsewhere")


@pytest.mark.parametrize(
    "body",
    [{"queue": ""}, {"queue": "  "}, {"partition": ""}, {"queue": 5}, {"partition": "p\x00"}, []],
)
def test_a_bad_destination_is_a_400_and_the_row_stays(wire, fresh_queue, body):
    kill(wire, fresh_queue, 1)
    [row] = wire.dead_letters(fresh_queue)
    error_of(wire.replay(row["id"], body), 400)
    assert [each["id"] for each in wire.dead_letters(fresh_queue)] == [row["id"]]


# --- purge --------------------------------------------------------------------------------------


def purge(wire, **params):
    return wire.http.delete("/api/v1/dlq", params=params)


@pytest.mark.parametrize("params", [{}, {"queue": ""}, {"consumerGroup": "a"}])
def test_a_purge_needs_a_queue(wire, params):
    assert error_of(purge(wire, **params), 400) == "queue is required"


def test_a_purge_takes_the_dead_letters_of_a_queue(wire, fresh_queue):
    for number in range(3):
        kill(wire, fresh_queue, number)
    answer = expect(purge(wire, queue=fresh_queue), 200).json()
    assert answer == {"success": True, "deleted": 3, "queue": fresh_queue, "consumerGroup": ""}
    assert wire.dead_letters(fresh_queue) == []
    assert expect(purge(wire, queue=fresh_queue), 200).json()["deleted"] == 0


def test_a_purge_may_be_narrowed_to_a_group(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    kill_next(wire, fresh_queue, **GROUP_A)
    kill_next(wire, fresh_queue, **GROUP_B)
    answer = expect(purge(wire, queue=fresh_queue, consumerGroup="a"), 200).json()
    assert (answer["deleted"], answer["consumerGroup"]) == (1, "a")
    assert [row["consumerGroup"] for row in wire.dead_letters(fresh_queue)] == ["b"]


def test_a_purged_dead_letter_is_gone_for_replay(wire, fresh_queue):
    kill(wire, fresh_queue, 1)
    [row] = wire.dead_letters(fresh_queue)
    purge(wire, queue=fresh_queue)
    expect(wire.replay(row["id"]), 404)
    assert wire.payloads(fresh_queue) == []


def test_one_row_is_kept_for_each_message_and_group(wire, fresh_queue):
    wire.push(fresh_queue, 1, 2)
    first, second = wire.messages(fresh_queue, **GROUP_A)
    wire.ack_batch(ack_of(first, "dlq"), group="a")
    [second] = wire.messages(fresh_queue, **GROUP_A)
    wire.ack_batch(ack_of(second, "dlq"), ack_of(second, "dlq"), group="a")
    assert [row["data"] for row in wire.dead_letters(fresh_queue)] == [2, 1]
