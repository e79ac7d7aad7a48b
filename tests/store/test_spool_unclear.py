"""A push of unknown outcome is found again, by its transaction row or in the log itself.

Method: a database of the test's own, whose transaction slots it may truncate as
queen_txn_slot_clear_v1 would. What a look into the log costs is counted in buffers, not in
time.
"""

import json

import pytest

from tests.store.calling import Lane, minter
from tests.store.spooling import HOUR_US, MINUTE_US, Spool, ago_us, payloads, record

LONG_AGO_US = 5 * HOUR_US


@pytest.fixture
def own(fresh_database):
    with fresh_database().connect() as connection:
        yield connection


@pytest.fixture
def lane(own) -> Lane:
    return Lane(own, "q")


@pytest.fixture
def spool(own) -> Spool:
    return Spool(own)


def store(lane: Lane, *items, ago_us_: int = LONG_AGO_US) -> None:
    """What the push itself did, so long ago, before its answer was lost."""
    Spool(lane.db).replay(*items)
    for table in ("queen_segment", "queen_txn"):
        lane.db.execute(
            f"UPDATE {table} SET created_at = now() - make_interval(secs => %s)"
            " WHERE partition_id = %s",
            [ago_us_ / 1e6, lane.id],
        )


def purge(db) -> None:
    """Truncate every slot of every class, as at the end of their time."""
    for slot in (*range(9), 10, 11, 12):
        db.execute(f"TRUNCATE queen_txn_{slot}")
    db.execute(
        "UPDATE queen_txn_slot SET cleared_period = extract(epoch FROM now())::bigint / span_s"
        " WHERE span_s > 0"
    )


def unclear(lane: Lane, payload: bytes, **options):
    return record(lane, payload, unclear=True, accepted_us=ago_us(LONG_AGO_US), **options)


def test_a_push_that_did_commit_is_found_by_its_transaction_row(lane, spool):
    item = unclear(lane, b"0")
    store(lane, item)
    assert spool.replay(item) == [False]


def test_a_push_that_did_not_commit_is_stored(lane, spool):
    assert spool.replay(unclear(lane, b"0")) == [True]


def test_where_the_transaction_rows_are_purged_the_log_tells(lane, own, spool):
    committed = [unclear(lane, b"%d" % n) for n in range(3)]
    store(lane, *committed)
    purge(own)
    lost = unclear(lane, b"9")
    assert spool.replay(*committed, lost) == [False, False, False, True]
    assert payloads(lane) == [b"0", b"1", b"2", b"9"]


def test_only_what_is_unclear_is_looked_for_in_the_log(lane, own, spool):
    committed = record(lane, b"0", accepted_us=ago_us(LONG_AGO_US))
    store(lane, committed)
    purge(own)
    assert spool.replay(committed) == [True]


@pytest.mark.parametrize(("minutes", "written"), [(-9, False), (9, False), (-11, True), (11, True)])
def test_ten_minutes_around_the_acceptance_are_searched(lane, own, spool, minutes, written):
    item = unclear(lane, b"0")
    store(lane, item, ago_us_=LONG_AGO_US - minutes * MINUTE_US)
    purge(own)
    assert spool.replay(item) == [written]


def test_an_id_inside_a_payload_is_not_the_message_itself(lane, own, spool):
    before, wanted, after = minter.mint_many(3)
    quoting = b'{"id":"%s"}' % wanted.encode()
    store(
        lane,
        unclear(lane, quoting, message_id=before),
        unclear(lane, quoting, message_id=after),
    )
    purge(own)
    assert spool.replay(unclear(lane, b"0", message_id=wanted)) == [True]


def test_with_all_classes_untouched_an_absent_row_is_proof_enough(lane, own, spool):
    """Shown by a segment that has the id but no row, which no push leaves behind."""
    item = unclear(lane, b"0")
    store(lane, item)
    own.execute("TRUNCATE queen_txn")
    assert spool.replay(item) == [True]


def test_with_its_own_class_untouched_it_is_the_same_whatever_was_emptied_of_others(
    lane, own, spool
):
    item = unclear(lane, b"0")
    store(lane, item)
    own.execute("TRUNCATE queen_txn")
    own.execute("UPDATE queen_txn_slot SET cleared_period = 100000000 WHERE txn_class <> 0")
    assert spool.replay(item) == [True]


