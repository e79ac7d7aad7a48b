"""Encrypted payloads in the console: who sees them, of a letter and of a message, and the audit.

Method: a browser's requests to a real broker that has a key, as users of the three roles.
"""

import contextlib
import json
import re
from html import unescape

import pytest

from brokers.encryption import KeyRing
from tests import harness
from tests.api.test_console_letters import LETTERS, bury, listed, page_of, stored
from tests.letter_console_parts import ROLES, audited, done, failure_of, signed_in, verbatim_of

KEY, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture(scope="module")
def keyed(database, tmp_path_factory):
    """The roles at a broker that has a key."""
    log = tmp_path_factory.mktemp("letters") / "keyed"
    environment = {"DB_POOL_SIZE": "6", "QUEEN_ENCRYPTION_KEY": KEY, "QUEEN_SWEEPER": "false"}
    process = harness.BrokerProcess(log, {**database.environment, **environment})
    with contextlib.ExitStack() as stack:
        stack.callback(process.stop)
        yield signed_in(stack, process.url)


def seal(db, letter: str, key: str) -> None:
    db.execute(
        "UPDATE queen_dead_letter SET payload = %s, encrypted = true WHERE id = %s",
        [KeyRing(key).seal(b'{"secret": 17}'), letter],
    )


def test_an_encrypted_payload_is_shown_to_who_may_see_it_and_that_is_audited(
    keyed, db, fresh_queue
):
    [letter] = bury(db, fresh_queue, 1)
    seal(db, letter, KEY)
    for role in ("Viewer", "Operator"):
        page = keyed[role].page(page_of(letter))
        assert "you may not see it" in page
        assert "secret" not in page and "authTag" not in page
        assert keyed[role].get(page_of(letter, "payload")).status_code == 403
    assert keyed["Operator"].get(page_of(letter, "resend")).status_code == 409
    assert audited(db, keyed, "Viewer") == []
    page = keyed["Administrator"].page(page_of(letter))
    assert '{"secret": 17}' in verbatim_of(page)
    assert audited(db, keyed, "Administrator") == [
        ("open encrypted dead letter", f"dead letter {letter}", "done", 1)
    ]
    listing = keyed["Administrator"].page(LETTERS, queue=fresh_queue)
    assert "<em>encrypted</em>" in listing and "secret" not in listing
    assert "1 encrypted payload not searched" in keyed["Viewer"].page(
        LETTERS, queue=fresh_queue, payload="secret"
    )


def test_an_edit_of_an_encrypted_letter_is_encrypted_and_leaves_no_plain_text(
    keyed, db, fresh_queue
):
    [letter] = bury(db, fresh_queue, 1)
    seal(db, letter, KEY)
    done(
        keyed["Administrator"].deed(
            page_of(letter, "resend"), payload='{"secret": 18}', queue=fresh_queue, partition="q"
        )
    )
    [frame] = stored(db, fresh_queue, "q")
    assert "secret" not in frame
    sealed = json.loads(frame)
    assert json.loads(KeyRing(KEY).open(json.dumps(sealed).encode())) == {"secret": 18}
    rows = db.execute("SELECT detail FROM queen_audit").fetchall()
    assert not any("secret" in detail for [detail] in rows)


def test_a_payload_that_no_key_opens_is_shown_as_that(keyed, db, fresh_queue):
    [letter] = bury(db, fresh_queue, 1)
    seal(db, letter, OTHER)
    page = keyed["Administrator"].page(page_of(letter))
    assert "cannot be decrypted" in page
    assert len(verbatim_of(page)) == 1, "the error alone"
    answer = keyed["Administrator"].deed(
        page_of(letter, "replay"), queue=fresh_queue, partition="q"
    )
    assert answer.status_code == 500
    assert "nothing was moved" in failure_of(answer.text)
    assert listed(keyed["Administrator"], fresh_queue) == [letter]


def test_an_encrypted_message_is_in_no_list_and_opened_for_who_may_see_it_as_a_letter(
    keyed, db, fresh_queue
):
    api = keyed["Viewer"].http
    options = {"encryptionEnabled": True}
    api.post("/api/v1/configure", json={"queue": fresh_queue, "options": options})
    item = {"queue": fresh_queue, "transactionId": "t-1", "payload": {"secret": 17}}
    api.post("/api/v1/push", json={"items": [item]}).raise_for_status()
    for role in ROLES:
        page = keyed[role].page(f"/queues/{fresh_queue}")
        assert "t-1" in page and "secret" not in page
    [address] = re.findall(r'href="(/console/message[^"]+)"', page)
    for role in ("Viewer", "Operator"):
        page = keyed[role].page(unescape(address))
        assert "it is encrypted" in page and "secret" not in page
    before = len(audited(db, keyed, "Administrator"))
    assert "{&quot;secret&quot;:17}" in keyed["Administrator"].page(unescape(address))
    entry, *others = audited(db, keyed, "Administrator")
    assert (entry[0], *entry[2:]) == ("open encrypted message", "done", 1)
    assert fresh_queue in entry[1]
    assert len(others) == before
