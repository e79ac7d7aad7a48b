"""How many attempts to sign in a peer has.

Method: a clock that the test moves.
"""

from brokers.admin.attempts import BY_NAME_MAX, BY_PEER_MAX, REMEMBERED_MAX, WINDOW_S, Attempts


class Clock:
    at = 1000.0

    def __call__(self) -> float:
        return self.at


def test_a_peer_that_failed_too_often_with_one_name_waits_for_the_rest_of_the_window():
    clock = Clock()
    attempts = Attempts(clock)
    for _ in range(BY_NAME_MAX - 1):
        attempts.failed("10.0.0.1", "root")
    assert attempts.wait_s("10.0.0.1", "root") == 0
    clock.at += 60
    attempts.failed("10.0.0.1", "root")
    assert attempts.wait_s("10.0.0.1", "root") == WINDOW_S - 60
    assert attempts.wait_s("10.0.0.1", "ann") == 0
    assert attempts.wait_s("10.0.0.2", "root") == 0
    clock.at += WINDOW_S
    assert attempts.wait_s("10.0.0.1", "root") == 0


def test_a_peer_that_tries_many_names_waits_too():
    attempts = Attempts(Clock())
    for number in range(BY_PEER_MAX):
        attempts.failed("10.0.0.1", f"user-{number}")
    assert attempts.wait_s("10.0.0.1", "another") > 0


def test_who_gets_in_starts_anew():
    attempts = Attempts(Clock())
    for _ in range(BY_NAME_MAX):
        attempts.failed("10.0.0.1", "root")
    attempts.succeeded("10.0.0.1", "root")
    assert attempts.wait_s("10.0.0.1", "root") == 0


def test_what_is_remembered_is_bounded():
    attempts = Attempts(Clock())
    for number in range(REMEMBERED_MAX):
        attempts.failed(f"peer-{number}", "root")
    assert len(attempts._failed) == REMEMBERED_MAX
