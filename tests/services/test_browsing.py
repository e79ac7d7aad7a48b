"""Browsing messages by status looks at few partitions first and at all where few do not tell.

Method: a broker in the test's own loop that takes one partition for enough.
"""

from datetime import UTC, datetime, timedelta

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.services import messages
from brokers.services.messages import BrowseRequest
from tests.services.in_process import NO_FLOOR


@pytest.fixture
def browse(monkeypatch):
    """The payloads of a page of a status, and from how many partitions each look took it."""
    monkeypatch.setattr(messages, "LANES_SPARE", 1)
    really_list, looks = messages.calls.message_list, []

    async def listed(*asked, lanes_max, **named):
        looks.append(lanes_max)
        return await really_list(*asked, lanes_max=lanes_max, **named)

    monkeypatch.setattr(messages.calls, "message_list", listed)

    async def page(client, queue, status):
        now = datetime.now(UTC)
        asked = BrowseRequest(
            tenant=DEFAULT_TENANT, queue=queue, partition=None, namespace=None, task=None,
            status=status, since=now - timedelta(hours=1), until=now + timedelta(minutes=1),
            limit=1, offset=0,
        )  # fmt: skip
        looks.clear()
        _, shown = await messages.browse(client.broker, asked)
        return [one.payload for one in shown], list(looks)

    return page


async def test_a_status_that_the_newest_partitions_have_not_is_looked_for_in_all(
    start_client, db, fresh_queue, browse
):
    client = await start_client(**NO_FLOOR)
    for minutes, partition in enumerate("cba"):
        await client.push(fresh_queue, partition, partition=partition)
        db.execute(
            "UPDATE queen_partition SET last_write_at = now() - %s * interval '1 minute'"
            " WHERE name = %s AND queue_id = (SELECT id FROM queen_queue WHERE name = %s)",
            [minutes, partition, fresh_queue],
        )
    await client.payloads(fresh_queue, partition="a", auto_ack=True)
    assert await browse(client, fresh_queue, "completed") == ([b'"a"'], [2, messages.LANES_MAX])
    newest, looks = await browse(client, fresh_queue, "pending")
    assert (newest, looks) == ([b'"b"'], [2]), "both were stored now, whatever the stamps say"
