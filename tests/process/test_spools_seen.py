"""What the console of one broker tells of the spools of all.

Method: two real brokers, of which the second reaches the database through a gateway. Its pushes
go to its spool, first by maintenance, then because the gateway is closed; the first is asked.
"""

import re
from html import unescape
from typing import Any

import httpx
import psycopg

from tests.browser.operators import make_operator, make_session
from tests.harness import eventually
from tests.process.site import Site, buffers, maintenance, push
from tests.wire_client import WireClient

QUICK = {"METRICS_FLUSH_MS": "1000", "QUEEN_LIVE_INTERVAL_MS": "500"}
ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)


class Seen:
    """A console, as somebody uses it who looks after the cell."""

    def __init__(self, url: str, db: psycopg.Connection[Any]) -> None:
        session = make_session(db, make_operator(db, groups=["Viewer"]))
        self._http = httpx.Client(base_url=url, timeout=60, cookies={"sessionid": session})

    def spool(self, name: str) -> list[str]:
        """When it was heard of, then what waits, its bytes, and what was set aside."""
        answer = self._http.get("/admin/brokers-seen/").raise_for_status()
        listed = answer.text.split("Brokers seen", 1)[1].split("</section>", 1)[0]
        rows = [[unescape(one) for one in CELL.findall(row)] for row in ROW.findall(listed)]
        return next((row[1:5] for row in rows if row and row[0] == name), [])

    def pictured(self, name: str) -> dict[str, Any]:
        parts = self._http.get("/console/snapshot").raise_for_status().json()["parts"]
        brokers = parts["minutes"]["value"]["brokers"] if parts.get("minutes", {}).get("ok") else []
        return next((one for one in brokers if one["id"] == name), {})


def test_the_spool_of_another_broker_is_told_with_its_age_and_as_unknown_once_it_is_silent(
    site: Site, fresh_queue: str
):
    here, there = site.start("here", directly=True, **QUICK), site.start("there", **QUICK)
    with site.database.connect() as db, WireClient.at(there.url) as producer:
        seen = Seen(here.url, db)
        eventually(lambda: seen.spool("there")[1:2] == ["0"], 60.0)
        maintenance(producer, True)
        assert push(producer, fresh_queue, 1, 2, 3) == ["buffered"] * 3
        eventually(lambda: seen.spool("there")[1:2] == ["3"], 60.0)
        heard, waiting, size, aside = seen.spool("there")
        assert heard.endswith(" ago") and not heard.startswith("silent")
        assert (waiting, aside) == ("3", "0") and int(size) > 0
        assert seen.spool("here")[1:] == ["0", "0", "0"]
        eventually(lambda: seen.pictured("there").get("spool", {}).get("pending") == "3", 60.0)
        pictured = seen.pictured("there")["heard"]

        site.gateway.close()
        assert push(producer, fresh_queue, 4) == ["buffered"]
        eventually(lambda: not buffers(producer)["dbHealthy"], 60.0)
        db.execute(
            "UPDATE queen_broker_history SET bucket = bucket - interval '10 minutes'"
            " WHERE server_id = 'there'"
        )
        heard, *told = seen.spool("there")
        assert re.fullmatch(r"silent, last \d\d:\d\d UTC, 1\d min ago", heard)
        assert told == ["unknown, last 3", f"unknown, last {size}", "unknown, last 0"]
        eventually(lambda: seen.pictured("there").get("heard", pictured) < pictured, 60.0)


def test_what_a_broker_did_not_tell_of_its_spool_is_unknown_and_not_zero(site: Site):
    broker = site.start("here", directly=True, **QUICK)
    with site.database.connect() as db:
        db.execute(
            "INSERT INTO queen_broker_history (bucket, server_id)"
            " VALUES (queen_bucket_v1(clock_timestamp(), 1), 'of an older release')"
        )
        seen = Seen(broker.url, db)
        assert seen.spool("of an older release")[1:] == ["unknown"] * 3
        nothing = {"pending": None, "bytes": None, "set_aside": None}
        eventually(lambda: seen.pictured("of an older release").get("spool") == nothing, 60.0)
