"""Damaged spools, drained: what is intact arrives, what is not is kept and counted.

Method: one directory holds every case as a file of its own, so that a single drain meets them
all, each behind the others, and has to come to its end.
"""

import random
from itertools import accumulate
from pathlib import Path

import pytest

from spool.records import encode, encode_many
from tests.spool_parts import Bench, lay, numbers, opened, record

FLIPS = 2000
FLIPPED_FILES = 100
FILE_RECORDS = 30
SEED = 20_260_730


def set_aside(path: Path, name: str) -> bytes:
    damaged = path / "failed" / name.replace(".buf", ".damaged")
    return damaged.read_bytes() if damaged.exists() else b""


async def test_two_thousand_flipped_bits_cost_the_records_they_hit_and_no_other(tmp_path: Path):
    chance = random.Random(SEED)
    path = tmp_path / "spool"
    files, intact, lost = [], [], []
    for first in range(0, FLIPPED_FILES * FILE_RECORDS, FILE_RECORDS):
        some = [
            record(n, payload=b'"%b"' % (b"y" * chance.choice([0, 9, 200])))
            for n in range(first, first + FILE_RECORDS)
        ]
        ends = list(accumulate(len(encode(one)) for one in some))
        data = bytearray(encode_many(some))
        hit = set()
        for bit in chance.sample(range(8 * len(data)), FLIPS // FLIPPED_FILES):
            data[bit // 8] ^= 1 << bit % 8
            hit.add(sum(end <= bit // 8 for end in ends))
        files.append(bytes(data))
        intact += [one for place, one in enumerate(some) if place not in hit]
        lost.append(b"".join(data[([0, *ends])[place] : ends[place]] for place in sorted(hit)))
    lay(path, *files)
    with opened(path) as directory:
        names = directory.finished()
        bench = Bench(directory)
        await bench.cycles_until_empty()
        assert bench.store.log == intact
        assert bench.settled == intact
        assert [set_aside(path, name) for name in names] == lost
        assert directory.stats().failed_files == FLIPPED_FILES
        assert bench.drain.pieces_damaged >= FLIPPED_FILES
        assert bench.drain.healthy


@pytest.fixture
def cuts() -> tuple[list[int], list[bytes]]:
    """Where two records end, and their file cut at every byte."""
    some = [record(0), record(1, payload=b'{"x":"\\u001eQS1"}')]
    data = encode_many(some)
    ends = list(accumulate(len(encode(one)) for one in some))
    return ends, [data[:cut] for cut in range(len(data) + 1)]


async def test_a_finished_file_cut_at_any_byte_gives_its_whole_records(
    tmp_path: Path, cuts: tuple[list[int], list[bytes]]
):
    ends, files = cuts
    path = tmp_path / "spool"
    lay(path, *files)
    with opened(path) as directory:
        names = directory.finished()
        bench = Bench(directory)
        await bench.cycles_until_empty()
        whole = [sum(end <= cut for end in ends) for cut in range(len(files))]
        assert numbers(bench.store.log) == [n for count in whole for n in range(count)]
        for cut, name in enumerate(names):
            kept = files[cut][([0, *ends])[whole[cut]] :]
            assert set_aside(path, name) == kept, cut
        assert bench.drain.pieces_damaged == sum(cut not in (0, *ends) for cut in range(len(files)))


async def test_an_unfinished_file_cut_at_any_byte_gives_its_whole_records_and_no_alarm(
    tmp_path: Path, cuts: tuple[list[int], list[bytes]]
):
    ends, files = cuts
    path = tmp_path / "spool"
    lay(path, *files)
    for file in path.glob("*.buf"):
        file.rename(file.with_suffix(".tmp"))
    with opened(path) as directory:
        torn = [cut for cut in range(len(files)) if cut not in (0, *ends)]
        assert directory.torn_tails == len(torn)
        bench = Bench(directory)
        await bench.cycles_until_empty()
        whole = [sum(end <= cut for end in ends) for cut in range(len(files))]
        assert numbers(bench.store.log) == [n for count in whole for n in range(count)]
        assert directory.stats().failed_files == bench.drain.pieces_damaged == 0
        assert not any(path.glob("*.tmp"))
