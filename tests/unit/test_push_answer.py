"""A push's answer: its status by what became of its items, and the short way to the usual one.

Method: the handler alone. The service is a stand-in that says what became of the items; how
a spool write fails is a matter of the spool's tests.
"""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.api import hot, render
from brokers.domain import DEFAULT_TENANT, PushItem, PushOutcome
from brokers.message_ids import Minter
from brokers.services.push import Pushing
from brokers.store.parcels import Parcel

BODY = b'{"items":[{"queue":"q","payload":1},{"queue":"q","payload":2}]}'


@pytest.mark.parametrize(
    ("in_maintenance", "statuses", "expected"),
    [
        (False, ["queued", "failed"], 201),
        (False, ["buffered", "failed"], 201),
        (True, ["buffered", "buffered"], 201),
        (True, ["buffered", "failed"], 500),
        (True, ["failed", "failed"], 500),
    ],
)
async def test_a_spool_that_fails_in_maintenance_is_a_500_with_every_item_in_it(
    monkeypatch, in_maintenance, statuses, expected
):
    async def push(broker: Any, request: Any) -> list[PushOutcome]:
        return [
            PushOutcome(status, f"id-{no}", f"t-{no}", "disk full" if status == "failed" else None)
            for no, status in enumerate(statuses)
        ]

    monkeypatch.setattr(hot.push_service, "push", push)
    call: Any = SimpleNamespace(
        broker=SimpleNamespace(switches=SimpleNamespace(push_maintenance=in_maintenance)),
        tenant=DEFAULT_TENANT,
        principal=SimpleNamespace(subject=None),
        body=BODY,
    )
    reply = await hot.push(call)
    assert reply.status == expected
    items = json.loads(reply.body)
    assert [item["status"] for item in items] == statuses
    assert [item["message_id"] for item in items] == ["id-0", "id-1"]
    assert all(("error" in item) == (item["status"] == "failed") for item in items)


pushed = st.builds(
    PushItem,
    queue=st.sampled_from(["a", "b", '"']),
    partition=st.sampled_from(["p", "q"]),
    payload=st.just(b"1"),
    transaction_id=st.none() | st.text(),
)


@given(st.lists(pushed, min_size=1))
def test_what_was_stored_as_a_whole_is_told_as_it_would_be_one_by_one(items):
    async def answers() -> tuple[bytes, bytes]:
        parcels: list[Parcel] = []
        broker: Any = SimpleNamespace(
            ids=Minter(),
            counters=SimpleNamespace(push_requests=0, push_messages=0),
            push_combiner=SimpleNamespace(put=lambda key, parcel: parcels.append(parcel)),
        )
        pushing = Pushing(broker, DEFAULT_TENANT, items, None)
        assert not pushing.stored
        for parcel in parcels:
            parcel.settle_stored()
        assert pushing.stored
        assert pushing.finished.done()
        whole = render.stored(items, *pushing.told())
        return whole, render.push(items, pushing.outcomes())

    whole, one_by_one = asyncio.run(answers())
    assert whole == one_by_one
