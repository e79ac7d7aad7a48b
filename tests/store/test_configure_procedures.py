"""queen_queue_configure: what it changes, what it leaves alone, and whom it waits for.

Method: the store's coroutines on real PostgreSQL; a second connection holds the locks.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.store import management_calls as calls
from tests.store.calling import Lane, call, waits_for_lock

DAY = 86_400


def configure(db, name, **patch):
    return call(db, calls.queue_configure, DEFAULT_TENANT, name, patch).columns


def test_a_queue_born_by_configure_has_the_defaults_and_a_dotted_name_says_more(db, fresh_queue):
    born = configure(db, f"{fresh_queue}.created.twice")
    assert (born["namespace"], born["task"]) == (fresh_queue, "created")
    assert (born["lease_time"], born["config_version"]) == (300, 1)


def test_the_version_moves_with_a_change_and_only_then(db, fresh_queue):
    assert configure(db, fresh_queue, lease_time=300)["config_version"] == 1
    assert configure(db, fresh_queue, lease_time=20)["config_version"] == 2
    assert configure(db, fresh_queue, lease_time=20)["config_version"] == 2
    changed = configure(db, fresh_queue, retry_limit=7)
    assert (changed["config_version"], changed["lease_time"], changed["retry_limit"]) == (3, 20, 7)


def test_a_patch_cannot_change_who_a_queue_is(db, fresh_queue):
    born = configure(db, fresh_queue)
    forged = {"id": -5, "name": "x", "uid": None, "config_version": 99, "txn_class": 3}
    patch = forged | {"priority": 4}
    after = call(db, calls.queue_configure, DEFAULT_TENANT, fresh_queue, patch).columns
    assert after == born | {"priority": 4, "config_version": 2}


def test_a_push_that_believed_the_old_options_is_told_so(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    configure(db, fresh_queue, encryption_enabled=True)
    assert lane.push(1) == "stale"
    assert lane.count("queen_segment") == 0


@pytest.mark.parametrize(
    ("patch", "txn_class"),
    [
        ({}, 0),
        ({"dedup_window_seconds": 0}, 0),
        ({"dedup_window_seconds": 3601}, 1),
        ({"completed_retention_seconds": DAY}, 1),
        ({"dedup_window_seconds": DAY + 1}, 2),
        ({"dedup_window_seconds": 5, "completed_retention_seconds": 30 * DAY}, 2),
        ({"dedup_window_seconds": 30 * DAY + 1}, 3),
    ],
)
def test_the_class_of_the_transaction_slots_follows_from_the_longest_window(
    db, fresh_queue, patch, txn_class
):
    born = configure(db, fresh_queue, **patch)
    assert (born["txn_class"], born["txn_class_mixed"]) == (txn_class, False)


def test_a_duplicate_is_found_across_a_change_of_class(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    assert lane.push(1, ids=["t"]) == "stored"
    for window in (2 * DAY, 60 * DAY, 3600):
        assert configure(db, fresh_queue, dedup_window_seconds=window)["txn_class_mixed"] is True
        again = Lane(db, fresh_queue)
        assert again.push(2, ids=["t"]) == "stored"
        assert again.scalar("SELECT last_offset FROM queen_partition WHERE id = %s", lane.id) == 0


def test_concurrent_edits_are_one_after_the_other(db, second_connection, database, fresh_queue):
    configure(db, fresh_queue)
    first = second_connection()
    configure(first, fresh_queue, lease_time=20)
    with ThreadPoolExecutor(1) as pool, database.connect() as other:
        second = pool.submit(configure, other, fresh_queue, retry_limit=9)
        while not waits_for_lock(db):
            assert not second.done(), "it should wait for the first edit"
        first.commit()
        after = second.result(timeout=5)
    assert (after["lease_time"], after["retry_limit"], after["config_version"]) == (20, 9, 3)


def test_an_edit_that_waited_for_a_delete_makes_the_queue_anew(
    db, second_connection, database, fresh_queue
):
    before = configure(db, fresh_queue, lease_time=20)
    deleter = second_connection()
    assert call(deleter, calls.queue_delete, DEFAULT_TENANT, fresh_queue) == 0
    with ThreadPoolExecutor(1) as pool, database.connect() as other:
        edit = pool.submit(configure, other, fresh_queue, retry_limit=9)
        while not waits_for_lock(db):
            assert not edit.done(), "it should wait for the delete"
        deleter.commit()
        after = edit.result(timeout=5)
    assert after["id"] != before["id"]
    assert (after["lease_time"], after["retry_limit"]) == (300, 9)


def test_an_edit_does_not_wait_for_a_push_under_way(db, second_connection, fresh_queue):
    lane = Lane(db, fresh_queue)
    pusher = second_connection()
    assert lane.push(1, connection=pusher) == "stored"
    db.execute("SET lock_timeout = '1s'")
    try:
        assert configure(db, fresh_queue, lease_time=20)["lease_time"] == 20
    finally:
        db.execute("RESET lock_timeout")
        pusher.rollback()