@pytest.mark.parametrize(("txn_class", "span_s"), [(4, 300), (0, 3600), (1, 86400), (2, 2592000)])
def test_one_slot_that_may_have_held_the_row_sends_us_to_the_log(
    lane, own, spool, txn_class, span_s
):
    """Period k empties what k-2 filled; the push may be of ten minutes before its acceptance."""
    item = unclear(lane, b"0")
    own.execute("UPDATE queen_queue SET txn_class = %s", [txn_class])
    store(lane, item)
    own.execute("TRUNCATE queen_txn")
    since_s = (item.accepted_us - 10 * MINUTE_US) // 1_000_000
    set_period = (
        "UPDATE queen_txn_slot SET cleared_period = %s"
        " WHERE slot = (SELECT min(slot) FROM queen_txn_slot WHERE span_s = %s)"
    )
    own.execute(set_period, [since_s // span_s + 2, span_s])
    assert spool.replay(item) == [False]
    own.execute(set_period, [since_s // span_s + 1, span_s])
    assert spool.replay(item, start=1) == [True]


def test_a_queue_that_changed_its_class_is_always_looked_for_in_the_log(lane, own, spool):
    item = unclear(lane, b"0")
    store(lane, item)
    own.execute("TRUNCATE queen_txn")
    own.execute("UPDATE queen_queue SET txn_class_mixed = true")
    assert spool.replay(item) == [False]


def test_with_dedup_off_a_committed_push_is_found_and_its_twin_is_stored(own, spool):
    lane = Lane(own, "q")
    own.execute("UPDATE queen_queue SET dedup_window_seconds = 0")
    committed = unclear(lane, b"0", txn="t")
    store(lane, committed)
    purge(own)
    assert spool.replay(committed, unclear(lane, b"1", txn="t")) == [False, True]


SEGMENTS = 20_000


@pytest.fixture
def long_partition(lane, own):
    """One message a segment, one segment a second, until now."""
    own.execute(
        "INSERT INTO queen_segment (partition_id, base_offset, end_offset, created_at, format,"
        " frames, ends)"
        " SELECT %s, n, n, now() - make_interval(secs => %s - n), 1, one.frame,"
        " int4send(octet_length(one.frame))"
        " FROM generate_series(0, %s - 1) AS n"
        ' CROSS JOIN LATERAL (SELECT convert_to(\'{"id":"00000000-0000-7000-8000-\''
        ' || lpad(n::text, 12, \'0\') || \'","transactionId":"t","traceId":null,\''
        " || '\"producerSub\":null,\"data\":0', 'UTF8') AS frame) AS one",
        [lane.id, SEGMENTS, SEGMENTS],
    )
    own.execute(
        "UPDATE queen_partition SET last_offset = %s WHERE id = %s", [SEGMENTS - 1, lane.id]
    )
    own.execute("ANALYZE queen_segment")
    return lane


def buffers(own, statement: str, *parameters) -> int:
    own.execute(statement, parameters)  # once for the caches of plans and catalogues
    [[plan]] = own.execute(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement, parameters
    ).fetchall()
    root = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    return int(root["Shared Hit Blocks"] + root["Shared Read Blocks"])


def id_of(n: int) -> str:
    return f"00000000-0000-7000-8000-{n:012}"


def test_a_look_into_a_long_partition_reads_its_twenty_minutes_and_no_more(long_partition, own):
    find = (
        "SELECT queen_message_find_v1(%s, %s::uuid[], now() - interval '2 hours',"
        " now() - interval '100 minutes')"
    )
    inside, outside = SEGMENTS - 6900, SEGMENTS - 8000
    [[found]] = own.execute(find, [long_partition.id, [id_of(inside), id_of(outside)]]).fetchall()
    assert [str(one) for one in found] == [id_of(inside)]

    everything = buffers(
        own,
        "SELECT queen_message_find_v1(%s, %s::uuid[], '-infinity', 'infinity')",
        long_partition.id,
        [id_of(SEGMENTS)],
    )
    span = buffers(own, find, long_partition.id, [id_of(inside)])
    # 1,200 of 20,000 segments, of which dozens share a page, and two searches.
    assert span < 200 < 500 < everything


def test_where_a_time_begins_is_found_in_a_few_probes(long_partition, own):
    since = "SELECT queen_segment_since_v1(%s, now() - make_interval(secs => %s))"
    for seconds, expected in [
        (SEGMENTS + 60, 0),
        (SEGMENTS - 0.5, 1),
        (7200.5, SEGMENTS - 7200),
        (0.5, SEGMENTS),
        (-60, SEGMENTS),
    ]:
        [[found]] = own.execute(since, [long_partition.id, seconds]).fetchall()
        assert found == expected
        assert buffers(own, since, long_partition.id, seconds) < 150


def test_a_search_goes_over_gaps_in_the_log(long_partition, own):
    own.execute("DELETE FROM queen_segment WHERE base_offset BETWEEN 100 AND 15000")
    since = "SELECT queen_segment_since_v1(%s, now() - make_interval(secs => %s - %s))"
    for n, expected in [(0.5, 1), (98.5, 99), (99.5, 15001), (7000, 15001), (15001.5, 15002)]:
        [[found]] = own.execute(since, [long_partition.id, SEGMENTS, n]).fetchall()
        # Behind a gap any offset of it will do: the first segment at or above is the same.
        [[first]] = own.execute(
            "SELECT min(base_offset) FROM queen_segment WHERE base_offset >= %s", [found]
        ).fetchall()
        assert first == expected
    [[nothing]] = own.execute("SELECT queen_segment_since_v1(-1, now())").fetchall()
    assert nothing is None
