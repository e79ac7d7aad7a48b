"""The key/value procedures under races: locks, expiry, and what a call sees.

Method: the product's own coroutines over connections of the test's own, so that two of
them can hold locks against each other. Threads race for real.
"""

import concurrent.futures
import itertools
import random
import threading
import time
import uuid
from typing import Any

import psycopg
import pytest

from brokers.domain import KvLost, KvOperation, KvResult
from brokers.store import kv_calls
from tests.store.calling import call, waits_for_lock
from tests.store.kv_calling import apply, run

WORKERS = 16
WAIT_MS = 20_000


@pytest.fixture
def ns() -> str:
    return f"ns-{uuid.uuid4().hex[:12]}"


def put(ns: str, key: str, value: bytes = b"1", **more: Any) -> KvOperation:
    return KvOperation(op="put", namespace=ns, key=key, value=value, **more)


def absent(ns: str, key: str, value: bytes = b"1", **more: Any) -> KvOperation:
    more = {"expect": 0} | more
    return KvOperation(op="putIfAbsent", namespace=ns, key=key, value=value, **more)


def delete(ns: str, key: str, **more: Any) -> KvOperation:
    return KvOperation(op="delete", namespace=ns, key=key, **more)


def incr(ns: str, key: str, delta: str = "1", **more: Any) -> KvOperation:
    return KvOperation(op="incr", namespace=ns, key=key, delta=delta, **more)


def get(ns: str, key: str) -> KvOperation:
    return KvOperation(op="get", namespace=ns, key=key)


def prefix(ns: str, key: str, **more: Any) -> KvOperation:
    return KvOperation(op="getPrefix", namespace=ns, key=key, **more)


def one(connection, operation: KvOperation, **more: Any) -> KvResult:
    [result] = apply(connection, operation, **more)
    return result


def rows_of(db: psycopg.Connection[Any], ns: str) -> int:
    return db.execute("SELECT count(*) FROM queen_kv WHERE ns = %s", [ns]).fetchone()[0]


def expire(db: psycopg.Connection[Any], ns: str) -> None:
    """Let every entry of a namespace have expired a moment ago."""
    db.execute("UPDATE queen_kv SET expires_at = clock_timestamp() WHERE ns = %s", [ns])


def together(database, work, workers: int = WORKERS) -> list[Any]:
    """`work(connection, number)` from so many connections at once."""
    barrier = threading.Barrier(workers)

    def run(number: int) -> Any:
        with database.connect() as connection:
            barrier.wait()
            return work(connection, number)

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, range(workers)))


# --- one at a time ------------------------------------------------------------------------------


def test_versions_rise_along_a_key_across_its_deletion_and_expiry(db, ns):
    versions = [one(db, put(ns, "k")).version]
    versions.append(one(db, put(ns, "k", b"2")).version)
    assert one(db, delete(ns, "k")).applied
    versions.append(one(db, absent(ns, "k")).version)
    expire(db, ns)
    versions.append(one(db, absent(ns, "k")).version)
    assert versions == sorted(set(versions))
    assert versions[0] > 0


def test_a_call_applies_in_order_and_a_later_operation_sees_an_earlier_one(db, ns):
    found = apply(
        db,
        prefix(ns, "a"),
        put(ns, "a1", b"1"),
        prefix(ns, "a"),
        delete(ns, "a1"),
        absent(ns, "a1", b"2"),
        absent(ns, "a1", b"3"),
        prefix(ns, "a"),
    )
    assert [len(found[no].entries) for no in (0, 2, 6)] == [0, 1, 1]
    assert [found[no].applied for no in (1, 3, 4, 5)] == [True, True, True, False]
    assert (found[5].reason, found[5].value, found[5].version) == (
        "exists",
        b"2",
        found[4].version,
    )
    assert rows_of(db, ns) == 1


def test_a_refused_creation_leaves_no_row(db, ns):
    refused = one(db, incr(ns, "k", "5", high="3"))
    assert (refused.applied, refused.reason, refused.version) == (False, "limit", 0)
    assert one(db, delete(ns, "k")).reason == "absent"
    assert one(db, put(ns, "k", expect=7)).reason == "absent"
    assert rows_of(db, ns) == 0


