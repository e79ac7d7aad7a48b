"""Encryption where it meets what fails: stale beliefs, split calls, spools, hung-up clients.

Method: brokers in this process on one database, each with keys of its own; what is stored is
read from the table.
"""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from brokers import frames
from brokers.domain import DEFAULT_TENANT, PushItem, TimerOperation
from brokers.encryption import INLINE_BYTES_MAX, KeyRing
from brokers.services import timers as timer_service
from brokers.services.sweeper import Sweeper
from brokers.store import sealing
from brokers.store.combine import NO_KEY, Parcel
from tests import harness
from tests.services.in_process import NO_FLOOR, Client, running, until, within

KEY = "5a" * 32
KEYED = {**NO_FLOOR, "QUEEN_ENCRYPTION_KEY": KEY}
SETTINGS = {"QUEEN_SWEEPER_BACKOFF_MIN_MS": "50", "QUEEN_SWEEPER_MAX_ATTEMPTS": "2"}
LARGE = "x" * (INLINE_BYTES_MAX + 1)


@pytest.fixture
async def client(start_client) -> Client:
    return await start_client(**KEYED)


@pytest.fixture
async def keyless(start_client) -> Client:
    return await start_client(**NO_FLOOR)


def segments(db, queue: str) -> list[tuple[bytes, bytes | None]]:
    """(frames, flags) of every segment of the queue."""
    rows = db.execute(
        "SELECT segment.frames, segment.flags FROM queen_segment segment"
        "  JOIN queen_partition lane ON lane.id = segment.partition_id"
        "  JOIN queen_queue queue ON queue.id = lane.queue_id"
        " WHERE queue.name = %s ORDER BY lane.name, segment.base_offset",
        [queue],
    )
    return [(bytes(text), flags) for text, flags in rows]


def flags_of(db, queue: str) -> list[bytes | None]:
    return [flags for _, flags in segments(db, queue)]


# --- push ---------------------------------------------------------------------------------------


async def test_a_stale_belief_costs_a_round_and_never_a_plain_text(
    client, keyless, db, fresh_queue
):
    """The option is switched in the table, so that no broker is told."""
    for one in (client, keyless):
        assert await one.push(fresh_queue, "plain") == [("queued", "")]
    db.execute(
        "UPDATE queen_queue SET encryption_enabled = true, config_version = config_version + 1"
        " WHERE name = %s",
        [fresh_queue],
    )
    pushes = [client.push(fresh_queue, "secret", partition=f"p{no % 3}") for no in range(20)]
    pushes += [client.push(fresh_queue, "secret") for no in range(20)]
    assert {one for [one] in await within(asyncio.gather(*pushes))} == {("queued", "")}
    assert await keyless.push(fresh_queue, "secret") == [("failed", NO_KEY)]
    assert not any(b"secret" in text for text, _ in segments(db, fresh_queue))
    stored = await client.payloads(fresh_queue, batch=1000, partitions=10)
    assert sorted(stored) == ["plain"] * 2 + ["secret"] * 40


async def test_messages_of_many_requests_that_share_a_segment_are_each_opened(
    client, db, fresh_queue
):
    await client.configure(fresh_queue, encryptionEnabled=True)
    await asyncio.gather(*(client.push(fresh_queue, no, -no) for no in range(50)))
    assert len(segments(db, fresh_queue)) < 50, "they shared segments"
    assert {flag for flags in flags_of(db, fresh_queue) for flag in flags or b"\x00"} == {1}
    assert await client.payloads(fresh_queue, batch=1000) == [
        value for no in range(50) for value in (no, -no)
    ]


async def test_a_large_push_is_sealed_and_opened_beside_the_loop(client, db, fresh_queue):
    await client.configure(fresh_queue, encryptionEnabled=True)
    assert await client.push(fresh_queue, "small", LARGE) == [("queued", "")] * 2
    assert flags_of(db, fresh_queue) == [b"\x01\x01"]
    assert await client.payloads(fresh_queue) == ["small", LARGE]


async def test_a_split_call_stores_its_pieces_sealed(client, db, fresh_queue):
    await client.configure(fresh_queue, encryptionEnabled=True)
    ids = [f"id-{no}" for no in range(8)]
    with harness.refusing_segments(db, b'"id-5"', "poison"):
        outcomes = await client.push(fresh_queue, *["secret"] * 8, ids=ids)
    assert [status for status, _ in outcomes] == ["queued"] * 5 + ["failed"] + ["queued"] * 2
    assert not any(b"secret" in text for text, _ in segments(db, fresh_queue))
    assert await client.payloads(fresh_queue) == ["secret"] * 7


async def test_duplicates_in_a_sealed_flush_take_their_flags_with_them(client, db, fresh_queue):
    await client.push(fresh_queue, "plain", ids=["a"])
    await client.configure(fresh_queue, encryptionEnabled=True)
    outcomes = await client.push(fresh_queue, 1, 2, 3, ids=["a", "b", "b"])
    assert [status for status, _ in outcomes] == ["duplicate", "queued", "duplicate"]
    assert flags_of(db, fresh_queue) == [None, b"\x01"]
    assert await client.payloads(fresh_queue) == ["plain", 2]


