"""What the console does: who may, what is seen of it over the wire, and what the audit says.

Method: a real broker, forms filled in and sent with a session's cookie, effects looked at by the
API's own routes.
"""

import re
from html import unescape

import pytest

from brokers.models import AuditEntry
from tests.console_parts import ConsoleClient, deed_of, messages_of, queue_page, row_page
from tests.wire_client import expect, segment

VIEWER, OPERATOR, ADMINISTRATOR = "Viewer", "Operator", "Administrator"
EVERYBODY = (VIEWER, OPERATOR, ADMINISTRATOR)
READERS = {"consumerGroup": "readers", "subscriptionMode": "all"}
OTHERS = {"consumerGroup": "others", "subscriptionMode": "all"}


def last_entry(browser: ConsoleClient) -> AuditEntry:
    entry = AuditEntry.objects.filter(user_name=browser.user.get_username()).order_by("-id").first()
    assert entry is not None, "nothing was audited"
    return entry


def entries_of(browser: ConsoleClient) -> int:
    return AuditEntry.objects.filter(user_name=browser.user.get_username()).count()


def told(answer, browser: ConsoleClient) -> str:
    """What the page says that a deed leads to."""
    assert answer.status_code == 302, unescape(re.sub(r"<[^>]+>|\s+", " ", answer.text))[:2000]
    [message] = messages_of(browser.page(answer.headers["location"]))
    return message


@pytest.fixture
def filled(wire, fresh_queue):
    """A queue with three messages in each of two partitions, of which a group has read two."""
    for partition in ("a", "b"):
        wire.push(fresh_queue, 1, 2, 3, partition=partition)
    for message in wire.messages(fresh_queue, "a", batch=2, **READERS):
        wire.ack(message)
    return fresh_queue


@pytest.mark.parametrize(
    ("model", "deed", "roles"),
    [
        ("queue", "configure", (OPERATOR, ADMINISTRATOR)),
        ("queue", "pause", (OPERATOR, ADMINISTRATOR)),
        ("queue", "resume", (OPERATOR, ADMINISTRATOR)),
        ("queue", "purge", (ADMINISTRATOR,)),
        ("queue", "delete", (ADMINISTRATOR,)),
        ("partition", "purge", (ADMINISTRATOR,)),
        ("group", "seek", (OPERATOR, ADMINISTRATOR)),
        ("group", "reset", (OPERATOR, ADMINISTRATOR)),
        ("group", "delete", (ADMINISTRATOR,)),
    ],
)
def test_a_role_may_do_what_it_is_for_and_nothing_else(console, wire, filled, model, deed, roles):
    for role in EVERYBODY:
        browser = console(role)
        page = queue_page(browser, filled)
        if model != "queue":
            page = row_page(browser, model, queue=filled)
        allowed = role in roles
        if deed != "resume":  # there is no button for what makes no sense now
            assert (f"/do/{deed}/" in browser.page(page)) == allowed, role
        assert browser.get(deed_of(page, deed)).status_code == (200 if allowed else 403), role
        if not allowed:
            browser.page(page)
            browser.get("/admin/password_change/")
            fields = {"csrfmiddlewaretoken": browser.http.cookies["csrftoken"], "confirmed": "yes"}
            answer = browser.http.post(deed_of(page, deed), data=fields)
            assert answer.status_code == 403, role
            assert entries_of(browser) == 0
    assert len(wire.messages(filled, batch=10, **OTHERS)) >= 3


@pytest.mark.parametrize(
    ("path", "roles"),
    [
        ("/admin/brokers/queue/add/", (OPERATOR, ADMINISTRATOR)),
        ("/admin/brokers/apikey/add/", (ADMINISTRATOR,)),
        ("/admin/switches/push-maintenance/on/", (ADMINISTRATOR,)),
        ("/admin/switches/", EVERYBODY),
        ("/admin/brokers-seen/", EVERYBODY),
        ("/admin/brokers/auditentry/", EVERYBODY),
        ("/admin/brokers/quota/", EVERYBODY),
        ("/admin/brokers/quota/add/", ()),
        ("/admin/auth/user/", ()),
        ("/admin/auth/group/", ()),
    ],
)
def test_a_page_is_for_its_roles(console, path, roles):
    for role in EVERYBODY:
        assert console(role).get(path).status_code == (200 if role in roles else 403), role


