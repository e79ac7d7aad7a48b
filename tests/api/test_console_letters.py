"""The console's pages of dead letters: find, look, edit and resend, redrive, purge; who may.

Method: a browser's requests to a real broker, as users of the three roles; what became of the
letters is read from the tables and by a consumer.
"""

import contextlib
import json
import uuid
from urllib.parse import quote

import pytest

from tests.console_parts import messages_of
from tests.letter_console_parts import (
    INLINE,
    audited,
    done,
    field_of,
    letters_of,
    links_of,
    refused,
    signed_in,
    verbatim_of,
)
from tests.store.calling import Lane
from tests.store.redriving import payloads_of

LETTERS = "/admin/dead-letters/"
BIG = b'{"n": 123456789012345678901234567890, "f": 1.0, "s": "\\u00e9<b>"}'


@pytest.fixture(scope="module")
def operators(broker):
    with contextlib.ExitStack() as stack:
        yield signed_in(stack, broker.url)


@pytest.fixture
def viewer(operators):
    return operators["Viewer"]


@pytest.fixture
def operator(operators):
    return operators["Operator"]


@pytest.fixture
def administrator(operators):
    return operators["Administrator"]


def bury(db, queue: str, *payloads, error: str = "why", partition: str = "Default", **named):
    """Letters with that error; their ids, the oldest first."""
    letters = Lane(db, queue, partition).bury(*payloads, **named)
    db.execute(
        "UPDATE queen_dead_letter SET error = %s WHERE id = ANY (%s::uuid[])", [error, letters]
    )
    return letters


def stored(db, queue: str, partition: str = "Default") -> list[str]:
    return payloads_of(Lane(db, queue, partition))


def listed(client, queue: str, **filters) -> list[str]:
    return letters_of(client.page(LETTERS, queue=queue, **filters))


def page_of(letter: str, deed: str = "") -> str:
    return f"{LETTERS}{letter}/" + (f"{deed}/" if deed else "")


# --- find and look ------------------------------------------------------------------------------


def test_a_letter_is_found_by_its_error_and_shown_digit_for_digit(viewer, db, fresh_queue):
    bury(db, fresh_queue, 1, error="refused by the bank")
    [letter] = bury(db, fresh_queue, BIG, error="timeout <after> 30 s", partition="p", group="g7")
    assert listed(viewer, fresh_queue, error="timeout <after>") == [letter]
    assert listed(viewer, fresh_queue, error="Timeout") == []
    page = viewer.page(page_of(letter))
    error, verbatim, pretty = verbatim_of(page)
    assert error == "timeout <after> 30 s"
    assert verbatim == BIG.decode()
    assert pretty.splitlines()[1:3] == [
        '  "n": 123456789012345678901234567890,',
        '  "f": 1.0,',
    ]
    for fact in (fresh_queue, "<dd>p ", "<dd>g7</dd>", f"dlq:{letter}"):
        assert fact in page
    whole = viewer.get(page_of(letter, "payload"))
    assert (whole.status_code, whole.content) == (200, BIG)
    assert whole.headers["content-type"] == "application/octet-stream"


def test_a_letter_is_found_by_a_text_of_its_payload_and_by_group_and_time(viewer, db, fresh_queue):
    [one] = bury(db, fresh_queue, {"order": "A-17"}, group="billing")
    [two] = bury(db, fresh_queue, {"order": "B-17"}, group="shipping")
    db.execute("UPDATE queen_dead_letter SET failed_at = '2020-05-05 12:00Z' WHERE id = %s", [two])
    assert listed(viewer, fresh_queue) == [one, two]
    assert listed(viewer, fresh_queue, payload="A-17") == [one]
    assert listed(viewer, fresh_queue, group="shipping") == [two]
    assert listed(viewer, fresh_queue, since="2020-05-05 12:00", until="2020-05-05T12:00Z") == [two]
    assert listed(viewer, fresh_queue, since="2020-05-05 12:01") == [one]
    assert listed(viewer, fresh_queue, tenant=str(uuid.uuid4())) == []


@pytest.mark.parametrize(
    "filters",
    [
        {"since": "yesterday"},
        {"tenant": "acme"},
        {"since": "2026-01-02", "until": "2026-01-01"},
        {"at": "2026-01-01T00:00:00Z"},
        {"queue": "x" * 300},
    ],
)
def test_a_filter_that_makes_no_sense_is_told_and_lists_nothing(viewer, filters):
    answer = viewer.get(LETTERS, **filters)
    assert answer.status_code == 400
    assert "errorlist" in answer.text
    assert letters_of(answer.text) == []


