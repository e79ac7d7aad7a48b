"""What was read lately is not told after a write, wherever the write came from.

Method: brokers in the test's own loop that tell again for an hour; what counts is whether a
second look reads.
"""

import uuid

from brokers.domain import DEFAULT_TENANT
from brokers.flow.recent import CELL, KV, TRACES, Topic
from brokers.services import kv, statistics, written
from brokers.services.mesh import Hearer
from mesh.hints import Written
from tests.services.in_process import NO_FLOOR

FRESH = {**NO_FLOOR, "QUEEN_ANALYTICS_FRESH_MS": "60000"}


class Looks:
    """Looks at one thing again and again."""

    def __init__(self, client, whose=DEFAULT_TENANT) -> None:
        self._recent = client.broker.recent
        self._whose = whose
        self.reads = 0

    async def _read(self) -> int:
        self.reads += 1
        return self.reads

    async def anew(self) -> bool:
        """Whether this look has to read."""
        before = self.reads
        await self._recent.get(self._whose, "looked at", self._read)
        return self.reads > before


async def test_a_queue_that_a_push_makes_is_seen_and_more_of_the_same_changes_nothing(
    start_client, fresh_queue
):
    client = await start_client(**FRESH)
    looks = Looks(client)
    assert await looks.anew()
    await client.push(fresh_queue, 1)
    assert await looks.anew()
    await client.push(fresh_queue, 2)
    assert not await looks.anew()


async def test_a_queue_and_a_group_that_a_pop_makes_are_seen(start_client, fresh_queue):
    client = await start_client(**FRESH)
    looks = Looks(client)
    for group in (None, "one", "two"):
        assert await looks.anew()
        await client.payloads(fresh_queue, **({} if group is None else {"group": group}))
    assert await looks.anew()
    await client.payloads(fresh_queue, group="two")
    assert not await looks.anew()


async def test_a_count_of_everything_is_seen_by_everybody(start_client):
    client = await start_client(**FRESH)
    looks = [Looks(client), Looks(client, uuid.uuid4()), Looks(client, CELL)]
    assert all([await one.anew() for one in looks])
    await statistics.refresh(client.broker)
    assert all([await one.anew() for one in looks])


async def test_a_hint_of_a_write_does_what_the_write_does_and_a_broken_one_nothing(start_client):
    client, told = await start_client(**FRESH), []
    hearer, looks = Hearer(client.broker), Looks(client)
    client.broker.announce.outlet = told.append
    await looks.anew()
    hearer.receive(Written("nobody"))
    hearer.receive(Written(str(uuid.uuid4())))
    assert not await looks.anew()
    written.tell(client.broker, DEFAULT_TENANT)
    assert await looks.anew()
    assert told == [Written(str(DEFAULT_TENANT))]
    hearer.receive(told[0])
    assert await looks.anew()
    hearer.receive(Written(""))
    assert await looks.anew()


async def test_a_hint_of_a_topic_ends_that_topic_and_nothing_else(start_client):
    client, told = await start_client(**FRESH), []
    hearer, tenants = Hearer(client.broker), Looks(client)
    traces = Looks(client, Topic(DEFAULT_TENANT, TRACES))
    client.broker.announce.outlet = told.append
    assert await traces.anew() and await tenants.anew()
    written.tell_topic(client.broker, DEFAULT_TENANT, TRACES)
    assert await traces.anew() and not await tenants.anew()
    [hint] = told
    hearer.receive(Written(hint.tenant, "kv"))
    assert not await traces.anew()
    hearer.receive(hint)
    assert await traces.anew() and not await tenants.anew()
    hearer.receive(Written(hint.tenant))
    assert await traces.anew() and await tenants.anew()


async def test_entries_that_are_pruned_are_seen_by_every_tenant(start_client, database):
    client = await start_client(**FRESH)
    looks = [Looks(client, Topic(one, KV)) for one in (DEFAULT_TENANT, uuid.uuid4())]
    assert all([await one.anew() for one in looks])
    with database.connect() as db:
        db.execute(
            "INSERT INTO queen_kv (tenant_id, ns, key, value, version, expires_at)"
            " VALUES (%s, %s, 'k', '1', 1, now() - interval '1 hour')",
            [DEFAULT_TENANT, uuid.uuid4().hex],
        )
    assert (await kv.prune_step(client.broker)).removed
    assert all([await one.anew() for one in looks])
    assert not any([await one.anew() for one in looks])
