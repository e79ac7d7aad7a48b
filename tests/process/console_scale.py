"""The console over full tables: how long each of its pages takes.

    python -m tests.process.console_scale

starts a durable PostgreSQL and a broker of its own, fills the tables as management_scale.py does
(1,000 queues, 100,000 partitions, ten million messages, a million dead letters) and signs in. From
the first page it follows the links to every list, from a list to its next page, to its first row,
and from there to every deed that asks before it acts. FILTERED are lists under a filter.

Every page is asked for five times; told are the median, the slowest, and the processor time of the
median one. The verdict is PASS when every median is under 500 ms. `--by processor` judges the
processor time instead, for a machine that is not its own.
"""

import argparse
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

from tests.harness import BrokerProcess, KillablePostgres
from tests.process.management_fill import GROUP, QUEUE, Volume, fill, measure_bytes
from tests.process.management_scale import (
    ASKED,
    SETTINGS,
    START_S,
    Probe,
    Spent,
    spent_until_now,
)

LIMIT_MS = 500.0
INDEX = "/admin/"
LIST = re.compile(r'href="(/admin/(?!auth/|password|logout|login)[\w-]+/(?:[\w-]+/)?)"')
NEXT = re.compile(r'rel="next" href="([^"]+)"')
ROW = re.compile(r'href="(/admin/[\w/-]+/change/)"')
DEED = re.compile(r'href="(/admin/[\w/-]+/do/[\w-]+/)"')
FILTERED = (
    "/admin/brokers/queue/?name=area-1",
    "/admin/brokers/queue/?tenant=00000000-0000-0000-0000-000000000001",
    "/admin/brokers/queue/?tenant=00000000-0000-0000-0000-00000000dead",
    f"/admin/brokers/partition/?queue={QUEUE}",
    f"/admin/brokers/partition/?queue={QUEUE}&name=p9",
    "/admin/brokers/partition/?tenant=00000000-0000-0000-0000-000000000001",
    "/admin/brokers/partition/?tenant=00000000-0000-0000-0000-00000000dead",
    f"/admin/brokers/group/?group={GROUP}",
    "/admin/brokers/group/?group=nobody",
)


class Walk:
    """Pages are found by asking for them, and asked for as often as they are measured."""

    def __init__(self, browser: Any, spent: Callable[[], Spent]) -> None:
        self._browser = browser
        self._spent = spent
        self.probes: dict[str, Probe] = {}

    def whole(self) -> None:
        lists = {*LIST.findall(self.ask(INDEX)), *FILTERED}
        for path in sorted(lists):
            page = self.ask(path)
            following = NEXT.search(page)
            if following is not None:
                self.ask(path.partition("?")[0] + unescape(following[1]))
            row = ROW.search(page)
            if row is not None and row[1] not in self.probes:
                for deed in sorted(set(DEED.findall(self.ask(row[1])))):
                    self.ask(deed)

    def ask(self, path: str) -> str:
        if path in self.probes:
            return ""
        probe = self.probes[path] = Probe("page", "GET", path)
        text = ""
        for _ in range(ASKED):
            before, began = self._spent(), time.monotonic()
            answer = self._browser.get(path)
            probe.took_ms.append((time.monotonic() - began) * 1000)
            probe.spent.append(self._spent().since(before))
            text = answer.text
            if answer.status_code >= 400:
                probe.problem = f"answered {answer.status_code}"
        return text


def judge(probes: list[Probe], by: str) -> list[str]:
    problems = []
    print("median ms  slowest  processor  page")
    for probe in sorted(probes, key=lambda one: -one.median_spent.ms):
        print(f"{probe.median_ms:9.1f} {max(probe.took_ms):8.1f}"
              f" {probe.median_spent.ms:10.1f}  {probe.path[:90]}", flush=True)  # fmt: skip
        if probe.problem:
            problems.append(f"{probe.path} {probe.problem}")
        if (probe.median_spent.ms if by == "processor" else probe.median_ms) > LIMIT_MS:
            problems.append(f"{probe.path} took too long")
    return problems


def measure(
    directory: Path, postgres: KillablePostgres, arguments: argparse.Namespace
) -> list[str]:
    environment = postgres.database.environment | SETTINGS
    environment["QUEEN_DATA_DIR"] = str(directory / "data")
    environment["QUEEN_SECRET_KEY"] = "only-for-a-measurement-" + "x" * 50
    os.environ.update(environment, DJANGO_SETTINGS_MODULE="queen_project.settings")
    broker = BrokerProcess(directory / "broker.log", environment, start_timeout_s=START_S)
    try:
        import django

        django.setup()
        logging.getLogger("httpx").setLevel(logging.WARNING)
        from tests.console_parts import ConsoleClient, make_user

        volume = Volume.scaled(arguments.scale)
        print(f"filling {volume.lanes} partitions, {volume.letters} dead letters", flush=True)
        with postgres.database.connect() as db:
            fill(db, volume)
            measure_bytes(db)
        with ConsoleClient.of(broker.url, make_user(superuser=True, password=None)) as browser:
            browser.http.timeout = 120
            browser.http.post("/api/v1/stats/refresh")
            walk = Walk(browser, partial(spent_until_now, broker.pid, postgres.data_dir))
            walk.whole()
        return judge(list(walk.probes.values()), arguments.by)
    finally:
        broker.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="of the volume of the tables")
    parser.add_argument("--by", choices=("clock", "processor"), default="clock")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="queen-scale-", dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o711)
        postgres = KillablePostgres(directory / "pg")
        try:
            problems = measure(directory, postgres, arguments)
        finally:
            postgres.remove()
    for problem in problems:
        print(problem)
    print("VERDICT:", "FAIL" if problems else "PASS")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
