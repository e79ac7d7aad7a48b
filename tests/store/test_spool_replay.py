"""A replay stores a range of spool records in their order, and no message twice.

Method: the store's coroutines on real PostgreSQL. Where a test needs an original that is
older, it moves back the time that its transaction row remembers.
"""

import threading

import psycopg
import pytest

from brokers import frames
from brokers.store import management_calls, spool_calls
from tests.store.calling import Lane, call, minter
from tests.store.spooling import HOUR_US, MINUTE_US, Spool, ago_us, payloads, record


@pytest.fixture
def lane(db, fresh_queue) -> Lane:
    return Lane(db, fresh_queue)


@pytest.fixture
def spool(db) -> Spool:
    return Spool(db)


def configured(db, queue, **options) -> Lane:
    """A lane of a queue with these options."""
    Lane(db, queue)
    db.execute(
        "SELECT queen_queue_configure_v1(tenant_id, name, %s) FROM queen_queue WHERE name = %s",
        [psycopg.types.json.Jsonb(options), queue],
    )
    return Lane(db, queue)


def age(lane: Lane, by: str) -> None:
    """All that was stored in this partition until now counts as seen so much earlier."""
    lane.db.execute(
        "UPDATE queen_txn SET created_at = created_at - %s::interval WHERE partition_id = %s",
        [by, lane.id],
    )


def test_records_of_several_partitions_keep_their_order_and_move_the_mark(db, fresh_queue, spool):
    lanes = [Lane(db, fresh_queue, name) for name in ("a", "b")]
    items = [record(lanes[n % 2], b"%d" % n) for n in range(6)]
    assert spool.replay(*items) == [True] * 6
    assert payloads(lanes[0]) == [b"0", b"2", b"4"]
    assert payloads(lanes[1]) == [b"1", b"3", b"5"]
    assert spool.marks() == {spool.file: 6}
    assert spool.replay(record(lanes[0], b"6"), start=6) == [True]
    assert payloads(lanes[0]) == [b"0", b"2", b"4", b"6"]
    assert spool.marks() == {spool.file: 7}


def test_a_partition_whose_ids_fall_is_stored_in_the_records_order_all_the_same(lane, spool):
    ids = minter.mint_many(4)
    order = [2, 3, 0, 1]
    items = [record(lane, b"%d" % n, message_id=ids[n]) for n in order]
    assert spool_calls.cut(items) == [[0, 1], [2, 3]]
    assert spool.replay(*items) == [True] * 4
    assert payloads(lane) == [b"2", b"3", b"0", b"1"]
    bases = lane.db.execute(
        "SELECT base_offset, end_offset, date_trunc('milliseconds', created_at)"
        " FROM queen_segment WHERE partition_id = %s ORDER BY base_offset",
        [lane.id],
    ).fetchall()
    assert [row[:2] for row in bases] == [(0, 1), (2, 3)]
    assert bases[0][2] < bases[1][2], "(created_at in ms, id) went back"


def test_records_are_stored_however_full_their_queue_is(db, fresh_queue, spool):
    lane = configured(db, fresh_queue, enforce=True, max_size=1)
    assert lane.push(b"0") == "stored" and lane.push(b"1") == "full"
    assert spool.replay(record(lane, b"2"), record(lane, b"3")) == [True, True]
    assert payloads(lane) == [b"0", b"2", b"3"]


def test_ids_that_rise_over_other_partitions_records_are_one_group(db, fresh_queue):
    one, other = Lane(db, fresh_queue, "a"), Lane(db, fresh_queue, "b")
    items = [record(lane) for lane in (one, other, one, other)]
    assert spool_calls.cut(items) == [[0, 2], [1, 3]]
    assert spool_calls.cut([items[0], items[0]]) == [[0], [1]]


def test_an_encrypted_record_is_flagged_beside_plain_ones_and_after_a_cut(lane, spool):
    twice = record(lane, b"0")
    assert spool.replay(twice) == [True]
    items = [twice, record(lane, b'"x"', encrypted=True), record(lane, b"2")]
    assert spool.replay(*items, start=1) == [False, True, True]
    assert payloads(lane) == [b"0", b'"x"', b"2"]
    flags = lane.db.execute(
        "SELECT flags FROM queen_segment WHERE partition_id = %s ORDER BY base_offset", [lane.id]
    ).fetchall()
    assert flags == [(None,), (bytes([frames.FLAG_ENCRYPTED, 0]),)]