def test_a_lost_required_operation_undoes_the_whole_call(db, ns):
    held = one(db, put(ns, "held", b'"mine"'))
    lost = apply(
        db,
        put(ns, "new"),
        incr(ns, "count"),
        absent(ns, "held", required=True),
        delete(ns, "held"),
    )
    assert lost == KvLost(2, "exists", held.version, b'"mine"')
    assert one(db, get(ns, "held")).entry.value == b'"mine"'
    assert rows_of(db, ns) == 1


@pytest.mark.parametrize(
    ("start", "delta", "sum_"),
    [
        ("1", "1", "2"),
        ("0.1", "0.2", "0.3"),
        ("1E2", "1", "101"),
        ("9007199254740993", "1", "9007199254740994"),
        ("9223372036854775807", "1", "9223372036854775808"),
        ("1.50", "0.5", "2"),
        ("-1", "1", "0"),
        ("1e400", "-1", str(10**400 - 1)),
    ],
)
def test_numbers_are_counted_exactly(db, ns, start, delta, sum_):
    one(db, put(ns, "k", start.encode()))
    assert one(db, incr(ns, "k", delta)).value == sum_.encode()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        *((value, "type") for value in (b'"1"', b"null", b"true", b"[1]", b"{}")),
        *((value, "limit") for value in (b"1e99999", b"-1e-131071", b"1" * 5000)),
    ],
)
def test_what_is_no_number_is_type_and_what_is_too_big_a_one_is_limit(db, ns, value, reason):
    held = one(db, put(ns, "k", value))
    refused = one(db, incr(ns, "k"))
    assert (refused.reason, refused.value, refused.version) == (reason, value, held.version)


@pytest.mark.parametrize(
    ("held", "delta", "bounds", "reason"),
    [
        ("5", "5", {"high": "10"}, None),
        ("5", "6", {"high": "10"}, "limit"),
        ("-5", "11", {"high": "10"}, "limit"),
        ("5", "-3", {"low": "0"}, "limit"),
        ("5", "-3", {"low": "-3"}, None),
        ("5", "-9", {"low": "-9"}, None),
        ("-5", "-9", {"low": "-9"}, "limit"),
    ],
)
def test_bounds_hold_for_the_sum_and_for_the_delta(db, ns, held, delta, bounds, reason):
    one(db, put(ns, "k", held.encode()))
    assert one(db, incr(ns, "k", delta, **bounds)).reason == reason


def test_an_incr_keeps_the_expiry_of_a_live_counter_and_opens_a_new_window_after_it(db, ns):
    one(db, incr(ns, "k", ttl_s=100))
    first = one(db, get(ns, "k")).entry.expires_at
    one(db, incr(ns, "k", ttl_s=9999))
    assert one(db, get(ns, "k")).entry.expires_at == first
    expire(db, ns)
    assert one(db, incr(ns, "k", "7", ttl_s=100)).value == b"7"
    assert one(db, get(ns, "k")).entry.expires_at > first


def test_a_prefix_is_literal_and_in_byte_order_up_to_the_last_code_point(db, ns):
    keys = ["a", "a%", "a_", "ab", "aé", "a\ud7ff", "a\ue000", "a\U0010ffff", "a\U0010ffff!", "b"]
    for key in random.sample(keys, len(keys)):
        one(db, put(ns, key))
    wanted = sorted(keys, key=str.encode)
    assert [e.key for e in one(db, prefix(ns, "a")).entries] == wanted[:-1]
    assert [e.key for e in one(db, prefix(ns, "a_")).entries] == ["a_"]
    assert [e.key for e in one(db, prefix(ns, "a\U0010ffff")).entries] == wanted[-3:-1]
    assert [e.key for e in one(db, prefix(ns, "a\ud7ff")).entries] == ["a\ud7ff"]
    page = one(db, prefix(ns, "a", limit=3, after="a%"))
    assert [e.key for e in page.entries] == wanted[2:5]
    assert page.truncated


def test_the_bytes_of_a_read_are_bounded_and_the_crossing_row_is_kept(db, ns):
    for key in "abcd":
        one(db, put(ns, key, b'"%s"' % (b"x" * 98)))
    [page] = apply(db, prefix(ns, "a"), bytes_max=1)
    assert ([e.key for e in page.entries], page.truncated) == (["a"], False)
    many = KvOperation(op="getMany", namespace=ns, keys=list("abcdz"))
    [found] = apply(db, many, bytes_max=150)
    assert [e.key for e in found.entries] == ["a", "b"]
    assert (found.missing, found.truncated) == (["z"], True)


