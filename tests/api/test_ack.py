"""POST /api/v1/ack and /ack/batch: an ack commits a cursor, and says so exactly.

Method: HTTP against a real broker; where a cursor stands is judged by what the next pop
delivers.
"""

import pytest

from tests.wire_client import (
    ALREADY_COMMITTED,
    CONSUMER_NOT_FOUND,
    INVALID_LEASE,
    UNKNOWN_UUID,
    UNRESOLVABLE,
    ack_of,
    error_of,
    expect,
    outlive_lease,
)

COMPLETED = ["completed", "success", "acked", "ok", None]
FAILED = ["failed", "nack", "", "Completed", "OK", "retry ", "whatever"]


@pytest.fixture
def five(wire, fresh_queue):
    """Five messages of one partition under one lease, in queue mode."""
    wire.push(fresh_queue, *range(5), ids=[f"t{number}" for number in range(5)])
    return wire.messages(fresh_queue)


def left(wire, queue: str, **params):
    return wire.payloads(queue, **params)


# --- the answer ---------------------------------------------------------------------------------


def test_an_ack_is_answered_by_a_top_level_array_with_the_contracted_fields(wire, five):
    answer = expect(wire.post("/api/v1/ack", ack_of(five[4])), 200)
    assert answer.json() == [
        {
            "index": 0,
            "transactionId": "t4",
            "success": True,
            "error": None,
            "leaseReleased": True,
            "dlq": False,
            "noop": False,
        }
    ]


def test_a_batch_is_answered_in_request_order(wire, five):
    results = wire.ack_batch(
        ack_of(five[1]), ack_of(five[0]) | {"transactionId": "?"}, ack_of(five[2])
    )
    assert [result["index"] for result in results] == [0, 1, 2]
    assert [result["transactionId"] for result in results] == ["t1", "?", "t2"]
    assert [result["success"] for result in results] == [True, False, True]
    for result in results:
        assert {"success", "error", "leaseReleased", "dlq", "noop"} <= set(result)


# --- completed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", COMPLETED)
def test_these_words_complete_a_message(wire, fresh_queue, status):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    result = wire.ack(message, status)
    assert (result["success"], result["leaseReleased"], result["dlq"]) == (True, True, False)
    assert left(wire, fresh_queue) == []


