"""`manage.py queen`: what an operator types, what is printed, and the exit code.

Method: the command line in this process, against a real broker over HTTP.
"""

import io
import json
import os
import subprocess
import sys
import threading
import uuid

import pytest
from django.core.management import call_command

from brokers.config_client import ClientConfig
from brokers.management.queen.client import Answer, _refused
from brokers.management.queen.main import main
from brokers.management.queen.messages import messages_of
from tests.harness import PROJECT_DIR
from tests.wire_client import expect

DONE, MISTAKE, BROKEN, NOT_ALLOWED, NOTHING = range(5)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def queen(broker):
    """Types a line; the exit code is as expected, and what was printed comes back."""

    def run(*typed, code=DONE, out=None, **settings):
        out, errors = out or io.StringIO(), io.StringIO()
        config = ClientConfig(url=settings.pop("url", broker.url), **settings)
        got = main([str(one) for one in typed], config, out, errors)
        assert got == code, (got, out.getvalue(), errors.getvalue())
        return out.getvalue() if code in (DONE, NOTHING) else errors.getvalue()

    def as_json(*typed, **more):
        return json.loads(run(*typed, "-o", "json", **more))

    run.json = as_json
    return run


def test_a_message_is_pushed_popped_and_acked(queen, fresh_queue):
    assert "queued" in queen("push", fresh_queue, '{"a":1.0}', "2")
    answer = queen.json("pop", fresh_queue, "--batch", 10)
    first, second = answer["messages"]
    assert second["data"] == 2
    typed = ("ack", first["partitionId"], first["transactionId"], "--lease", first["leaseId"])
    assert queen(*typed) == "completed\n"
    assert queen(*typed) == "it was done already\n"
    failed = ("ack", second["partitionId"], second["transactionId"], "--lease", second["leaseId"])
    assert queen(*failed, "--status", "dlq", "--error", "why") == "dead-lettered\n"
    assert "invalid or expired lease" in queen(*typed[:4], uuid.uuid4(), code=MISTAKE)


def test_what_is_nested_beyond_reason_is_no_payload(queen, fresh_queue):
    assert "not JSON" in queen("push", fresh_queue, "[" * 3000 + "]" * 3000, code=MISTAKE)


def test_a_number_of_thousands_of_digits_is_pushed_and_shown(broker, fresh_queue):
    digits = "9" * 5000
    queen = [sys.executable, "manage.py", "queen"]
    environment = {**os.environ, "QUEEN_URL": broker.url}

    def typed(*words):
        return subprocess.run([*queen, *words], cwd=PROJECT_DIR, env=environment, check=True,
                              capture_output=True, text=True, timeout=120).stdout  # fmt: skip

    typed("push", fresh_queue, "1", digits, "3")
    shown = typed("tail", fresh_queue, "-o", "json")
    assert digits in shown and shown.count('"data"') == 3


def test_json_is_printed_as_its_producer_wrote_it(queen, fresh_queue):
    payload = '{"b":1E2, "a":1.0,"a":"\\u0041 \\"messages\\":["}'
    queen("push", fresh_queue, payload)
    assert payload in queen("pop", fresh_queue, "-o", "json")
    printed = queen("tail", fresh_queue, "--group", "g", "-o", "json")
    assert payload in printed and printed.count("\n") == 1


def test_what_is_no_json_is_refused_or_pushed_as_a_text(queen, fresh_queue):
    assert "--text" in queen("push", fresh_queue, "{a}", code=MISTAKE)
    assert "not JSON" in queen("push", fresh_queue, "NaN", code=MISTAKE)
    queen("push", fresh_queue, "{a}", "--text")
    [message] = queen.json("pop", fresh_queue, "--auto-ack")["messages"]
    assert message["data"] == "{a}"


def test_lines_of_stdin_are_messages(queen, fresh_queue, monkeypatch):
    lines = "".join(f"{number}\n" for number in range(1001)) + "\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    queen("push", fresh_queue, "--partition", "p")
    assert queen.json("queue", "depth", fresh_queue)["pending"] == 1001


def test_an_empty_pop_is_nothing_there_and_a_wait_is_kept(queen, fresh_queue):
    assert queen("pop", fresh_queue, code=NOTHING) == "nothing there\n"
    queen("pop", fresh_queue, "--wait", "0.05", code=NOTHING)
    queen("push", fresh_queue, 1)
    assert "lease" in queen("pop", fresh_queue, "--wait", 5, "--lease", 30, "--ack")
    assert queen.json("queue", "depth", fresh_queue)["pending"] == 0


