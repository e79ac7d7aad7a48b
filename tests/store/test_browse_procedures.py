"""The procedures by which operators browse timers and key/value namespaces.

Method: the store's coroutines on real PostgreSQL.
"""

import uuid

from brokers.store import kv_calls, management_calls, timer_calls
from tests.store.calling import Lane, call
from tests.store.timer_calling import apply, schedule


def browse(db, tenant, queue=None, *, prefix="", backward=False, place=None, limit=100):
    found = call(
        db,
        timer_calls.timer_browse,
        tenant,
        queue=queue,
        prefix=prefix,
        backward=backward,
        place=place,
        limit=limit,
    )
    return [(name, timer.key) for name, timer in found]


def test_timers_are_browsed_by_queue_and_key_in_both_directions(db):
    tenant = uuid.uuid4()
    names = [("a", "1"), ("a", "10"), ("a", "2"), ("b", "1"), ("é", "\U0010ffff")]
    apply(db, *[schedule(queue, key) for queue, key in names[::-1]], tenant=tenant)
    assert browse(db, tenant) == names
    assert browse(db, tenant, limit=2, place=("a", "1")) == names[1:3]
    assert browse(db, tenant, backward=True) == names[::-1]
    assert browse(db, tenant, backward=True, place=("b", "1")) == names[2::-1]
    assert browse(db, tenant, place=names[-1]) == []
    assert browse(db, uuid.uuid4()) == []


def test_timers_of_a_queue_are_found_by_the_beginning_of_their_keys(db):
    tenant = uuid.uuid4()
    keys = ["a", "a%", "a/1", "a/2", "b", "\U0010ffff\U0010ffff"]
    apply(db, *[schedule("q", key) for key in keys], schedule("p", "a/1"), tenant=tenant)
    assert browse(db, tenant, "q") == [("q", key) for key in keys]
    assert browse(db, tenant, "q", prefix="a/") == [("q", "a/1"), ("q", "a/2")]
    assert browse(db, tenant, "q", prefix="a%") == [("q", "a%")]
    assert browse(db, tenant, "q", prefix="\U0010ffff") == [("q", keys[-1])]
    assert browse(db, tenant, "q", prefix="a", place=("q", "a/1")) == [("q", "a/2")]
    assert browse(db, tenant, "q", prefix="a", place=("q", "a/1"), backward=True) == [
        ("q", "a%"),
        ("q", "a"),
    ]


def test_timers_of_a_deleted_queue_are_not_browsed(db):
    tenant = uuid.uuid4()
    for queue in ("kept", "gone"):
        Lane(db, queue, tenant=tenant)
    apply(db, schedule("kept", "k"), schedule("gone", "k"), tenant=tenant)
    call(db, management_calls.queue_delete, tenant, "gone")
    assert browse(db, tenant) == [("kept", "k")]
    assert browse(db, tenant, "gone") == []
    apply(db, schedule("gone", "new"), tenant=tenant)
    assert browse(db, tenant) == [("gone", "new"), ("kept", "k")]


def test_namespaces_are_listed_a_page_at_a_time_and_counted_up_to_a_bound(db):
    tenant = uuid.uuid4()
    for ns, keys in (("a", 1), ("b", 5), ("c", 3)):
        db.execute(
            "INSERT INTO queen_kv (tenant_id, ns, key, value, version)"
            " SELECT %s, %s, 'k' || no, '1', 1 FROM generate_series(1, %s::integer) AS no",
            [tenant, ns, keys],
        )

    def page(after=None, limit=10, count_max=3):
        return call(
            db,
            kv_calls.kv_namespace_page,
            tenant,
            after=after,
            limit=limit,
            count_max=count_max,
        )

    assert page() == [("a", 1), ("b", 4), ("c", 3)]
    assert page(limit=2) == [("a", 1), ("b", 4)]
    assert page(after="b") == [("c", 3)]
    assert page(after="c") == []
