"""How long a worker that dies is waited for, however often it has died."""

from queen_project.workers import AGAIN_S_MAX, AGAIN_S_MIN, pause_s


def test_a_worker_that_dies_is_started_later_and_later_up_to_a_bound():
    pauses = [pause_s(falls) for falls in range(1, 12)]
    assert pauses[0] == AGAIN_S_MIN
    assert pauses == sorted(pauses)
    assert pauses[-1] == AGAIN_S_MAX


def test_a_worker_that_has_died_thousands_of_times_is_still_started_again():
    assert pause_s(100_000) == AGAIN_S_MAX