def test_payloads_are_kept_byte_for_byte_around_a_duplicate(lane, spool):
    odd = [b'"\xc3\xa4\xf0\x9f\x90\x9d"', b"1e999", b'{"a" : [ ]}', b'"\\ud800"']
    items = [record(lane, payload) for payload in odd]
    assert spool.replay(items[1]) == [True]
    assert spool.replay(*items, start=1) == [True, False, True, True]
    assert payloads(lane) == [odd[1], odd[0], *odd[2:]]


def test_a_transaction_id_inside_the_window_before_its_acceptance_is_a_duplicate(lane, spool):
    lane.push(b"0", ids=["t"])
    age(lane, "59 minutes")
    assert spool.replay(record(lane, b"1", txn="t")) == [False]
    assert payloads(lane) == [b"0"]
    assert spool.marks() == {spool.file: 1}


def test_a_transaction_id_older_than_the_window_at_acceptance_is_stored_again(lane, spool):
    lane.push(b"0", ids=["t"])
    age(lane, "61 minutes")
    assert spool.replay(record(lane, b"1", txn="t")) == [True]
    assert payloads(lane) == [b"0", b"1"]


def test_the_window_reaches_back_from_the_acceptance_and_not_from_the_replay(lane, spool):
    lane.push(b"0", ids=["t"])
    age(lane, "5 hours 59 minutes")
    assert spool.replay(record(lane, b"1", txn="t", accepted_us=ago_us(5 * HOUR_US))) == [False]


@pytest.mark.parametrize(("later", "written"), [("59 minutes", False), ("61 minutes", True)])
def test_what_was_stored_after_the_acceptance_counts_within_the_window(lane, spool, later, written):
    lane.push(b"0", ids=["t"])
    age(lane, f"5 hours -{later}")
    accepted_us = ago_us(5 * HOUR_US)
    assert spool.replay(record(lane, b"1", txn="t", accepted_us=accepted_us)) == [written]


@pytest.mark.parametrize(("apart_us", "written"), [(59 * MINUTE_US, False), (61 * MINUTE_US, True)])
@pytest.mark.parametrize("batches", [1, 2])
def test_two_records_of_a_spool_judge_each_other_by_their_own_acceptance(
    lane, spool, apart_us, written, batches
):
    first = record(lane, b"0", txn="t", accepted_us=ago_us(20 * HOUR_US))
    second = record(lane, b"1", txn="t", accepted_us=first.accepted_us + apart_us)
    if batches == 1:
        assert spool.replay(first, second) == [True, written]
    else:
        assert spool.replay(first) == [True]
        assert spool.replay(second, start=1) == [written]


def test_a_repeat_within_one_batch_is_measured_from_the_one_that_was_stored(lane, spool):
    at_us = ago_us(20 * HOUR_US)
    items = [
        record(lane, b"%d" % n, txn="t", accepted_us=at_us + n * 40 * MINUTE_US) for n in range(4)
    ]
    assert spool.replay(*items) == [True, False, True, False]
    assert payloads(lane) == [b"0", b"2"]


@pytest.mark.parametrize(("accepted_ago_us", "verdict"), [(59 * MINUTE_US, 1), (61 * MINUTE_US, 2)])
def test_a_push_that_comes_later_meets_a_replayed_message_by_its_acceptance(
    lane, spool, accepted_ago_us, verdict
):
    spool.replay(record(lane, b"0", txn="t", accepted_us=ago_us(accepted_ago_us)))
    lane.push(b"1", ids=["t"])
    assert len(payloads(lane)) == verdict


def test_an_acceptance_in_the_future_is_now(lane, spool):
    lane.push(b"0", ids=["t"])
    ahead = record(lane, b"1", txn="t", accepted_us=ago_us(-5 * HOUR_US))
    assert spool.replay(ahead) == [False]
    spool.replay(record(lane, b"2", accepted_us=ago_us(-5 * HOUR_US)), start=1)
    latest = lane.scalar(
        "SELECT max(created_at) <= now() FROM queen_txn WHERE partition_id = %s", lane.id
    )
    assert latest is True


def test_an_id_that_is_stored_is_a_duplicate_whatever_the_window(db, fresh_queue, lane, spool):
    other_spool = Spool(db)
    item = record(lane, b"0", accepted_us=ago_us(20 * HOUR_US))
    assert spool.replay(item) == [True]
    age(lane, "9 hours")
    assert other_spool.replay(item) == [False]
    assert payloads(lane) == [b"0"]