def test_pages_lead_to_the_oldest_letter_and_back_to_the_newest(viewer, db, fresh_queue):
    letters = bury(db, fresh_queue, *range(120))[::-1]
    pages, address = [], f"{LETTERS}?queue={fresh_queue}"
    while address:
        page = viewer.page(address)
        pages.append(letters_of(page))
        address = next((LETTERS + one for one in links_of(page, "Older")), None)
    assert [len(one) for one in pages] == [50, 50, 20]
    assert [one for found in pages for one in found] == letters
    [newer] = links_of(page, "Newer")
    assert letters_of(viewer.page(LETTERS + newer)) == pages[1]
    [newest] = links_of(page, "Newest")
    assert letters_of(viewer.page(LETTERS + newest)) == pages[0]


def test_a_letter_that_is_not_there_is_told_as_that(viewer):
    assert "no such dead letter" in refused(viewer.get(page_of(str(uuid.uuid4()))), 404)
    assert viewer.get(f"{LETTERS}nothing/").status_code == 404


def test_no_page_of_letters_has_a_script_or_a_style_of_its_own(administrator, db, fresh_queue):
    [letter] = bury(db, fresh_queue, BIG)
    pages = [f"{LETTERS}?queue={fresh_queue}", page_of(letter), "/admin/redrives/"]
    pages += [page_of(letter, deed) for deed in ("replay", "resend", "delete")]
    pages += [f"{LETTERS}{deed}/?queue={fresh_queue}" for deed in ("redrive", "purge")]
    for address in pages:
        answer = administrator.get(address)
        assert answer.status_code == 200, address
        assert not INLINE.search(answer.text), (address, INLINE.search(answer.text))
        assert "unsafe" not in answer.headers["content-security-policy"]


# --- edit and resend, replay --------------------------------------------------------------------


def test_an_edited_letter_is_sent_as_it_was_written_and_is_gone(
    operators, operator, wire, db, fresh_queue
):
    [letter] = bury(db, fresh_queue, {"n": 1})
    address = page_of(letter, "resend")
    assert json.loads(field_of(operator.page(address), "payload")) == {"n": 1}
    location = done(operator.deed(address, payload=BIG.decode(), queue=fresh_queue, partition="q"))
    [told] = messages_of(operator.page(location))
    assert f"dlq:{letter}" in told and "another payload" in told
    assert stored(db, fresh_queue, "q") == [BIG.decode()]
    [message] = wire.messages(fresh_queue, "q")
    assert message["transactionId"] == f"dlq:{letter}"
    assert message["data"] == json.loads(BIG)
    assert message["producerSub"] is None
    assert listed(operator, fresh_queue) == []
    [entry, *_] = audited(db, operators, "Operator")
    assert entry == ("edit and resend dead letter", f"dead letter {letter}", "done", 1)


def test_who_presses_second_sends_nothing_and_is_told_so(operator, administrator, db, fresh_queue):
    [letter] = bury(db, fresh_queue, {"n": 1})
    address = page_of(letter, "resend")
    where = {"queue": fresh_queue, "partition": "q"}
    first = operator.page(address)
    assert first
    done(administrator.deed(address, payload='{"n": 2}', **where))
    token = operator.http.cookies["csrftoken"]
    fields = {"csrfmiddlewaretoken": token, "confirmed": "yes", "payload": '{"n": 3}', **where}
    assert "no such dead letter" in refused(operator.http.post(address, data=fields), 404)
    assert stored(db, fresh_queue, "q") == ['{"n": 2}']


@pytest.mark.parametrize("payload", [b'{\r\n "a": 1.0,\t"b": 2}', b'"\\ud800"', BIG])
def test_a_payload_that_nobody_changed_is_sent_byte_for_byte(operator, db, fresh_queue, payload):
    [letter] = bury(db, fresh_queue, payload)
    address = page_of(letter, "resend")
    field = field_of(operator.page(address), "payload")
    location = done(operator.deed(address, payload=field, queue=fresh_queue, partition="q"))
    assert "as it was" in messages_of(operator.page(location))[0]
    [frame] = stored(db, fresh_queue, "q")
    assert frame.encode() == payload


@pytest.mark.parametrize("payload", ["{", "", "NaN", "{'n': 1}", '{"n": 1} x'])
def test_what_is_no_json_is_neither_sent_nor_lost(operator, db, fresh_queue, payload):
    [letter] = bury(db, fresh_queue, {"n": 1})
    answer = operator.deed(
        page_of(letter, "resend"), payload=payload, queue=fresh_queue, partition="q"
    )
    assert answer.status_code == 400
    assert "errorlist" in answer.text
    assert field_of(answer.text, "payload") == payload
    assert listed(operator, fresh_queue) == [letter]


