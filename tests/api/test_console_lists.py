"""Lists of the console: every row once, page by page, and never all of them at once.

Method: rows by the hundred; the statements of every list as Django sends them, by its test client
in this process, over the same database. What a list shows besides its rows is asked once a page.
"""

import re
import uuid

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.console_parts import make_user

LISTS = (
    "/admin/brokers/queue/",
    "/admin/brokers/queue/?name=list-",
    "/admin/brokers/queue/?tenant=00000000-0000-0000-0000-000000000001",
    "/admin/brokers/partition/",
    "/admin/brokers/partition/?tenant=00000000-0000-0000-0000-000000000001",
    "/admin/brokers/group/",
    "/admin/brokers/apikey/",
    "/admin/brokers/quota/",
    "/admin/brokers/quota/?tenant=00000000-0000-0000-0000-000000000009",
    "/admin/brokers/auditentry/",
)
ROWS = 250
STATEMENTS_MAX = 8


@pytest.fixture(scope="module")
def rows(broker, database):
    """Queues, and partitions and groups of one of them, by the hundred."""
    mark = uuid.uuid4().hex[:8]
    with database.connect() as db:
        db.execute(
            "INSERT INTO queen_queue (tenant_id, name)"
            " SELECT '00000000-0000-0000-0000-000000000001', 'list-' || %s || '-' || number"
            " FROM generate_series(1, %s) AS number",
            [mark, ROWS],
        )
        [queue_id] = db.execute(
            "SELECT id FROM queen_queue WHERE name = 'list-' || %s || '-1'", [mark]
        ).fetchone()
        db.execute(
            "INSERT INTO queen_partition (queue_id, name)"
            " SELECT %s, 'p' || number FROM generate_series(1, %s) AS number",
            [queue_id, ROWS],
        )
        db.execute(
            "INSERT INTO queen_group (queue_id, consumer_group, subscription_mode)"
            " SELECT %s, 'g' || number, 'all' FROM generate_series(1, %s) AS number",
            [queue_id, ROWS],
        )
        db.execute(
            "INSERT INTO queen_audit (user_name, peer, action, target)"
            " SELECT %s, '', 'purge', number::text FROM generate_series(1, %s) AS number",
            [mark, ROWS],
        )
        db.execute(
            "INSERT INTO queen_quota (tenant_id, max_queues, push_rate)"
            " SELECT gen_random_uuid(), number, 9007199254740993"
            " FROM generate_series(1, %s) AS number",
            [ROWS],
        )
        yield mark, queue_id
        db.execute("DELETE FROM queen_quota")
        db.execute("DELETE FROM queen_group WHERE queue_id = %s", [queue_id])
        db.execute("DELETE FROM queen_partition WHERE queue_id = %s", [queue_id])
        db.execute("DELETE FROM queen_queue WHERE name LIKE 'list-%'")


@pytest.fixture
def browser():
    client = Client(headers={"host": "localhost"})
    client.force_login(make_user("Viewer", password=None))
    yield client
    User.objects.all().delete()


def linked(page: str, model: str) -> list[str]:
    return re.findall(rf'<th class="[^"]*"><a href="/admin/brokers/{model}/(\d+)/change/', page)


def turn(browser: Client, path: str, rel: str) -> str | None:
    page = browser.get(path).content.decode()
    found = re.search(rf'rel="{rel}" href="([^"]+)"', page)
    return None if found is None else path.partition("?")[0] + found[1].replace("&amp;", "&")


@pytest.mark.parametrize("model", ["queue", "partition", "group", "auditentry"])
def test_page_by_page_every_row_is_shown_once_and_the_same_way_back(rows, browser, model):
    mark, queue_id = rows
    path = {
        "queue": f"/admin/brokers/queue/?name=list-{mark}-",
        "partition": f"/admin/brokers/partition/?queue_id={queue_id}",
        "group": f"/admin/brokers/group/?queue_id={queue_id}",
        "auditentry": f"/admin/brokers/auditentry/?user_name={mark}",
    }[model]
    pages: list[list[str]] = []
    place: str | None = path
    while place is not None:
        pages.append(linked(browser.get(place).content.decode(), model))
        last, place = place, turn(browser, place, "next")
    assert [len(page) for page in pages] == [100, 100, 50]
    shown = [row for page in pages for row in page]
    assert len(set(shown)) == ROWS
    back: list[list[str]] = []
    place = last
    while place is not None:
        back.append(linked(browser.get(place).content.decode(), model))
        place = turn(browser, place, "prev")
    assert back == pages[::-1]


