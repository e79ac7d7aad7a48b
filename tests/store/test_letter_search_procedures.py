"""The procedures by which operators search dead letters, count them and purge those that match.

Method: the store's coroutines on real PostgreSQL; a second connection holds the locks.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.frames import literal
from brokers.store import letter_calls as calls
from brokers.store import management_calls
from brokers.store.letter_calls import Place
from brokers.store.redrive_calls import Filter
from tests.store.calling import Lane, call, waits_for_lock

ASKED = {
    "queue": None,
    "group": None,
    "error": None,
    "payload": None,
    "since": None,
    "until": None,
    "newer": False,
    "place": None,
    "limit": 100,
    "looks_max": 1000,
    "bytes_max": 2**24,
}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def search(db, queue=None, *, tenant=DEFAULT_TENANT, **named):
    return call(db, calls.letter_search, tenant, **ASKED | {"queue": queue} | named)


def tally(db, queue, *, tenant=DEFAULT_TENANT, looks_max=1000, **named):
    return call(db, calls.letter_tally, tenant, Filter(queue=queue, **named), looks_max=looks_max)


def weed(db, queue, *, place=None, rows_max=1000, looks_max=1000, tenant=DEFAULT_TENANT, **named):
    return call(
        db,
        calls.letter_weed,
        tenant,
        Filter(queue=queue, **named),
        place=place,
        rows_max=rows_max,
        looks_max=looks_max,
    )


def payloads(step):
    return [line.payload for line in step.lines]


def fail_at(db, letter: str, moment: datetime, error: str = "why") -> None:
    db.execute(
        "UPDATE queen_dead_letter SET failed_at = %s, error = %s WHERE id = %s",
        [moment, error, letter],
    )


def five(db, queue: str, **named) -> list[str]:
    """Letters 0 to 4 that failed a minute apart, the even ones by a timeout."""
    letters = Lane(db, queue, **named).bury(*range(5))
    for no, letter in enumerate(letters):
        error = f"{'timeout' if no % 2 == 0 else 'refused'} at step {no}"
        fail_at(db, letter, NOON + timedelta(minutes=no), error)
    return letters


# --- search -------------------------------------------------------------------------------------


def test_pages_go_to_older_letters_and_back_and_neither_double_nor_leave_out_any(db, fresh_queue):
    lanes = [Lane(db, fresh_queue, name) for name in "ab"]
    for no in range(3):
        for lane in lanes:
            [letter] = lane.bury(f"{lane.name}{no}")
            fail_at(db, letter, NOON)  # all at one moment: the id decides
    whole = payloads(search(db, fresh_queue))
    assert sorted(whole) == [b'"a0"', b'"a1"', b'"a2"', b'"b0"', b'"b1"', b'"b2"']
    seen, place = [], None
    while len(seen) < 6:
        step = search(db, fresh_queue, place=place, limit=2)
        seen += payloads(step)
        place = step.lines[-1].place
    assert seen == whole
    back = search(db, fresh_queue, place=place, newer=True, limit=3)
    assert payloads(back) == whole[2:5][::-1]
    assert search(db, fresh_queue, place=place, newer=False).at_end


@pytest.mark.parametrize("of_queue", [True, False])
def test_filters_are_those_of_a_redrive_and_the_ends_of_a_span_are_in_it(db, fresh_queue, of_queue):
    tenant = uuid.uuid4()
    five(db, fresh_queue, tenant=tenant)
    [other] = Lane(db, fresh_queue, tenant=tenant).bury(9, group="h")
    fail_at(db, other, NOON)
    five(db, fresh_queue, tenant=uuid.uuid4())

    def found(**named):
        return payloads(search(db, fresh_queue if of_queue else None, tenant=tenant, **named))

    assert found(group="g") == [b"4", b"3", b"2", b"1", b"0"]
    assert found(group="h") == [b"9"]
    assert found(group="g", error="timeout") == [b"4", b"2", b"0"]
    assert found(error="Timeout") == []
    assert found(error="%") == []
    span = {"since": NOON + timedelta(minutes=1), "until": NOON + timedelta(minutes=3)}
    assert found(**span) == [b"3", b"2", b"1"]
    assert found(**span, newer=True) == [b"1", b"2", b"3"]
    assert found(**span, error="timeout") == [b"2"]
    assert found(group="i") == []


def test_a_text_is_looked_for_in_the_payload_as_the_producer_wrote_it(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.bury(b'{"n": 123456789012345678901234567890}', '"é"'.encode(), b'"\\u00e9"')
    assert payloads(search(db, fresh_queue, payload=b"45678901234567890123")) == [
        b'{"n": 123456789012345678901234567890}'
    ]
    assert payloads(search(db, fresh_queue, payload="é".encode())) == ['"é"'.encode()]
    assert payloads(search(db, fresh_queue, payload=b"\\u00e9")) == [b'"\\u00e9"']


def test_an_encrypted_payload_is_neither_searched_nor_shown_in_a_list_but_counted(db, fresh_queue):
    plain, sealed = Lane(db, fresh_queue).bury("find me", "find me too")
    db.execute("UPDATE queen_dead_letter SET encrypted = true WHERE id = %s", [sealed])
    step = search(db, fresh_queue, payload=b"find me")
    assert [line.id for line in step.lines] == [plain]
    assert step.unsearched == 1
    [line] = [line for line in search(db, fresh_queue).lines if line.id == sealed]
    assert (line.encrypted, line.payload, line.size) == (True, None, len('"find me too"'))


def test_a_look_ends_at_its_bound_and_goes_on_behind_what_it_looked_at(db, fresh_queue):
    five(db, fresh_queue)
    found, place, looks = [], None, []
    while True:
        step = search(db, fresh_queue, error="step 1", place=place, looks_max=2)
        found += payloads(step)
        looks.append(step.looks)
        if step.at_end:
            break
        place = step.reached
    assert (found, looks) == ([b"1"], [2, 2, 1])
    step = search(db, fresh_queue, payload=b"nowhere", bytes_max=2)
    assert (step.looks, step.at_end) == (2, False)
    assert search(db, fresh_queue, looks_max=5).at_end is False, "nobody has looked for a sixth"


def test_a_list_has_the_beginnings_of_errors_and_payloads_and_a_letter_has_all(db, fresh_queue):
    lane = Lane(db, fresh_queue, "p")
    [letter] = lane.bury("x" * 1000, ids=['say "hi"'])
    fail_at(db, letter, NOON, "y" * 1000)
    [line] = search(db, fresh_queue).lines
    assert (len(line.error), len(line.payload), line.size) == (500, 300, 1002)
    whole = call(db, calls.letter_read, UUID(letter), bytes_max=2000)
    assert (whole.queue, whole.partition, whole.group) == (fresh_queue, "p", "g")
    assert whole.payload == b'"' + b"x" * 1000 + b'"'
    assert whole.error == "y" * 1000
    assert (whole.offset, whole.retry_count, whole.failed_at) == (0, 1, NOON)
    assert whole.transaction_id == literal('say "hi"')
    assert whole.partition_uid == lane.row.uid
    assert call(db, calls.letter_read, UUID(letter), bytes_max=1001).payload is None
    assert call(db, calls.letter_read, uuid.uuid4(), bytes_max=1) is None


def test_letters_of_a_deleted_queue_are_found_by_nobody(db, fresh_queue):
    tenant = uuid.uuid4()
    kept = Lane(db, "kept", tenant=tenant)
    kept.bury("kept")
    [gone] = Lane(db, fresh_queue, tenant=tenant).bury("gone")
    call(db, management_calls.queue_delete, tenant, fresh_queue)
    step = search(db, tenant=tenant)
    assert (payloads(step), step.looks, step.at_end) == ([b'"kept"'], 2, True)
    assert call(db, calls.letter_read, UUID(gone), bytes_max=100) is None
    assert search(db, fresh_queue, tenant=tenant).lines == []
    assert weed(db, fresh_queue, tenant=tenant).deleted == 0


# --- count and purge ----------------------------------------------------------------------------


def test_a_count_ends_at_its_bound_and_says_so(db, fresh_queue):
    five(db, fresh_queue)
    Lane(db, fresh_queue).bury(9, group="__timer__")
    assert tally(db, fresh_queue) == (6, 1, False)
    assert tally(db, fresh_queue, error="timeout") == (3, 0, False)
    assert tally(db, fresh_queue, group="g", looks_max=5) == (5, 0, False)
    assert tally(db, fresh_queue, group="g", looks_max=4) == (4, 0, True)
    assert tally(db, fresh_queue, until=NOON) == (1, 0, False)
    assert tally(db, f"{fresh_queue}-none") == (0, 0, False)


def test_a_purge_deletes_what_matches_in_bounded_steps_and_nothing_else(db, fresh_queue):
    five(db, fresh_queue)
    Lane(db, f"{fresh_queue}-other").bury(1)
    step = weed(db, fresh_queue, error="timeout", rows_max=1)
    assert (step.deleted, step.looks, step.at_end) == (1, 1, False)
    step = weed(db, fresh_queue, error="timeout", place=step.reached, looks_max=2)
    assert (step.deleted, step.looks, step.at_end) == (1, 2, False)
    step = weed(db, fresh_queue, error="timeout", place=step.reached)
    assert (step.deleted, step.looks, step.at_end) == (1, 2, True)
    assert payloads(search(db, fresh_queue)) == [b"3", b"1"]
    assert weed(db, fresh_queue, group="h").deleted == 0
    assert weed(db, fresh_queue, since=NOON + timedelta(minutes=2)).deleted == 1
    assert payloads(search(db, fresh_queue)) == [b"1"]
    assert len(search(db, f"{fresh_queue}-other").lines) == 1


def test_a_purge_leaves_what_failed_after_it_began(db, fresh_queue):
    old, new = Lane(db, fresh_queue).bury("old", "new")
    fail_at(db, old, NOON)
    fail_at(db, new, datetime.now(UTC) + timedelta(hours=1))
    step = weed(db, fresh_queue)
    assert (step.deleted, step.at_end) == (1, True)
    assert step.until <= datetime.now(UTC) + timedelta(minutes=1)
    assert payloads(search(db, fresh_queue)) == [b'"new"']


@pytest.mark.parametrize("change", ["moved", "died anew"])
def test_a_letter_that_changed_while_the_purge_waited_for_it_is_none_of_its_own(
    db, second_connection, database, fresh_queue, change
):
    lane = Lane(db, fresh_queue)
    first, second = lane.bury("first", "second")
    fail_at(db, second, NOON)
    holder = second_connection()
    if change == "moved":
        holder.execute("DELETE FROM queen_dead_letter WHERE id = %s", [first])
    else:
        holder.execute(
            "UPDATE queen_dead_letter SET failed_at = now() + interval '1 hour' WHERE id = %s",
            [first],
        )
    with ThreadPoolExecutor(1) as pool, database.connect() as other:
        purge = pool.submit(weed, other, fresh_queue)
        while not waits_for_lock(db):
            assert not purge.done(), "it should wait for the letter's row"
        holder.commit()
        assert purge.result(timeout=20).deleted == 1
    assert payloads(search(db, fresh_queue)) == ([] if change == "moved" else [b'"first"'])


def test_a_place_of_a_letter_that_is_gone_is_still_a_place(db, fresh_queue):
    letters = five(db, fresh_queue)
    place = Place(NOON + timedelta(minutes=2), letters[2])
    db.execute("DELETE FROM queen_dead_letter WHERE id = %s", [letters[2]])
    assert payloads(search(db, fresh_queue, place=place)) == [b"1", b"0"]
    assert payloads(search(db, fresh_queue, place=place, newer=True)) == [b"3", b"4"]


def test_letters_are_deleted_by_id_and_those_that_are_gone_are_not_counted(db, fresh_queue):
    letters = [UUID(one) for one in Lane(db, fresh_queue).bury(1, 2, 3)]
    assert call(db, calls.letter_discard, letters[:2]) == 2
    assert call(db, calls.letter_discard, [*letters, uuid.uuid4()]) == 1
    assert search(db, fresh_queue).lines == []