def hundreds(db, ns: str, keys: str = "abcd") -> None:
    for key in keys:
        one(db, put(ns, key, b'"%s"' % (b"x" * 98)))


def test_all_reads_of_a_call_share_its_bytes(db, ns):
    hundreds(db, ns)
    many = KvOperation(op="getMany", namespace=ns, keys=list("bcz"))
    found, kept, cut = apply(db, many, get(ns, "a"), get(ns, "d"), bytes_max=201)
    assert [e.key for e in found.entries] == ["b", "c"]
    assert kept.entry.key == "a" and not kept.truncated, "the one that crosses is kept"
    assert cut.entry is None and cut.truncated
    [gone] = apply(db, get(ns, "nothing"), bytes_max=1)
    assert not gone.truncated


@pytest.mark.parametrize("written", [False, True])
def test_a_page_for_which_no_bytes_are_left_is_empty_and_says_whether_there_is_one(db, ns, written):
    hundreds(db, ns)
    writes = [put(ns, "w")] if written else []
    _, first, second, keys, none, *_ = apply(
        db,
        get(ns, "a"),
        prefix(ns, "b"),
        prefix(ns, "c"),
        prefix(ns, "c", keys_only=True),
        prefix(ns, "nothing"),
        *writes,
        bytes_max=150,
    )
    assert ([e.key for e in first.entries], first.truncated) == (["b"], False)
    assert (second.entries, second.truncated) == ([], True)
    assert ([e.key for e in keys.entries], keys.truncated) == (["c"], False)
    assert (none.entries, none.truncated) == ([], False)


def test_a_call_that_writes_is_undone_when_a_get_has_no_bytes_left(db, ns):
    hundreds(db, ns)
    with pytest.raises(psycopg.Error) as refused:
        apply(db, put(ns, "new"), get(ns, "a"), get(ns, "b"), bytes_max=50)
    assert refused.value.sqlstate == "QN012"
    assert one(db, get(ns, "new")).entry is None


# --- races --------------------------------------------------------------------------------------


def test_exactly_one_of_many_creates_an_absent_key_every_time(database, ns):
    for turn in range(20):

        def race(connection, number, turn=turn):
            return one(connection, absent(ns, f"k{turn}", b"%d" % number))

        results = together(database, race)
        [winner] = [result for result in results if result.applied]
        assert {r.version for r in results} == {winner.version}
        assert {r.value for r in results} == {winner.value}


def test_exactly_one_revives_an_expired_key_while_it_is_pruned(database, db, ns):
    for turn in range(20):
        one(db, put(ns, "k", b"0"))
        expire(db, ns)

        def race(connection, number):
            if number < 2:
                connection.execute("SELECT queen_kv_prune_v1(100)")
                return False
            return one(connection, absent(ns, "k", b"%d" % number)).applied

        assert sum(together(database, race)) == 1, f"turn {turn}"
        assert one(db, get(ns, "k")).entry is not None


def test_an_entry_that_expired_while_its_lock_was_waited_for_is_gone(db, ns, second_connection):
    one(db, put(ns, "k", b"0", ttl_s=1))
    holder = second_connection()
    holder.execute("SELECT 1 FROM queen_kv WHERE ns = %s FOR UPDATE", [ns])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one, db, absent(ns, "k", b"1"))
        time.sleep(1.1)  # past the entry's end, while the lock is held
        assert not waiting.done()
        holder.commit()
        assert waiting.result(10).applied


def test_a_creation_waits_for_one_that_may_still_be_rolled_back(
    db, ns, second_connection, eventually, database
):
    for ending, applied in (("commit", False), ("rollback", True)):
        key = f"k-{ending}"
        holder = second_connection()
        assert one(holder, absent(ns, key, b"1")).applied
        with (
            database.connect() as waiter,
            concurrent.futures.ThreadPoolExecutor(1) as pool,
        ):
            waiting = pool.submit(one, waiter, absent(ns, key, b"2"))
            eventually(lambda: waits_for_lock(db))
            getattr(holder, ending)()
            assert waiting.result(10).applied is applied


