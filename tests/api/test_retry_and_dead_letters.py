"""The retry budget: how often a nacked message comes again, and how it ends.

Method: HTTP against a real broker.
"""

import pytest

from tests.wire_client import ack_of, outlive_lease


def nack(wire, queue: str, error: str = "boom", **params) -> dict:
    """Pop, nack the first message of the batch, and return the ack's result."""
    messages = wire.messages(queue, **params)
    assert messages, "nothing to nack"
    return wire.ack(messages[0], "failed", error=error)


def test_a_nacked_message_is_delivered_retry_limit_plus_one_times_then_dead_lettered(
    wire, fresh_queue
):
    wire.configure(fresh_queue, retryLimit=2)
    [row] = wire.push(fresh_queue, {"n": 1}, partition="p", ids=["t1"])

    attempts, verdicts = [], []
    while messages := wire.messages(fresh_queue):
        attempts.append(messages[0]["deliveryAttempt"])
        result = wire.ack(messages[0], "failed", error=f"boom {attempts[-1]}")
        assert result["success"] is True
        assert result["leaseReleased"] is True
        verdicts.append(result["dlq"])

    assert attempts == [1, 2, 3]
    assert verdicts == [False, False, True]
    [dead] = wire.dead_letters(fresh_queue)
    assert dead["transactionId"] == "t1"
    assert dead["data"] == {"n": 1}
    assert dead["errorMessage"] == "boom 3"
    assert (dead["queue"], dead["partition"]) == (fresh_queue, "p")
    assert dead["consumerGroup"] == "__QUEUE_MODE__"
    assert row["status"] == "queued"


