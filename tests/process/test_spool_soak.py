"""PostgreSQL and the broker are killed under load: nothing that was answered is lost or doubled.

Method: spool_soak.py in small, each scenario as a process of its own. Its head says what it
checks; at full size it is `make soak-spool`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).with_name("spool_soak.py")
SMALL = {
    "outage": ["--rate", "1000", "--away", "3", "--before", "2", "--other-rate", "200"],
    "one": ["--rate", "1000", "--away", "3", "--before", "1"],
    "spooling": ["--spooling-s", "2"],
}


def soak(scenario: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SOAK), scenario, "--no-limits", "--patience", "90", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().splitlines()[-1] == f"VERDICT: PASS {scenario}"


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SMALL)
def test_what_was_answered_while_postgresql_was_killed_is_in_the_log_once_and_in_order(
    scenario: str,
):
    soak(scenario, *SMALL[scenario])
