"""queen_lease_take, _held and _done: one leader at a time, whatever dies and whatever is late.

Method: the store's coroutines over several connections; a lease ends by moving its end back in
the row, so that nothing here waits for one.
"""

import threading

import pytest

from brokers.store import leader_calls as calls
from tests.store.calling import Lane, call, waits_for_lock
from tests.store.retaining import configure, log_of, push_aged, step

INTERVAL_MS = 60_000


@pytest.fixture
def task(fresh_queue):
    """A task that nobody has led yet."""
    return fresh_queue


def take(connection, task, holder="me", lease_ms=600_000, interval_ms=INTERVAL_MS):
    return call(
        connection, calls.lease_take, task, holder, lease_ms=lease_ms, interval_ms=interval_ms
    )


def done(connection, task, token, interval_ms=INTERVAL_MS):
    return call(connection, calls.lease_done, task, token, interval_ms=interval_ms)


def held(connection, task, token):
    return connection.execute("SELECT queen_lease_held_v1(%s, %s)", [task, token]).fetchone()[0]


def runs_out(db, task):
    db.execute("UPDATE queen_lease SET held_until = clock_timestamp() WHERE task = %s", [task])


def test_a_task_that_was_never_led_is_due_at_once_and_then_after_its_interval(db, task):
    token = take(db, task).token
    assert token == 1
    assert done(db, task, token) is True
    refused = take(db, task)
    assert refused.token is None
    assert 0 < refused.wait_us <= INTERVAL_MS * 1000
    db.execute("UPDATE queen_lease SET next_due_at = clock_timestamp() WHERE task = %s", [task])
    assert take(db, task).token == 2


def test_while_one_leads_nobody_else_does(db, task):
    assert take(db, task).token == 1
    refused = take(db, task, "another")
    assert (refused.token, refused.wait_us) == (None, INTERVAL_MS * 1000)
    holder = db.execute("SELECT holder FROM queen_lease WHERE task = %s", [task]).fetchone()
    assert holder == ("me",)


def test_a_leader_that_died_is_succeeded_when_its_lease_is_over(db, task):
    dead = take(db, task, "dead", lease_ms=600_000).token
    assert take(db, task).wait_us == INTERVAL_MS * 1000
    db.execute(
        "UPDATE queen_lease SET held_until = clock_timestamp() + interval '5 s' WHERE task = %s",
        [task],
    )
    assert 0 < take(db, task).wait_us <= 5_000_000, "it is asked again when the lease is over"
    runs_out(db, task)
    heir = take(db, task, "heir").token
    assert heir == dead + 1
    assert held(db, task, heir) is True
    assert held(db, task, dead) is False


def test_an_old_token_gives_nothing_back(db, task):
    late = take(db, task).token
    runs_out(db, task)
    assert done(db, task, late) is False, "its time is over although nobody has come yet"
    heir = take(db, task).token
    assert done(db, task, late) is False
    assert held(db, task, heir) is True


def test_a_step_of_a_leader_whose_time_is_over_does_nothing(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    configure(lane, max_wait_time_seconds=10)
    push_aged(lane, 20)
    db.execute("DELETE FROM queen_lease WHERE task = 'retention'")
    late = take(db, "retention").token
    runs_out(db, "retention")
    assert step(db, late, lane).verdict == "fenced"
    heir = take(db, "retention").token
    assert step(db, late, lane).verdict == "fenced"
    assert step(db, late + 2, lane).verdict == "fenced"
    removed = call(db, calls.partition_cleanup, late, idle_s=0, rows_max=10).removed
    assert removed == call(db, calls.history_purge, late, days=0, rows_max=10) == 0
    assert call(db, calls.statistics_step, late, None, budget_ms=1).since is None
    assert log_of(lane) == (0, [0])
    assert step(db, heir, lane).verdict == "done"


def test_a_step_under_way_keeps_the_next_leader_out_until_it_is_over(db, task, second_connection):
    late = take(db, task).token
    stepping = second_connection()
    assert held(stepping, task, late) is True
    runs_out(db, task)
    assert take(db, task, "heir").token is None
    stepping.commit()
    assert take(db, task, "heir").token == late + 1


def test_steps_of_one_leader_run_side_by_side(db, task, second_connection):
    token = take(db, task).token
    one, other = second_connection(), second_connection()
    assert held(one, task, token) and held(other, task, token)
    assert done(db, task, token) is True


def test_of_many_that_ask_at_once_one_leads(database, task):
    tokens = []
    gate = threading.Barrier(16)

    def ask(name):
        with database.connect() as connection:
            gate.wait()
            tokens.append(take(connection, task, name).token)

    threads = [threading.Thread(target=ask, args=[str(n)]) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(token for token in tokens if token is not None) == [1]


def test_a_task_that_is_switched_off_is_led_by_nobody(db, task):
    token = take(db, task).token
    done(db, task, token, interval_ms=0)
    db.execute("UPDATE queen_lease SET enabled = false WHERE task = %s", [task])
    assert take(db, task) == (None, INTERVAL_MS * 1000)
    db.execute("UPDATE queen_lease SET enabled = true WHERE task = %s", [task])
    assert take(db, task).token == token + 1


def test_a_shorter_interval_is_not_kept_waiting_by_what_a_longer_one_wrote(db, task):
    done(db, task, take(db, task, interval_ms=86_400_000).token, interval_ms=86_400_000)
    assert take(db, task, interval_ms=86_400_000).token is None
    assert take(db, task, interval_ms=5000).token == 2


def test_the_next_turn_counts_from_when_this_one_was_due(db, task):
    take(db, task)
    done(db, task, 1)
    set_due = (
        "UPDATE queen_lease SET next_due_at = clock_timestamp() - %s::interval WHERE task = %s"
    )
    db.execute(set_due, ["20 s", task])
    done(db, task, take(db, task).token)
    assert 39_000_000 < take(db, task).wait_us <= 40_000_000
    db.execute(set_due, ["1 day", task])
    done(db, task, take(db, task).token)
    assert take(db, task).token is not None, "what was missed is made up for by one turn"


def test_nobody_waits_for_a_leader_at_the_lock(db, task, second_connection):
    token = take(db, task).token
    stepping = second_connection()
    held(stepping, task, token)
    runs_out(db, task)
    for _ in range(3):
        assert take(db, task).token is None
    assert not waits_for_lock(db)