@pytest.mark.parametrize("path", LISTS)
def test_a_list_counts_nothing_and_reads_no_more_than_its_page(rows, browser, path):
    with CaptureQueriesContext(
        connection,
    ) as sent:
        assert browser.get(path).status_code == 200
    statements = [one["sql"] for one in sent]
    assert not [one for one in statements if "COUNT(" in one.upper()]
    assert len(statements) <= STATEMENTS_MAX, statements
    listing = [one for one in statements if "ORDER BY" in one and "queen_" in one]
    assert listing
    assert all(" LIMIT 101" in one for one in listing), listing


@pytest.mark.parametrize("path", LISTS)
def test_a_list_finds_its_page_by_an_index(rows, browser, path):
    """With sorts and sequential scans forbidden as far as can be, none is left in the plan."""
    with CaptureQueriesContext(connection) as sent:
        browser.get(path)
        turned = turn(browser, path, "next")
        if turned is not None:
            browser.get(turned)
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        cursor.execute("SET enable_sort = off")
        cursor.execute("SET enable_incremental_sort = off")
        cursor.execute("SET enable_hashjoin = off")
        cursor.execute("SET enable_mergejoin = off")
        try:
            for one in sent:
                sql = one["sql"]
                if "LIMIT 101" not in sql or "queen_" not in sql:
                    continue
                cursor.execute(f"EXPLAIN {sql}")
                plan = "\n".join(row[0] for row in cursor.fetchall())
                assert "Sort" not in plan, f"{sql}\n{plan}"
                assert "Seq Scan" not in plan, f"{sql}\n{plan}"
        finally:
            connection.close()


@pytest.mark.parametrize(
    "query", ["after=zzz", "after=WyJhIl0%3D", "before=", "tenant=x", "nothing=1", "o=1", "p=9999"]
)
def test_a_key_or_a_filter_that_is_none_is_refused_and_not_a_failure(rows, browser, query):
    answer = browser.get(f"/admin/brokers/queue/?{query}")
    assert answer.status_code in (200, 302, 400)


def test_a_filter_matches_names_as_they_are(rows, browser, wire):
    name = f"100%_ü<b>/{uuid.uuid4().hex[:6]}"
    wire.push(name, 1)
    page = browser.get("/admin/brokers/queue/", {"name": "100%_ü<b>"}).content.decode()
    assert "100%_ü&lt;b&gt;/" in page
    assert "<b>/" not in page
    page = browser.get("/admin/brokers/queue/", {"name": "1000"}).content.decode()
    assert "Nothing here" in page


def test_a_bound_of_a_quota_is_shown_digit_for_digit_and_none_as_none(rows, browser):
    page = browser.get("/admin/brokers/quota/").content.decode()
    assert "9007199254740993" in page
    assert "no bound" in page


def test_a_number_is_shown_digit_for_digit_and_what_was_not_counted_is_no_zero(
    rows, browser, database
):
    mark, queue_id = rows
    with database.connect() as db:
        # On a slow machine it has been counted by now.
        db.execute("DELETE FROM queen_queue_statistics WHERE queue_id = %s", [queue_id])
        page = browser.get(f"/admin/brokers/queue/{queue_id}/change/").content.decode()
        assert "not counted yet" in page
        db.execute(
            "INSERT INTO queen_queue_statistics (queue_id, computed_at, next_at, partitions, total,"
            " pending, processing, completed, dead_letters)"
            " VALUES (%s, now(), now() + interval '1 hour', 1, 9223372036854775807, 3, 0, 0, 0)"
            " ON CONFLICT (queue_id) DO UPDATE SET total = excluded.total,"
            " next_at = excluded.next_at",
            [queue_id],
        )
        for path in (
            f"/admin/brokers/queue/{queue_id}/change/",
            f"/admin/brokers/queue/?name=list-{mark}-1",
        ):
            assert "9223372036854775807" in browser.get(path).content.decode()
        db.execute("DELETE FROM queen_queue_statistics WHERE queue_id = %s", [queue_id])
