"""Letters as operators work on them: edit and resend, look, pages, purges.

Method: brokers in the test's own loop; what is stored is read from the tables, what is
delivered is popped.
"""

import asyncio
import json
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.encryption import KeyRing
from brokers.errors import Refusal, StoreError
from brokers.flow.switches import PUSH_MAINTENANCE
from brokers.services import dead_letters, letters
from brokers.services.dead_letters import ReplayRequest
from brokers.services.letters import SearchRequest
from brokers.store.redrive_calls import Filter
from tests.services.in_process import NO_FLOOR, held, until_waiting, within
from tests.store.calling import Lane
from tests.store.redriving import payloads_of

KEY, OTHER = "ab" * 32, "cd" * 32
BIG = b'{"n": 123456789012345678901234567890,  "f": 1.0}'


def resend(client, letter: str, payload: bytes | None = None, **named):
    request = ReplayRequest(
        tenant=DEFAULT_TENANT, dead_letter_id=UUID(letter), payload=payload, **named
    )
    return within(dead_letters.replay(client.broker, request))


def seal(db, letter: str, key: str, payload: bytes) -> None:
    db.execute(
        "UPDATE queen_dead_letter SET payload = %s, encrypted = true WHERE id = %s",
        [KeyRing(key).seal(payload), letter],
    )


async def look(client, letter: str, *, may_open: bool = True):
    return await letters.look(client.broker, UUID(letter), may_open=may_open)


# --- edit and resend ----------------------------------------------------------------------------


async def test_an_edited_letter_is_a_message_with_the_new_payload_byte_for_byte(
    here, db, fresh_queue
):
    lane = Lane(db, fresh_queue)
    [letter] = lane.bury({"bad": True})
    db.execute("UPDATE queen_dead_letter SET producer_sub = 'its producer' WHERE id = %s", [letter])
    done = await resend(here, letter, BIG)
    assert (done.moved, done.queue, done.transaction_id) == (True, fresh_queue, f"dlq:{letter}")
    assert lane.count("queen_dead_letter") == 0
    frame = lane.scalar("SELECT queen_frame_get_v1(%s, 1::bigint)", lane.id)
    assert frame.endswith('"producerSub":null,"data":' + BIG.decode())
    assert await here.payloads(fresh_queue) == [{"bad": True}, json.loads(BIG)]


async def test_an_edited_letter_may_go_elsewhere_and_wakes_who_waits_there(here, db, fresh_queue):
    [letter] = Lane(db, fresh_queue).bury("bad")
    target = f"{fresh_queue}-target"
    waiting = await here.park_here(target, partition="p")
    done = await resend(here, letter, b'"good"', queue=target, partition="p")
    assert (done.queue, done.partition) == (target, "p")
    assert await within(waiting) == ["good"]


async def test_of_two_who_press_at_once_one_resends_and_the_other_finds_it_gone(
    here, there, db, fresh_queue
):
    for turn in range(5):
        lane = Lane(db, f"{fresh_queue}-{turn}")
        [letter] = lane.bury("bad")
        answers = await asyncio.gather(
            resend(here, letter, b'"mine"'),
            resend(there, letter, b'"yours"', partition="elsewhere"),
            resend(here, letter),
        )
        assert [one.moved for one in answers if one is not None] == [True]
        stored = [
            payload
            for name in ("Default", "elsewhere")
            for payload in payloads_of(Lane(db, lane.queue, name))
        ]
        assert len(stored) == 2, "the one that died, and the one that was sent in its place"
        assert lane.count("queen_dead_letter") == 0


async def test_who_waited_for_the_other_to_resend_finds_it_gone(
    here, there, db, second_connection, fresh_queue
):
    """The letter's row is held, so that both are surely under way."""
    lane = Lane(db, fresh_queue)
    [letter] = lane.bury("bad")
    row = "SELECT 1 FROM queen_dead_letter WHERE id = %s FOR UPDATE"
    with held(second_connection(), row, letter):
        both = [
            asyncio.create_task(resend(here, letter, b'"mine"', partition="a")),
            asyncio.create_task(resend(there, letter, b'"yours"', partition="b")),
        ]
        await until_waiting(db, "queen_dead_letter_replay_v1")
    answers = [await one for one in both]
    assert sorted(one is None for one in answers) == [False, True]
    assert sum(Lane(db, fresh_queue, name).count("queen_segment") for name in "ab") == 1


async def test_an_edit_of_what_was_encrypted_is_encrypted_wherever_it_goes(
    start_client, db, fresh_queue
):
    client = await start_client(**NO_FLOOR, QUEEN_ENCRYPTION_KEY=KEY)
    [letter] = Lane(db, fresh_queue).bury("placeholder")
    seal(db, letter, KEY, b'"secret"')
    assert (await resend(client, letter, b'"changed"', partition="p")).moved
    [stored] = payloads_of(Lane(db, fresh_queue, "p"))
    assert "changed" not in stored and '"encrypted":' in stored
    assert await client.payloads(fresh_queue, partition="p") == ["changed"]


