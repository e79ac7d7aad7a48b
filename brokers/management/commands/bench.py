"""manage.py bench: what the broker does per second, beside what PostgreSQL itself does.

Only arguments and printing live here; the work is brokers/bench. A command is an entry
point, so it may import queen_project.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from brokers.bench import curves, report, sweep
from brokers.bench.crew import BenchError
from brokers.bench.database import Database
from brokers.bench.instrument import Instrument, Options
from brokers.bench.rows import Row
from brokers.bench.scenarios import SCENARIOS, Scenario, chosen
from brokers.bench.sweep import SWEEPS, Point, Sweep
from brokers.bench.target import Target, started_broker
from brokers.bench.targets import verdicts
from queen_project import config as environment

SECONDS = 5.0
SECONDS_QUICK = 1.5
OUT = Path("docs/performance")
SWEEP_HELP = f"curves along one dimension instead: any of {','.join(SWEEPS)}; all without a name"

Work = Callable[[Instrument, Mapping[str, object]], list[Row]]


class Command(BaseCommand):
    help = "Measure a broker (--url), or one that is started for it, against direct SQL."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", help="a running broker; without it one is started")
        parser.add_argument("--pid", type=int, help="the process of --url, for its CPU time")
        parser.add_argument("--workers", type=int, help="of the broker that is started")
        parser.add_argument("--only", default="", help=f"of {','.join(SCENARIOS)}; or a prefix")
        parser.add_argument("--seconds", type=float, help=f"measured per run, {SECONDS:.0f}")
        parser.add_argument("--quick", action="store_true", help="under a minute in all")
        parser.add_argument("--no-direct", action="store_true", help="leave the SQL twins out")
        parser.add_argument("--sweep", metavar="NAMES", nargs="?", const="", help=SWEEP_HELP)
        parser.add_argument("--out", type=Path, default=OUT, help=f"of --sweep, {OUT}")
        parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")

    def handle(self, *args: Any, **options: Any) -> None:
        signal.signal(signal.SIGTERM, stop)
        if options["url"] and options["workers"] is not None:
            raise CommandError("--workers is for a broker that is started here, not for --url")
        try:
            rows = self.measure(self.work(options), options)
        except BenchError as error:
            raise CommandError(str(error)) from error
        if any(row.errors for row in rows):
            raise CommandError("there were errors: the figures above are not to be trusted")

    def work(self, options: dict[str, Any]) -> Work:
        """What is to be run, its names checked before anything is started."""
        if options["sweep"] is not None:
            sweeps = sweep.chosen(_names(options["sweep"]))
            return partial(self.run_sweeps, sweeps=sweeps, directory=options["out"])
        scenarios = chosen(_names(options["only"]), quick=options["quick"])
        return partial(self.run_scenarios, scenarios=scenarios, json=options["json"])

    def measure(self, work: Work, options: dict[str, Any]) -> list[Row]:
        config = environment.from_environment()
        seconds = options["seconds"] or (SECONDS_QUICK if options["quick"] else SECONDS)
        with contextlib.ExitStack() as stack:
            if options["url"]:
                target = Target(options["url"], options["pid"])
                target.wait_ready(timeout_s=10)
            else:
                self.say("starting a broker")
                target = stack.enter_context(started_broker(options["workers"]))
            bench = Instrument(
                target,
                Database(config.postgres),
                Options(
                    seconds=seconds,
                    quick=options["quick"],
                    with_direct=not options["no_direct"],
                ),
                self.say,
            )
            stack.callback(bench.clean_up)
            bench.check_database()
            facts = report.machine_facts() | bench.database.settings()
            self.stdout.write(" ".join(f"{name}={value}" for name, value in facts.items()))
            return work(bench, facts)

    def run_sweeps(
        self,
        bench: Instrument,
        facts: Mapping[str, object],
        *,
        sweeps: dict[str, Sweep],
        directory: Path,
    ) -> list[Row]:
        """Each sweep is written as soon as it is there: all together take an hour."""
        found: dict[str, list[Point]] = {}
        for name, one in sweeps.items():
            found[name] = []
            for point in sweep.measure(bench, name, one):
                found[name].append(point)
            if not curves.write(directory, facts, found):
                self.say("no pictures: matplotlib is not installed")
        rows = [point.row for points in found.values() for point in points]
        self.stdout.write(report.table(rows))
        return rows

    def run_scenarios(
        self,
        bench: Instrument,
        facts: Mapping[str, object],
        *,
        scenarios: dict[str, Scenario],
        json: Path | None,
    ) -> list[Row]:
        rows: list[Row] = []
        for name, scenario in scenarios.items():
            self.say(name)
            began = time.monotonic()
            found = scenario(bench, name)
            rows += found if isinstance(found, list) else [found]
            self.say(f"{name}: {time.monotonic() - began:.1f} s")
        goals = verdicts(rows)
        self.stdout.write("\n".join([report.table(rows), "", *map(str, goals)]))
        if json:
            report.write_json(json, facts, rows, goals)
        return rows

    def say(self, text: str) -> None:
        """Progress goes to the error stream, so that the table can be redirected."""
        self.stderr.write(f"bench: {text}")
        self.stderr.flush()


def _names(text: str) -> list[str]:
    return [one for one in text.split(",") if one]


def stop(*_: object) -> None:
    """Leave through every `finally`, so that children are stopped; a second signal waits."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)
