"""The spool directory: the lock, the names, the quarantine, and what a crash has left.

Method: real directories; the process that holds the lock is a real second one. The clock is
handed in, and goes where the test wants it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spool.directory import SpoolDirectory, look
from spool.errors import SpoolLocked, SpoolUnusable
from spool.records import encode, encode_many
from tests.spool_parts import lay, numbers, opened, read_all, record, records

PROJECT = Path(__file__).resolve().parent.parent.parent
HOLD = """
import sys
from pathlib import Path
from spool.directory import SpoolDirectory
directory = SpoolDirectory.open(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a" / "spool"


def write_file(directory: SpoolDirectory, data: bytes) -> str:
    name, fd = directory.create()
    os.write(fd, data)
    os.close(fd)
    directory.finish(name)
    return name


def test_a_directory_is_made_for_its_owner_alone(path: Path):
    with opened(path) as directory:
        assert directory.finished() == []
        assert (path / "failed").is_dir()
    assert (path / "failed").stat().st_mode & 0o077 == 0
    assert sorted(os.listdir(path)) == ["LOCK", "failed", "spool-id"]


def test_a_second_opener_is_refused_until_the_first_is_gone(path: Path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SpoolLocked, match=f"process {holder.pid} has"):
            SpoolDirectory.open(path)
        assert look(path).files == 0, "looking is allowed"
        holder.kill()
        holder.wait(timeout=10)
        with opened(path):
            pass
    finally:
        holder.kill()
        holder.communicate(timeout=10)


def test_looking_tells_of_what_lies_in_an_unfinished_file_too(path: Path):
    path.mkdir(parents=True)
    lying = records(3)
    (path / "1700000000000-00000000.tmp").write_bytes(encode_many(lying))
    seen = look(path)
    assert (seen.events, seen.oldest_us) == (3, lying[0].accepted_us)


def test_one_process_cannot_open_it_twice(path: Path):
    with opened(path), pytest.raises(SpoolLocked):
        SpoolDirectory.open(path)
    with opened(path):
        pass


def test_its_id_stays(path: Path):
    with opened(path) as directory:
        first = directory.spool_id
    with opened(path) as directory:
        assert directory.spool_id == first
    (path / "spool-id").write_text("what")
    with pytest.raises(SpoolUnusable, match="holds no UUID"):
        SpoolDirectory.open(path)
    (path / "spool-id").unlink()
    with opened(path) as directory:
        assert directory.spool_id != first


def test_what_is_no_directory_is_unusable(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(SpoolUnusable, match=re.escape(str(file))):
        SpoolDirectory.open(file)
    with pytest.raises(SpoolUnusable, match="cannot be used"):
        SpoolDirectory.open(file / "below")
    assert file.read_text() == "mine"
    with pytest.raises(SpoolUnusable, match="there is no"):
        look(tmp_path / "nowhere")


def test_a_directory_that_was_refused_is_not_left_locked(path: Path):
    path.mkdir(parents=True)
    (path / "spool-id").write_text("what")
    for _ in range(2):
        with pytest.raises(SpoolUnusable, match="UUID"):
            SpoolDirectory.open(path)


def test_names_follow_the_clock_and_never_go_backwards(path: Path):
    now = 1_700_000_000_000
    with opened(path, now_ms=lambda: now) as directory:
        names = [write_file(directory, encode(record(0))) for _ in range(2)]
        now -= 3_600_000
        names.append(write_file(directory, encode(record(0))))
        now += 7_200_000
        names.append(write_file(directory, encode(record(0))))
        assert directory.finished() == names == sorted(set(names))
    assert names[0] == "1700000000000-00000000.buf"
    assert names[-1] == f"{now}-00000000.buf"


def test_names_do_not_come_again_after_a_restart_of_an_emptied_directory(path: Path):
    with opened(path, now_ms=lambda: 1_700_000_000_000) as directory:
        last = write_file(directory, encode(record(0)))
        directory.remove(last)
        assert directory.finished() == []
    with opened(path, now_ms=lambda: 1_600_000_000_000) as directory:
        assert write_file(directory, encode(record(0))) > last


def test_names_go_on_behind_the_files_when_the_last_name_is_lost(path: Path):
    with opened(path, now_ms=lambda: 1_700_000_000_000) as directory:
        last = write_file(directory, encode(record(0)))
    for damage in (b"", b"\xff\0garbage", b"12"):
        (path / "last-name").write_bytes(damage)
        with opened(path, now_ms=lambda: 5) as directory:
            name = write_file(directory, encode(record(0)))
            assert name > last
            last = name


def test_a_clock_beyond_all_reason_still_gives_names_that_sort(path: Path):
    with opened(path, now_ms=lambda: 10**20) as directory:
        names = [write_file(directory, encode(record(0))) for _ in range(3)]
        assert directory.finished() == names
    with opened(path) as directory:
        assert directory.finished() == names


def test_an_unfinished_file_is_finished_without_its_torn_tail(path: Path):
    whole, torn = encode_many(records(3)), encode(record(3))[:-1]
    lay(path)
    unfinished = path / "1700000000000-00000000.tmp"
    unfinished.write_bytes(whole + torn)
    with opened(path) as directory:
        [name] = directory.finished()
        assert (path / name).read_bytes() == whole
        assert (directory.torn_tails, directory.torn_bytes) == (1, len(torn))
        assert directory.stats().failed_files == 0
    assert not unfinished.exists()


def test_without_fsync_a_torn_tail_may_have_been_answered_and_stays(path: Path):
    data = encode_many(records(3))[:-1]
    lay(path)
    (path / "1700000000000-00000000.tmp").write_bytes(data)
    with opened(path, fsync=False) as directory:
        [name] = directory.finished()
        assert (path / name).read_bytes() == data


def test_damage_in_an_unfinished_file_is_not_cut_off(path: Path):
    data = bytearray(encode_many(records(3)))
    data[-5] ^= 1
    lay(path)
    (path / "1700000000000-00000000.tmp").write_bytes(data)
    with opened(path) as directory:
        [name] = directory.finished()
        assert (path / name).read_bytes() == data
        assert directory.torn_tails == 0


@pytest.mark.parametrize("content", [b"", encode(record(0))[:30], b"\0" * 4096])
def test_an_unfinished_file_without_a_record_goes(path: Path, content: bytes):
    lay(path)
    (path / "1700000000000-00000000.tmp").write_bytes(content)
    with opened(path) as directory:
        assert directory.finished() == []
    assert sorted(os.listdir(path)) == ["LOCK", "failed", "spool-id"]


def test_an_unfinished_file_does_not_take_the_place_of_a_finished_one(path: Path):
    lay(path, records(1))
    (path / "1700000000000-00000000.tmp").write_bytes(encode(record(1)))
    with opened(path) as directory:
        first, second = directory.finished()
        assert numbers(read_all(path / first)[0]) == [0]
        assert numbers(read_all(path / second)[0]) == [1]


def test_other_peoples_files_are_left_alone(path: Path):
    lay(path, records(1))
    (path / "notes.txt").write_text("mine")
    (path / "1700000000000-00000007.bak").write_text("mine")
    (path / "1700000000001-00000000.buf").mkdir()
    with opened(path) as directory:
        assert len(directory.finished()) == 1
    assert (path / "notes.txt").exists() and (path / "1700000000000-00000007.bak").exists()


def test_what_waits_is_counted(path: Path):
    lay(path, records(3), [record(7, accepted_us=5), record(8)], b"garbage")
    with opened(path) as directory:
        directory.refresh()
        stats = directory.stats()
        assert (stats.files, stats.events, stats.oldest_us) == (3, 5, 5)
        assert (
            stats.bytes
            == stats.total_bytes
            == len(encode_many([*records(3), record(8)]))
            + 7
            + (len(encode(record(7, accepted_us=5))))
        )
        assert stats.free_bytes > 0
        first, second, _ = directory.finished()
        directory.replayed(first, 2)
        assert directory.stats().events == 3
        directory.remove(second)
        assert (directory.stats().events, directory.oldest_us()) == (1, record(0).accepted_us)
        assert directory.survey(first)[record(0).whereabouts] == 1
        assert look(path).events == 3, "whoever only looks knows no marks"


def test_the_counting_goes_on_with_every_look(path: Path):
    lay(path, *(records(1) for _ in range(5)))
    with opened(path) as directory:
        assert directory.stats().events == 0
        directory.refresh(count_files_max=3)
        assert directory.stats().events == 3
        directory.refresh(count_files_max=3)
        assert directory.stats().events == 5


def test_the_quarantine_keeps_a_poison_record_once(path: Path):
    with opened(path) as directory:
        quarantine = directory.quarantine
        quarantine.keep_poison("1-1.buf", [record(1)])
        quarantine.keep_poison("1-1.buf", [record(1), record(2)])
    with opened(path) as directory:
        directory.quarantine.keep_poison("1-1.buf", [record(2), record(3)])
        kept, reader = read_all(path / "failed" / "1-1.poison")
        assert numbers(kept) == [1, 2, 3]
        assert (reader.damaged, reader.torn) == (0, None)
        stats = directory.stats()
        assert (stats.failed_files, stats.failed_events) == (1, 3)
        assert stats.failed_bytes == len(encode_many([record(1), record(2), record(3)]))


def test_poison_torn_by_a_crash_is_written_anew(path: Path):
    lay(path / "failed")
    (path / "failed" / "1-1.poison").write_bytes(encode_many(records(2))[:-1])
    with opened(path) as directory:
        directory.quarantine.keep_poison("1-1.buf", [record(1)])
    kept, reader = read_all(path / "failed" / "1-1.poison")
    assert (numbers(kept), reader.damaged, reader.torn) == ([0, 1], 0, None)


def test_the_quarantine_keeps_damage_as_it_was(path: Path):
    lay(path, b"0123456789")
    with opened(path) as directory:
        [name] = directory.finished()
        for _ in range(2):
            directory.quarantine.keep_damage(path / name, [(1, 3), (7, 10)])
        [kept] = directory.quarantine.names()
        assert kept == name.replace(".buf", ".damaged")
        assert (path / "failed" / kept).read_bytes() == b"12789"
        assert directory.stats()[5:8] == (1, 1, 5)


def test_the_quarantine_is_looked_at_again(path: Path):
    with opened(path) as directory:
        directory.quarantine.keep_poison("1-1.buf", [record(1)])
        (path / "failed" / "1-1.poison").unlink()
        assert directory.stats().failed_files == 1
        directory.refresh()
        assert directory.stats().failed_files == 0


def test_what_is_requeued_comes_behind_the_others_but_a_whole_file_keeps_its_place(path: Path):
    lay(path, records(1), records(1, start=1), b"garbage")
    with opened(path, now_ms=lambda: 5) as directory:
        first, second, garbage = directory.finished()
        directory.quarantine.keep_whole(path / first)
        directory.dropped(first)
        directory.quarantine.keep_damage(path / garbage, [(0, 7)])
        directory.remove(garbage)
        directory.quarantine.keep_poison(first, [record(7), record(8)])
        assert directory.requeue_failed() == (2, 3)
        assert directory.finished()[:2] == [first, second]
        poison = directory.finished()[2]
        assert numbers(read_all(path / poison)[0]) == [7, 8]
        assert directory.stats().events == 3
        assert directory.quarantine.names() == [garbage.replace(".buf", ".damaged")]
        assert directory.requeue_failed() == (0, 0)


def test_what_a_crash_left_of_a_replacement_is_swept(path: Path):
    lay(path / "failed")
    for name in ("last-name.new", "probe.new", "failed/1-1.damaged.new"):
        (path / name).write_bytes(b"half")
    with opened(path):
        assert not list(path.rglob("*.new"))
