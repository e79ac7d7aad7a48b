"""POST /api/v1/configure: every option, what keeps it, what restores it, what refuses it.

Method: HTTP against a real broker.
"""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.wire_client import error_of, expect

DEFAULTS = {
    "leaseTime": 300,
    "retryLimit": 3,
    "deadLetterQueue": True,
    "dlqAfterMaxRetries": True,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "minPopWaitTime": 0,
    "retentionEnabled": False,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "maxWaitTimeSeconds": 0,
    "encryptionEnabled": False,
    "dedupWindowSeconds": 3600,
    "retentionSinkHold": "",
    "retentionSinkHoldMaxSeconds": 604800,
    "priority": 0,
    "ttl": 3600,
    "maxSize": 0,
    "retryDelay": 1000,
    "maxDeliveries": 0,
}
OTHER_VALUES = {
    "leaseTime": 17,
    "retryLimit": 5,
    "deadLetterQueue": False,
    "dlqAfterMaxRetries": False,
    "delayedProcessing": 4,
    "windowBuffer": 6,
    "minPopWaitTime": 60_000,
    "retentionEnabled": True,
    "retentionSeconds": 86_400,
    "completedRetentionSeconds": 3_600,
    "maxWaitTimeSeconds": 7_200,
    "encryptionEnabled": True,
    "dedupWindowSeconds": 0,
    "retentionSinkHold": "lake.raw_1-A",
    "retentionSinkHoldMaxSeconds": 60,
    "priority": 9,
    "ttl": 10,
    "maxSize": 11,
    "retryDelay": 12,
    "maxDeliveries": 8,
}
WRONG = [
    ("leaseTime", "300"),
    ("leaseTime", 1.5),
    ("leaseTime", True),
    ("leaseTime", -1),
    ("leaseTime", 10**30),
    ("leaseTime", [1]),
    ("retryLimit", -1),
    ("retryLimit", "3"),
    ("deadLetterQueue", "true"),
    ("deadLetterQueue", 1),
    ("dlqAfterMaxRetries", 0),
    ("delayedProcessing", -1),
    ("windowBuffer", -5),
    ("minPopWaitTime", 60_001),
    ("minPopWaitTime", -1),
    ("retentionEnabled", "yes"),
    ("retentionSeconds", -1),
    ("completedRetentionSeconds", "1"),
    ("maxWaitTimeSeconds", {}),
    ("encryptionEnabled", "false"),
    ("dedupWindowSeconds", -1),
    ("retentionSinkHold", "no spaces"),
    ("retentionSinkHold", "x" * 65),
    ("retentionSinkHold", 5),
    ("retentionSinkHoldMaxSeconds", 59),
    ("retentionSinkHoldMaxSeconds", 31_536_001),
    ("maxDeliveries", -1),
]


def test_the_answer_holds_the_queue_and_every_effective_option(wire, fresh_queue):
    answer = expect(wire.post("/api/v1/configure", {"queue": fresh_queue}), 200).json()
    assert answer["configured"] is True
    assert re.match(r"[0-9a-f-]{36}\Z", answer["queueId"])
    assert answer["partitionId"] is None
    assert answer["queue"] == fresh_queue
    assert isinstance(answer["namespace"], str) and isinstance(answer["task"], str)
    assert answer["storage"] == "segments"
    assert DEFAULTS.items() <= answer["options"].items()


def test_every_option_can_be_set_and_is_read_back(wire, fresh_queue):
    answer = wire.configure(fresh_queue, **OTHER_VALUES)
    assert OTHER_VALUES.items() <= answer["options"].items()
    assert OTHER_VALUES.items() <= wire.queue(fresh_queue)["options"].items()


def test_a_number_of_any_length_in_a_key_that_nobody_knows_is_nobodys_business(wire, fresh_queue):
    body = b'{"queue":"%b","x":%b}' % (fresh_queue.encode(), b"9" * 5000)
    expect(wire.http.post("/api/v1/configure", content=body, headers=wire.headers), 200)
    body = b'{"queue":"%b","options":{"leaseTime":%b}}' % (fresh_queue.encode(), b"9" * 5000)
    answer = wire.http.post("/api/v1/configure", content=body, headers=wire.headers)
    assert "leaseTime" in expect(answer, 400).text


