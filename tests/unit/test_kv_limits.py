"""Rates of metered tenants, and switches that could not be written.

Method: the objects alone, with a clock and a database of the test's own.
"""

import json
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from brokers.config import KvConfig
from brokers.domain import DEFAULT_TENANT, KvOperation
from brokers.errors import NoConnection, Refusal, RequestError
from brokers.flow.kv import Limits, Shedding
from brokers.flow.switches import Switches
from brokers.kv_metrics import KvCounters
from brokers.services.kv import check_rider

TENANT = uuid.uuid4()


def limits(**more) -> Limits:
    return Limits(KvConfig(**{"write_rate": 10, "write_burst": 20, "read_rate": 5} | more))


def writes(kept: Limits, count: int, now: float, tenant=TENANT) -> float:
    return kept.wait_s(tenant, reads=0, writes=count, now=now)


def test_a_burst_is_had_at_once_and_the_rest_at_the_rate():
    kept = limits()
    assert all(writes(kept, 1, 100.0) <= 0 for _ in range(20))
    assert writes(kept, 1, 100.0) == pytest.approx(0.1)
    assert writes(kept, 1, 100.11) <= 0
    assert writes(kept, 1, 100.11) == pytest.approx(0.09)
    assert kept.wait_s(TENANT, reads=1, writes=0, now=100.11) <= 0


def test_writes_are_shed_after_failures_in_a_row_and_one_a_second_finds_out():
    shedding = Shedding(3)
    for _ in range(3):
        assert not shedding.refuses(100.0)
        shedding.failed(100.0)
    assert shedding.refuses(100.5) and shedding.active(100.5)
    assert not shedding.active(101.1), "nobody need ask for it to end"
    assert not shedding.refuses(101.1)
    assert shedding.refuses(101.2), "the one before is still finding out"
    shedding.failed(101.3)
    assert shedding.refuses(101.9)
    shedding.succeeded()
    assert not shedding.refuses(101.9)
    shedding.failed(102.0)
    shedding.failed(102.0)
    assert not shedding.refuses(102.1), "it takes as many again"


def test_a_refused_call_takes_nothing():
    kept = limits()
    assert writes(kept, 15, 100.0) <= 0
    assert writes(kept, 10, 100.0) == pytest.approx(0.5)
    assert writes(kept, 5, 100.0) <= 0


def test_a_call_larger_than_the_burst_is_slow_and_not_impossible():
    kept = limits()
    assert writes(kept, 50, 100.0) <= 0
    assert writes(kept, 1, 100.0) == pytest.approx(3.1)
    assert writes(kept, 1, 103.2) <= 0


def test_tenants_have_rates_of_their_own_under_one_ceiling_and_the_default_tenant_has_none():
    kept = limits(cell_rate=25)
    assert writes(kept, 20, 100.0) <= 0
    assert writes(kept, 5, 100.0, uuid.uuid4()) <= 0
    assert writes(kept, 1, 100.0, uuid.uuid4()) > 0
    assert writes(kept, 10**6, 100.0, DEFAULT_TENANT) <= 0


def test_the_memory_of_tenants_is_bounded():
    kept = limits(tenants_max=3)
    for no in range(10):
        writes(kept, 1, 100.0 + no, uuid.uuid4())
    assert len(kept._writes) == 3


class Row:
    """The row of switches, in a database that may be away."""

    def __init__(self) -> None:
        self.value: dict[str, bool] = {}
        self.away = False

    async def fetch(self, statement, parameters):
        if self.away:
            raise NoConnection()
        self.value |= json.loads(parameters[0])
        return [[dict(self.value)]]


async def test_until_the_switches_are_read_nothing_is_on():
    switches = Switches(Row().fetch)
    assert not switches.known
    assert (switches.kv_enabled, switches.timers_fire_enabled) == (False, False)


async def test_a_rider_is_told_to_come_back_until_the_switches_are_read_and_then_told_for_good():
    broker: Any = SimpleNamespace(
        switches=Switches(Row().fetch), kv=SimpleNamespace(counters=KvCounters())
    )
    operations = [KvOperation(op="get", namespace="ns", key="k")]
    with pytest.raises(Refusal) as early:
        await check_rider(broker, DEFAULT_TENANT, operations)
    assert (early.value.code, early.value.status) == ("kv_unavailable", 503)
    await broker.switches.refresh()
    await check_rider(broker, DEFAULT_TENANT, operations)
    await broker.switches.throw({"kv": False})
    with pytest.raises(RequestError) as paused:
        await check_rider(broker, DEFAULT_TENANT, operations)
    assert paused.value.status == 403
    assert broker.kv.counters.ops["get", "transaction", "disabled"] == 1


async def test_a_switch_thrown_elsewhere_holds_after_the_next_look():
    row = Row()
    switches = Switches(row.fetch)
    await switches.refresh()
    assert (switches.kv_enabled, switches.timers_fire_enabled) == (True, True)
    row.value = {"kv": False}
    await switches.refresh()
    assert (switches.kv_enabled, switches.timers_fire_enabled) == (False, True)


async def test_a_switch_that_cannot_be_written_is_in_force_here_and_is_written_later():
    row = Row()
    switches = Switches(row.fetch)
    row.away = True
    assert await switches.throw({"kv": False}) is False
    assert switches.kv_enabled is False
    row.away = False
    await switches.refresh()
    assert row.value == {"kv": False}
    assert await switches.throw({"kv": True}) is True
    assert (switches.kv_enabled, row.value) == (True, {"kv": True})


async def test_nobody_is_in_maintenance_who_was_not_told_so():
    row = Row()
    switches = Switches(row.fetch)
    assert (switches.push_maintenance, switches.pop_maintenance) == (False, False)
    await switches.refresh()
    assert (switches.push_maintenance, switches.pop_maintenance) == (False, False)
    row.value = {"maintenance": True}
    await switches.refresh()
    assert (switches.push_maintenance, switches.pop_maintenance) == (True, False)


async def test_a_maintenance_that_cannot_be_written_is_in_force_here_and_told_at_once():
    row = Row()
    row.away = True
    switches = Switches(row.fetch)
    heard = []
    switches.listeners.append(lambda changed: heard.append((changed, switches.push_maintenance)))
    assert await switches.throw({"maintenance": True}) is False
    assert heard == [({"maintenance"}, True)]
    row.away = False
    await switches.refresh()
    assert row.value == {"maintenance": True}
    row.value = {"maintenance": False}
    await switches.refresh()
    assert [on for changed, on in heard if "maintenance" in changed] == [True, False]
