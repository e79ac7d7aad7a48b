"""The console's pages of timers: find, look, cancel; who may.

Method: a browser's requests to a real broker, as users of the three roles; timers are scheduled
over the API.
"""

import contextlib
from urllib.parse import quote, urlencode

import pytest

from tests.console_parts import messages_of
from tests.letter_console_parts import (
    INLINE,
    audited,
    done,
    links_of,
    refused,
    signed_in,
    verbatim_of,
)
from tests.wire_client import expect

TIMERS = "/admin/timers/"
FAR_MS = 600_000
BIG = b'{"n": 123456789012345678901234567890}'
B64 = "eyJuIjogMTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwfQ=="


@pytest.fixture(scope="module")
def operators(broker):
    with contextlib.ExitStack() as stack:
        yield signed_in(stack, broker.url)


@pytest.fixture
def schedule(wire):
    def schedule(queue: str, *keys: str) -> None:
        for start in range(0, len(keys), 200):
            operations = [
                {
                    "op": "schedule",
                    "queue": queue,
                    "timerKey": key,
                    "delayMs": FAR_MS,
                    "txn": f"txn {key}",
                    "payload": B64,
                }
                for key in keys[start : start + 200]
            ]
            expect(wire.post("/api/v1/timers", {"operations": operations}), 200)

    return schedule


def address_of(queue: str, key: str, *, cancel: bool = False) -> str:
    return f"{TIMERS}timer/{'cancel/' if cancel else ''}?" + urlencode({"queue": queue, "key": key})


def keys_of(client, address: str, keys) -> list[str]:
    """Which of these keys the page lists, in its order."""
    page = client.page(address)
    places = {key: page.find(f">{key}</a>") for key in keys}
    return sorted((key for key in keys if places[key] >= 0), key=lambda key: places[key])


def test_timers_are_listed_by_key_and_found_by_prefix(operators, schedule, fresh_queue):
    keys = ["order/1/a", "order/10/a", "order/2/a", "zebra"]
    schedule(fresh_queue, *reversed(keys))
    viewer = operators["Viewer"]
    of_queue = f"{TIMERS}?queue={fresh_queue}"
    assert keys_of(viewer, of_queue, keys) == keys
    assert keys_of(viewer, f"{of_queue}&prefix=order/1", keys) == keys[:2]
    assert keys_of(viewer, f"{of_queue}&prefix=x", keys) == []
    assert "Name the queue" in viewer.get(TIMERS, prefix="order").text


def test_pages_of_timers_lead_on_and_back(operators, schedule, fresh_queue):
    keys = [f"k{no:03}" for no in range(230)]
    schedule(fresh_queue, *keys)
    viewer = operators["Viewer"]
    pages, address = [], f"{TIMERS}?queue={fresh_queue}"
    while address:
        page = viewer.page(address)
        pages.append(keys_of(viewer, address, keys))
        address = next((TIMERS + one for one in links_of(page, "Next")), None)
    assert pages == [keys[:100], keys[100:200], keys[200:]]
    [previous] = links_of(page, "Previous")
    assert keys_of(viewer, TIMERS + previous, keys) == keys[100:200]
    back = viewer.page(TIMERS + previous)
    [first] = links_of(back, "Previous")
    assert keys_of(viewer, TIMERS + first, keys) == keys[:100]
    assert not links_of(viewer.page(TIMERS + first), "Previous")


def test_the_timers_of_all_queues_are_in_one_list(operators, schedule, fresh_queue):
    names = [f"{fresh_queue}-{no}" for no in "ab"]
    for name in names:
        schedule(name, f"key of {name}")
    place = urlencode({"at": names[0], "key": ""})
    # An empty key stands before all of a queue, so the look begins with that queue.
    page = operators["Viewer"].page(f"{TIMERS}?{place}")
    assert page.index(f"key of {names[0]}") < page.index(f"key of {names[1]}")


def test_a_timer_is_shown_digit_for_digit_and_cancelled_by_who_may(
    operators, schedule, db, fresh_queue
):
    key = "a/b c?ü&x=1"
    schedule(fresh_queue, key)
    for client in operators.clients.values():
        verbatim, pretty = verbatim_of(client.page(address_of(fresh_queue, key)))
        assert verbatim == BIG.decode()
        assert "123456789012345678901234567890" in pretty
    cancel = address_of(fresh_queue, key, cancel=True)
    assert operators["Viewer"].get(cancel).status_code == 403
    assert not links_of(operators["Viewer"].page(address_of(fresh_queue, key)), "Cancel the timer")
    location = done(operators["Operator"].deed(cancel))
    assert "is cancelled" in messages_of(operators["Operator"].page(location))[0]
    assert audited(db, operators, "Operator")[0] == (
        "cancel timer",
        f"timer {key} of queue {fresh_queue}",
        "done",
        1,
    )
    told = refused(operators["Operator"].get(cancel), 404)
    assert "Nothing is pending" in told


def test_a_timer_that_a_broker_has_in_hand_is_not_cancelled_and_that_is_told(
    operators, schedule, db, fresh_queue
):
    schedule(fresh_queue, "k")
    db.execute(
        "UPDATE queen_timer SET claim_token = gen_random_uuid(),"
        " claimed_until = now() + interval '1 hour' WHERE queue = %s",
        [fresh_queue],
    )
    assert "being sent" in operators["Viewer"].page(f"{TIMERS}?queue={fresh_queue}")
    location = done(operators["Operator"].deed(address_of(fresh_queue, "k", cancel=True)))
    assert "Too late" in messages_of(operators["Operator"].page(location))[0]
    assert audited(db, operators, "Operator")[0][3] == 0
    assert "being sent" in operators["Viewer"].page(address_of(fresh_queue, "k"))
    db.execute("DELETE FROM queen_timer WHERE queue = %s", [fresh_queue])


def test_no_page_of_timers_has_a_script_or_a_style_of_its_own(operators, schedule, fresh_queue):
    schedule(fresh_queue, "k")
    for address in (
        f"{TIMERS}?queue={quote(fresh_queue)}",
        address_of(fresh_queue, "k"),
        address_of(fresh_queue, "k", cancel=True),
    ):
        assert not INLINE.search(operators["Administrator"].page(address)), address