def test_a_paused_queue_pops_nothing_until_it_is_resumed(console, wire, filled):
    browser = console(OPERATOR)
    page = queue_page(browser, filled)
    assert told(browser.deed(deed_of(page, "pause")), browser) == "The queue is paused."
    assert not wire.messages(filled, batch=10)
    entry = last_entry(browser)
    assert (entry.action, entry.target, entry.outcome, entry.hits) == ("pause", filled, "done", 1)
    assert entry.peer == "127.0.0.1"
    assert str(entry.tenant_id) == "00000000-0000-0000-0000-000000000001"
    assert "paused" in browser.page(page)
    told(browser.deed(deed_of(page, "resume")), browser)
    assert wire.messages(filled, batch=10)


def test_what_was_changed_of_the_options_is_configured_and_nothing_else(console, wire, filled):
    browser = console(OPERATOR)
    deed = deed_of(queue_page(browser, filled), "configure")
    fields = form_of(browser.page(deed))
    # Somebody else changes another option while our page is open.
    wire.post("/api/v1/configure", {"queue": filled, "options": {"retryLimit": 9}})
    fields |= {"leaseTime": "77", "priority": "9223372036854775807"}
    answer = browser.http.post(deed, data=fields)
    assert told(answer, browser) == "Changed: leaseTime, priority."
    options = expect(wire.get(f"/api/v1/resources/queues/{segment(filled)}"), 200).json()["options"]
    assert (options["leaseTime"], options["retryLimit"]) == (77, 9)
    assert options["priority"] == 9223372036854775807
    assert "9223372036854775807" in browser.page(queue_page(browser, filled))
    entry = last_entry(browser)
    assert (entry.action, entry.hits) == ("configure", 2)
    assert "leaseTime=77" in entry.detail


def test_an_option_that_is_emptied_gets_its_default_back(console, wire, filled):
    wire.post("/api/v1/configure", {"queue": filled, "options": {"leaseTime": 5}})
    browser = console(OPERATOR)
    deed = deed_of(queue_page(browser, filled), "configure")
    told(browser.http.post(deed, data=form_of(browser.page(deed)) | {"leaseTime": ""}), browser)
    options = expect(wire.get(f"/api/v1/resources/queues/{segment(filled)}"), 200).json()["options"]
    assert options["leaseTime"] == 300


def test_an_option_out_of_its_bounds_is_refused_and_nothing_is_done(console, filled):
    browser = console(OPERATOR)
    deed = deed_of(queue_page(browser, filled), "configure")
    answer = browser.http.post(deed, data=form_of(browser.page(deed)) | {"leaseTime": "-1"})
    assert answer.status_code == 400
    assert "greater than or equal to 0" in answer.text
    assert entries_of(browser) == 0


def test_a_queue_is_created_with_its_name_as_given(console, wire, fresh_queue):
    browser = console(OPERATOR)
    name = f" {fresh_queue}/ü<b>"
    tenant = "00000000-0000-0000-0000-000000000001"
    answer = browser.deed("/admin/brokers/queue/add/", name=name, tenant=tenant)
    assert told(answer, browser) == f"The queue {name} is there."
    expect(wire.get(f"/api/v1/resources/queues/{segment(name)}"), 200)
    entry = last_entry(browser)
    assert (entry.action, entry.target, entry.hits) == ("create", name, 1)
    again = browser.deed("/admin/brokers/queue/add/", name=name, tenant=tenant)
    assert again.status_code == 409
    assert last_entry(browser).outcome == "failed"


def test_a_purge_says_how_much_it_hits_and_then_how_much_it_hit(console, wire, filled):
    browser = console(ADMINISTRATOR)
    deed = deed_of(queue_page(browser, filled), "purge")
    assert "This deletes up to 6 messages in 2 partitions" in browser.page(deed)
    assert told(browser.deed(deed), browser) == "Deleted 6 messages in 2 partitions."
    assert not wire.messages(filled, batch=10, **OTHERS)
    entry = last_entry(browser)
    assert (entry.action, entry.target, entry.outcome, entry.hits) == ("purge", filled, "done", 6)


def test_a_partition_is_purged_alone(console, wire, filled):
    browser = console(ADMINISTRATOR)
    deed = deed_of(row_page(browser, "partition", queue=filled, name="b"), "purge")
    assert "This deletes 3 messages" in browser.page(deed)
    assert told(browser.deed(deed), browser) == "Deleted 3 messages in 1 partitions."
    assert wire.payloads(filled, "a", batch=10, **OTHERS) == [1, 2, 3]
    assert not wire.messages(filled, "b", batch=10, **OTHERS)
    assert last_entry(browser).target == f"{filled}/b"


