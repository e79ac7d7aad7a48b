"""Names in paths: whatever a push accepts, every route can address, and no two alias.

Method: HTTP against a real broker; a name stands percent-encoded in one path segment.
"""

import pytest
from django.utils.html import escape

from brokers.domain import DEFAULT_TENANT
from brokers.live.shown import queue_address
from tests.console_parts import ConsoleClient, make_user
from tests.wire_client import error_of, expect, segment

NASTY = [
    "a/b",
    "a%2Fb",
    "a%252Fb",
    "a b",
    "a+b",
    "a%20b",
    "a?x=1#y",
    "a&b=c;d",
    "a\n",
    "a\r\nX: y",
    "a\t",
    "a\\b",
    "a\"b'c",
    "a%",
    "a%zz",
    "a:b@c",
    "a*",
    "a//b",
    "a/",
    "/a",
    "a/../b",
    "a/partition/b",
    "a.",
    "Zürich/東京/😀",
    "é",
    "e\u0301",
    "\u200b",
    "A",
    "a",
    "a ",
    " a",
    "<script>",
    "{}",
    "\x7f",
    "\x01",
]
# What is easily trimmed or cut off where it stands last.
ENDINGS = ["/", "\n", " ", ".", "/..", "%", "?", "#", "\u200b"]
FAMOUS = ["", ".", "..", " ", "depth", "queues", "partition", "*", "Default", "null"]


@pytest.fixture
def famous(wire):
    """Names that every test shares: they are left as they were found, not there."""
    for name in FAMOUS:
        wire.delete(name)
    yield FAMOUS
    for name in FAMOUS:
        wire.delete(name)


@pytest.fixture
def names(fresh_queue, famous):
    return (
        [f"{name}{fresh_queue}" for name in NASTY] + [fresh_queue + end for end in ENDINGS] + famous
    )


def test_every_queue_can_be_addressed_by_every_route_and_none_by_another_name(wire, names):
    wire.push_items(*({"queue": name, "payload": name} for name in names))

    for name in names:
        assert wire.queue(name)["name"] == name
        assert wire.depth(name)["queue"] == name
        assert wire.depth(name)["pending"] == 1
        assert wire.pop(name, autoAck=True)["messages"][0]["data"] == name
        expect(wire.get_pop(name), 204)
    for name in names:
        assert wire.delete(name) == {"deleted": True, "queue": name, "existed": True}
        expect(wire.get(wire.queue_path(name)), 404)


def test_the_page_of_every_queue_is_where_the_list_of_queues_leads(wire, broker, names):
    wire.push_items(*({"queue": name, "payload": 1} for name in names))
    user = make_user("Viewer", password=None)
    try:
        with ConsoleClient.of(broker.url, user) as browser:
            for name in names:
                page = browser.page(queue_address(name, DEFAULT_TENANT))
                told = f'aria-current="page" class="name">{escape(name) or "(empty name)"}</li>'
                assert told in page, name
    finally:
        user.delete()


def test_every_partition_can_be_addressed_and_none_by_another_name(wire, fresh_queue):
    names = NASTY + FAMOUS
    wire.push_items(*({"queue": fresh_queue, "partition": name, "payload": name} for name in names))
    for name in names:
        answer = wire.pop(fresh_queue, name)
        assert [message["data"] for message in answer["messages"]] == [name]
        assert answer["partition"] == name
        expect(wire.get_pop(fresh_queue, name), 204)


def test_slashes_in_both_names_stay_where_they_belong(wire, fresh_queue):
    pairs = [("a/partition/b", "c"), ("a", "b/partition/c"), ("a/b", "c/d"), ("a", "b"), ("", "/")]
    for queue, partition in pairs:
        wire.push(f"{fresh_queue}{queue}", [queue, partition], partition=partition)
    for queue, partition in pairs:
        assert wire.payloads(f"{fresh_queue}{queue}", partition) == [[queue, partition]]


def test_a_plus_in_a_path_is_a_plus(wire, client, fresh_queue):
    wire.push(f"{fresh_queue}+x", "plus")
    wire.push(f"{fresh_queue} x", "blank")
    raw = client.get(f"/api/v1/pop/queue/{fresh_queue}+x")
    assert expect(raw, 200).json()["messages"][0]["data"] == "plus"
    raw = client.get(f"/api/v1/pop/queue/{fresh_queue}%20x")
    assert expect(raw, 200).json()["messages"][0]["data"] == "blank"


def test_a_path_may_be_encoded_more_or_less_than_it_must(wire, client, fresh_queue):
    wire.push(f"{fresh_queue}:@é", 1)
    wholly = "".join(f"%{byte:02x}" for byte in f"{fresh_queue}:@é".encode())
    assert expect(client.get(f"/api/v1/pop/queue/{wholly}?autoAck=true"), 200)
    wire.push(f"{fresh_queue}:@é", 2)
    assert expect(client.get(f"/api/v1/pop/queue/{fresh_queue}:@é"), 200)


@pytest.mark.parametrize("raw", ["%00", "x%00y", "%ff", "%ED%A0%80", "%C0%AF"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/pop/queue/{}"),
        ("GET", "/api/v1/pop/queue/q/partition/{}"),
        ("GET", "/api/v1/resources/queues/{}"),
        ("GET", "/api/v1/resources/queues/{}/depth"),
        ("DELETE", "/api/v1/resources/queues/{}"),
    ],
)
def test_a_nul_or_invalid_utf8_in_a_path_is_a_400(client, method, path, raw):
    error_of(client.request(method, path.format(raw)), 400)


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/pop/queue/{}"),
        ("GET", "/api/v1/pop/queue/q/partition/{}"),
        ("GET", "/api/v1/resources/queues/{}"),
        ("DELETE", "/api/v1/resources/queues/{}"),
    ],
)
def test_a_name_over_255_bytes_in_a_path_is_a_400(client, method, path, name):
    error_of(client.request(method, path.format(segment(name))), 400)


def test_group_names_in_a_query_use_form_encoding(wire, client, fresh_queue):
    wire.push(fresh_queue, 1)
    path = f"/api/v1/pop/queue/{fresh_queue}?subscriptionMode=all&consumerGroup="
    for raw, group in [("a+b", "a b"), ("a%2Bb", "a+b"), ("a%2Fb", "a/b"), ("a%252Fb", "a%2Fb")]:
        answer = expect(client.get(path + raw), 200).json()
        assert answer["consumerGroup"] == group
