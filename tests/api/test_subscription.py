"""Where a consumer group begins: the durable subscription that its first pop records.

Method: HTTP against a real broker.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest

from tests.wire_client import WireClient


def payloads(wire, queue: str, group: str = "g", **params):
    return wire.payloads(queue, consumerGroup=group, partitions=0, autoAck=True, **params)


def test_a_group_begins_at_now_unless_it_says_otherwise(wire, fresh_queue):
    wire.push(fresh_queue, "backlog")
    assert payloads(wire, fresh_queue) == []
    wire.push(fresh_queue, "after")
    assert payloads(wire, fresh_queue) == ["after"]


@pytest.mark.parametrize("mode", ["new", "new-only"])
def test_a_new_group_skips_the_backlog_and_misses_nothing_after_it(wire, fresh_queue, mode):
    wire.push(fresh_queue, "backlog")
    assert payloads(wire, fresh_queue, subscriptionMode=mode) == []
    wire.push(fresh_queue, "after")
    assert payloads(wire, fresh_queue) == ["after"]


@pytest.mark.parametrize("mode", ["all", "from_beginning", "NEW", "All", "junk"])
def test_any_other_mode_begins_at_the_oldest_message(wire, fresh_queue, mode):
    wire.push(fresh_queue, "oldest", "newer")
    assert payloads(wire, fresh_queue, subscriptionMode=mode) == ["oldest", "newer"]


@pytest.mark.parametrize("params", [{}, {"consumerGroup": "__QUEUE_MODE__"}])
def test_queue_mode_never_skips(wire, fresh_queue, params):
    wire.push(fresh_queue, 1)
    assert wire.payloads(fresh_queue, subscriptionMode="new", subscriptionFrom="now", **params) == [
        1
    ]


def test_a_mode_seeds_a_group_and_never_moves_it(wire, fresh_queue):
    wire.push(fresh_queue, 1, 2)
    assert payloads(wire, fresh_queue, subscriptionMode="new") == []
    assert payloads(wire, fresh_queue, subscriptionMode="all") == []
    wire.push(fresh_queue, 3, 4)
    assert payloads(wire, fresh_queue, batch=1, subscriptionMode="new") == [3]
    assert payloads(wire, fresh_queue, subscriptionMode="new", subscriptionFrom="now") == [4]


def test_a_partition_born_after_the_group_is_delivered_from_its_first_message(wire, fresh_queue):
    wire.push(fresh_queue, "backlog", partition="old")
    assert payloads(wire, fresh_queue) == []
    wire.push(fresh_queue, "first", "second", partition="born later")
    assert payloads(wire, fresh_queue) == ["first", "second"]


def test_a_group_that_met_an_empty_or_unknown_queue_misses_nothing(wire, fresh_queue):
    assert payloads(wire, fresh_queue) == []
    wire.push(fresh_queue, 1, partition="a")
    wire.push(fresh_queue, 2, partition="b")
    assert sorted(payloads(wire, fresh_queue)) == [1, 2]


def test_first_contact_through_one_partition_subscribes_to_the_whole_queue(wire, fresh_queue):
    wire.push(fresh_queue, "backlog a", partition="a")
    wire.push(fresh_queue, "backlog b", partition="b")
    assert wire.payloads(fresh_queue, "a", consumerGroup="g") == []
    wire.push(fresh_queue, "after a", partition="a")
    wire.push(fresh_queue, "after b", partition="b")
    assert sorted(payloads(wire, fresh_queue)) == ["after a", "after b"]


def test_workers_that_race_on_first_contact_seed_once_and_miss_nothing(wire, fresh_queue):
    for partition in range(8):
        wire.push(fresh_queue, f"backlog {partition}", partition=str(partition))

    with ThreadPoolExecutor(8) as pool:
        firsts = list(pool.map(lambda _: payloads(wire, fresh_queue), range(8)))
        assert firsts == [[]] * 8
        for partition in range(8):
            wire.push(fresh_queue, partition, partition=str(partition))
        rounds = list(pool.map(lambda _: payloads(wire, fresh_queue), range(8)))

    seen = [payload for got in rounds for payload in got]
    assert sorted(seen + payloads(wire, fresh_queue)) == list(range(8))


def test_groups_that_meet_pushes_halfway_miss_nothing_pushed_after_their_first_answer(
    wire, fresh_queue
):
    """Whatever was answered `queued` after the first pop of the group was answered is its own."""
    with ThreadPoolExecutor(4) as pool:
        for round_number in range(10):
            group = f"g{round_number}"
            noise = [pool.submit(wire.push, fresh_queue, f"noise {n}") for n in range(3)]
            early = payloads(wire, fresh_queue, group)
            wire.push(fresh_queue, f"mine {round_number}")
            for each in noise:
                each.result()
            seen = early + payloads(wire, fresh_queue, group)
            assert f"mine {round_number}" in seen
            assert len(seen) == len(set(seen))


# --- subscriptionFrom ---------------------------------------------------------------------------


@pytest.fixture
def stamps(wire, fresh_queue) -> list[str]:
    """createdAt of five messages, each with its own commit."""
    wire.push_each(fresh_queue, *range(5))
    stamps = [message["createdAt"] for message in wire.messages(fresh_queue, autoAck=True)]
    assert len(set(stamps)) == 5
    return stamps


def test_from_a_moment_begins_with_the_first_message_at_or_after_it(wire, fresh_queue, stamps):
    assert payloads(wire, fresh_queue, subscriptionFrom=stamps[2]) == [2, 3, 4]


def test_from_a_moment_between_two_messages_begins_with_the_later(wire, fresh_queue, stamps):
    moment = datetime.fromisoformat(stamps[2]) + timedelta(microseconds=1)
    between = moment.isoformat().replace("+00:00", "Z")
    assert payloads(wire, fresh_queue, subscriptionFrom=between) == [3, 4]


def test_a_moment_may_name_its_offset_from_utc(wire, fresh_queue, stamps):
    moment = datetime.fromisoformat(stamps[3]).astimezone(timezone(timedelta(hours=2)))
    assert moment.isoformat().endswith("+02:00")
    assert payloads(wire, fresh_queue, subscriptionFrom=moment.isoformat()) == [3, 4]


def test_from_long_ago_is_everything(wire, fresh_queue, stamps):
    assert payloads(wire, fresh_queue, subscriptionFrom="1970-01-01T00:00:00Z") == list(range(5))


def test_from_now_skips_the_backlog(wire, fresh_queue, stamps):
    assert payloads(wire, fresh_queue, subscriptionFrom="now") == []
    wire.push(fresh_queue, "after")
    assert payloads(wire, fresh_queue) == ["after"]


def test_from_the_future_is_the_visible_end_and_no_further(wire, fresh_queue, stamps):
    assert payloads(wire, fresh_queue, subscriptionFrom="2999-01-01T00:00:00Z") == []
    wire.push(fresh_queue, "after")
    assert payloads(wire, fresh_queue) == ["after"]


@pytest.mark.parametrize(
    "junk", ["yesterday", "2026-02-30T00:00:00Z", "292277-01-01T00:00:00Z", "1e400", "-", "\x01"]
)
def test_an_unparseable_moment_is_ignored(wire, fresh_queue, stamps, junk):
    params = {"subscriptionFrom": junk, "subscriptionMode": "all"}
    assert payloads(wire, fresh_queue, **params) == list(range(5))


def test_the_default_mode_is_the_operators_choice(fresh_queue, start_broker):
    broker = start_broker(DEFAULT_SUBSCRIPTION_MODE="all")
    with WireClient.at(broker.url) as wire:
        wire.push(fresh_queue, "backlog")
        assert payloads(wire, fresh_queue) == ["backlog"]
        assert payloads(wire, fresh_queue, "other", subscriptionMode="new") == []