@pytest.mark.parametrize("encrypts", [True, False], ids=["encrypting", "plain"])
async def test_a_parcel_that_comes_sealed_is_stored_as_it_is_even_without_a_key(
    keyless, client, db, fresh_queue, encrypts
):
    """As out of a spool: the broker that sealed it had a key, the one that stores it need not."""
    await client.configure(fresh_queue, encryptionEnabled=encrypts)
    [one, two] = client.broker.ids.mint_many(2)
    parcel = Parcel(
        [one, two],
        ['"t1"', '"t2"'],
        [
            frames.frame(one, '"t1"', None, None, b"1"),
            frames.frame(two, '"t2"', None, None, b"2"),
        ],
    )
    sealing.seal(KeyRing(KEY), [parcel])
    settled = asyncio.Event()
    parcel.waiter = settled.set
    keyless.broker.push_combiner.put((DEFAULT_TENANT, fresh_queue, "Default"), parcel)
    await within(settled.wait())
    assert parcel.outcomes == [("queued", one, None), ("queued", two, None)]
    assert flags_of(db, fresh_queue) == [b"\x01\x01"]
    assert await client.payloads(fresh_queue) == [1, 2]


async def test_what_an_encrypting_queue_refuses_holds_up_no_other(keyless, fresh_queue):
    await keyless.configure(fresh_queue, encryptionEnabled=True)
    items = [
        PushItem(name, "Default", b"1", None)
        for name in (fresh_queue, f"{fresh_queue}-plain", fresh_queue)
    ]
    outcomes = await keyless.push_items(*items)
    assert [one.status for one in outcomes] == ["failed", "queued", "failed"]


# --- pop ----------------------------------------------------------------------------------------


async def test_a_client_that_hangs_up_while_its_messages_are_opened_gets_them_later(
    client, fresh_queue
):
    await client.configure(fresh_queue, encryptionEnabled=True)
    await client.push(fresh_queue, LARGE)
    blocked = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        threads.submit(blocked.wait)
        popping = asyncio.create_task(client.pop(fresh_queue))
        await until(lambda: threads._work_queue.qsize() > 0)
        popping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await popping
        blocked.set()
        [message] = await client.pop(fresh_queue)
    assert message["data"] == LARGE
    assert message["deliveryAttempt"] == 1, "the first was handed back, uncharged"


async def test_a_conflating_group_gets_the_newest_opened(client, fresh_queue):
    await client.configure(fresh_queue, encryptionEnabled=True)
    await client.push(fresh_queue, 1, 2, 3)
    found = await client.payloads(
        fresh_queue, group="g", subscription_mode="all", conflation=True, partitions=0
    )
    assert found == [3]


# --- timers -------------------------------------------------------------------------------------


async def schedule(client: Client, queue: str, *keys: str) -> None:
    operations = [
        TimerOperation(queue, key, key, 0, payload=json.dumps(key).encode()) for key in keys
    ]
    request = timer_service.ApplyRequest(tenant=DEFAULT_TENANT, operations=operations)
    await timer_service.apply(client.broker, request)


async def pending(client: Client) -> list[tuple[str, int, bool]]:
    rows = await client.broker.store.fetch(
        "SELECT timer_key, attempts, encrypted FROM queen_timer ORDER BY 1"
    )
    return [tuple(row) for row in rows]


async def test_a_sweeper_without_a_key_leaves_a_plain_timer_to_one_that_has_it(
    database, fresh_database, fresh_queue
):
    place = fresh_database()
    async with (
        running(place, **NO_FLOOR, **SETTINGS) as keyless,
        running(place, **KEYED, **SETTINGS) as client,
    ):
        await schedule(keyless, fresh_queue, "secret-1", "secret-2")
        await schedule(keyless, f"{fresh_queue}-plain", "other")
        await client.configure(fresh_queue, encryptionEnabled=True)
        sweeper = Sweeper(keyless.broker)
        for _ in range(3):
            await sweeper.cycle()
            await asyncio.sleep(0.06)  # past the back-off
        assert await pending(client) == [("secret-1", 0, False), ("secret-2", 0, False)]
        assert await client.payloads(f"{fresh_queue}-plain") == ["other"]

        sweeper = Sweeper(client.broker)
        async with asyncio.timeout(10):
            while await pending(client):
                await sweeper.cycle()
        with place.connect() as db:
            stored = segments(db, fresh_queue)
        assert not any(b'"data":"secret' in text for text, _ in stored)
        assert b"".join(flags or b"" for _, flags in stored) == b"\x01\x01"
        assert await client.payloads(fresh_queue) == ["secret-1", "secret-2"]


async def test_sealed_and_plain_timers_are_fired_together_each_with_its_flag(
    database, fresh_database, fresh_queue
):
    async with running(fresh_database(), **KEYED, **SETTINGS) as client:
        await client.configure(fresh_queue, encryptionEnabled=True)
        await schedule(client, fresh_queue, "sealed")
        await client.configure(fresh_queue, encryptionEnabled=False)
        await schedule(client, fresh_queue, "plain")
        assert await pending(client) == [("plain", 0, False), ("sealed", 0, True)]
        assert (await Sweeper(client.broker).cycle()).fired == 2
        assert await client.payloads(fresh_queue) == ["sealed", "plain"]


async def test_a_timer_that_is_given_up_stays_sealed_as_a_dead_letter(
    database, fresh_database, fresh_queue
):
    place = fresh_database()
    async with running(place, **KEYED, **SETTINGS) as client:
        await client.configure(fresh_queue, encryptionEnabled=True)
        await schedule(client, fresh_queue, "poison")
        with place.connect() as db, harness.refusing_segments(db, b'"poison"', "no"):
            async with asyncio.timeout(10):
                while await pending(client):
                    await Sweeper(client.broker).cycle()
                    await asyncio.sleep(0.02)
            [(payload, encrypted)] = db.execute(
                "SELECT payload, encrypted FROM queen_dead_letter"
            ).fetchall()
        assert encrypted is True
        assert client.broker.keys.open(bytes(payload)) == b'"poison"'