async def test_an_edit_is_encrypted_where_its_destination_encrypts(start_client, db, fresh_queue):
    client = await start_client(**NO_FLOOR, QUEEN_ENCRYPTION_KEY=KEY)
    vault = f"{fresh_queue}-vault"
    await client.configure(vault, encryptionEnabled=True)
    [letter] = Lane(db, fresh_queue).bury("bad")
    assert (await resend(client, letter, b'"changed"', queue=vault)).moved
    [stored] = payloads_of(Lane(db, vault))
    assert "changed" not in stored
    assert await client.payloads(vault) == ["changed"]


async def test_without_a_key_an_encrypted_letter_is_not_edited_and_stays(here, db, fresh_queue):
    lane = Lane(db, fresh_queue)
    [letter] = lane.bury("placeholder")
    seal(db, letter, KEY, b'"secret"')
    with pytest.raises(StoreError, match="no key"):
        await resend(here, letter, b'"changed"')
    assert lane.count("queen_dead_letter") == 1
    assert lane.count("queen_segment") == 1


async def test_nothing_is_resent_in_push_maintenance(here, db, fresh_queue):
    [letter] = Lane(db, fresh_queue).bury("bad")
    await here.broker.switches.throw({PUSH_MAINTENANCE: True})
    try:
        with pytest.raises(Refusal):
            await resend(here, letter, b'"good"')
    finally:
        await here.broker.switches.throw({PUSH_MAINTENANCE: False})
    assert (await resend(here, letter, b'"good"')).moved


# --- look ---------------------------------------------------------------------------------------


async def test_a_payload_is_opened_only_for_who_may_see_it(start_client, db, fresh_queue):
    client = await start_client(**NO_FLOOR, QUEEN_ENCRYPTION_KEY=KEY)
    plain, mine, foreign = Lane(db, fresh_queue).bury("plain", "mine", "foreign")
    seal(db, mine, KEY, BIG)
    seal(db, foreign, OTHER, BIG)
    assert (await look(client, plain, may_open=False)).payload == b'"plain"'
    assert (await look(client, mine)).payload == BIG
    hidden = await look(client, mine, may_open=False)
    assert hidden.payload is None and "may not see" in hidden.problem
    unreadable = await look(client, foreign)
    assert unreadable.payload is None and "cannot be decrypted" in unreadable.problem
    assert await look(client, str(uuid4())) is None


async def test_pages_lead_on_and_back_and_end_where_the_letters_end(here, db, fresh_queue):
    Lane(db, fresh_queue).bury(*range(5))

    async def page(**named):
        request = SearchRequest(tenant=DEFAULT_TENANT, queue=fresh_queue, limit=2, **named)
        found = await letters.search(here.broker, request)
        return [line.payload for line in found.lines], found

    shown, first = await page()
    assert (shown, first.newer, first.reached) == ([b"4", b"3"], None, None)
    shown, second = await page(place=first.older)
    assert shown == [b"2", b"1"]
    shown, third = await page(place=second.older)
    assert (shown, third.older, third.reached) == ([b"0"], None, None)
    shown, back = await page(place=third.newer, newer=True)
    assert shown == [b"2", b"1"]
    shown, top = await page(place=back.newer, newer=True)
    assert (shown, top.newer) == ([b"4", b"3"], None)
    assert (await page(place=top.older))[0] == [b"2", b"1"]


async def test_a_look_that_met_its_bound_says_how_far_it_came(here, db, fresh_queue, monkeypatch):
    monkeypatch.setattr(letters, "SEARCH_LOOKS_MAX", 3)
    Lane(db, fresh_queue).bury(*range(5))
    request = SearchRequest(tenant=DEFAULT_TENANT, queue=fresh_queue, error="nothing like it")
    found = await letters.search(here.broker, request)
    assert (found.lines, found.looks) == ([], 3)
    assert found.reached is not None and found.older == found.reached


# --- purge --------------------------------------------------------------------------------------


async def test_a_purge_says_what_it_deleted_and_whether_that_was_all(
    here, db, fresh_queue, monkeypatch
):
    monkeypatch.setattr(letters, "WEED_ROWS_MAX", 2)
    lane = Lane(db, fresh_queue)
    lane.bury(*range(5))
    which = Filter(queue=fresh_queue, until=datetime.now(UTC))
    with monkeypatch.context() as slow:
        slow.setattr(letters, "WEED_S", -1.0)
        assert await letters.weed(here.broker, DEFAULT_TENANT, which) == (2, False)
    assert await letters.weed(here.broker, DEFAULT_TENANT, which) == (3, True)
    assert lane.count("queen_dead_letter") == 0
    assert (await letters.tally(here.broker, DEFAULT_TENANT, which)).found == 0