def test_a_tail_shows_what_there_is_once_for_its_group(queen, fresh_queue):
    queen("push", fresh_queue, '"a\\u001b[31m"', 2)
    printed = queen("tail", fresh_queue)
    assert printed.count("\n") == 2
    assert "\x1b" not in printed and "\\x1b[31m" in printed
    queen("tail", fresh_queue, code=NOTHING)


def test_a_tail_that_follows_shows_messages_as_they_come(queen, wire, fresh_queue, eventually):
    wire.push(fresh_queue, "before")
    out = io.StringIO()
    following = threading.Thread(
        target=lambda: queen("tail", fresh_queue, "--follow", "--limit", 2, out=out)
    )
    following.start()
    # The group subscribes with its first look; what is pushed then is new to it.
    eventually(lambda: wire.depth(fresh_queue, group="queen-tail")["pending"] == 0)
    wire.push(fresh_queue, "one", "two")
    following.join(30)
    assert [line.split("  ")[-1] for line in out.getvalue().splitlines()] == ["one", "two"]


def test_a_queue_is_configured_described_listed_and_deleted(queen, fresh_queue):
    options = queen.json("queue", "configure", fresh_queue, "leaseTime=7", "namespace=n")
    assert options["options"]["leaseTime"] == 7
    options = queen.json("queue", "configure", fresh_queue, "retryLimit=1")["options"]
    assert (options["leaseTime"], options["retryLimit"]) == (7, 1)
    options = queen.json("queue", "configure", fresh_queue, "retryLimit=null", "--replace")
    assert (options["options"]["leaseTime"], options["options"]["retryLimit"]) == (300, 3)
    assert "leaseTime" in queen("queue", "configure", fresh_queue, "leaseTime=x", code=MISTAKE)
    assert "nope" in queen("queue", "configure", fresh_queue, "nope=1", code=MISTAKE)
    assert "NAME=VALUE" in queen("queue", "configure", fresh_queue, "leaseTime", code=MISTAKE)
    queen("push", fresh_queue, 1)
    assert fresh_queue in queen("queue", "list")
    assert "Default" in queen("queue", "describe", fresh_queue)
    assert "--yes" in queen("queue", "delete", fresh_queue, code=MISTAKE)
    assert queen("queue", "delete", fresh_queue, "--yes") == "deleted\n"
    queen("queue", "delete", fresh_queue, "--yes", code=NOTHING)
    assert queen("queue", "list", "--namespace", "of nobody", code=NOTHING) == "nothing there\n"


def test_a_queue_is_paused_resumed_and_purged(queen, fresh_queue):
    queen("queue", "pause", fresh_queue, code=NOTHING)
    queen("push", fresh_queue, 1)
    assert queen("queue", "pause", fresh_queue) == "paused\n"
    assert queen("queue", "pause", fresh_queue) == "it was paused already\n"
    queen("pop", fresh_queue, code=NOTHING)
    assert queen("queue", "resume", fresh_queue) == "open\n"
    assert "--yes" in queen("queue", "purge", fresh_queue, code=MISTAKE)
    assert queen.json("queue", "purge", fresh_queue, "--yes")["messages"] == 1
    queen("queue", "purge", fresh_queue, "--partition", "Default", "--yes", code=NOTHING)
    queen("pop", fresh_queue, code=NOTHING)


def test_names_of_any_kind_reach_their_own_route(queen):
    name = f"a/b %2F?#ü .{uuid.uuid4().hex}"
    for partition in ("x/y", "..", ""):
        queen("push", name, 1, "--partition", partition)
        queen("pop", name, "--partition", partition, "--auto-ack")
    assert len(queen.json("queue", "describe", name)["partitions"]) == 3


def test_dead_letters_are_listed_replayed_and_purged(queen, fresh_queue):
    for number in (1, 2):
        queen("push", fresh_queue, number)
        [message] = queen.json("pop", fresh_queue)["messages"]
        typed = ("ack", message["partitionId"], message["transactionId"], "--status", "dlq")
        queen(*typed, "--error", "bad luck")
    assert "bad luck" in queen("dlq", "list", fresh_queue)
    [_, first] = queen.json("dlq", "list", fresh_queue)["messages"]
    assert queen("dlq", "replay", first["id"], "--to-partition", "p").startswith("moved: ")
    queen("dlq", "replay", first["id"], code=NOTHING)
    assert "--yes" in queen("dlq", "purge", fresh_queue, code=MISTAKE)
    assert queen("dlq", "purge", fresh_queue, "--yes") == "1 deleted\n"
    queen("dlq", "purge", fresh_queue, "--yes", code=NOTHING)
    assert queen("dlq", "list", fresh_queue, code=NOTHING) == "nothing there\n"


