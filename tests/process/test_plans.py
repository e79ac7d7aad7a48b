"""No statement compares all rows with all others, whatever PostgreSQL knows of the tables.

A plan is made once a connection and statement, from what was known of the tables then. Until
autovacuum has come by, that is nothing, and a table of thousands of rows is taken for one of a few:
a join of two of them by pairs looks cheap, and takes half a minute at a hundred thousand.

Method: tables are filled and never analyzed. A broker that starts then plans everything for them;
auto_explain tells how many rows each node of a plan has handled. All routes that read, the
statistics, and pushes, pops and acks over hundreds of partitions are asked.
"""

import http.client
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import BrokerProcess, KillablePostgres
from tests.process.management_fill import Volume, fill
from tests.process.management_scale import ask, probes

VOLUME = Volume(queues=50, letters=10_000, others=1000)
# The largest table has 30,000 rows. A hundred and twenty of the small ones by pairs are more.
ROWS_MAX = 100_000
GROWING, GROUP = "growing", "readers"
LANES, CONSUMED, IN_CALL = 5000, 3000, 500
MORE_QUEUES = 500
SETTINGS = {
    "autovacuum": "off",
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "5",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
}
PLAN = re.compile(r"duration: [\d.]+ ms  plan:\n\t(\{.*?\n\t\})", re.DOTALL)
QUEUES = """
INSERT INTO queen_queue (tenant_id, name)
SELECT (SELECT min(tenant_id::text)::uuid FROM queen_queue), 'more-' || no
  FROM generate_series(1, %s) AS no"""


class Api:
    def __init__(self, broker: BrokerProcess) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=120)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        self.connection.request(method, path, None if body is None else json.dumps(body))
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status in (200, 201), (path, answer.status, text[:200])
        return json.loads(text)

    def push(self, queue: str, first: int, count: int) -> None:
        items = [
            {"queue": queue, "partition": f"p{no}", "payload": no}
            for no in range(first, first + count)
        ]
        self.call("POST", "/api/v1/push", {"items": items})

    def consume(self, queue: str) -> int:
        """Pop and acknowledge one message of each of many partitions; how many that were."""
        query = (
            f"batch={IN_CALL}&partitions={IN_CALL}&consumerGroup={GROUP}&subscriptionMode=all"
            "&wait=true&timeout=5000"
        )
        messages = self.call("GET", f"/api/v1/pop/queue/{queue}?{query}")["messages"]
        acks = [
            {
                "transactionId": one["transactionId"],
                "partitionId": one["partitionId"],
                "leaseId": one["leaseId"],
                "status": "completed",
            }
            for one in messages
        ]
        body = {"acknowledgments": acks, "consumerGroup": GROUP}
        assert all(one["success"] for one in self.call("POST", "/api/v1/ack/batch", body))
        return len(messages)


def handled(plan: dict[str, Any]) -> Iterator[tuple[float, str]]:
    """Each node of a plan: the rows that it gave or compared in all, and what it is."""
    rows = plan.get("Actual Rows", 0) * plan.get("Actual Loops", 1)
    compared = plan.get("Rows Removed by Join Filter", 0) * plan.get("Actual Loops", 1)
    yield max(rows, compared), plan["Node Type"]
    for part in plan.get("Plans", ()):
        yield from handled(part)


def plans(log: str) -> Iterator[tuple[float, str, str]]:
    for found in PLAN.finditer(log):
        told = json.loads(found[1].replace("\n\t", "\n"))
        rows, node = max(handled(told["Plan"]))
        yield rows, node, " ".join(told["Query Text"].split())


@pytest.mark.slow
def test_no_statement_compares_all_rows_with_all_others_before_anything_was_analyzed(
    tmp_path: Path,
) -> None:
    data_dir = Path(tempfile.mkdtemp(prefix="queen-own-", dir="/tmp"))
    postgres = KillablePostgres(data_dir, SETTINGS)
    environment = {
        "QUEEN_BIND_ADDR": "127.0.0.1",
        "PG_USER": "postgres",
        **postgres.database.environment,
        "QUEEN_ANALYTICS_FRESH_MS": "0",
    }
    try:
        broker = BrokerProcess(tmp_path / "first.log", environment)
        try:
            with postgres.database.connect() as db:
                known = fill(db, VOLUME, analyze=False)
                db.execute(QUEUES, [MORE_QUEUES])
            api = Api(broker)
            for first in range(0, LANES, IN_CALL):
                api.push(GROWING, first, IN_CALL)
            consumed = 0
            while consumed < CONSUMED:
                consumed += api.consume(GROWING)
        finally:
            broker.stop()
        broker = BrokerProcess(tmp_path / "second.log", environment)
        try:
            api = Api(broker)
            consumed += api.consume(GROWING)
            for probe in probes(known):
                status, answer = ask(api.connection, probe)
                assert status < 400, (probe.path, answer[:200])
            api.call("POST", "/api/v1/stats/refresh")
            api.push(GROWING, LANES, IN_CALL)
            while consumed < LANES + IN_CALL:
                consumed += api.consume(GROWING)
        finally:
            broker.stop()
        [log] = postgres.data_dir.rglob("postgresql-*.log")
        found = sorted(plans(log.read_text(errors="replace")), reverse=True)
    finally:
        postgres.remove()
    assert any("queen_group_figures_v1" in statement for _, _, statement in found)
    assert [(rows, node, text[:200]) for rows, node, text in found if rows > ROWS_MAX] == []