def test_a_queue_is_deleted_by_whoever_knows_its_name(console, wire, filled):
    browser = console(ADMINISTRATOR)
    deed = deed_of(queue_page(browser, filled), "delete")
    assert "This deletes the queue with 6 messages" in browser.page(deed)
    assert browser.deed(deed, name="another").status_code == 400
    expect(wire.get(f"/api/v1/resources/queues/{segment(filled)}"), 200)
    answer = browser.deed(deed, name=filled)
    assert answer.headers["location"] == "/admin/brokers/queue/"
    expect(wire.get(f"/api/v1/resources/queues/{segment(filled)}"), 404)
    entry = last_entry(browser)
    assert (entry.action, entry.target, entry.hits) == ("delete", filled, 6)
    assert browser.get(deed).status_code == 404


def test_what_is_gone_already_is_told_as_a_failure(console, wire, filled):
    browser = console(ADMINISTRATOR)
    deed = deed_of(queue_page(browser, filled), "delete")
    fields = form_of(browser.page(deed)) | {"name": filled}
    page = browser.page(queue_page(browser, filled))
    expect(wire.http.delete(f"/api/v1/resources/queues/{segment(filled)}"), 200)
    assert "Delete" in page
    assert browser.http.post(deed, data=fields).status_code == 404
    assert browser.get(queue_page_of(deed)).status_code == 404


def queue_page_of(deed: str) -> str:
    return re.sub(r"/do/\w+/", "/change/", deed)


def test_a_group_is_put_to_the_beginning_to_a_time_and_to_the_end(console, wire, filled):
    browser = console(OPERATOR)
    page = row_page(browser, "group", queue=filled, group="readers")
    seek = deed_of(page, "seek")
    assert told(browser.deed(seek, where="end"), browser) == "The group was put in 2 partitions."
    assert not wire.messages(filled, batch=10, **READERS)
    told(browser.deed(deed_of(page, "reset")), browser)
    assert wire.payloads(filled, "a", batch=10, **READERS) == [1, 2, 3]
    told(browser.deed(seek, where="end", partition="b"), browser)
    assert not wire.messages(filled, "b", batch=10, **READERS)
    told(browser.deed(seek, where="time", time="2020-01-01T00:00"), browser)
    assert wire.payloads(filled, "b", batch=10, **READERS) == [1, 2, 3]
    assert browser.deed(seek, where="time").status_code == 400
    entry = last_entry(browser)
    assert (entry.action, entry.target, entry.hits) == ("seek", f"readers at {filled}", 2)


def test_a_seek_in_a_partition_that_is_not_there_failed_and_says_so(console, filled):
    browser = console(OPERATOR)
    seek = deed_of(row_page(browser, "group", queue=filled, group="readers"), "seek")
    answer = browser.deed(seek, where="end", partition="nowhere")
    assert answer.status_code == 404
    assert "This failed: There is no such queue or partition" in answer.text
    entry = last_entry(browser)
    assert (entry.outcome, entry.hits) == ("failed", None)


def test_a_deleted_group_begins_anew(console, wire, filled):
    browser = console(ADMINISTRATOR)
    deed = deed_of(row_page(browser, "group", queue=filled, group="readers"), "delete")
    told(browser.deed(deed, forget="on"), browser)
    assert "readers" not in browser.page("/admin/brokers/group/", queue=filled)
    assert last_entry(browser).action == "delete"


def test_an_api_key_is_shown_once_and_is_good_until_it_is_revoked(console, start_broker):
    broker = start_broker(QUEEN_API_KEYS="true")
    administrator = console(ADMINISTRATOR)
    with ConsoleClient.of(broker.url, administrator.user) as browser:
        browser.user = administrator.user
        answer = browser.deed("/admin/brokers/apikey/add/", name="billing", role="read-only")
        assert answer.status_code == 200
        found = re.search(r'id="secret">(qk_[^<]+)<', answer.text)
        assert found is not None
        key = found[1]
        asked = {"authorization": f"Bearer {key}"}
        assert browser.http.get("/api/v1/resources/queues", headers=asked).status_code == 200
        entry = last_entry(browser)
        assert (entry.action, entry.target, entry.outcome) == ("create", "billing", "done")
        assert key not in entry.detail
        page = row_page(browser, "apikey")
        assert key not in browser.page(page)
        told(browser.deed(deed_of(page, "revoke")), browser)
        assert browser.http.get("/api/v1/resources/queues", headers=asked).status_code == 401
        assert "revoked" in browser.page(page)
        assert "/do/revoke/" not in browser.page(page)