def test_options_may_stand_at_the_top(wire, fresh_queue):
    body = {"queue": fresh_queue, "leaseTime": 21, "retryLimit": 7, "namespace": "n", "task": "t"}
    answer = expect(wire.post("/api/v1/configure", body), 200).json()
    assert (answer["options"]["leaseTime"], answer["options"]["retryLimit"]) == (21, 7)
    assert (answer["namespace"], answer["task"]) == ("n", "t")


@pytest.mark.parametrize("mode", [None, "merge"])
def test_a_merge_keeps_what_it_does_not_name(wire, fresh_queue, mode):
    first = wire.configure(fresh_queue, **OTHER_VALUES)
    second = wire.configure(fresh_queue, mode, leaseTime=99)
    assert second["queueId"] == first["queueId"]
    assert OTHER_VALUES.items() - {("leaseTime", 17)} <= second["options"].items()
    assert second["options"]["leaseTime"] == 99


def test_a_null_mode_is_a_merge(wire, fresh_queue):
    wire.configure(fresh_queue, leaseTime=17)
    body = {"queue": fresh_queue, "mode": None, "options": {"retryLimit": 1}}
    options = expect(wire.post("/api/v1/configure", body), 200).json()["options"]
    assert (options["leaseTime"], options["retryLimit"]) == (17, 1)


def test_nulls_restore_the_defaults(wire, fresh_queue):
    wire.configure(fresh_queue, **OTHER_VALUES)
    options = wire.configure(fresh_queue, **dict.fromkeys(DEFAULTS))["options"]
    assert DEFAULTS.items() <= options.items()


def test_a_null_restores_one_option_alone(wire, fresh_queue):
    wire.configure(fresh_queue, leaseTime=17, retryLimit=9)
    options = wire.configure(fresh_queue, leaseTime=None)["options"]
    assert (options["leaseTime"], options["retryLimit"]) == (300, 9)


def test_a_replace_restores_what_it_does_not_name(wire, fresh_queue):
    wire.configure(fresh_queue, **OTHER_VALUES)
    options = wire.configure(fresh_queue, "replace", retryLimit=2)["options"]
    assert (DEFAULTS | {"retryLimit": 2}).items() <= options.items()


def test_replace_inside_options_is_nothing(wire, fresh_queue):
    wire.configure(fresh_queue, leaseTime=17)
    options = wire.configure(fresh_queue, replace=True, retryLimit=2)["options"]
    assert options["leaseTime"] == 17


@pytest.mark.parametrize("mode", ["", "Merge", "patch", 5, True])
def test_any_other_mode_is_a_400_and_nothing_is_written(wire, fresh_queue, mode):
    body = {"queue": fresh_queue, "mode": mode, "options": {"leaseTime": 9}}
    text = error_of(wire.post("/api/v1/configure", body), 400)
    assert text.startswith('mode must be "merge" or "replace", got ')
    expect(wire.get(wire.queue_path(fresh_queue)), 404)


@pytest.mark.parametrize(("option", "value"), WRONG)
def test_a_wrong_value_is_a_400_that_names_the_option_and_nothing_is_written(
    wire, fresh_queue, option, value
):
    wire.configure(fresh_queue, priority=1)
    body = {"queue": fresh_queue, "options": {"priority": 2, option: value, "ttl": 5}}
    assert option in error_of(wire.post("/api/v1/configure", body), 400)
    options = wire.queue(fresh_queue)["options"]
    assert (options["priority"], options["ttl"]) == (1, 3600)
    assert options[option] == DEFAULTS[option]


def test_all_wrong_values_are_named_at_once(wire, fresh_queue):
    body = {"queue": fresh_queue, "options": {"leaseTime": "x", "retryLimit": -1, "ttl": 5}}
    text = error_of(wire.post("/api/v1/configure", body), 400)
    assert "leaseTime" in text and "retryLimit" in text and "ttl" not in text


@pytest.mark.parametrize(
    ("option", "value"),
    [("retentionSinkHold", "a/b"), ("retentionSinkHoldMaxSeconds", 1)],
)
def test_a_wrong_sink_hold_says_which_in_a_field_of_its_own(wire, fresh_queue, option, value):
    body = {"queue": fresh_queue, "options": {option: value}}
    answer = expect(wire.post("/api/v1/configure", body), 400)
    assert answer.json()["invalid"] == option


