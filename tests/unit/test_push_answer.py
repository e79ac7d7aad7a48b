"""The status of a push's answer, by what became of its items.

Method: the handler alone. The service is a stand-in that says what became of the items; how
a spool write fails is a matter of the spool's tests.
"""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from brokers.api import hot
from brokers.domain import DEFAULT_TENANT, PushOutcome

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
