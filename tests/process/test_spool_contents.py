"""What goes through the spool comes out as it went in: payloads, names, tenants, large ones.

Method: one broker in push maintenance spools, is killed, and another start of it replays.
Bodies are put together and taken apart as bytes.
"""

import json
import uuid
from collections.abc import Callable
from typing import Any

from tests.api.test_verbatim_payloads import NASTY, elements, members
from tests.harness import eventually
from tests.process.site import (
    Site,
    buffers,
    log_of,
    maintenance,
    push,
    set_aside,
    statuses,
    until_drained,
)
from tests.wire_client import WireClient, expect

TENANCY = {"QUEEN_TENANCY_HEADER": "true", "QUEEN_KV_TRUSTED_PROXY": "true"}


def through_the_spool(site: Site, work: Callable[[WireClient], Any], **environment: str) -> str:
    """Do it in push maintenance, crash, and drain; the address of the broker that drained."""
    process = site.start(**environment)
    with WireClient.at(process.url) as wire:
        maintenance(wire, True)
        work(wire)
    process.kill()
    process = site.start(ready=False, **environment)
    with WireClient.at(process.url) as wire:
        eventually(process.is_ready, 30.0)
        maintenance(wire, False)
        until_drained(wire)
        assert set_aside(wire) == {"files": 0, "events": 0, "bytes": 0}
    return process.url


def test_every_payload_is_delivered_with_the_bytes_it_was_pushed_with(site: Site, fresh_queue: str):
    def work(wire: WireClient) -> None:
        name = json.dumps(fresh_queue).encode()
        items = b",".join(b'{"queue":%b,"payload":%b}' % (name, payload) for payload in NASTY)
        rows = expect(wire.post("/api/v1/push", b'{"items":[%b]}' % items), 201).json()
        assert set(statuses(rows)) == {"buffered"}

    with WireClient.at(through_the_spool(site, work)) as wire:
        answer = expect(wire.get_pop(fresh_queue, batch=1000), 200)
        messages = elements(members(answer.content)["messages"])
        assert [members(message)["data"] for message in messages] == NASTY


def test_every_legal_name_leads_to_the_partition_it_was_pushed_to(site: Site, fresh_queue: str):
    nasty = [
        "", " ", "a/b", "a%2Fb", 'quo"te', "back\\slash", "new\nline", "\x01\x1e\x1eQS1\x7f",
        '","id":"00000000-0000-0000-0000-000000000000', "ünï/東京 😀", "\u2028", "e\u0301", "é",
        "x" * 255, "Default", ".", "..", "{}", "null",
    ]  # fmt: skip

    def work(wire: WireClient) -> None:
        for number, name in enumerate(nasty):
            told = statuses(wire.push(fresh_queue, number, partition=name, ids=[name or "empty"]))
            told += statuses(
                wire.push(f"q{name}{fresh_queue}"[:255], number, ids=[name or "empty"])
            )
            assert told == ["buffered"] * 2

    with WireClient.at(through_the_spool(site, work)) as wire:
        assert log_of(wire, fresh_queue)[""] == [0]
        for number, name in enumerate(nasty[1:], 1):
            [message] = wire.messages(fresh_queue, name, consumerGroup="g", subscriptionMode="all")
            assert (message["data"], message["transactionId"]) == (number, name)
            [message] = wire.messages(
                f"q{name}{fresh_queue}"[:255], consumerGroup="g", subscriptionMode="all"
            )
            assert message["data"] == number


def test_every_tenant_gets_its_own_messages_and_nobody_elses(site: Site, fresh_queue: str):
    tenants = [None, str(uuid.uuid4()), str(uuid.uuid4())]

    def headers(tenant: str | None) -> dict[str, str]:
        return {} if tenant is None else {"x-queen-tenant": tenant}

    def work(wire: WireClient) -> None:
        for number, tenant in enumerate(tenants):
            own = WireClient(wire.http, headers(tenant))
            assert push(own, fresh_queue, f"of {number}", "same id") == ["buffered"] * 2

    with WireClient.at(through_the_spool(site, work, **TENANCY)) as wire:
        for number, tenant in enumerate(tenants):
            own = WireClient(wire.http, headers(tenant))
            assert log_of(own, fresh_queue) == {"p": [f"of {number}", "same id"]}


def test_messages_that_are_larger_than_a_batch_may_be_are_replayed(site: Site, fresh_queue: str):
    sizes = [9 << 20, 1, 20 << 20, 10, 5 << 20, 5 << 20]

    def work(wire: WireClient) -> None:
        for size in sizes:
            assert statuses(wire.push(fresh_queue, "x" * size, partition="p")) == ["buffered"]

    with WireClient.at(through_the_spool(site, work)) as wire:
        popped = []
        while messages := wire.messages(fresh_queue, batch=1, autoAck=True):
            popped += [len(message["data"]) for message in messages]
        assert popped == sizes


def test_what_was_spooled_for_a_queue_that_is_deleted_meanwhile_makes_it_anew(
    site: Site, fresh_queue: str
):
    process = site.start()
    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, "old") == ["queued"]
        maintenance(wire, True)
        assert push(wire, fresh_queue, "new") == ["buffered"]
        assert buffers(wire)["pending"] == 1
        wire.delete(fresh_queue)
        maintenance(wire, False)
        until_drained(wire)
        assert set_aside(wire)["events"] == 0
        assert push(wire, fresh_queue, "newer") == ["queued"]
        assert log_of(wire, fresh_queue) == {"p": ["new", "newer"]}