def test_unknown_options_are_ignored(wire, fresh_queue):
    options = {"leaseTime": 9, "futureOption": {"deep": 1}, "queue": "other"}
    body = {"queue": fresh_queue, "futureField": [1], "options": options}
    answer = expect(wire.post("/api/v1/configure", body), 200).json()
    assert answer["queue"] == fresh_queue
    assert answer["options"]["leaseTime"] == 9


@pytest.mark.parametrize("queue", [None, 5, True, ["q"], {}, "q\x00", "\ud800", "q" * 256])
def test_a_missing_or_illegal_queue_is_a_400(wire, queue):
    error_of(wire.post("/api/v1/configure", {"queue": queue, "options": {}}), 400)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"{}", b'{"options":{}}', b"\xff"])
def test_a_body_that_is_no_configuration_is_a_400(wire, body):
    error_of(wire.http.post("/api/v1/configure", content=body), 400)


@pytest.mark.parametrize("options", [[], "x", 5, True])
def test_options_that_are_no_object_are_a_400(wire, fresh_queue, options):
    error_of(wire.post("/api/v1/configure", {"queue": fresh_queue, "options": options}), 400)


@pytest.mark.parametrize("options", [None, {}])
def test_options_may_be_null_or_empty(wire, fresh_queue, options):
    expect(wire.post("/api/v1/configure", {"queue": fresh_queue, "options": options}), 200)


def test_the_empty_queue_name_is_legal(wire):
    answer = wire.configure("", leaseTime=12)
    assert (answer["configured"], answer["queue"]) == (True, "")
    wire.delete("")


def test_a_namespace_and_task_are_kept_when_null_and_set_when_given(wire, fresh_queue):
    body = {"queue": fresh_queue, "namespace": "shop", "task": "pay", "options": {}}
    assert expect(wire.post("/api/v1/configure", body), 200).json()["namespace"] == "shop"
    nulls = {"queue": fresh_queue, "namespace": None, "task": None, "options": {"leaseTime": 5}}
    answer = expect(wire.post("/api/v1/configure", nulls), 200).json()
    assert (answer["namespace"], answer["task"]) == ("shop", "pay")
    assert wire.queue(fresh_queue)["task"] == "pay"


@pytest.mark.parametrize("field", ["namespace", "task"])
@pytest.mark.parametrize("value", ["x" * 256, "a\x00", "\udfff", 5])
def test_an_illegal_namespace_or_task_is_a_400(wire, fresh_queue, field, value):
    body = {"queue": fresh_queue, field: value, "options": {}}
    error_of(wire.post("/api/v1/configure", body), 400)


def test_concurrent_merges_of_different_options_all_survive(wire, fresh_queue):
    wire.configure(fresh_queue)
    changes = {"leaseTime": 5, "retryLimit": 6, "delayedProcessing": 7, "ttl": 8, "priority": 9}

    with ThreadPoolExecutor(5) as pool:
        list(
            pool.map(lambda change: wire.configure(fresh_queue, **dict([change])), changes.items())
        )

    assert changes.items() <= wire.queue(fresh_queue)["options"].items()


def test_concurrent_births_of_one_queue_are_one_queue(wire, fresh_queue):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: wire.configure(fresh_queue), range(8)))
    assert len({answer["queueId"] for answer in answers}) == 1


def test_a_reconfigured_queue_keeps_its_messages_and_leases(wire, fresh_queue):
    wire.push(fresh_queue, 1, 2)
    [message] = wire.messages(fresh_queue, batch=1)
    wire.configure(fresh_queue, "replace")
    assert wire.ack(message)["success"] is True
    assert wire.payloads(fresh_queue) == [2]


def test_a_queue_born_by_a_push_keeps_its_lease_time_through_a_merge(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    assert wire.configure(fresh_queue, retryLimit=1)["options"]["leaseTime"] == 60
    assert wire.configure(fresh_queue, leaseTime=None)["options"]["leaseTime"] == 300


def test_an_edit_is_in_force_for_the_next_call(wire, fresh_queue):
    wire.push(fresh_queue, 1, ids=["t"])
    assert wire.push(fresh_queue, 1, ids=["t"])[0]["status"] == "duplicate"
    for window, status in ((0, "queued"), (3600, "duplicate"), (0, "queued")):
        wire.configure(fresh_queue, dedupWindowSeconds=window)
        assert wire.push(fresh_queue, 1, ids=["t"])[0]["status"] == status