def test_the_default_budget_is_three_retries(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    assert [nack(wire, fresh_queue)["dlq"] for _ in range(4)] == [False, False, False, True]
    assert wire.payloads(fresh_queue) == []


def test_a_budget_of_zero_dead_letters_at_the_first_nack(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=0)
    wire.push(fresh_queue, 1, 2)
    assert nack(wire, fresh_queue)["dlq"] is True
    assert wire.payloads(fresh_queue) == [2]


def test_an_exhausted_message_leaves_alone_what_comes_after_it(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=0)
    wire.push(fresh_queue, "poison", "good", "better")
    messages = wire.messages(fresh_queue)
    results = wire.ack_batch(
        ack_of(messages[0], "failed"), ack_of(messages[1]), ack_of(messages[2])
    )
    assert results[0]["dlq"] is True
    assert len(wire.dead_letters(fresh_queue)) == 1
    again = wire.messages(fresh_queue)
    assert [message["data"] for message in again] == ["good", "better"]
    wire.ack_batch(*map(ack_of, again))
    assert wire.payloads(fresh_queue) == []


def test_an_exhausted_nack_completes_what_is_unmentioned_below_it(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=0)
    wire.push(fresh_queue, *range(5))
    messages = wire.messages(fresh_queue)
    assert wire.ack(messages[2], "failed")["dlq"] is True
    assert [dead["data"] for dead in wire.dead_letters(fresh_queue)] == [2]
    assert wire.payloads(fresh_queue) == [3, 4]


def test_the_queue_is_asked_for_its_budget_when_the_nack_comes(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=9)
    wire.push(fresh_queue, 1)
    assert nack(wire, fresh_queue)["dlq"] is False
    wire.configure(fresh_queue, retryLimit=0)
    assert nack(wire, fresh_queue)["dlq"] is True


# --- what charges the budget --------------------------------------------------------------------


def test_a_retry_is_free(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=1)
    wire.push(fresh_queue, 1)
    for _ in range(4):
        [message] = wire.messages(fresh_queue)
        assert wire.ack(message, "retry")["dlq"] is False
    assert nack(wire, fresh_queue)["dlq"] is False
    [message] = wire.messages(fresh_queue)
    assert wire.ack(message, "retry")["dlq"] is False, "nor does it give the charge back"
    assert nack(wire, fresh_queue)["dlq"] is True


def test_an_expired_lease_is_free(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=1)
    wire.push(fresh_queue, 1)
    for _ in range(2):
        assert wire.payloads(fresh_queue, leaseSeconds=1) == [1]
        outlive_lease()
    assert nack(wire, fresh_queue)["dlq"] is False
    assert nack(wire, fresh_queue)["dlq"] is True


def test_a_nack_is_one_charge_however_many_items_say_so(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=1)
    wire.push(fresh_queue, *range(4))
    messages = wire.messages(fresh_queue)
    results = wire.ack_batch(*(ack_of(message, "failed") for message in messages))
    assert not any(result["dlq"] for result in results)
    messages = wire.messages(fresh_queue)
    assert [message["data"] for message in messages] == [0, 1, 2, 3]
    results = wire.ack_batch(*(ack_of(message, "failed") for message in messages))
    assert [result["dlq"] for result in results].count(True) == 1
    assert wire.payloads(fresh_queue) == [1, 2, 3]


def test_a_charge_belongs_to_its_offset_and_another_offset_starts_anew(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=1)
    wire.push(fresh_queue, "a", "b")
    assert nack(wire, fresh_queue)["dlq"] is False

    a, b = wire.messages(fresh_queue)
    results = wire.ack_batch(ack_of(a), ack_of(b, "failed"))
    assert results[1]["dlq"] is False, "the charge was made for a, not for b"

    [b] = wire.messages(fresh_queue)
    assert wire.ack(b, "failed")["dlq"] is True


def test_a_charge_survives_the_completion_of_what_lies_below_it(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=1)
    wire.push(fresh_queue, "a", "b", "c")
    a, b, _ = wire.messages(fresh_queue)
    wire.ack_batch(ack_of(a), ack_of(b, "failed"))
    b, _ = wire.messages(fresh_queue)
    assert wire.ack(b, "failed")["dlq"] is True
    assert wire.payloads(fresh_queue) == ["c"]


def test_a_completed_batch_forgets_the_charges(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=1)
    wire.push(fresh_queue, 1)
    nack(wire, fresh_queue)
    [message] = wire.messages(fresh_queue)
    wire.ack(message)
    wire.push(fresh_queue, 2)
    assert nack(wire, fresh_queue)["dlq"] is False
    assert nack(wire, fresh_queue)["dlq"] is True


def test_each_group_has_its_own_budget_and_its_own_dead_letters(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=1)
    wire.push(fresh_queue, 1)
    a = {"consumerGroup": "a", "subscriptionMode": "all"}
    b = {"consumerGroup": "b", "subscriptionMode": "all"}
    nack(wire, fresh_queue, **a)
    assert nack(wire, fresh_queue, **b)["dlq"] is False
    assert nack(wire, fresh_queue, "a gave up", **a)["dlq"] is True
    [dead] = wire.dead_letters(fresh_queue)
    assert (dead["consumerGroup"], dead["errorMessage"]) == ("a", "a gave up")
    assert wire.payloads(fresh_queue, **b) == [1]


def test_each_partition_has_its_own_budget(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=0)
    for partition in "ab":
        wire.push(fresh_queue, partition, partition=partition)
    messages = wire.messages(fresh_queue, partitions=2)
    results = wire.ack_batch(*(ack_of(message, "failed") for message in messages))
    assert [result["dlq"] for result in results] == [True, True]
    assert sorted(dead["data"] for dead in wire.dead_letters(fresh_queue)) == ["a", "b"]


# --- where an exhausted message goes ------------------------------------------------------------


@pytest.mark.parametrize("options", [(True, True), (True, False), (False, True)])
def test_either_option_keeps_dead_letters(wire, fresh_queue, options):
    dead_letter_queue, after_max_retries = options
    wire.configure(
        fresh_queue,
        retryLimit=0,
        deadLetterQueue=dead_letter_queue,
        dlqAfterMaxRetries=after_max_retries,
    )
    wire.push(fresh_queue, 1)
    assert nack(wire, fresh_queue)["dlq"] is True
    assert len(wire.dead_letters(fresh_queue)) == 1


def test_with_both_options_off_an_exhausted_message_is_dropped(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=1, deadLetterQueue=False, dlqAfterMaxRetries=False)
    wire.push(fresh_queue, "dropped", "next")
    nack(wire, fresh_queue)
    result = nack(wire, fresh_queue)
    assert (result["success"], result["dlq"], result["leaseReleased"]) == (True, False, True)
    assert wire.payloads(fresh_queue) == ["next"]
    assert wire.dead_letters(fresh_queue) == []


def test_a_dead_letter_keeps_its_payload_when_its_group_goes_on(wire, fresh_queue):
    wire.push(fresh_queue, {"keep": "me"})
    [message] = wire.messages(fresh_queue)
    wire.ack(message, "dlq", error="why")
    for number in range(3):
        wire.push(fresh_queue, number)
        wire.pop(fresh_queue, autoAck=True)
    [dead] = wire.dead_letters(fresh_queue)
    assert (dead["data"], dead["errorMessage"]) == ({"keep": "me"}, "why")