def test_a_replay_goes_where_it_came_from_or_elsewhere(operator, db, fresh_queue):
    """Also into a partition whose name no field of a browser can hold."""
    odd, plain = "line\nbreak", "p"
    [one] = bury(db, fresh_queue, "one", partition=odd)
    [two] = bury(db, fresh_queue, "two", partition=plain)
    done(operator.deed(page_of(one, "replay"), queue=fresh_queue, partition=odd.replace("\n", "")))
    assert stored(db, fresh_queue, odd) == ['"one"', '"one"']
    other = f"{fresh_queue}-other"
    done(operator.deed(page_of(two, "replay"), queue=other, partition="x"))
    assert stored(db, other, "x") == ['"two"']
    assert listed(operator, fresh_queue) == []


def test_a_letter_whose_message_is_there_already_stays_and_that_is_told(
    operators, operator, wire, db, fresh_queue
):
    [letter] = bury(db, fresh_queue, "dead")
    wire.push(fresh_queue, "taken", partition="q", ids=[f"dlq:{letter}"])
    location = done(operator.deed(page_of(letter, "replay"), queue=fresh_queue, partition="q"))
    assert "nothing was written" in messages_of(operator.page(location))[0]
    assert listed(operator, fresh_queue) == [letter]
    assert audited(db, operators, "Operator")[0][3] == 0


def test_a_timer_that_could_not_be_fired_is_offered_for_deletion_only(
    administrator, db, fresh_queue
):
    [letter] = bury(db, fresh_queue, 1, group="__timer__")
    page = administrator.page(page_of(letter))
    assert links_of(page, "Delete") and not links_of(page, "Replay")
    assert administrator.get(page_of(letter, "replay")).status_code == 409


def test_those_chosen_are_replayed_the_oldest_first(operators, operator, db, fresh_queue):
    letters = bury(db, fresh_queue, 0, 1, 2, 3)
    chosen = [letters[3], letters[0], letters[2]]  # as a list has them: the newest first
    query = "&".join(f"letter={one}" for one in sorted(chosen, key=letters.index, reverse=True))
    address = f"{LETTERS}chosen/replay/?queue={fresh_queue}&{query}"
    assert "Chosen: 3." in operator.page(address)
    location = done(operator.deed(address))
    assert messages_of(operator.page(location)) == ["Replayed: 3 moved."]
    assert stored(db, fresh_queue) == ["0", "1", "2", "3", "0", "2", "3"]
    assert listed(operator, fresh_queue) == [letters[1]]
    assert audited(db, operators, "Operator")[0][2:] == ("done", 3)


def test_a_replay_of_those_chosen_that_moved_none_has_failed(operators, operator, db, fresh_queue):
    letters = bury(db, fresh_queue, 1, 2, group="__timer__")
    query = "&".join(f"letter={one}" for one in letters)
    answer = operator.deed(f"{LETTERS}chosen/replay/?queue={fresh_queue}&{query}")
    assert "schedule it anew" in refused(answer, 500)
    assert audited(db, operators, "Operator")[0][2:] == ("failed", None)


# --- all that match -----------------------------------------------------------------------------


def test_a_purge_says_how_many_and_deletes_those_and_no_others(
    operators, administrator, db, fresh_queue
):
    bury(db, fresh_queue, 1, 2, 3, error="timeout")
    [kept] = bury(db, fresh_queue, 4, error="refused")
    page = administrator.page(LETTERS, queue=fresh_queue, error="timeout")
    [address] = links_of(page, "Purge all that match")
    asked = administrator.page(address)
    assert "3 dead letters will be deleted" in asked
    [late] = bury(db, fresh_queue, 5, error="timeout")  # after the page was asked for
    location = done(administrator.deed(address))
    assert messages_of(administrator.page(location)) == ["3 dead letters deleted."]
    assert listed(administrator, fresh_queue) == [late, kept]
    [(action, target, outcome, hits), *_] = audited(db, operators, "Administrator")
    assert (action, outcome, hits) == ("purge dead letters", "done", 3)
    assert fresh_queue in target and '"timeout"' in target


@pytest.mark.parametrize("deed", ["redrive", "purge"])
def test_all_that_match_are_never_more_than_those_that_a_search_shows(
    administrator, db, fresh_queue, deed
):
    """Jobs know no text of a payload: with one they would hit more than the list does."""
    bury(db, fresh_queue, "a", "b")
    page = administrator.page(LETTERS, queue=fresh_queue, payload="a")
    assert not links_of(page, "Purge all that match") + links_of(page, "Redrive all that match")
    assert "payload" in refused(
        administrator.get(f"{LETTERS}{deed}/", queue=fresh_queue, payload="a"), 400
    )
    assert "queue" in refused(administrator.get(f"{LETTERS}{deed}/"), 400)
    assert len(listed(administrator, fresh_queue)) == 2