def test_an_absent_status_completes(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    body = ack_of(message)
    del body["status"]
    [result] = expect(wire.post("/api/v1/ack", body), 200).json()
    assert result["success"] is True
    assert left(wire, fresh_queue) == []


def test_completing_a_message_completes_everything_below_it(wire, fresh_queue, five):
    assert wire.ack(five[4])["leaseReleased"] is True
    assert left(wire, fresh_queue) == []


def test_a_lease_is_kept_until_its_batch_end_is_reached(wire, fresh_queue, five):
    assert wire.ack(five[2])["leaseReleased"] is False
    assert left(wire, fresh_queue) == [], "the rest is still leased"
    assert wire.ack(five[3])["leaseReleased"] is False
    assert wire.ack(five[4])["leaseReleased"] is True
    wire.push(fresh_queue, 5)
    assert left(wire, fresh_queue) == [5]


def test_a_partial_ack_lets_only_the_tail_come_again(wire, fresh_queue, eventually):
    wire.push(fresh_queue, *range(5))
    messages = wire.messages(fresh_queue, leaseSeconds=1)
    wire.ack(messages[1])
    assert eventually(lambda: left(wire, fresh_queue)) == [2, 3, 4]


def test_a_batch_ack_in_any_order_reaches_its_highest_message(wire, fresh_queue, five):
    results = wire.ack_batch(*(ack_of(five[number]) for number in (3, 0, 2)))
    assert all(result["success"] for result in results)
    assert wire.ack(five[4])["leaseReleased"] is True
    assert left(wire, fresh_queue) == []


def test_a_batch_that_completes_all_releases_the_lease(wire, five):
    results = wire.ack_batch(*map(ack_of, five))
    assert all(result["success"] and result["leaseReleased"] for result in results)


def test_one_batch_ack_serves_several_partitions(wire, fresh_queue):
    for partition in "abc":
        wire.push(fresh_queue, *range(3), partition=partition)
    messages = wire.messages(fresh_queue, partitions=0)
    results = wire.ack_batch(*map(ack_of, messages))
    assert all(result["success"] for result in results)
    assert left(wire, fresh_queue, partitions=0) == []


def test_an_ack_moves_its_own_group_alone(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    groups = [{"consumerGroup": name, "subscriptionMode": "all"} for name in ("a", "b")]
    [for_a], [_] = (wire.messages(fresh_queue, leaseSeconds=60, **group) for group in groups)
    assert wire.ack(for_a)["success"] is True
    assert wire.ack(for_a, consumerGroup="b")["error"] == INVALID_LEASE
    assert wire.payloads(fresh_queue) == [1], "queue mode has its own cursor"


# --- failed, retry ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", FAILED)
def test_any_other_word_is_a_nack_that_is_carried_out(wire, fresh_queue, status):
    wire.configure(fresh_queue, retryLimit=0, deadLetterQueue=True)
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    result = wire.ack(message, status)
    assert (result["success"], result["leaseReleased"], result["dlq"]) == (True, True, True)


def test_a_nack_releases_the_lease_and_the_batch_comes_again(wire, fresh_queue, five):
    result = wire.ack(five[0], "failed", error="no")
    assert result["success"] is True
    assert result["error"] is None
    assert result["leaseReleased"] is True
    assert result["dlq"] is False
    assert left(wire, fresh_queue) == [0, 1, 2, 3, 4]


def test_a_nack_completes_nothing_that_is_unmentioned_below_it(wire, fresh_queue, five):
    wire.ack(five[3], "failed")
    assert left(wire, fresh_queue) == [0, 1, 2, 3, 4]


def test_a_nack_keeps_what_the_same_call_completed_below_it(wire, fresh_queue, five):
    results = wire.ack_batch(ack_of(five[3], "failed"), ack_of(five[1]))
    assert [result["success"] for result in results] == [True, True]
    assert left(wire, fresh_queue) == [2, 3, 4]


def test_a_nack_keeps_what_an_earlier_call_completed(wire, fresh_queue, five):
    wire.ack(five[1])
    wire.ack(five[4], "failed")
    assert left(wire, fresh_queue) == [2, 3, 4]


@pytest.mark.parametrize("signal", ["failed", "retry"])
def test_what_was_completed_above_the_lowest_signal_comes_again(wire, fresh_queue, five, signal):
    wire.ack_batch(
        ack_of(five[0]), ack_of(five[1], signal), ack_of(five[2]), ack_of(five[4], "completed")
    )
    assert left(wire, fresh_queue) == [1, 2, 3, 4]


def test_a_retry_releases_the_lease_and_keeps_the_completed_prefix(wire, fresh_queue, five):
    results = wire.ack_batch(ack_of(five[0]), ack_of(five[2], "retry"))
    assert [result["success"] for result in results] == [True, True]
    assert results[1]["leaseReleased"] is True
    assert results[1]["dlq"] is False
    assert left(wire, fresh_queue) == [1, 2, 3, 4]


def test_the_lowest_of_several_signals_wins(wire, fresh_queue, five):
    results = wire.ack_batch(ack_of(five[3], "failed"), ack_of(five[1], "retry"), ack_of(five[0]))
    assert all(result["success"] for result in results)
    assert left(wire, fresh_queue) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("statuses", "dead", "charged"),
    [
        (["failed", "dlq", "retry"], True, False),
        (["retry", "failed"], False, True),
    ],
)
def test_at_one_offset_dlq_beats_failed_beats_retry(wire, fresh_queue, statuses, dead, charged):
    wire.configure(fresh_queue, retryLimit=1)
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    results = wire.ack_batch(*(ack_of(message, status) for status in statuses))
    assert any(result["dlq"] for result in results) is dead
    if dead:
        assert left(wire, fresh_queue) == []
        return
    [message] = wire.messages(fresh_queue)
    assert wire.ack(message, "failed")["dlq"] is charged, "the second charge ends it"


# --- dlq ----------------------------------------------------------------------------------------


def test_dlq_dead_letters_now_releases_the_lease_and_passes_on(wire, fresh_queue, five):
    results = wire.ack_batch(ack_of(five[0]), ack_of(five[1], "dlq", error="poison"))
    assert results[1]["success"] is True
    assert results[1]["dlq"] is True
    assert results[1]["leaseReleased"] is True
    [dead] = wire.dead_letters(fresh_queue)
    assert (dead["transactionId"], dead["errorMessage"]) == ("t1", "poison")
    assert left(wire, fresh_queue) == [2, 3, 4]


def test_dlq_completes_what_is_unmentioned_below_it(wire, fresh_queue, five):
    wire.ack(five[2], "dlq")
    assert left(wire, fresh_queue) == [3, 4]
    assert [dead["transactionId"] for dead in wire.dead_letters(fresh_queue)] == ["t2"]


def test_dlq_of_the_last_message_completes_the_batch(wire, fresh_queue, five):
    assert wire.ack(five[4], "dlq")["leaseReleased"] is True
    wire.push(fresh_queue, 5)
    [message] = wire.messages(fresh_queue)
    assert (message["data"], message["deliveryAttempt"]) == (5, 1)


def test_a_dlq_above_the_winning_signal_is_not_carried_out(wire, fresh_queue, five):
    results = wire.ack_batch(ack_of(five[1], "retry"), ack_of(five[3], "dlq"), ack_of(five[0]))
    assert results[1]["success"] is True
    assert results[1]["dlq"] is False
    assert wire.dead_letters(fresh_queue) == []
    assert left(wire, fresh_queue) == [1, 2, 3, 4]


def test_a_nul_in_an_ack_error_does_not_stop_the_nack(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    result = wire.ack(message, "dlq", error="before\x00after")
    assert (result["success"], result["dlq"]) == (True, True)
    [dead] = wire.dead_letters(fresh_queue)
    assert dead["errorMessage"].startswith("before")


def test_a_lone_surrogate_in_an_ack_error_does_not_stop_the_nack(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    result = wire.ack(message, "dlq", error="before\ud800after")
    assert (result["success"], result["dlq"]) == (True, True)
    [dead] = wire.dead_letters(fresh_queue)
    assert dead["errorMessage"].startswith("before")


# --- the table of cases -------------------------------------------------------------------------


def test_completing_again_at_or_below_the_cursor_is_a_noop(wire, fresh_queue, five):
    wire.ack(five[2])
    for message in (five[2], five[0]):
        result = wire.ack(message)
        assert (result["success"], result["noop"], result["error"]) == (True, True, None)
    assert wire.ack(five[4])["leaseReleased"] is True


@pytest.mark.parametrize("with_lease", [True, False])
def test_a_repeated_ack_after_its_batch_was_completed_is_a_noop(wire, five, with_lease):
    """A client that lost the answer sends it again: a lease that was completed is no error."""
    wire.ack_batch(*map(ack_of, five))
    changes = {} if with_lease else {"leaseId": None}
    for message in (five[4], five[1]):
        result = wire.ack(message, **changes)
        assert (result["success"], result["noop"]) == (True, True)


@pytest.mark.parametrize("status", ["failed", "retry", "dlq"])
def test_a_nack_at_or_below_the_cursor_is_too_late(wire, fresh_queue, five, status):
    wire.ack(five[2])
    for message in (five[2], five[1]):
        result = wire.ack(message, status)
        assert (result["success"], result["error"]) == (False, ALREADY_COMMITTED)
        assert result["dlq"] is False
    assert wire.dead_letters(fresh_queue) == []
    assert wire.ack(five[4])["leaseReleased"] is True, "the lease was left alone"


@pytest.mark.parametrize("status", ["failed", "retry", "dlq"])
def test_a_leaseless_nack_after_the_end_of_the_batch_is_too_late(wire, five, status):
    wire.ack(five[4])
    result = wire.ack(five[1], status, leaseId=None)
    assert (result["success"], result["error"]) == (False, ALREADY_COMMITTED)


@pytest.mark.parametrize("status", ["completed", "failed", "retry", "dlq"])
@pytest.mark.parametrize("with_lease", [True, False])
def test_an_id_that_was_never_pushed_is_unresolvable_and_the_lease_stays(
    wire, five, status, with_lease
):
    changes = {"transactionId": "never"} | ({} if with_lease else {"leaseId": None})
    result = wire.ack(five[0], status, **changes)
    assert (result["success"], result["error"]) == (False, UNRESOLVABLE)
    assert result["leaseReleased"] is False
    assert wire.ack(five[4])["leaseReleased"] is True


def test_an_id_above_the_batch_end_is_unresolvable_under_a_lease(wire, fresh_queue):
    wire.push(fresh_queue, 1, 2, 3, ids=["t1", "t2", "t3"])
    [first] = wire.messages(fresh_queue, batch=1)
    result = wire.ack(first, transactionId="t2")
    assert (result["success"], result["error"]) == (False, UNRESOLVABLE)
    assert wire.ack(first)["success"] is True
    assert left(wire, fresh_queue) == [2, 3]


def test_the_same_id_in_another_partition_is_not_confused(wire, fresh_queue):
    for partition in "ab":
        wire.push(fresh_queue, partition, partition=partition, ids=["same"])
    first, second = wire.messages(fresh_queue, partitions=2)
    assert wire.ack(first)["success"] is True
    wire.ack(second, "retry")
    assert left(wire, fresh_queue, partitions=2) == [second["data"]]


def test_a_group_that_never_popped_the_partition_is_unknown(wire, five):
    result = wire.ack(five[0], consumerGroup="stranger", leaseId=None)
    assert (result["success"], result["error"]) == (False, CONSUMER_NOT_FOUND)


def test_an_unknown_partition_is_consumer_not_found(wire):
    [result] = expect(
        wire.post("/api/v1/ack", {"transactionId": "t", "partitionId": UNKNOWN_UUID}), 200
    ).json()
    assert (result["success"], result["error"]) == (False, CONSUMER_NOT_FOUND)


def test_a_partition_id_that_is_no_uuid_is_refused_without_a_500(wire):
    body = {"transactionId": "t", "partitionId": "not a uuid"}
    answer = expect(wire.post("/api/v1/ack", body), 200, 400)
    if answer.status_code == 200:
        [result] = answer.json()
        assert (result["success"], result["error"]) == (False, CONSUMER_NOT_FOUND)
    else:
        error_of(answer, 400)


# --- leases -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lease_id", [UNKNOWN_UUID, "no uuid at all"])
@pytest.mark.parametrize("status", ["completed", "failed", "retry", "dlq"])
def test_a_lease_that_is_not_the_live_one_changes_nothing(wire, five, lease_id, status):
    result = wire.ack(five[2], status, leaseId=lease_id)
    assert (result["success"], result["error"]) == (False, INVALID_LEASE)
    assert (result["leaseReleased"], result["dlq"], result["noop"]) == (False, False, False)
    assert wire.ack(five[0])["noop"] is False, "the cursor did not move"


def test_an_expired_lease_is_refused_even_while_nobody_else_came(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue, leaseSeconds=1)
    outlive_lease()
    result = wire.ack(message)
    assert (result["success"], result["error"]) == (False, INVALID_LEASE)
    assert left(wire, fresh_queue) == [1]


def test_a_replaced_lease_is_refused_and_its_successor_is_not_harmed(wire, fresh_queue, eventually):
    wire.push(fresh_queue, 1, 2)
    stale = wire.messages(fresh_queue, leaseSeconds=1)
    live = eventually(lambda: wire.messages(fresh_queue))
    for status in ("completed", "failed", "retry", "dlq"):
        result = wire.ack(stale[1], status)
        assert (result["success"], result["error"]) == (False, INVALID_LEASE)
    assert left(wire, fresh_queue) == []
    assert wire.ack(live[1])["leaseReleased"] is True
    assert wire.ack(stale[1])["error"] == INVALID_LEASE


@pytest.mark.parametrize("status", ["failed", "retry"])
def test_a_lease_that_was_nacked_is_refused_afterwards(wire, fresh_queue, five, status):
    wire.ack(five[2], status)
    result = wire.ack(five[4])
    assert (result["success"], result["error"]) == (False, INVALID_LEASE)
    assert left(wire, fresh_queue) == [0, 1, 2, 3, 4]


def test_an_ack_without_a_lease_moves_the_cursor_anyway(wire, fresh_queue, five):
    result = wire.ack(five[1], leaseId=None)
    assert (result["success"], result["noop"]) == (True, False)
    assert wire.ack(five[0])["noop"] is True
    assert wire.ack(five[4])["leaseReleased"] is True
    assert left(wire, fresh_queue) == []


def test_an_ack_without_a_lease_works_after_the_lease_ran_out(wire, fresh_queue):
    wire.push(fresh_queue, 1, 2)
    first, _ = wire.messages(fresh_queue, leaseSeconds=1)
    outlive_lease()
    assert wire.ack(first, leaseId=None)["success"] is True
    assert left(wire, fresh_queue) == [2]


def test_each_pair_of_partition_and_lease_is_judged_alone(wire, fresh_queue):
    for partition in "ab":
        wire.push(fresh_queue, partition, partition=partition)
    [a], [b] = wire.messages(fresh_queue, "a"), wire.messages(fresh_queue, "b")
    right, wrong = wire.ack_batch(ack_of(a), ack_of(b, leaseId=UNKNOWN_UUID))
    assert (right["success"], wrong["success"]) == (True, False)
    assert wrong["error"] == INVALID_LEASE
    assert wire.ack(b)["success"] is True


# --- ids that stand several times ---------------------------------------------------------------


@pytest.fixture
def twins(wire, fresh_queue):
    wire.configure(fresh_queue, dedupWindowSeconds=0)
    wire.push(fresh_queue, "x0", "twin1", "x2", "twin3", ids=["x0", "twin", "x2", "twin"])
    return wire.messages(fresh_queue)


def test_an_id_that_stands_twice_means_its_lowest_open_message(wire, fresh_queue, twins):
    assert wire.ack(twins[1])["leaseReleased"] is False
    wire.ack(twins[2], "retry")
    assert left(wire, fresh_queue) == ["x2", "twin3"]


def test_the_second_ack_of_such_an_id_means_its_second_message(wire, fresh_queue, twins):
    assert wire.ack(twins[1])["leaseReleased"] is False
    assert wire.ack(twins[3])["leaseReleased"] is True


def test_the_second_mention_in_one_call_means_the_second_message(wire, fresh_queue, twins):
    results = wire.ack_batch(*map(ack_of, twins))
    assert all(result["success"] and result["leaseReleased"] for result in results)
    assert left(wire, fresh_queue) == []


def test_a_nack_of_such_an_id_redelivers_from_its_lowest_open_message(wire, fresh_queue, twins):
    wire.ack_batch(ack_of(twins[0]), ack_of(twins[1], "failed"))
    assert left(wire, fresh_queue) == ["twin1", "x2", "twin3"]


# --- shapes -------------------------------------------------------------------------------------


def test_the_group_of_a_batch_stands_at_the_top_alone(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue, consumerGroup="g", subscriptionMode="all")
    inside = ack_of(message) | {"consumerGroup": "g"}
    [result] = wire.ack_batch(inside)
    assert result["success"] is False, "without a top-level group this is queue mode"
    [result] = wire.ack_batch(ack_of(message) | {"consumerGroup": "else"}, group="g")
    assert result["success"] is True


def test_explicit_nulls_are_absent_keys(wire, fresh_queue):
    wire.push(fresh_queue, 1, 2)
    first, second = wire.messages(fresh_queue)
    nulls = {"status": None, "error": None, "leaseId": None, "consumerGroup": None}
    [result] = expect(wire.post("/api/v1/ack", ack_of(first) | nulls), 200).json()
    assert result["success"] is True
    body = {"consumerGroup": None, "acknowledgments": [ack_of(second, None, error=None)]}
    [result] = expect(wire.post("/api/v1/ack/batch", body), 200).json()
    assert result["success"] is True
    assert left(wire, fresh_queue) == []


@pytest.mark.parametrize("path", ["/api/v1/ack", "/api/v1/ack/batch"])
@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[]", b"7", b'"x"', b"{}", b"\xff"])
def test_a_body_that_is_no_ack_is_a_400(wire, path, body):
    error_of(wire.http.post(path, content=body), 400)


@pytest.mark.parametrize(
    "acknowledgments", [None, {}, "x", [None], [7], [[]], [{}], [{"transactionId": "t"}]]
)
def test_a_batch_of_the_wrong_shape_is_a_400(wire, acknowledgments):
    answer = wire.post("/api/v1/ack/batch", {"acknowledgments": acknowledgments})
    error_of(answer, 400)


@pytest.mark.parametrize(
    "change",
    [
        {"transactionId": 5},
        {"transactionId": "a\x00"},
        {"transactionId": "\ud800"},
        {"transactionId": "x" * 65536},
        {"partitionId": 5},
        {"consumerGroup": "g\x00"},
        {"consumerGroup": "g" * 256},
        {"consumerGroup": 5},
        {"leaseId": 5},
    ],
)
def test_an_illegal_identifier_in_an_ack_is_a_400_and_nothing_is_acked(
    wire, fresh_queue, five, change
):
    error_of(wire.post("/api/v1/ack", ack_of(five[0]) | change), 400)
    assert wire.ack(five[0])["noop"] is False


def test_one_illegal_item_refuses_the_whole_batch(wire, five):
    bad = ack_of(five[1]) | {"transactionId": "\x00"}
    body = {"acknowledgments": [ack_of(five[0]), bad]}
    error_of(wire.post("/api/v1/ack/batch", body), 400)
    assert wire.ack(five[0])["noop"] is False
