"""The dead-letter procedures: pages, addresses, replays that are all or nothing, purges.

Method: the store's coroutines on real PostgreSQL; a second connection holds the locks.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg
import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.frames import literal
from brokers.store import management_calls as calls
from tests.store.calling import Lane, call, flush, waits_for_lock


def listed(
    db, queue=None, *, group=None, limit=100, offset=0, bytes_max=2**26, tenant=DEFAULT_TENANT
):
    return call(
        db,
        calls.dead_letter_list,
        tenant,
        queue=queue,
        group=group,
        limit=limit,
        offset=offset,
        bytes_max=bytes_max,
    )


def find(db, *, tenant=DEFAULT_TENANT, **named):
    return call(db, calls.dead_letter_find, tenant, **named)


def replay(db, dead_letter_id, lane, wait_ms=5000, transaction=None):
    message = flush(lane.row, (b'"again"',), [transaction or f"dlq:{dead_letter_id}"])
    return call(db, calls.dead_letter_replay, dead_letter_id, message, wait_ms=wait_ms)


def purge(db, queue, *, group=None, after=None, rows_max=1000, tenant=DEFAULT_TENANT):
    return call(db, calls.dead_letter_purge, tenant, queue, group, after=after, rows_max=rows_max)


# --- pages --------------------------------------------------------------------------------------


def test_pages_are_newest_first_across_partitions_and_do_not_overlap(db, fresh_queue):
    a, b = Lane(db, fresh_queue, "a"), Lane(db, fresh_queue, "b")
    for number in range(3):
        a.bury(f"a{number}")
        b.bury(f"b{number}")
    newest = [b'"b2"', b'"a2"', b'"b1"', b'"a1"', b'"b0"', b'"a0"']
    assert [row.payload for row in listed(db, fresh_queue)] == newest
    pages = [listed(db, fresh_queue, limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [row.payload for page in pages for row in page] == newest
    assert listed(db, fresh_queue, offset=2**63 - 1) == []


def test_the_page_of_all_queues_is_that_of_the_tenant(db, fresh_queue):
    tenant = uuid.uuid4()
    Lane(db, fresh_queue).bury("foreign")
    for number in range(3):
        Lane(db, f"{fresh_queue}-{number}", tenant=tenant).bury(number, group=f"g{number % 2}")
    assert [row.payload for row in listed(db, tenant=tenant)] == [b"2", b"1", b"0"]
    assert [row.payload for row in listed(db, tenant=tenant, group="g0")] == [b"2", b"0"]
    assert [row.payload for row in listed(db, tenant=tenant, limit=1, offset=1)] == [b"1"]
    assert listed(db, fresh_queue, tenant=tenant) == []


def test_a_page_ends_before_its_payloads_are_too_large_but_not_before_its_first(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.bury("x" * 100, "y" * 100, "z" * 100)
    assert len(listed(db, fresh_queue, bytes_max=250)) == 2
    assert len(listed(db, fresh_queue, bytes_max=10)) == 1


def test_what_is_listed_is_what_was_pushed_byte_for_byte(db, fresh_queue):
    payload = b'{"b":1,"a":1,"a":2,"f":1.0,"g":1E400,"s":"\\u00e9\\u0000\\ud800"}'
    Lane(db, fresh_queue).bury(payload, ids=['say "hi"\n\u2028é'])
    [row] = listed(db, fresh_queue)
    assert row.payload == payload
    assert row.transaction_id == literal('say "hi"\n\u2028é')


def test_dead_letters_of_a_deleted_queue_are_out_of_reach_at_once(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    [dead] = lane.bury(1, ids=["t"])
    call(db, calls.queue_delete, DEFAULT_TENANT, fresh_queue)
    assert lane.count("queen_dead_letter") == 1
    assert listed(db, fresh_queue) == []
    assert find(db, dead_letter_id=UUID(dead)) is None
    assert find(db, partition_uid=UUID(lane.row.uid), transaction=literal("t")) is None
    assert replay(db, dead, Lane(db, f"{fresh_queue}-target")).verdict == "gone"


@pytest.mark.parametrize("group", [None, "g"])
def test_a_page_of_the_tenant_passes_over_a_deleted_queue_full_of_letters(db, group):
    tenant = uuid.uuid4()
    for number in range(3):
        Lane(db, f"kept-{number}", tenant=tenant).bury(number)
    Lane(db, "gone", tenant=tenant).bury_many(6000)
    call(db, calls.queue_delete, tenant, "gone")
    found = [row.payload for row in listed(db, tenant=tenant, group=group, limit=2)]
    assert found == [b"2", b"1"]
    found = [row.payload for row in listed(db, tenant=tenant, group=group, limit=2, offset=1)]
    assert found == [b"1", b"0"]
    assert listed(db, tenant=tenant, group=group, offset=3) == []
    assert listed(db, tenant=tenant, group="h") == []


# --- addresses ----------------------------------------------------------------------------------


def test_an_address_means_its_newest_dead_letter(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.push(1, 2, ids=["t", "u"])
    lane.bury_at(0, "first")
    newest = lane.bury_at(0, "second")
    lane.bury_at(1, "third")
    found = find(db, partition_uid=UUID(lane.row.uid), transaction=literal("t"))
    assert (found.id, found.group) == (newest, "second")
    lane.bury_at(0, "first")
    assert find(db, partition_uid=UUID(lane.row.uid), transaction=literal("t")).group == "first"
    assert find(db, partition_uid=UUID(lane.row.uid), transaction=literal("T")) is None


def test_another_tenant_finds_nothing(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    [dead] = lane.bury(1, ids=["t"])
    other = uuid.uuid4()
    assert find(db, tenant=other, dead_letter_id=UUID(dead)) is None
    address = {"partition_uid": UUID(lane.row.uid), "transaction": literal("t")}
    assert find(db, tenant=other, **address) is None
    assert find(db, **address).id == dead


# --- replay -------------------------------------------------------------------------------------


def test_a_replay_appends_and_deletes(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    [dead] = lane.bury("dead")
    assert replay(db, dead, lane) == ("moved", 1)
    assert lane.count("queen_dead_letter") == 0
    frame = lane.scalar("SELECT queen_frame_get_v1(%s, 1::bigint)", lane.id)
    assert frame.endswith(
        f'"transactionId":"dlq:{dead}","traceId":null,"producerSub":null,"data":"again"'
    )
    assert replay(db, dead, lane) == ("gone", None)
    assert lane.count("queen_segment") == 2


def test_a_replay_that_is_there_already_writes_nothing_and_tells_where(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    [dead] = lane.bury("dead")
    lane.push("between", "taken", ids=["x", f"dlq:{dead}"])
    assert replay(db, dead, lane) == ("duplicate", 2)
    assert lane.count("queen_dead_letter") == 1
    assert lane.count("queen_segment") == 2


@pytest.mark.parametrize("change", ["configured", "deleted"])
def test_a_replay_to_a_place_that_changed_meanwhile_changes_nothing(db, fresh_queue, change):
    source, target = Lane(db, fresh_queue), Lane(db, f"{fresh_queue}-target")
    [dead] = source.bury("dead")
    if change == "configured":
        call(db, calls.queue_configure, DEFAULT_TENANT, target.queue, {"encryption_enabled": True})
    else:
        call(db, calls.queue_delete, DEFAULT_TENANT, target.queue)
    assert replay(db, dead, target) == ("stale", None)
    assert source.count("queen_dead_letter") == 1
    assert target.count("queen_segment") == 0


def test_of_two_replays_to_different_places_one_moves(db, second_connection, database, fresh_queue):
    source = Lane(db, fresh_queue)
    targets = [Lane(db, fresh_queue, name) for name in "ab"]
    [dead] = source.bury("dead")
    first = second_connection()
    assert replay(first, dead, targets[0]).verdict == "moved"
    with ThreadPoolExecutor(1) as pool, database.connect() as other:
        second = pool.submit(replay, other, dead, targets[1])
        while not waits_for_lock(db):
            assert not second.done(), "it should wait for the first"
        first.commit()
        assert second.result(timeout=5) == ("gone", None)
    assert [lane.count("queen_segment") for lane in targets] == [1, 0]


def test_a_replay_whose_first_mover_rolls_back_moves(db, second_connection, database, fresh_queue):
    lane = Lane(db, fresh_queue)
    [dead] = lane.bury("dead")
    first = second_connection()
    assert replay(first, dead, lane).verdict == "moved"
    with ThreadPoolExecutor(1) as pool, database.connect() as other:
        second = pool.submit(replay, other, dead, lane)
        while not waits_for_lock(db):
            assert not second.done(), "it should wait for the first"
        first.rollback()
        assert second.result(timeout=5) == ("moved", 1)


def test_a_replay_does_not_wait_for_ever(db, second_connection, fresh_queue):
    lane = Lane(db, fresh_queue)
    [dead] = lane.bury("dead")
    holder = second_connection()
    holder.execute("SELECT 1 FROM queen_partition WHERE id = %s FOR UPDATE", [lane.id])
    with pytest.raises(psycopg.errors.LockNotAvailable):
        replay(db, dead, lane, wait_ms=50)
    assert lane.count("queen_dead_letter") == 1


# --- purge --------------------------------------------------------------------------------------


def test_a_purge_goes_on_in_bounded_steps_where_it_stopped(db, fresh_queue):
    lanes = [Lane(db, fresh_queue, name) for name in "abc"]
    for lane in lanes:
        lane.bury(1, 2, 3)
    step, deleted = None, []
    while not deleted or deleted[-1] == 2:
        step = purge(db, fresh_queue, after=step, rows_max=2)
        deleted.append(step.deleted)
    assert deleted == [2, 2, 2, 2, 1]
    assert [lane.count("queen_dead_letter") for lane in lanes] == [0, 0, 0]


def test_what_dies_during_a_purge_is_not_part_of_it(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.bury(1, 2)
    first = purge(db, fresh_queue, rows_max=1)
    lane.bury(3, 4, 5)
    second = purge(db, fresh_queue, after=first, rows_max=100)
    assert (first.deleted, second.deleted) == (1, 1)
    assert [row.payload for row in listed(db, fresh_queue)] == [b"5", b"4", b"3"]


def test_a_purge_keeps_to_its_queue_group_and_tenant(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    foreign = Lane(db, fresh_queue, tenant=uuid.uuid4())
    other = Lane(db, f"{fresh_queue}-other")
    for one in (lane, foreign, other):
        one.bury(1, group="g")
        one.bury(2, group="h")
    assert purge(db, fresh_queue, group="g").deleted == 1
    assert [row.group for row in listed(db, fresh_queue)] == ["h"]
    assert purge(db, fresh_queue).deleted == 1
    assert [one.count("queen_dead_letter") for one in (lane, foreign, other)] == [0, 2, 2]
