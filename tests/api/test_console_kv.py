"""The console's pages of key/value state: browse, look, and a change by who may.

Method: a browser's requests to a real broker, as users of the three roles; entries are written
over the API.
"""

import contextlib
import uuid
from urllib.parse import urlencode

import pytest

from tests.console_parts import TOKEN, messages_of
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

BIG = '{"n": 123456789012345678901234567890}'


@pytest.fixture(scope="module")
def operators(broker):
    with contextlib.ExitStack() as stack:
        yield signed_in(stack, broker.url)


@pytest.fixture
def ns() -> str:
    return f"ns-{uuid.uuid4().hex[:12]}"


def put(wire, ns: str, *keys: str, value: str = "1", expiry: str = '"forever": true') -> None:
    for start in range(0, len(keys), 200):
        operations = ",".join(
            f'{{"op":"put","ns":"{ns}","key":"{key}","value":{value},{expiry}}}'
            for key in keys[start : start + 200]
        )
        expect(wire.post("/api/v1/kv", f'{{"operations":[{operations}]}}'), 200)


def get(wire, ns: str, key: str):
    body = {"operations": [{"op": "get", "ns": ns, "key": key}]}
    [result] = expect(wire.post("/api/v1/kv", body), 200).json()["results"]
    return result


def entry(ns: str, key: str, deed: str = "") -> str:
    return f"/admin/kv/entry/{f'{deed}/' if deed else ''}?" + urlencode({"ns": ns, "key": key})


def entries(ns: str, **more: str) -> str:
    return "/admin/kv/entries/?" + urlencode({"ns": ns, **more})


def keys_of(page: str, keys) -> list[str]:
    """Which of these keys are links of the page, in its order."""
    places = {key: page.find(f">{key}</a>") for key in keys}
    return sorted((key for key in keys if places[key] >= 0), key=lambda key: places[key])


def test_namespaces_lead_to_their_entries_and_these_are_found_by_prefix(operators, wire, ns):
    keys = ["a/1", "a/2", "b"]
    put(wire, ns, *keys)
    viewer = operators["Viewer"]
    page = viewer.page("/admin/kv/", after=ns[:-1])
    [link] = links_of(page, ns)
    assert keys_of(viewer.page(link), keys) == keys
    assert keys_of(viewer.page(entries(ns, prefix="a/")), keys) == keys[:2]
    assert "No entries" in viewer.page(entries(f"{ns}-none"))


def test_a_namespace_with_more_keys_than_anybody_counts_says_so(operators, db, ns):
    db.execute(
        "INSERT INTO queen_kv (tenant_id, ns, key, value, version)"
        " SELECT '00000000-0000-0000-0000-000000000001', %s, 'k' || no, '1', 1"
        "   FROM generate_series(1, 1001) AS no",
        [ns],
    )
    assert "more than 1000" in operators["Viewer"].page("/admin/kv/", after=ns[:-1])
    viewer, seen, address = operators["Viewer"], 0, entries(ns)
    while address:
        page = viewer.page(address)
        seen += page.count('<th scope="row">')
        address = next(("/admin/kv/entries/" + one for one in links_of(page, "Next")), None)
    assert seen == 1001


def test_a_value_is_shown_digit_for_digit(operators, wire, ns):
    put(wire, ns, "big", value=BIG)
    viewer = operators["Viewer"]
    verbatim, pretty = verbatim_of(viewer.page(entry(ns, "big")))
    assert verbatim == BIG
    assert pretty == '{\n  "n": 123456789012345678901234567890\n}'
    assert "There is no such entry" in refused(viewer.get(entry(ns, "bi")), 404)


def test_an_expired_entry_is_greyed_and_cannot_be_written(
    operators, wire, second_connection, eventually, ns
):
    put(wire, ns, "old", expiry='"ttlSeconds": 1')
    # Whoever removes what has expired passes over a row that is held.
    second_connection().execute("SELECT 1 FROM queen_kv WHERE ns = %s FOR UPDATE", [ns])
    administrator = operators["Administrator"]
    eventually(lambda: 'class="expired"' in administrator.page(entries(ns)))
    page = administrator.page(entry(ns, "old"))
    assert "has expired" in page
    assert not links_of(page, "Change") + links_of(page, "Delete")


def test_nobody_but_an_administrator_writes(operators, wire, db, ns):
    put(wire, ns, "k", value=BIG)
    version = get(wire, ns, "k")["version"]
    for role in ("Viewer", "Operator"):
        page = operators[role].page(entry(ns, "k"))
        assert not links_of(page, "Change") and not links_of(page, "Delete")
        for deed in ("change", "delete"):
            assert operators[role].get(entry(ns, "k", deed)).status_code == 403
            token = TOKEN.search(page)
            fields = {"confirmed": "yes", "version": version, "value": "2", "forever": "on"}
            posted = operators[role].http.post(
                entry(ns, "k", deed), data={"csrfmiddlewaretoken": token[1], **fields}
            )
            assert posted.status_code == 403
    assert get(wire, ns, "k")["version"] == version
    administrator = operators["Administrator"]
    value = '{"n": 123456789012345678901234567891}'
    location = done(
        administrator.deed(entry(ns, "k", "change"), version=version, value=value, ttl_s="60")
    )
    page = administrator.page(location)
    assert messages_of(page) == ["The value is stored."]
    assert value in verbatim_of(page)
    assert get(wire, ns, "k")["expiresAt"] is not None
    assert audited(db, operators, "Administrator")[0] == (
        "change key/value entry",
        f"{ns} / k",
        "done",
        1,
    )


@pytest.mark.parametrize("deed", ["change", "delete"])
def test_what_somebody_else_has_changed_meanwhile_is_not_overwritten(operators, wire, ns, deed):
    put(wire, ns, "k")
    version = get(wire, ns, "k")["version"]
    put(wire, ns, "k", value="2")
    answer = operators["Administrator"].deed(
        entry(ns, "k", deed), version=version, value="3", forever="on"
    )
    assert "changed it meanwhile" in refused(answer, 409)
    assert get(wire, ns, "k")["value"] == 2


def test_an_entry_is_deleted(operators, wire, ns):
    put(wire, ns, "k")
    version = get(wire, ns, "k")["version"]
    done(operators["Administrator"].deed(entry(ns, "k", "delete"), version=version))
    assert get(wire, ns, "k")["found"] is False


@pytest.mark.parametrize(
    "fields",
    [
        {"value": "{", "forever": "on"},
        {"value": "1"},
        {"value": "1", "forever": "on", "ttl_s": "5"},
        {"value": "1", "ttl_s": "0"},
    ],
)
def test_a_change_that_makes_no_sense_is_told_and_changes_nothing(operators, wire, ns, fields):
    put(wire, ns, "k")
    version = get(wire, ns, "k")["version"]
    answer = operators["Administrator"].deed(entry(ns, "k", "change"), version=version, **fields)
    assert answer.status_code == 400
    assert "errorlist" in answer.text
    assert get(wire, ns, "k")["version"] == version


def test_no_page_of_entries_has_a_script_or_a_style_of_its_own(operators, wire, ns):
    put(wire, ns, "k")
    for address in (
        "/admin/kv/",
        entries(ns),
        entry(ns, "k"),
        entry(ns, "k", "change"),
        entry(ns, "k", "delete"),
    ):
        assert not INLINE.search(operators["Administrator"].page(address)), address
