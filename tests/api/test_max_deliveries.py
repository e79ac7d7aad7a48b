"""maxDeliveries: the end of a message that keeps killing its consumer.

Method: HTTP against a real broker, leases of one second that nobody acks.
"""

from tests.wire_client import outlive_lease


def deliver_and_die(wire, queue: str, **params) -> list:
    """A consumer that takes a batch and is never heard of again."""
    payloads = wire.payloads(queue, leaseSeconds=1, **params)
    outlive_lease()
    return payloads


def test_by_default_an_unacked_message_comes_again_for_ever(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=0)
    assert wire.queue(fresh_queue)["options"]["maxDeliveries"] == 0
    wire.push(fresh_queue, 1)
    for _ in range(3):
        assert deliver_and_die(wire, fresh_queue) == [1]
    [message] = wire.messages(fresh_queue)
    assert message["deliveryAttempt"] == 4
    assert wire.dead_letters(fresh_queue) == []


def test_a_poison_message_ends_and_its_neighbours_do_not_suffer(wire, fresh_queue):
    wire.configure(fresh_queue, maxDeliveries=2)
    wire.push(fresh_queue, "poison", "good", "better", ids=["t0", "t1", "t2"])

    assert deliver_and_die(wire, fresh_queue) == ["poison", "good", "better"]
    assert deliver_and_die(wire, fresh_queue) == ["poison"], "suspects are delivered alone"

    [good] = wire.messages(fresh_queue)
    assert good["data"] == "good"
    [dead] = wire.dead_letters(fresh_queue)
    assert dead["transactionId"] == "t0"
    assert dead["data"] == "poison"
    assert wire.ack(good)["success"] is True

    wire.push(fresh_queue, "new", "newer")
    [better] = wire.messages(fresh_queue)
    assert better["data"] == "better", "one at a time until the old end is passed"
    wire.ack(better)
    assert wire.payloads(fresh_queue) == ["new", "newer"], "and then batches again"
    assert len(wire.dead_letters(fresh_queue)) == 1


def test_the_count_starts_anew_behind_a_dead_letter(wire, fresh_queue):
    wire.configure(fresh_queue, maxDeliveries=2)
    wire.push(fresh_queue, "poison", "slow")
    assert deliver_and_die(wire, fresh_queue) == ["poison", "slow"]
    assert deliver_and_die(wire, fresh_queue) == ["poison"]
    assert deliver_and_die(wire, fresh_queue) == ["slow"]
    [slow] = wire.messages(fresh_queue)
    assert slow["data"] == "slow", "its first unacked delivery alone does not end it"
    assert [dead["data"] for dead in wire.dead_letters(fresh_queue)] == ["poison"]


def test_a_lonely_message_ends_after_its_last_delivery(wire, fresh_queue):
    wire.configure(fresh_queue, maxDeliveries=3)
    wire.push(fresh_queue, 1)
    for _ in range(3):
        assert deliver_and_die(wire, fresh_queue) == [1]
    assert wire.payloads(fresh_queue) == []
    assert [dead["data"] for dead in wire.dead_letters(fresh_queue)] == [1]


def test_one_delivery_is_the_smallest_allowance(wire, fresh_queue):
    wire.configure(fresh_queue, maxDeliveries=1)
    wire.push(fresh_queue, 1)
    assert deliver_and_die(wire, fresh_queue) == [1]
    assert wire.payloads(fresh_queue) == []
    assert len(wire.dead_letters(fresh_queue)) == 1


def test_an_ack_in_time_spares_a_message_at_its_last_delivery(wire, fresh_queue):
    wire.configure(fresh_queue, maxDeliveries=2)
    wire.push(fresh_queue, 1)
    assert deliver_and_die(wire, fresh_queue) == [1]
    [message] = wire.messages(fresh_queue)
    assert wire.ack(message)["success"] is True
    assert wire.payloads(fresh_queue) == []
    assert wire.dead_letters(fresh_queue) == []


def test_only_the_group_that_dies_of_it_loses_the_message(wire, fresh_queue):
    wire.configure(fresh_queue, maxDeliveries=1)
    wire.push(fresh_queue, 1)
    weak = {"consumerGroup": "weak", "subscriptionMode": "all"}
    strong = {"consumerGroup": "strong", "subscriptionMode": "all"}
    assert deliver_and_die(wire, fresh_queue, **weak) == [1]
    assert wire.payloads(fresh_queue, **weak) == []
    assert wire.payloads(fresh_queue, **strong) == [1]
    [dead] = wire.dead_letters(fresh_queue)
    assert dead["consumerGroup"] == "weak"


def test_under_conflation_the_count_belongs_to_the_delivered_message(wire, fresh_queue):
    wire.configure(fresh_queue, maxDeliveries=2)
    newest = {"consumerGroup": "g", "subscriptionMode": "all", "conflation": True}
    wire.push_each(fresh_queue, 1, 2)
    assert deliver_and_die(wire, fresh_queue, **newest) == [2]
    wire.push(fresh_queue, 3)
    assert deliver_and_die(wire, fresh_queue, **newest) == [3]
    [three] = wire.messages(fresh_queue, **newest)
    assert three["data"] == 3, "this is its second delivery, whatever happened to 2"
    assert wire.ack(three)["success"] is True
    assert wire.dead_letters(fresh_queue) == []
