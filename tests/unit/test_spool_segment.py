"""Segment files: every intact record is read, whatever has happened to the file around it.

Method: real files, cut and flipped at every place or at many. A record is intact when all
of its bytes lie where they were; the test knows that from what it damaged, and the reader
has to find out.
"""

import random
import tracemalloc
from itertools import accumulate
from pathlib import Path
from struct import pack

import pytest

from spool.records import BODY_BYTES_MAX, MARKER, Record, encode, encode_many
from spool.segment import CHUNK_BYTES, Position, Reader, count, position_of, survey
from tests.spool_parts import message, numbers, read_all, record, records

FLIPS = 2000
SEED = 20_260_730


def varied(total: int) -> list[Record]:
    """Records of different lengths, some with a payload like the format's own pieces."""
    payloads = [b"1", b'{"x":"%b"}' % (b"y" * 90), b'"QS1"', b'[{"id":"a"},"\\u001eQS1"]']
    return [record(number, payload=payloads[number % 4]) for number in range(total)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "1700000000000-00000000.buf"


def test_a_file_is_read_in_batches_of_records_and_of_bytes(path: Path):
    path.write_bytes(encode_many(records(10)))
    reader = Reader(path)
    size = len(encode(record(0)))
    assert numbers(reader.read(3, 1 << 20)) == [0, 1, 2]
    assert numbers(reader.read(100, 2 * size)) == [3, 4]
    assert numbers(reader.read(100, 1)) == [5], "one, however large"
    assert (reader.index, reader.offset) == (6, 6 * size)
    assert numbers(reader.read(100, 1 << 20)) == [6, 7, 8, 9]
    assert reader.read(100, 1 << 20) == []
    assert (reader.damaged, reader.ranges, reader.torn) == (0, [], None)


def test_a_file_cut_at_any_byte_gives_every_record_before_the_cut(path: Path):
    some = varied(8)
    data = encode_many(some)
    ends = [0, *accumulate(len(encode(one)) for one in some)]
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        found, reader = read_all(path)
        whole = sum(end <= cut for end in ends[1:])
        assert found == some[:whole], cut
        assert reader.torn == (None if cut in ends else ends[whole]), cut
        assert (reader.damaged, reader.ranges) == (0, []), cut


def test_a_file_without_its_first_bytes_gives_every_record_behind_the_first(path: Path):
    some = varied(4)
    data = encode_many(some)
    first = len(encode(some[0]))
    for cut in range(1, first):
        path.write_bytes(data[cut:])
        found, reader = read_all(path)
        assert found == some[1:]
        assert (reader.damaged, reader.ranges) == (1, [(0, first - cut)])


def test_after_any_flipped_bit_every_other_record_is_read(path: Path):
    some = varied(20)
    encoded = [encode(one) for one in some]
    ends = [0, *accumulate(map(len, encoded))]
    data = b"".join(encoded)
    chance = random.Random(SEED)
    for _ in range(FLIPS):
        bits = sorted(
            {chance.randrange(8 * len(data)) for _ in range(chance.choice([1, 1, 1, 2, 5]))}
        )
        damaged = bytearray(data)
        for bit in bits:
            damaged[bit // 8] ^= 1 << bit % 8
        hit = {sum(end <= bit // 8 for end in ends[1:]) for bit in bits}
        path.write_bytes(damaged)
        found, reader = read_all(path, batch_max=chance.choice([1, 3, 100]))
        assert found == [one for number, one in enumerate(some) if number not in hit], bits
        ranges = list(reader.ranges)
        if reader.torn is not None:
            ranges.append((reader.torn, len(data)))
        places = {place for start, end in ranges for place in range(start, end)}
        assert places == {place for one in hit for place in range(ends[one], ends[one + 1])}, bits
        assert 1 <= reader.damaged + (reader.torn is not None) <= len(hit) * 2, bits


def test_every_place_of_a_record_may_hold_any_wrong_byte(path: Path):
    some = [record(0), record(1), record(2)]
    before, middle, behind = map(encode, some)
    chance = random.Random(SEED)
    for place in range(len(middle)):
        for wrong in {0x00, 0x1E, 0xFF, chance.randrange(256)} - {middle[place]}:
            broken = middle[:place] + bytes([wrong]) + middle[place + 1 :]
            path.write_bytes(before + broken + behind)
            found, reader = read_all(path)
            assert numbers(found) == [0, 2], (place, wrong)
            assert reader.ranges == [(len(before), len(before) + len(middle))], (place, wrong)


@pytest.mark.parametrize("length", [2**32 - 1, BODY_BYTES_MAX + 1, BODY_BYTES_MAX, 0, 1])
def test_a_length_that_lies_costs_its_own_record(path: Path, length: int):
    lying = bytearray(encode(record(1)))
    lying[4:8] = pack(">I", length)
    path.write_bytes(encode(record(0)) + lying + encode(record(2)))
    tracemalloc.start()
    found, reader = read_all(path)
    assert tracemalloc.get_traced_memory()[1] < 4 * CHUNK_BYTES
    tracemalloc.stop()
    assert numbers(found) == [0, 2]
    assert reader.damaged == 1


def test_a_file_of_lengths_that_lie_is_read_in_bounded_memory(path: Path):
    lying = MARKER + pack(">I", 2 * 1024 * 1024) + b"abcd" + b"x" * 1000
    path.write_bytes(lying * 4000 + encode(record(1)))
    tracemalloc.start()
    found, reader = read_all(path)
    assert tracemalloc.get_traced_memory()[1] < 8 * CHUNK_BYTES
    tracemalloc.stop()
    assert numbers(found) == [1]
    assert reader.damaged == 4000
    assert reader.ranges == [(0, 4000 * len(lying))]


def test_a_marker_within_the_head_of_a_false_record_is_found(path: Path):
    for junk in (MARKER, MARKER + b"\0\0", MARKER[:2], MARKER + b"\0\0\0\1abc", b"\x1e" * 7):
        path.write_bytes(junk + encode(record(1)) + junk + encode(record(2)))
        found, reader = read_all(path)
        assert numbers(found) == [1, 2], junk
        assert sum(end - start for start, end in reader.ranges) == 2 * len(junk)


def test_damage_across_the_reading_chunks_is_found(path: Path):
    chance = random.Random(SEED)
    for _ in range(40):
        before = chance.randrange(CHUNK_BYTES - 400, CHUNK_BYTES + 40)
        path.write_bytes(b"x" * before + encode(record(1)) + b"y" * CHUNK_BYTES + encode(record(2)))
        found, reader = read_all(path)
        assert numbers(found) == [1, 2]
        assert reader.damaged == 2


@pytest.mark.parametrize(
    ("data", "damaged", "torn"),
    [
        (b"", 0, None),
        (b"\0" * 100_000, 0, 0),
        (b"garbage", 1, None),
        (random.Random(SEED).randbytes(3_000_000), 1, None),
        (b'{"json": true}\n' * 10_000, 1, None),
        (MARKER, 0, 0),
        (MARKER * 10_000, 9_999, 4 * 9_999),
        (MARKER[:1], 0, 0),
    ],
    ids=["empty", "zeros", "text", "noise", "json lines", "a marker", "markers", "its first byte"],
)
def test_a_file_of_anything_else_ends(path: Path, data: bytes, damaged: int, torn: int | None):
    path.write_bytes(data)
    found, reader = read_all(path)
    assert found == []
    assert (reader.damaged, reader.torn) == (damaged, torn)
    assert sum(end - start for start, end in reader.ranges) == (len(data) if torn is None else torn)


def test_what_follows_the_last_record_is_torn_only_when_it_can_be(path: Path):
    good = encode(record(1))
    wrong_sum = good[:-2] + b"!}"
    for tail, damaged, torn in (
        (good[:20], 0, True),
        (b"\0" * 20, 0, True),
        (wrong_sum, 1, False),
        (b"x" + good[:20], 1, True),
        (good[:20] + b"\0" * 8192, 1, False),
        (MARKER + pack(">I", 2**32 - 1) + b"abcdefgh", 1, False),
    ):
        path.write_bytes(good + tail)
        found, reader = read_all(path)
        assert numbers(found) == [1]
        assert (reader.damaged, reader.torn is not None) == (damaged, torn), tail


def test_the_largest_record_is_read(path: Path):
    large = record(1, payload=b'"' + b"x" * (64 << 20) + b'"')
    path.write_bytes(encode_many([record(0), large, record(2)]))
    reader = Reader(path)
    assert numbers(reader.read(100, 1 << 20)) == [0]
    assert reader.read(100, 1 << 20) == [large]
    assert numbers(reader.read(100, 1 << 20)) == [2]


def test_a_file_that_is_cut_while_it_is_read_ends_there(path: Path):
    path.write_bytes(encode_many(records(5000)))
    reader = Reader(path)
    assert len(reader.read(10, 1 << 20)) == 10
    with path.open("r+b") as file:
        file.truncate(400_000)
    rest = 0
    while batch := reader.read(100, 1 << 20):
        rest += len(batch)
    ends = accumulate(len(encode(one)) for one in records(5000))
    assert 10 + rest == sum(end <= 400_000 for end in ends)
    assert reader.torn is not None


def test_a_survey_counts_the_records_of_every_partition(path: Path):
    some = [record(5), record(3, accepted_us=17), record(6, tenant="t")]
    path.write_bytes(encode_many(some))
    found = survey(path)
    assert (found.events, found.oldest_us) == (3, 17)
    assert found.partitions == {one.whereabouts: 1 for one in some}
    assert count(path)[:2] == (3, some[0].accepted_us)


@pytest.mark.parametrize("data", [b"", b"garbage", MARKER * 50, encode(record(1))[:-1]])
def test_a_quick_count_of_anything_else_is_only_wrong(path: Path, data: bytes):
    path.write_bytes(data)
    assert count(path).events <= 1


def test_names_sort_as_they_were_given():
    position = Position(1_700_000_000_000, 0)
    assert position.stem == "1700000000000-00000000"
    assert position.after() == Position(1_700_000_000_000, 1)
    assert Position(5, 10**8 - 1).after() == Position(6, 0)
    assert position_of("1700000000000-00000001.buf") == position.after()
    assert position_of("1700000000000-00000001.tmp") == position.after()
    for name in ("x.buf", "1700000000000-1.buf", "1700000000000-00000001.bad", "LOCK", ""):
        assert position_of(name) is None


def test_an_id_that_stands_in_a_queue_name_is_not_taken_for_the_message(path: Path):
    tricky = Record('q","id":"x', 'p\\","id":"', 1, message(1))
    path.write_bytes(encode(tricky))
    assert read_all(path)[0] == [tricky]
