"""What lies in the spool is known by counting; where the count breaks, it is made anew.

A partition that is thought to lie in the spool is diverted, so a wrong count diverts for ever.
"""

import asyncio
from pathlib import Path

import pytest

from brokers.domain import DEFAULT_TENANT, PushItem, TransactionRequest
from brokers.services import transaction as transaction_service
from tests.harness import Database
from tests.services.in_process import Client, running, until, within
from tests.services.test_spool import emptied, status, stored

ON, OFF = {"maintenance": True}, {"maintenance": False}
EACH_ALONE = {"FILE_BUFFER_EVENTS_PER_FILE": "1"}


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


async def buffered(client: Client, queue: str, *payloads: object) -> None:
    """In maintenance from then on; each in a file of its own, but for the last."""
    await until(lambda: client.broker.spool.diversion.store_up)
    await client.broker.switches.throw(ON)
    for payload in payloads:
        assert await status(client, queue, payload) == ["buffered"]


async def test_a_file_that_somebody_took_away_diverts_its_partition_no_longer(
    fresh_database, spool, fresh_queue
):
    async with running(fresh_database(), spool=spool, **EACH_ALONE) as client:
        await buffered(client, fresh_queue, "lost", "a2", "a3")
        min(spool.glob("*.buf")).unlink()
        await client.broker.switches.throw(OFF)
        await emptied(client)
        assert client.broker.spool.status().pending == 0
        assert await status(client, fresh_queue, "a4") == ["queued"]
        assert await stored(client, fresh_queue) == ["a2", "a3", "a4"]


async def test_a_record_that_was_damaged_diverts_its_partition_no_longer(
    fresh_database, spool, fresh_queue
):
    async with running(fresh_database(), spool=spool, **EACH_ALONE) as client:
        await buffered(client, fresh_queue, "damaged", "a2")
        path = min(spool.glob("*.buf"))
        path.write_bytes(path.read_bytes().replace(b"damaged", b"DAMAGED"))
        await client.broker.switches.throw(OFF)
        await emptied(client)
        assert await status(client, fresh_queue, "a3") == ["queued"]
        assert await stored(client, fresh_queue) == ["a2", "a3"]
        assert client.broker.spool.status().failed_events == 1


async def test_an_unfinished_file_that_somebody_took_away_diverts_its_partition_no_longer(
    fresh_database, spool, fresh_queue
):
    async with running(fresh_database(), spool=spool) as client:
        await buffered(client, fresh_queue, "lost")
        [unfinished] = spool.glob("*.tmp")
        unfinished.unlink()
        [[told, _]] = await client.push(fresh_queue, "refused")
        assert told == "failed", "it would be found by nobody"
        assert await status(client, fresh_queue, "a2") == ["buffered"]
        await client.broker.switches.throw(OFF)
        await emptied(client)
        assert await status(client, fresh_queue, "a3") == ["queued"]
        assert await stored(client, fresh_queue) == ["a2", "a3"]


async def test_what_is_pushed_while_it_is_counted_anew_keeps_its_order(
    fresh_database, spool, fresh_queue
):
    async with running(fresh_database(), spool=spool, **EACH_ALONE) as client:
        await buffered(client, fresh_queue, "lost", *range(50))
        min(spool.glob("*.buf")).unlink()
        await client.broker.switches.throw(OFF)
        statuses, numbers = [], list(range(50))

        async def push_on() -> None:
            while statuses[-20:] != ["queued"] * 20:
                numbers.append(len(numbers))
                statuses.extend(await status(client, fresh_queue, numbers[-1]))

        await within(push_on(), 30)
        assert await stored(client, fresh_queue) == numbers


async def test_a_file_that_cannot_be_read_at_the_start_holds_up_no_other(
    fresh_database, spool, fresh_queue
):
    database: Database = fresh_database()
    async with running(database, spool=spool) as first:
        await buffered(first, fresh_queue, "a1")
        await first.broker.switches.throw(OFF)
        await first.broker.switches.throw(ON)
    # A link is never followed, not by root either.
    older = spool / "1000000000000-00000000.buf"
    older.symlink_to(spool / "spool-id")
    async with running(database, spool=spool) as second:
        await second.broker.switches.throw(OFF)
        await emptied(second)
        assert await status(second, fresh_queue, "a2") == ["queued"]
        assert await stored(second, fresh_queue) == ["a1", "a2"]
        assert (spool / "failed" / older.name).is_symlink()


async def test_a_directory_that_cannot_be_looked_at_for_a_while_is_drained_all_the_same(
    fresh_database, spool, fresh_queue, caplog
):
    async with running(fresh_database(), spool=spool) as client:
        await buffered(client, fresh_queue, "a1")
        quarantine = spool / "failed"
        quarantine.rmdir()
        quarantine.write_text("no directory")
        await until(lambda: "cannot be looked at" in caplog.text)
        quarantine.unlink()
        await client.broker.switches.throw(OFF)
        await emptied(client)
        assert await stored(client, fresh_queue) == ["a1"]


async def test_transactions_that_gave_up_waiting_for_the_spool_leave_nothing_behind(
    fresh_database, spool, fresh_queue
):
    async with running(fresh_database(), spool=spool) as client:
        await buffered(client, fresh_queue, "spooled")
        request = TransactionRequest(
            tenant=DEFAULT_TENANT,
            producer_sub=None,
            operations=[PushItem(fresh_queue, "Default", b"1", None)],
            required_leases=[],
            mentions_lease=False,
        )
        commits = [transaction_service.commit(client.broker, request) for _ in range(10)]
        assert not any(one.success for one in await within(asyncio.gather(*commits)))
        assert client.broker.spool.diversion.waiting == 0


async def test_what_a_queue_is_sent_after_it_was_told_to_encrypt_lies_secret_on_the_disk(
    fresh_database, spool, fresh_queue
):
    key = {"QUEEN_ENCRYPTION_KEY": "5c" * 32}
    async with running(fresh_database(), spool=spool, **key) as client:
        await until(lambda: client.broker.spool.diversion.store_up)
        assert await status(client, fresh_queue, "plain") == ["queued"]
        await client.configure(fresh_queue, encryptionEnabled=True)
        await buffered(client, fresh_queue, "a secret of ours")
        on_disk = b"".join(path.read_bytes() for path in spool.glob("*.tmp"))
        assert b'"data":' in on_disk and b"a secret of ours" not in on_disk
        await client.broker.switches.throw(OFF)
        await emptied(client)
        assert await stored(client, fresh_queue) == ["plain", "a secret of ours"]
