"""The sweeps of the bench: what they are called, and the page that they are written to."""

import pytest

from brokers.bench import curves, sweep
from brokers.bench.crew import BenchError
from brokers.bench.rows import Row
from brokers.bench.sweep import SWEEPS, Point


def test_every_sweep_goes_up_and_covers_more_than_a_decade():
    for one in SWEEPS.values():
        assert list(one.at) == sorted(set(one.at))
        assert one.at[-1] >= 10 * one.at[0]


def test_a_sweep_is_asked_for_by_its_name_and_an_unknown_one_is_told_which_there_are():
    assert list(sweep.chosen([])) == list(SWEEPS)
    assert list(sweep.chosen(["groups"])) == ["groups"]
    with pytest.raises(BenchError, match="no sweep 'speed'; there are: partitions"):
        sweep.chosen(["speed"])


def test_the_page_has_every_number_and_a_picture_of_each_sweep(tmp_path):
    found = {
        "batch": [
            Point("push", 1, Row(name="a", what="push", rate=3.5, p50_ms=0.25)),
            Point("push", 10, Row(name="b", what="push", rate=30_000, notes=["ran dry"])),
            Point("pop + ack", 1, Row(name="c", what="pop", figures={"extra": 7.0})),
        ]
    }
    assert curves.write(tmp_path, {"cpus": 2}, found)
    page = (tmp_path / "curves.md").read_text()
    assert "- cpus: 2" in page
    assert "![Messages of one request](batch.png)" in page
    assert "| 1 | push | 3.50 | 0.25 |" in page
    assert "| 10 | push | 30,000 |" in page
    assert "ran dry" in page
    assert "| 1 | pop + ack |  |" in page and "7.00" in page
    assert (tmp_path / "batch.png").read_bytes().startswith(b"\x89PNG")
