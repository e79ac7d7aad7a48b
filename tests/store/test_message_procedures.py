"""The procedures that look at messages: pages, single messages, search, what letters died of.

Method: the store's coroutines on real PostgreSQL; messages get their age by moving created_at.
"""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.frames import DATA, literal
from brokers.store import management_calls
from brokers.store import message_calls as calls
from brokers.store.message_calls import Place
from tests.store.calling import Lane, call
from tests.store.retaining import commit, configure, push_aged

HOUR = timedelta(hours=1)
QUEUE_MODE = "__QUEUE_MODE__"


def listed(db, queue=None, *, tenant=DEFAULT_TENANT, since=None, until=None, **named):
    now = datetime.now(UTC)
    asked = {"partition": None, "namespace": None, "task": None, "status": None}
    asked |= {"limit": 200, "offset": 0, "lanes_max": 300, "looks_max": 20_000, "bytes_max": 2**26}
    span = {"since": since or now - HOUR, "until": until or now + HOUR}
    return call(db, calls.message_list, tenant, queue=queue, **(asked | named | span))


def payloads(page) -> list[bytes]:
    return [row.frame.split(DATA, 1)[1] for row in page.rows]


def statuses(page) -> list[str]:
    return [row.status for row in page.rows]


def inspected(db, lane, transaction, *, tenant=DEFAULT_TENANT, segments_max=100, bytes_max=2**26):
    return call(
        db,
        calls.message_get,
        tenant,
        uuid.UUID(lane.row.uid),
        literal(transaction),
        segments_max=segments_max,
        bytes_max=bytes_max,
    )


def searched(db, queue, text, *, tenant=DEFAULT_TENANT, since=None, until=None, **named):
    now = datetime.now(UTC)
    asked = {"partition": None, "after": Place(), "hits_max": 50, "lanes_max": 100}
    asked |= {"segments_max": 1000, "bytes_max": 2**26}
    span = {"since": since or now - HOUR, "until": until or now + HOUR}
    return call(
        db, calls.message_search, tenant, queue=queue, text=text.encode(), **(asked | named | span)
    )


def forget_transactions(lane: Lane) -> None:
    lane.db.execute("DELETE FROM queen_txn WHERE partition_id = %s", [lane.id])


# --- pages --------------------------------------------------------------------------------------