def test_with_dedup_off_a_transaction_id_repeats_but_a_message_id_does_not(db, fresh_queue, spool):
    lane = configured(db, fresh_queue, dedup_window_seconds=0)
    first, second = record(lane, b"0", txn="t"), record(lane, b"1", txn="t")
    assert spool.replay(first) == [True]
    assert spool.replay(first, second, second, start=1) == [False, True, False]
    assert payloads(lane) == [b"0", b"1"]


def test_the_hash_decides_in_the_window_where_the_original_is_no_longer_retained(lane, spool):
    lane.push(b"0", ids=["t"])
    lane.db.execute("DELETE FROM queen_segment WHERE partition_id = %s", [lane.id])
    assert spool.replay(record(lane, txn="t")) == [False]
    age(lane, "2 hours")
    assert spool.replay(record(lane, txn="t"), start=1) == [True]


def test_another_id_of_the_same_hash_is_not_a_duplicate(lane, spool):
    lane.push(b"0", ids=["t"])
    lane.db.execute(
        "UPDATE queen_txn SET hash = queen_txn_hash_v1(%s) WHERE partition_id = %s",
        [frames.literal("other"), lane.id],
    )
    assert spool.replay(record(lane, b"1", txn="other")) == [True]


def test_a_transaction_id_is_looked_for_in_the_slots_of_every_class(db, fresh_queue, spool):
    Lane(db, fresh_queue).push(b"0", ids=["t"])
    lane = configured(db, fresh_queue, dedup_window_seconds=40 * 86_400)
    assert spool.replay(record(lane, b"1", txn="t")) == [False]
    spool.replay(record(lane, b"2", txn="u"), start=1)
    slots = db.execute(
        "SELECT slot FROM queen_txn WHERE partition_id = %s ORDER BY slot", [lane.id]
    ).fetchall()
    assert slots[-1] == (9,) and len(slots) == 2


def test_the_same_transaction_id_in_another_partition_is_another_message(db, fresh_queue, spool):
    one, other = Lane(db, fresh_queue, "a"), Lane(db, fresh_queue, "b")
    assert spool.replay(record(one, txn="t"), record(other, txn="t")) == [True, True]


def test_a_queue_that_was_configured_meanwhile_makes_the_whole_batch_stale(db, fresh_queue, spool):
    old, fine = Lane(db, fresh_queue), Lane(db, f"{fresh_queue}-2")
    configured(db, fresh_queue, lease_time=7)
    with pytest.raises(psycopg.Error) as raised:
        spool.replay(record(fine), record(old))
    assert raised.value.sqlstate == spool_calls.STALE
    assert payloads(fine) == [] and spool.marks() == {}


def test_duplicates_of_a_partition_that_is_gone_are_stale_and_not_dropped(
    db, fresh_queue, lane, spool
):
    item = record(lane)
    assert spool.replay(item) == [True]
    call(db, management_calls.queue_delete, lane.tenant, fresh_queue)
    with pytest.raises(psycopg.Error) as raised:
        spool.replay(item, start=1)
    assert raised.value.sqlstate == spool_calls.STALE
    assert spool.marks() == {spool.file: 1}


def test_a_replay_and_pushes_of_the_same_partitions_in_any_order_never_deadlock(
    db, fresh_queue, second_connection
):
    lanes = [Lane(db, fresh_queue, str(n)) for n in range(6)]
    connections = [second_connection() for _ in range(4)]
    for connection in connections:
        connection.autocommit = True
    problems = []

    def drain(connection, ordered):
        spool = Spool(connection)
        try:
            for start in range(0, 240, 12):
                items = [record(lane) for lane in ordered for _ in range(2)]
                spool.replay(*items, start=start, wait_ms=20_000)
        except psycopg.Error as error:
            problems.append(error)

    threads = [
        threading.Thread(target=drain, args=(connection, lanes[n:] + lanes[:n]))
        for n, connection in enumerate(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert {len(payloads(lane)) for lane in lanes} == {4 * 20 * 2}


def test_all_of_a_group_being_duplicates_leaves_the_others_stored(db, fresh_queue, spool):
    one, other = Lane(db, fresh_queue, "a"), Lane(db, fresh_queue, "b")
    old = [record(one, b"0"), record(one, b"1")]
    spool.replay(*old)
    assert spool.replay(*old, record(other, b"2"), start=2) == [False, False, True]
    assert spool.replay(*old, start=5) == [False, False]
    assert payloads(one) == [b"0", b"1"] and payloads(other) == [b"2"]
    assert spool.marks() == {spool.file: 7}