def test_a_redrive_moves_all_that_match_and_shows_how_far_it_is(
    operators, operator, db, fresh_queue, eventually
):
    bury(db, fresh_queue, *range(30), error="timeout")
    bury(db, fresh_queue, 99, error="refused")
    page = operator.page(LETTERS, queue=fresh_queue, error="timeout")
    [address] = links_of(page, "Redrive all that match")
    assert "30 dead letters will be moved" in operator.page(address)
    job = done(operator.deed(address, queue=f"{fresh_queue}-again", partition="", rate="100000"))
    assert job.startswith("/admin/redrives/")
    eventually(lambda: "<strong>done</strong>" in operator.page(f"{job}progress/"), timeout_s=60)
    page = operator.page(job)
    assert "30 moved of 30" in page and "data-refresh-done" in page
    assert sorted(map(int, stored(db, f"{fresh_queue}-again"))) == list(range(30))
    assert len(listed(operator, fresh_queue)) == 1
    assert job in operator.page("/admin/redrives/", state="done")
    action, _, outcome, hits = audited(db, operators, "Operator")[0]
    assert (action, outcome, hits) == ("redrive dead letters", "done", 30)


def test_a_redrive_is_stopped_and_resumed(operators, operator, db, fresh_queue, eventually):
    bury(db, fresh_queue, *range(5))
    job = done(
        operator.deed(f"{LETTERS}redrive/?queue={fresh_queue}", queue="", partition="", rate="1")
    )
    assert "refresh.js" in operator.page(job)
    done(operator.deed(f"{job}stop/"))
    page = operator.page(job)
    assert "<strong>cancelled</strong>" in page and "refresh.js" not in page
    left = len(listed(operator, fresh_queue))
    assert left > 0
    done(operator.deed(f"{job}resume/"))
    assert "<strong>running</strong>" in operator.page(job)
    done(operator.deed(f"{job}stop/"))
    assert [one[0] for one in audited(db, operators, "Operator")[:3]] == [
        "stop redrive",
        "resume redrive",
        "stop redrive",
    ]
    unknown = f"/admin/redrives/{uuid.uuid4()}/"
    assert "not found" in refused(operator.get(unknown), 404)


# --- who may ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deed", "may"),
    [
        ("replay", ("Operator", "Administrator")),
        ("resend", ("Operator", "Administrator")),
        ("delete", ("Administrator",)),
        ("chosen/replay", ("Operator", "Administrator")),
        ("chosen/delete", ("Administrator",)),
        ("redrive", ("Operator", "Administrator")),
        ("purge", ("Administrator",)),
    ],
)
def test_a_role_does_what_it_may_and_nothing_else(operators, db, fresh_queue, deed, may):
    [letter] = bury(db, fresh_queue, 1)
    address = page_of(letter, deed)
    if deed.startswith("chosen/"):
        address = f"{LETTERS}{deed}/?letter={letter}"
    elif deed in ("redrive", "purge"):
        address = f"{LETTERS}{deed}/?queue={quote(fresh_queue)}"
    fields = {"confirmed": "yes", "queue": fresh_queue, "partition": "q", "rate": "1000"}
    for role, client in operators.clients.items():
        if role in may:
            assert client.get(address).status_code == 200, role
            continue
        assert client.get(address).status_code == 403, role
        # A form that it was never shown, with the token of another one.
        client.page(LETTERS)
        token = client.http.cookies["csrftoken"]
        posted = client.http.post(
            address, data={"csrfmiddlewaretoken": token, "payload": "2", **fields}
        )
        assert posted.status_code == 403, role
    assert listed(operators["Viewer"], fresh_queue) == [letter]
    done(operators[may[0]].submit(address, payload="2", **fields))


def test_a_list_offers_what_the_role_may(operators, db, fresh_queue):
    [letter] = bury(db, fresh_queue, 1)
    offered = {
        role: [
            text
            for text in ("Replay", "Edit and resend", "Delete")
            if links_of(client.page(page_of(letter)), text)
        ]
        for role, client in operators.clients.items()
    }
    assert offered == {
        "Viewer": [],
        "Operator": ["Replay", "Edit and resend"],
        "Administrator": ["Replay", "Edit and resend", "Delete"],
    }
    assert 'type="checkbox"' not in operators["Viewer"].page(LETTERS, queue=fresh_queue)


def test_a_deletion_is_done_once_and_audited(operators, administrator, db, fresh_queue):
    [letter] = bury(db, fresh_queue, 1)
    done(administrator.deed(page_of(letter, "delete")))
    assert listed(administrator, fresh_queue) == []
    assert audited(db, operators, "Administrator")[0][:1] == ("delete dead letter",)