def test_dead_letters_are_moved_by_a_job_that_is_watched(queen, fresh_queue):
    full = f"{fresh_queue}-full"
    for number, error in enumerate(("bad luck", "no luck", "no luck")):
        queen("push", fresh_queue, number)
        [message] = queen.json("pop", fresh_queue)["messages"]
        typed = ("ack", message["partitionId"], message["transactionId"], "--status", "dlq")
        queen(*typed, "--error", error)
    typed = ("dlq", "redrive", fresh_queue, "--error", "bad", "--since", "2026-01-01T00:00:00Z")
    job = queen.json(*typed, "--to-partition", "again", "--rate", 100, "--watch")
    assert (job["state"], job["moved"], job["rate"]) == ("done", 1, 100)
    assert queen.json("pop", fresh_queue, "--partition", "again")["messages"][0]["data"] == 0
    assert queen.json("dlq", "job", job["id"])["moved"] == 1
    assert "done" in queen("dlq", "cancel", job["id"])
    assert "done" in queen("dlq", "resume", job["id"], code=MISTAKE)
    queen("dlq", "job", uuid.uuid4(), code=NOTHING)
    queen("dlq", "redrive", "of nobody", code=NOTHING)

    queen("queue", "configure", full, "enforce=true", "maxSize=1")
    typed = ("dlq", "redrive", fresh_queue, "--group", "__QUEUE_MODE__", "--to-queue", full)
    told = queen(*typed, "--watch", code=BROKEN)
    assert "the redrive failed: the queue is full (maxSize)" in told
    assert len(queen.json("dlq", "list", fresh_queue)["messages"]) == 2


def test_groups_are_listed_described_moved_and_deleted(queen, wire, fresh_queue):
    group = f"group of {fresh_queue}"
    queen("push", fresh_queue, 1, 2)
    queen("pop", fresh_queue, "--group", group, "--from", "all", "--batch", 2, "--auto-ack")

    def pending():
        return queen.json("queue", "depth", fresh_queue, "--group", group)["pending"]

    assert pending() == 0
    assert queen.json("seek", group, fresh_queue, "--to-beginning")["partitionsUpdated"] == 1
    assert pending() == 2
    expect(wire.post("/api/v1/stats/refresh"), 200)
    assert group in queen("groups", "list", "--queue", fresh_queue)
    [listed] = queen.json("groups", "list", "--queue", fresh_queue)
    assert (listed["name"], listed["totalLag"]) == (group, 2)
    assert queen("groups", "list", "--queue", "of nobody", code=NOTHING) == "nothing there\n"
    assert group in queen("lag")
    queen("lag", "--min-seconds", 10**8, code=NOTHING)
    assert "Default" in queen("groups", "describe", group)
    [place] = queen.json("groups", "describe", group)[fresh_queue]["partitions"]
    assert place["offsetLag"] == 2

    typed = ("seek", group, fresh_queue, "--partition", "Default")
    assert queen.json(*typed, "--to-end")["updated"] is True
    assert pending() == 0
    queen("seek", group, fresh_queue, "--to", "2026-01-31T12:00:00Z")
    assert pending() == 2
    assert "instant" in queen("seek", group, fresh_queue, "--to", "nope", code=MISTAKE)
    queen("seek", group, "of nobody", "--to-end", code=NOTHING)
    queen(*typed[:-1], "of nobody", "--to-end", code=NOTHING)

    assert "--yes" in queen("groups", "delete", group, code=MISTAKE)
    typed = ("groups", "delete", group, "--queue", fresh_queue, "--keep-subscription", "--yes")
    assert queen.json(*typed)["deletedPartitions"] == 1
    assert queen.json("groups", "delete", group, "--yes")["metadataDeleted"] is True
    queen("groups", "delete", group, "--yes", code=NOTHING)
    queen("groups", "describe", group, code=NOTHING)


def test_timers_are_scheduled_shown_counted_and_cancelled(queen, fresh_queue):
    typed = ("timers", "schedule", fresh_queue, "key/1", '{"x":1}', "--in", 600)
    assert "scheduled" in queen(*typed)
    assert "rescheduled" in queen(*typed, "--id", "t", "--partition", "p")
    assert "key/1" in queen("timers", "list", fresh_queue)
    assert queen("timers", "count", fresh_queue, "key/") == "1\n"
    assert '{"x":1}' in queen("timers", "show", fresh_queue, "key/1")
    assert queen("timers", "cancel", fresh_queue, "key/1") == "cancelled\n"
    assert queen("timers", "cancel", fresh_queue, "key/1", code=NOTHING) == "absent\n"
    queen("timers", "show", fresh_queue, "key/1", code=NOTHING)
    queen("timers", "list", fresh_queue, code=NOTHING)
    queen("timers", "count", fresh_queue, "key/", code=NOTHING)


