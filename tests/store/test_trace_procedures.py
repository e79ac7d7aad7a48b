"""The procedures of traces: whose they are, and where a page of large data ends.

Method: the store's coroutines on real PostgreSQL.
"""

import json
import uuid

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.store import trace_calls as calls
from brokers.store.management_calls import queue_delete
from tests.store.calling import Lane, call, minter

LIMITS = {"limit": 100, "bytes_max": 10**9}
PAGE = {
    "since": None, "until": None, "offset": 0, "exact_max": 100, "count_max": 1000, **LIMITS
}  # fmt: skip


@pytest.fixture
def name(fresh_queue):
    return f"name-{fresh_queue}"


@pytest.fixture
def lane(db, fresh_queue):
    return Lane(db, fresh_queue)


def add(db, partition, names=(), *, tenant=DEFAULT_TENANT, checked=False, data=b"1"):
    return call(
        db,
        calls.trace_add,
        minter.mint(),
        tenant,
        checked=checked,
        partition_uid=partition,
        transaction_id="t",
        group="g",
        event_type="info",
        names=names,
        listed=json.dumps(list(names)),
        data=data,
    )


def test_a_trace_belongs_to_the_tenant_of_its_partition_whoever_wrote_it(db, name):
    tenant = uuid.uuid4()
    lane = Lane(db, name, tenant=tenant)
    assert add(db, lane.row.uid, [name])  # tenancy off: nobody asks
    assert call(db, calls.trace_by_name, tenant, name, **PAGE)[0] == 1
    assert call(db, calls.trace_by_name, DEFAULT_TENANT, name, **PAGE)[0] == 0
    listed = call(db, calls.trace_list, tenant, lane.row.uid, "t", **LIMITS)
    assert [one.names for one in listed] == [json.dumps([name])]
    assert call(db, calls.trace_list, DEFAULT_TENANT, lane.row.uid, "t", **LIMITS) == []
    assert len(call(db, calls.trace_list, None, lane.row.uid, "t", **LIMITS)) == 1


def test_a_foreign_and_an_unknown_partition_are_refused_where_tenants_are_told_apart(db, lane):
    stranger = uuid.uuid4()
    assert add(db, lane.row.uid, checked=True) is True
    assert add(db, lane.row.uid, tenant=stranger, checked=True) is False
    assert add(db, str(uuid.uuid4()), tenant=stranger, checked=True) is False
    assert len(call(db, calls.trace_list, None, lane.row.uid, "t", **LIMITS)) == 1


@pytest.mark.parametrize(("bytes_max", "rows"), [(1, 1), (100, 1), (101, 2), (250, 3), (10**9, 3)])
def test_a_page_ends_early_where_its_data_is_large_and_is_never_empty(
    db, lane, name, bytes_max, rows
):
    for _ in range(3):
        add(db, lane.row.uid, [name], data=b'"' + b"x" * 98 + b'"')
    short = {"bytes_max": bytes_max}
    listed = call(db, calls.trace_list, None, lane.row.uid, "t", **(LIMITS | short))
    total, page = call(db, calls.trace_by_name, DEFAULT_TENANT, name, **(PAGE | short))
    assert (len(listed), len(page), total) == (rows, rows, 3)


def test_beyond_what_is_counted_exactly_deleted_queues_count_and_are_not_listed(db, name):
    tenant = uuid.uuid4()
    lane, gone = Lane(db, "here", tenant=tenant), Lane(db, "gone", tenant=tenant)
    for partition in (lane.row.uid, lane.row.uid, gone.row.uid):
        add(db, partition, [name], tenant=tenant)
    call(db, queue_delete, tenant, "gone")

    def told(**bounds):
        total, page = call(db, calls.trace_by_name, tenant, name, **(PAGE | bounds))
        return total, len(page)

    assert told(exact_max=3) == (2, 2)
    assert told(exact_max=2) == (3, 2)
    assert told(exact_max=1, count_max=2) == (2, 2)


def test_ids_that_only_share_a_hash_would_not_be_taken_for_each_other(db, lane):
    add(db, lane.row.uid)
    db.execute(
        "UPDATE queen_trace SET transaction_hash = hashtextextended('other', 0)"
        " WHERE partition_uid = %s",
        [lane.row.uid],
    )
    assert call(db, calls.trace_list, None, lane.row.uid, "other", **LIMITS) == []


def test_names_come_by_their_last_use_and_count_the_newest_traces_of_each(db, fresh_queue):
    tenant = uuid.uuid4()
    lane, gone = Lane(db, "here", tenant=tenant), Lane(db, "gone", tenant=tenant)
    for names in (["b"], ["a", "c"], ["a"], ["b"], ["a"]):
        add(db, lane.row.uid, names, tenant=tenant)
    add(db, gone.row.uid, ["a", "of a deleted queue"], tenant=tenant)
    call(db, queue_delete, tenant, "gone")

    def told(**page):
        total, rows = call(db, calls.trace_names, tenant, **page)
        return total, [(row.name, row.traces, row.messages) for row in rows]

    all_of_them = [("a", 3, 1), ("b", 2, 1), ("c", 1, 1)]
    assert told(limit=10, offset=0, count_max=100) == (3, all_of_them)
    assert told(limit=10, offset=0, count_max=2) == (3, [("a", 2, 1), *all_of_them[1:]])
    assert told(limit=1, offset=1, count_max=100) == (3, all_of_them[1:2])