def test_a_shared_call_does_not_wait_for_what_others_hold(db, ns, second_connection):
    one(db, put(ns, "held"))
    holder = second_connection()
    one(holder, put(ns, "held", b"2"))
    one(holder, put(ns, "coming", b"2"))
    found = apply(
        db, put(ns, "free"), put(ns, "held"), delete(ns, "held"), delete(ns, "none"), wait_ms=0
    )
    assert [result.reason for result in found] == [None, "busy", "busy", "absent"]
    with pytest.raises(psycopg.errors.LockNotAvailable):
        apply(db, put(ns, "coming"), wait_ms=0)
    holder.rollback()
    assert one(db, put(ns, "coming"), wait_ms=0).applied


def test_a_fenced_write_never_overwrites_what_it_has_not_seen(database, db, ns):
    """Writers that read and write with expect, while others delete and create in one call."""
    apply(db, put(ns, "k", b"0"))

    def work(connection, number):
        done = 0
        while done < 20:
            entry = one(connection, get(ns, "k")).entry
            if number < 3:
                again = absent(ns, "k", entry.value)
                apply(connection, delete(ns, "k", expect=entry.version), again)
                done += 1
                continue
            value = b"%d" % (int(entry.value) + 1)
            done += one(connection, put(ns, "k", value, expect=entry.version)).applied

    together(database, work)
    assert one(db, get(ns, "k")).entry.value == b"%d" % ((WORKERS - 3) * 20)


def test_concurrent_increments_lose_nothing(database, db, ns):
    def count(connection, number):
        for _ in range(25):
            apply(connection, incr(ns, "sum", "0.1"), incr(ns, f"own{number}"))

    together(database, count)
    assert one(db, get(ns, "sum")).entry.value == b"40"


def test_calls_over_shuffled_keys_never_deadlock_and_move_all_or_nothing(database, db, ns):
    """Each call moves a unit between keys; deletions make keys come and go meanwhile."""
    keys = [f"k{n}" for n in range(6)]

    def move(connection, number):
        dice = random.Random(number)
        for _ in range(40):
            taken = dice.sample(keys, 4)
            operations = [
                incr(ns, taken[0], "1"),
                incr(ns, taken[1], "-1"),
                put(
                    ns, f"x-{taken[2]}", required=dice.random() < 0.3, expect=dice.choice([None, 0])
                ),
                delete(ns, f"x-{taken[3]}", required=dice.random() < 0.3),
            ]
            dice.shuffle(operations)
            apply(connection, *operations)

    together(database, move)
    values = [one(db, get(ns, key)).entry for key in keys]
    assert sum(int(entry.value) for entry in values if entry) == 0


def test_a_read_call_sees_one_moment(database, db, ns):
    apply(db, put(ns, "a", b"0"), put(ns, "b", b"0"))
    done = threading.Event()

    def work(connection, number):
        if number == 0:
            for n in range(150):
                apply(connection, put(ns, "a", b"%d" % n), put(ns, "b", b"%d" % n))
            done.set()
            return
        while not done.is_set():
            a, b = apply(connection, get(ns, "a"), get(ns, "b"))
            assert a.entry.value == b.entry.value

    together(database, work, workers=4)


def test_pruning_is_bounded_and_tells_what_is_left(db, ns):
    db.execute("SELECT queen_kv_prune_v1(100000)")
    for no in range(5):
        one(db, put(ns, f"k{no}"))
    one(db, put(ns, "alive", ttl_s=1000))
    db.execute(
        "UPDATE queen_kv SET expires_at = clock_timestamp() - interval '10 s'"
        " WHERE ns = %s AND key <> 'alive'",
        [ns],
    )
    first = call(db, kv_calls.kv_prune, rows_max=3)
    assert (first.removed, first.waiting) == (3, 2)
    assert 9 < first.oldest_s < 60
    assert call(db, kv_calls.kv_prune, rows_max=3) == kv_calls.Pruned(2, 0, 0.0)
    assert rows_of(db, ns) == 1


def test_namespaces_are_listed_with_their_keys(db, ns):
    tenant = uuid.uuid4()
    for name, key in itertools.product(("b", "a"), ("x", "y")):
        kv = put(name, key)
        call(db, run, [(tenant, kv)], wait_ms=1000, bytes_max=1)
    listed = call(db, kv_calls.kv_namespace_list, tenant, namespaces_max=10)
    assert listed == [("a", 2), ("b", 2)]