def test_pages_are_newest_first_across_partitions_and_do_not_overlap(db, fresh_queue):
    a, b = Lane(db, fresh_queue, "a"), Lane(db, fresh_queue, "b")
    a.push("a0", "a1")
    b.push("b0")
    a.push("a2")
    b.push("b1", "b2")
    newest = [b'"b2"', b'"b1"', b'"a2"', b'"b0"', b'"a1"', b'"a0"']
    assert payloads(listed(db, fresh_queue)) == newest
    pages = [listed(db, fresh_queue, limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [one for page in pages for one in payloads(page)] == newest
    assert payloads(listed(db, fresh_queue, limit=1, offset=3)) == [b'"b0"']
    assert payloads(listed(db, fresh_queue, partition="a")) == [b'"a2"', b'"a1"', b'"a0"']
    assert payloads(listed(db, fresh_queue, partition="c")) == []


def test_a_page_of_all_queues_is_that_of_the_tenant_and_its_filters(db, fresh_queue):
    tenant = uuid.uuid4()
    Lane(db, fresh_queue).push("foreign")
    for number in range(3):
        lane = Lane(db, f"{fresh_queue}-{number}", tenant=tenant)
        configure(lane, namespace=f"n{number % 2}", task="t")
        lane.push(number)
    assert payloads(listed(db, tenant=tenant)) == [b"2", b"1", b"0"]
    assert payloads(listed(db, tenant=tenant, namespace="n0")) == [b"2", b"0"]
    assert payloads(listed(db, tenant=tenant, namespace="n1", task="t")) == [b"1"]
    assert payloads(listed(db, tenant=tenant, task="other")) == []
    assert payloads(listed(db, fresh_queue, tenant=tenant)) == []
    assert listed(db, fresh_queue, tenant=uuid.uuid4()) == ([], False, 0, False, None)


def test_times_bound_a_page_on_both_sides(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    push_aged(lane, 3000, 2000, 1000, 0, each=2)
    now = datetime.now(UTC)

    def ages(since_s, until_s):
        page = listed(
            db,
            fresh_queue,
            since=now - timedelta(seconds=since_s),
            until=now - timedelta(seconds=until_s),
        )
        return [round((now - row.created_at).total_seconds(), -3) for row in page.rows]

    assert ages(3600, -60) == [0, 0, 1000, 1000, 2000, 2000, 3000, 3000]
    assert ages(2500, -60) == [0, 0, 1000, 1000, 2000, 2000]
    assert ages(2500, 1500) == [2000, 2000]
    assert ages(900, 500) == []
    assert ages(9000, 5000) == []


def test_a_message_is_listed_for_as_long_as_its_queue_lists_messages(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    configure(lane, dedup_window_seconds=0)
    push_aged(lane, 1200, 600)
    long_ago = datetime.now(UTC) - timedelta(days=1)
    assert len(listed(db, fresh_queue, since=long_ago).rows) == 1, "15 minutes at least"
    configure(lane, completed_retention_seconds=1300)
    assert len(listed(db, fresh_queue, since=long_ago).rows) == 2


def test_a_status_is_derived_from_the_queue_mode_cursor_and_dead_letters(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.push(0, 1, 2)
    lane.push(3, 4)
    commit(lane, QUEUE_MODE, 1)
    lane.bury_at(0, "anybody")
    db.execute(
        "UPDATE queen_cursor SET lease_id = gen_random_uuid(), batch_start = 2, batch_end = 3,"
        " lease_expires_at = now() + interval '1 minute' WHERE partition_id = %s",
        [lane.id],
    )
    page = listed(db, fresh_queue)
    assert statuses(page) == ["pending", "processing", "processing", "completed", "dead_letter"]
    assert [row.queue_status for row in page.rows][-1] == "completed"
    assert [row.lease_expires_at is not None for row in page.rows] == [
        False,
        True,
        True,
        False,
        False,
    ]
    for status, expected in (
        ("pending", [b"4"]),
        ("processing", [b"3", b"2"]),
        ("completed", [b"1"]),
        ("dead_letter", [b"0"]),
    ):
        assert payloads(listed(db, fresh_queue, status=status)) == expected
    db.execute(
        "UPDATE queen_cursor SET lease_expires_at = now() WHERE partition_id = %s", [lane.id]
    )
    assert payloads(listed(db, fresh_queue, status="pending")) == [b"4", b"3", b"2"]
    assert payloads(listed(db, fresh_queue, status="pending", limit=1, offset=1)) == [b"3"]


def test_a_letter_is_listed_however_many_others_have_failed_since(db, fresh_queue):
    tenant = uuid.uuid4()
    a, b, c = (Lane(db, fresh_queue, name, tenant=tenant) for name in "abc")
    for lane in (a, b, c):
        lane.push(lane.name)
    a.bury_at(0, "g")
    b.bury_at(0, "g")
    # One more in the same tenant that nobody asked for.
    Lane(db, f"{fresh_queue}-other", tenant=tenant).push("other")
    asked = {"tenant": tenant, "status": "dead_letter"}

    def found():
        """Of the tenant, of the queue, and of one partition."""
        pages = [
            listed(db, **asked),
            listed(db, fresh_queue, **asked),
            listed(db, fresh_queue, partition="a", **asked),
        ]
        return [sorted(payloads(page)) for page in pages]

    assert found() == [[b'"a"', b'"b"'], [b'"a"', b'"b"'], [b'"a"']]
    assert payloads(listed(db, task="none", **asked)) == []
    db.execute(
        "INSERT INTO queen_dead_letter (tenant_id, queue_id, partition_id, consumer_group,"
        "       message_offset, message_id, transaction_id, transaction_hash, payload, error,"
        "       retry_count, failed_at)"
        " SELECT %s, %s, %s, 'g', no, gen_random_uuid(), '\"t\"', 0, '1', 'why', 1, now()"
        "   FROM generate_series(1, 5001) AS no",
        [tenant, c.row.queue_id, c.id],
    )
    assert found() == [[b'"a"', b'"b"'], [b'"a"', b'"b"'], [b'"a"']]


def test_a_page_tells_until_when_the_partitions_were_written_that_it_did_not_look_at(
    db, fresh_queue
):
    for name in "ab":
        Lane(db, fresh_queue, name).push(name)
        db.execute(
            "UPDATE queen_partition SET last_write_at = now() - interval '1 minute'"
            " WHERE name = 'a' AND queue_id = (SELECT id FROM queen_queue WHERE name = %s)",
            [fresh_queue],
        )
    [(newer,)] = db.execute(
        "SELECT last_write_at FROM queen_partition WHERE name = 'b'"
        " AND queue_id = (SELECT id FROM queen_queue WHERE name = %s)",
        [fresh_queue],
    ).fetchall()
    assert listed(db, fresh_queue, lanes_max=1).others_until == newer
    assert listed(db, fresh_queue, lanes_max=2).others_until < newer
    assert listed(db, fresh_queue, lanes_max=3).others_until is None


def test_a_page_of_a_status_says_when_it_did_not_look_at_everything(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.push(*range(10))
    commit(lane, QUEUE_MODE, 9)
    for offset in range(5, 10):
        lane.bury_at(offset)
    page = listed(db, fresh_queue, status="completed", looks_max=5)
    assert (page.rows, page.truncated) == ([], True)
    page = listed(db, fresh_queue, status="completed")
    assert (payloads(page), page.truncated) == ([b"4", b"3", b"2", b"1", b"0"], False)


def test_groups_are_counted_that_have_consumed_a_message(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.push(0, 1)
    assert listed(db, fresh_queue)[1:3] == (False, 0)
    lane.register("a")
    lane.register("b")
    commit(lane, "a", 0)
    page = listed(db, fresh_queue)
    assert [(row.consumed_by, row.groups) for row in page.rows] == [(0, 2), (1, 2)]
    assert page[1:3] == (False, 2)
    commit(lane, QUEUE_MODE, -1)
    assert listed(db, fresh_queue)[1:3] == (True, 2)


def test_what_does_not_fit_into_a_page_comes_without_its_payload(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    for letter in "abc":
        lane.push(letter * 100_000, ids=[letter])
    page = listed(db, fresh_queue, bytes_max=150_000)
    assert [row.whole for row in page.rows] == [True, False, False]
    assert [len(row.frame) for row in page.rows][1:] == [16384, 16384]
    assert b'"transactionId":"b"' in page.rows[1].frame
    assert [row.whole for row in listed(db, fresh_queue, bytes_max=1).rows] == [True, False, False]


def test_what_retention_deleted_is_not_listed(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.push(0)
    lane.push(1)
    db.execute("DELETE FROM queen_segment WHERE partition_id = %s AND base_offset = 0", [lane.id])
    db.execute("UPDATE queen_partition SET log_start = 1 WHERE id = %s", [lane.id])
    assert payloads(listed(db, fresh_queue)) == [b"1"]


# --- one message --------------------------------------------------------------------------------


def test_a_message_is_found_by_its_address(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.push(1, 2, ids=["t", 'say "hi"\n\u2028é'])
    found = inspected(db, lane, 'say "hi"\n\u2028é')
    assert (found.offset, found.frame.split(DATA)[1]) == (1, b"2")
    assert (found.queue_status, found.dead, found.retry_count) == ("pending", False, 0)
    assert found.columns["name"] == fresh_queue
    assert inspected(db, lane, "unknown") is None
    assert inspected(db, lane, "t", tenant=uuid.uuid4()) is None


def test_a_message_that_the_time_slots_forgot_is_found_by_a_bounded_look_back(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.push({"transactionId": "t", "traceId": 1}, 1, ids=["t", "u"])
    lane.push({"transactionId": "u", "traceId": None})
    forget_transactions(lane)
    found = inspected(db, lane, "u")
    assert (found.offset, found.frame.split(DATA)[1]) == (1, b"1"), "a payload is no address"
    assert inspected(db, lane, "u", segments_max=1) is None
    assert inspected(db, lane, "u", bytes_max=10) is None


def test_a_dead_letter_tells_of_its_message_even_when_that_is_gone(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.bury("x", ids=["t"])
    found = inspected(db, lane, "t")
    assert (found.dead, found.error, found.retry_count) == (True, "why", 1)
    assert found.frame is not None
    db.execute("DELETE FROM queen_segment WHERE partition_id = %s", [lane.id])
    found = inspected(db, lane, "t")
    assert (found.frame, found.payload) == (None, b'"x"')
    assert (found.dead, found.offset) == (True, 0)
    db.execute("DELETE FROM queen_dead_letter WHERE partition_id = %s", [lane.id])
    assert inspected(db, lane, "t") is None


# --- search -------------------------------------------------------------------------------------


def test_a_search_finds_the_segments_that_hold_a_text(db, fresh_queue):
    a, b = Lane(db, fresh_queue, "a"), Lane(db, fresh_queue, "b")
    a.push("needle 1", "hay")
    a.push("hay")
    b.push("needle 2")
    Lane(db, fresh_queue, tenant=uuid.uuid4()).push("needle 3")
    step = searched(db, fresh_queue, "needle")
    assert [(one.partition, one.base) for one in step.segments] == [("a", 0), ("b", 0)]
    assert (step.reached, step.looked_segments, step.looked_messages) == (None, 3, 4)
    assert searched(db, fresh_queue, "needle", partition="b").looked_segments == 1
    assert searched(db, fresh_queue, "needle", partition="c").segments == []
    assert searched(db, fresh_queue, "Needle").segments == []
    assert searched(db, f"{fresh_queue}-unknown", "x") is None


@pytest.mark.parametrize(
    "bound", [{"segments_max": 1}, {"bytes_max": 1}, {"lanes_max": 1, "segments_max": 1}]
)
def test_a_search_goes_on_where_its_bound_was_met(db, fresh_queue, bound):
    for name in "ab":
        lane = Lane(db, fresh_queue, name)
        for number in range(2):
            lane.push(f"needle {name}{number}")
    after, found, calls_made = Place(), [], 0
    while after is not None:
        step = searched(db, fresh_queue, "needle", after=after, **bound)
        found += [(one.partition, one.base) for one in step.segments]
        assert step.looked_segments <= 1
        after = step.reached
        calls_made += 1
        assert calls_made < 10
    assert found == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert calls_made in (4, 5)


def test_a_search_keeps_to_its_span_of_time(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    push_aged(lane, 3000, 2000, 1000)
    now = datetime.now(UTC)
    for since_s, until_s, bases in (
        (3600, 0, [0, 1, 2]),
        (2500, 1500, [1]),
        (900, 0, []),
        (9000, 4000, []),
    ):
        step = searched(
            db,
            fresh_queue,
            "0",
            since=now - timedelta(seconds=since_s),
            until=now - timedelta(seconds=until_s),
        )
        assert [one.base for one in step.segments] == bases
        assert step.looked_segments == len(bases)


# --- dead letters -------------------------------------------------------------------------------


def test_the_dead_letters_of_an_address_are_deleted_whatever_their_group(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.bury(1, 2, ids=["t", "u"])
    lane.bury_at(0, "h")

    def delete(transaction, tenant=DEFAULT_TENANT):
        address = (uuid.UUID(lane.row.uid), literal(transaction))
        return call(db, calls.dead_letter_delete, tenant, *address)

    assert delete("t", uuid.uuid4()) == 0
    assert delete("unknown") == 0
    assert delete("t") == 2
    assert delete("t") == 0
    assert lane.count("queen_dead_letter") == 1


def test_a_sample_is_of_the_newest_and_counts_all(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.bury("x", "yy", "zzz")
    sample = call(db, calls.dead_letter_sample, DEFAULT_TENANT, fresh_queue, limit=2, count_max=9)
    assert [row[4] for row in sample.letters] == [5, 4]
    assert [row[:3] for row in sample.letters] == [("why", 1, "g")] * 2
    assert sample.rows == 3
    assert sample.newest == sample.letters[0][3] > sample.letters[1][3] > sample.oldest
    sample = call(db, calls.dead_letter_sample, uuid.uuid4(), fresh_queue, limit=2, count_max=9)
    assert sample == ([], 0, None, None)


def test_a_dead_letter_knows_the_tenant_and_queue_of_its_partition(db, fresh_queue):
    tenant = uuid.uuid4()
    lane = Lane(db, fresh_queue, tenant=tenant)
    lane.bury(1)
    row = db.execute(
        "SELECT tenant_id, queue_id FROM queen_dead_letter WHERE partition_id = %s", [lane.id]
    ).fetchone()
    assert row == (tenant, lane.row.queue_id)


def test_nothing_is_kept_for_a_queue_that_is_deleted(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.push(1)
    call(db, management_calls.queue_delete, DEFAULT_TENANT, fresh_queue)
    add = "SELECT queen_dead_letter_add_v1(%s, 'g', 0::bigint, 'why', 1)"
    assert lane.scalar(add, lane.id) is True
    assert lane.count("queen_dead_letter") == 0
