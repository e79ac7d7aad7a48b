"""Every message that was answered `queued` reaches both groups, whoever is killed meanwhile.

Method: soak.py in small, as a process of its own on the PostgreSQL of the test run. Its head says
what it checks; at full size it is `python tests/process/soak.py --messages 1000000`.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SOAK = Path(__file__).with_name("soak.py")


def test_nothing_is_lost_doubled_or_reordered_when_consumers_and_the_broker_are_killed(
    fresh_database: Any, tmp_path: Path
):
    command = [sys.executable, str(SOAK), "--messages", "20000", "--directory", str(tmp_path)]
    command += ["--producers", "4", "--consumers", "4", "--consumer-kill-every", "1"]
    command += ["--broker-kills", "1"]
    done = subprocess.run(
        command,
        env=os.environ | fresh_database().environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    last = done.stdout.strip().splitlines()[-1:]
    assert done.returncode == 0, done.stdout + done.stderr
    assert last[0].startswith("VERDICT: PASS 20000 messages"), done.stdout
