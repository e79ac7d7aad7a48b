"""The lanes of a running broker: a replay beside live pushes, and what is told of them.

Method: real PostgreSQL and a budget of one slot, so that whoever is served keeps somebody
waiting. Counted is who was granted how many slots, not how long anything took.
"""

import asyncio

from brokers.flow.switches import PUSH_MAINTENANCE
from brokers.metrics import BrokerCollector
from brokers.services import statistics
from tests.services.in_process import running, until

SPOOLED = 100
PARTITIONS = 5


async def test_a_replay_beside_other_maintenance_leaves_live_pushes_their_share_of_the_slots(
    fresh_database, fresh_queue, tmp_path
):
    one_slot = {"QUEEN_ADMISSION_MAX": "1", "QUEEN_ADMISSION_INIT": "1"}
    async with running(
        fresh_database(), spool=tmp_path / "spool", FILE_BUFFER_MAX_BATCH="10", **one_slot
    ) as client:
        broker = client.broker
        await until(lambda: broker.spool.diversion.store_up)
        await broker.switches.throw({PUSH_MAINTENANCE: True})
        for number in range(PARTITIONS):
            payloads = range(SPOOLED // PARTITIONS)
            answers = await client.push(fresh_queue, *payloads, partition=f"spooled-{number}")
            assert {status for status, _ in answers} == {"buffered"}
        lines = broker.admission.lines
        push, maint = lines["push"].granted, lines["maint"].granted
        await broker.switches.throw({PUSH_MAINTENANCE: False})

        async def press(partition: str) -> int:
            pushed = 0
            while broker.spool.diversion.buffering:
                [(status, _)] = await client.push(fresh_queue, "live", partition=partition)
                assert status == "queued"
                pushed += 1
            return pushed

        async def maintain() -> None:
            while broker.spool.diversion.buffering:
                await statistics.refresh(broker)

        others = [asyncio.create_task(maintain()) for _ in range(2)]
        async with asyncio.timeout(150):
            pushed = await asyncio.gather(*(press(f"live-{number}") for number in range(3)))
        await asyncio.gather(*others)
        push, maint = lines["push"].granted - push, lines["maint"].granted - maint
        assert min(pushed) > 0
        assert maint >= SPOOLED // 10, "the replay took its slots one batch at a time"
        assert push / (push + maint) >= lines["push"].share
        assert lines["maint"].queued > 0, "the slot was fought over"


async def test_the_rates_line_tells_of_every_lane_and_only_when_something_happened(
    here, fresh_queue
):
    traffic = here.broker.traffic
    traffic.line()
    assert traffic.line() is None
    await here.push(fresh_queue, 1, 2, 3)
    [message] = await here.pop(fresh_queue, batch=1)
    await here.ack(message)
    line = traffic.line()
    assert line is not None
    told = dict(part.split(" ", 1) for part in line.removeprefix("rates: ").split("; "))
    assert {"push", "pop", "ack", "maint", "budget"} == set(told)
    sizes = traffic.sizes()
    assert sizes.startswith("sizes: ")
    assert "1 queues and 1 partitions known, 0 pops parked" in sizes
    assert all("0 in flight 0 waiting" in told[lane] for lane in ("push", "pop", "ack"))
    assert traffic.line() is None


async def test_the_metrics_of_admission_have_the_names_of_the_contract(here, fresh_queue):
    await here.push(fresh_queue, 1)
    families = {one.name: one for one in BrokerCollector(here.broker).collect()}
    for name in ("budget", "trains_per_s", "txn_per_train", "cycle_ms"):
        assert families[f"queen_admission_{name}"].type == "gauge"
    for name in ("inflight", "waiting"):
        family = families[f"queen_admission_{name}"]
        lanes = {sample.labels["lane"] for sample in family.samples}
        assert (family.type, lanes) == ("gauge", {"push", "pop", "ack", "maint"})
    [granted] = [
        sample.value
        for sample in families["queen_admission_granted"].samples
        if sample.labels["lane"] == "push"
    ]
    assert granted >= 1


async def test_a_broker_that_rests_has_every_slot_back(here, fresh_queue):
    await here.push(fresh_queue, *range(20))
    tasks = [here.park(fresh_queue, batch=1) for _ in range(40)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await here.push(fresh_queue, *range(20), partition="other")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    admission = here.broker.admission
    await until(lambda: not admission.taken and not admission.live)
    assert not any(admission.in_flight.values())