def test_state_is_put_read_listed_and_deleted(queen):
    namespace = f"n{uuid.uuid4().hex[:8]}"
    assert queen("kv", "put", namespace, "a/b", '{"x": 1.0}', "--forever").startswith("version ")
    assert queen("kv", "get", namespace, "a/b") == '{"x": 1.0}\n'
    assert "not applied" in queen(
        "kv", "put", namespace, "a/b", "2", "--ttl", 60, "--expect", 7, code=MISTAKE
    )
    assert "a/b" in queen("kv", "list", namespace, "--prefix", "a")
    assert namespace in queen("kv", "namespaces")
    queen("kv", "delete", namespace, "a/b")
    assert queen("kv", "delete", namespace, "a/b", code=NOTHING) == "nothing there\n"
    queen("kv", "get", namespace, "a/b", code=NOTHING)
    queen("kv", "list", namespace, code=NOTHING)
    assert "not JSON" in queen("kv", "put", namespace, "k", "{", "--forever", code=MISTAKE)


def test_the_state_of_the_whole_is_told(queen):
    assert "healthy" in queen("status")
    assert queen.json("status")["health"]["database"] == "connected"
    assert queen.json("maintenance", "get")["maintenanceMode"] is False
    assert "popMaintenanceMode" in queen("maintenance", "get", "--pop")
    assert queen.json("maintenance", "off")["maintenanceMode"] is False


def test_a_broker_that_is_not_there_is_its_fault_and_a_wrong_url_is_ours(queen):
    assert "refused" in queen("status", code=BROKEN, url="http://127.0.0.1:1").lower()
    for url in ("ftp://x", "http://", "http://h:port"):
        assert queen("status", code=MISTAKE, url=url).startswith("error: ")


@pytest.mark.parametrize(
    "typed", [(), ("queue",), ("nope",), ("pop",), ("pop", "q", "--batch", "x"), ("kv", "put", "n")]
)
def test_what_means_nothing_is_told_with_how_it_is_used(queen, typed):
    assert "usage: manage.py queen" in queen(*typed, code=MISTAKE)


def test_help_is_no_mistake(queen, capsys):
    queen("--help")
    assert "dlq" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (401, {"error": "no token"}, NOT_ALLOWED),
        (403, {"error": "role"}, NOT_ALLOWED),
        (404, {"error": "Queue not found"}, NOTHING),
        (404, {"error": "Not Found", "code": "no_such_route"}, MISTAKE),
        (400, {"error": "bad"}, MISTAKE),
        (429, {"error": "slow down"}, MISTAKE),
        (500, {"error": "pool"}, BROKEN),
        (503, "<html>", BROKEN),
    ],
)
def test_each_refusal_has_its_exit_code(status, body, code):
    assert _refused(Answer(status, json.dumps(body).encode()), "3").code == code


def test_colours_are_for_terminals_that_want_them(queen, fresh_queue):
    queen("push", fresh_queue, 1)
    painted = queen("push", fresh_queue, 1, out=Terminal())
    assert "\x1b[32mqueued\x1b[0m" in painted
    for settings in ({"no_color": "1"}, {"terminal": "dumb"}):
        assert "\x1b" not in queen("push", fresh_queue, 1, out=Terminal(), **settings)


def test_the_options_stand_before_the_verb_or_behind_it(queen, broker):
    other = "http://127.0.0.1:1"
    assert json.loads(queen("--url", broker.url, "-o", "json", "status", url=other))
    assert json.loads(queen("status", "--url", broker.url, "-o", "json", url=other))


def test_a_token_is_sent_as_a_bearer(queen, monkeypatch):
    sent = []
    monkeypatch.setattr(
        "http.client.HTTPConnection.request",
        lambda self, method, target, body, headers: (
            sent.append(headers) or (_ for _ in ()).throw(ConnectionRefusedError("refused"))
        ),
    )
    queen("status", "--token", "secret", code=BROKEN)
    assert sent == [{"authorization": "Bearer secret"}]


def test_it_is_a_command_of_django(broker, monkeypatch, capsys):
    monkeypatch.setenv("QUEEN_URL", broker.url)
    out = io.StringIO()
    call_command("queen", "status", stdout=out)
    assert "healthy" in out.getvalue()


def test_the_messages_of_an_answer_are_found_whatever_they_hold():
    tricky = '{"success":true,"queue":"a\\"messages\\":[","messages":[{"a":"]"},{"b":[1]}]}'
    assert [text for text, _ in messages_of(tricky.encode())] == ['{"a":"]"}', '{"b":[1]}']
    assert list(messages_of(b'{"messages":[]}')) == list(messages_of(b"")) == []
