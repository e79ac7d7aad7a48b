"""Two brokers on one database, without a mesh: the database is enough to be correct.

Method: two broker processes of this file. What one did must hold on the other at once or,
where it only waits, within the floor of one probe a second.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import harness
from tests.wire_client import INVALID_LEASE, WireClient, ack_of, expect


@pytest.fixture(scope="module")
def two_brokers(database, tmp_path_factory):
    brokers = [
        harness.BrokerProcess(tmp_path_factory.mktemp("two") / "log", database.environment)
        for _ in range(2)
    ]
    yield brokers
    for broker in brokers:
        broker.stop()


@pytest.fixture
def here(two_brokers):
    with WireClient.at(two_brokers[0].url) as wire:
        yield wire


@pytest.fixture
def there(two_brokers):
    with WireClient.at(two_brokers[1].url) as wire:
        yield wire


def test_what_one_broker_stored_the_other_delivers_at_once_without_waiting(
    here, there, fresh_queue
):
    for number in range(20):
        for writer, reader in ((here, there), (there, here)):
            writer.push(fresh_queue, number)
            assert reader.payloads(fresh_queue, autoAck=True) == [number]


def test_a_group_that_met_the_queue_elsewhere_is_known(here, there, fresh_queue):
    here.push(fresh_queue, "backlog")
    assert here.payloads(fresh_queue, consumerGroup="g") == []
    there.push(fresh_queue, "after")
    assert there.payloads(fresh_queue, consumerGroup="g", subscriptionMode="all") == ["after"]


def test_one_partition_has_one_lease_whichever_broker_is_asked(here, there, fresh_queue):
    here.push(fresh_queue, *range(5))
    [message] = there.messages(fresh_queue, batch=1)
    for wire in (here, there):
        assert wire.payloads(fresh_queue) == []
    assert here.ack(message)["success"] is True, "a lease is good at every broker"
    assert here.payloads(fresh_queue) == [1, 2, 3, 4]
    assert there.ack(message)["noop"] is True


def test_consumers_at_both_brokers_share_the_work_without_a_repeat(here, there, fresh_queue):
    total = 120
    here.push_items(
        *(
            {"queue": fresh_queue, "partition": str(number % 12), "payload": number}
            for number in range(total)
        )
    )

    def consume(wire: WireClient) -> list[int]:
        seen = []
        while messages := wire.messages(fresh_queue, batch=3, wait=True, timeout=300):
            seen += [message["data"] for message in messages]
            assert all(each["success"] for each in wire.ack_batch(*map(ack_of, messages)))
        return seen

    with ThreadPoolExecutor(4) as pool:
        seen = [number for got in pool.map(consume, [here, there] * 2) for number in got]
    assert sorted(seen) == list(range(total))


def test_an_id_is_a_duplicate_at_both_brokers(here, there, fresh_queue):
    def push(number: int) -> dict:
        return (here, there)[number % 2].push(fresh_queue, number, ids=["t"])[0]

    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(push, range(40)))
    assert [row["status"] for row in rows].count("queued") == 1
    assert len({row["message_id"] for row in rows}) == 1


def test_a_stale_lease_is_stale_at_both_brokers(here, there, fresh_queue):
    here.push(fresh_queue, 1)
    [message] = here.messages(fresh_queue)
    assert there.ack(message, "retry")["leaseReleased"] is True
    assert here.ack(message)["error"] == INVALID_LEASE
    assert here.extend(message["leaseId"])["renewed"] == 0
    assert here.payloads(fresh_queue) == [1]


def test_a_configuration_is_respected_by_a_broker_that_had_cached_another(here, there, fresh_queue):
    for number, window in enumerate((3600, 0, 3600, 0)):
        here.configure(fresh_queue, dedupWindowSeconds=window)
        statuses = [there.push(fresh_queue, number, ids=["t"])[0]["status"] for _ in range(2)]
        expected = "duplicate" if window else "queued"
        assert statuses[1] == expected


def test_a_lease_time_configured_elsewhere_is_the_next_lease(here, there, fresh_queue):
    there.push(fresh_queue, 1)
    assert there.payloads(fresh_queue, autoAck=True) == [1]
    here.configure(fresh_queue, leaseTime=1)
    there.push(fresh_queue, 2)
    assert there.payloads(fresh_queue) == [2]
    began = time.monotonic()
    assert there.payloads(fresh_queue, wait=True, timeout=10_000) == [2]
    assert time.monotonic() - began < 4, "the lease of the new length ran out"


def test_encryption_switched_on_elsewhere_stops_plaintext_here(here, there, fresh_queue):
    there.push(fresh_queue, "plain")
    here.configure(fresh_queue, encryptionEnabled=True)
    answer = there.post_items({"queue": fresh_queue, "payload": "secret"})
    assert "queued" not in answer.text
    assert there.payloads(fresh_queue) == ["plain"]


def test_a_queue_deleted_elsewhere_is_gone_for_a_broker_that_had_cached_it(
    here, there, fresh_queue
):
    for run in range(3):
        [row] = there.push(fresh_queue, run, ids=["t"])
        assert row["status"] == "queued"
        [message] = there.messages(fresh_queue)
        assert message["data"] == run
        assert here.delete(fresh_queue)["deleted"] is True
        assert there.ack(message)["success"] is False
        assert there.extend(message["leaseId"])["renewed"] == 0
        assert there.payloads(fresh_queue) == []
        expect(there.get_pop(fresh_queue), 204)


def test_a_push_after_a_delete_elsewhere_is_never_lost_in_the_old_queue(here, there, fresh_queue):
    for run in range(5):
        there.push(fresh_queue, f"old {run}")
        here.delete(fresh_queue)
        there.push(fresh_queue, f"new {run}")
        assert here.payloads(fresh_queue, autoAck=True) == [f"new {run}"]
        here.delete(fresh_queue)


@pytest.mark.parametrize("how", ["push", "transaction", "new partition"])
def test_a_parked_pop_gets_what_another_broker_stores_within_two_seconds(
    here, there, fresh_queue, how
):
    there.push(fresh_queue, "first")
    assert there.payloads(fresh_queue, autoAck=True) == ["first"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(there.payloads, fresh_queue, wait=True, timeout=15_000)
        time.sleep(0.3)  # so that it most likely sits; if not, the test is only easier
        if how == "transaction":
            here.transaction({"type": "push", "queue": fresh_queue, "payload": "over there"})
        else:
            partition = "fresh" if how == "new partition" else None
            here.push(fresh_queue, "over there", partition=partition)
        began = time.monotonic()
        assert waiting.result(timeout=20) == ["over there"]
    assert time.monotonic() - began < 2.5


def test_a_parked_pop_gets_what_an_ack_elsewhere_frees_within_two_seconds(here, there, fresh_queue):
    here.push(fresh_queue, 1, 2)
    [message] = here.messages(fresh_queue, batch=1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(there.payloads, fresh_queue, wait=True, timeout=15_000)
        time.sleep(0.3)  # as above
        assert here.ack(message, "retry")["leaseReleased"] is True
        began = time.monotonic()
        assert waiting.result(timeout=20) == [1, 2]
    assert time.monotonic() - began < 2.5


def test_a_dead_letter_is_replayed_once_though_both_brokers_are_asked(here, there, fresh_queue):
    here.push(fresh_queue, 1)
    [message] = here.messages(fresh_queue)
    here.ack(message, "dlq")
    [row] = there.dead_letters(fresh_queue)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda wire: wire.replay(row["id"]).status_code, [here, there] * 2))
    assert sorted(answers) == [200, 404, 404, 404]
    assert there.payloads(fresh_queue) == [1]