def test_a_form_that_is_sent_again_does_nothing_a_second_time(console):
    browser = console(ADMINISTRATOR)
    address = "/admin/brokers/apikey/add/"
    page = browser.page(address)
    once = re.search(r'name="once" value="([^"]+)"', page)
    assert once is not None
    form = {**form_of(page), "confirmed": "yes", "once": once[1]}
    form |= {"name": "twice", "role": "read-only"}
    assert browser.http.post(address, data=form).status_code == 200
    again = browser.http.post(address, data=form)
    assert again.status_code == 409
    assert "was sent before" in again.text
    assert entries_of(browser) == 1
    fresh = re.search(r'name="once" value="([^"]+)"', again.text)
    assert fresh is not None
    assert browser.http.post(address, data={**form, "once": fresh[1]}).status_code == 200
    assert entries_of(browser) == 2


def test_a_switch_holds_for_every_pop_until_it_is_thrown_back(console, wire, filled):
    browser = console(ADMINISTRATOR)
    assert "Every pop of every tenant" in browser.page("/admin/switches/pop-maintenance/on/")
    try:
        answer = browser.deed("/admin/switches/pop-maintenance/on/")
        assert told(answer, browser) == "Pop maintenance is on."
        assert not wire.messages(filled, batch=10)
        assert wire.get("/api/v1/system/maintenance/pop").json()["popMaintenanceMode"] is True
    finally:
        browser.deed("/admin/switches/pop-maintenance/off/")
    assert wire.messages(filled, batch=10)
    entry = last_entry(browser)
    assert (entry.action, entry.target) == ("switch off", "Pop maintenance")


def test_a_switch_that_is_none_is_not_found(console):
    browser = console(ADMINISTRATOR)
    assert browser.get("/admin/switches/nothing/on/").status_code == 404
    assert browser.get("/admin/switches/kv/perhaps/").status_code == 404


def test_the_brokers_page_tells_this_brokers_spool_and_mesh(console):
    page = console(VIEWER).page("/admin/brokers-seen/")
    assert "Spool of this broker" in page
    assert "no peers are configured" in page


def test_a_user_is_made_by_a_superuser_only_with_a_role_and_in_the_audit(console, broker):
    browser = console(superuser=True)
    fields = {
        "username": "ann",
        "usable_password": "true",
        "password1": "a long enough passphrase",
        "password2": "a long enough passphrase",
    }
    answer = browser.submit("/admin/auth/user/add/", **fields)
    assert answer.status_code == 302
    entry = last_entry(browser)
    assert (entry.action, entry.target, entry.outcome) == ("add user", "ann", "done")
    with ConsoleClient.at(broker.url) as ann:
        assert ann.sign_in("ann").status_code == 302
        assert ann.get("/admin/").status_code == 200
        assert ann.get("/admin/brokers/queue/").status_code == 403, "no role, no pages"


def test_nobody_edits_the_audit(console):
    browser = console(superuser=True)
    browser.submit("/admin/auth/group/add/", name="anything")
    page = row_page(browser, "auditentry")
    assert 'type="submit" value="Save"' not in browser.page(page)
    for path in (page, page.replace("change", "delete"), "/admin/brokers/auditentry/add/"):
        fields = {"csrfmiddlewaretoken": browser.http.cookies["csrftoken"], "post": "yes"}
        assert browser.http.post(path, data=fields).status_code in (403, 404), path


def form_of(page: str) -> dict[str, str]:
    """The fields of a page's form as a browser would send them unchanged."""
    fields: dict[str, str] = {}
    for tag in re.findall(r"<input[^>]*>", page[page.index("<form method") :]):
        given = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
        if given.get("type") == "checkbox" and " checked" not in tag:
            continue
        if "name" in given and given.get("type") != "submit":
            value = given.get("value", "on" if given.get("type") == "checkbox" else "")
            fields[given["name"]] = unescape(value)
    return fields
