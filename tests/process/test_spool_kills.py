"""The broker is killed while it spools and while it drains: nothing is lost or doubled.

Method: spool_soak.py in small; at full size it is `make soak-spool`.
"""

import pytest

from tests.process.test_spool_soak import soak


@pytest.mark.slow
def test_what_was_answered_by_brokers_that_were_killed_is_in_the_log_once_and_in_order():
    soak("kills", "--kills", "8", "--kills-a-round", "4", "--kill-window", "0.5")


@pytest.mark.slow
def test_the_order_holds_from_before_an_outage_over_a_restart_until_after_it():
    soak("restart")
