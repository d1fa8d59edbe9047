"""What the reader concludes from damage: a torn tail, a cut, or corruption with the place named."""

import struct
import zlib
from itertools import chain
from typing import Any

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.wal.format import SegmentHeader
from nyala.engine.wal.log import WriteAheadLog
from nyala.engine.wal.reader import CleanStop, LogReader, content_end
from nyala.schemas.errors import CorruptionError, UnavailableError
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.engine.wal.appending import append_record

STORE = bytes(range(16))
PAYLOADS = [b"first", b"second" * 5, b"third" * 20]
# A group of one record: 40 bytes of header, 16 of record header, the payload padded to 8.
ENDS = [64, 128, 216, 376]


def put(log: WriteAheadLog, *payloads: bytes) -> None:
    for payload in payloads:
        log.wait(append_record(log, 1, [payload]))


@pytest.fixture
def stop(bench: Any) -> CleanStop:
    """A log of one segment with three groups, closed."""
    log, _ = bench.open()
    put(log, *PAYLOADS)
    return log.close()


def damage(bench: Any, at: int, number: int = 1, flip: int = 1) -> None:
    content = bench.content(number)
    content[at] ^= flip
    bench.replace(number, bytes(content))


def payloads(records: list[tuple[int, int, bytes]]) -> list[bytes]:
    return [payload for _, _, payload in records]


def test_the_groups_are_where_they_should_be(bench: Any, stop: CleanStop) -> None:
    reader = LogReader(bench.disk, "wal")
    assert [group.offset for group in reader.groups()] == ENDS[:3]
    assert reader.store_uuid == STORE
    assert (reader.last_lsn, reader.crc) == (3, stop.crc)
    assert content_end(bench.disk.open("wal/0000000001.wal").view(), 0) <= ENDS[3]


@pytest.mark.parametrize("groups", [0, 1, 5, 40])
def test_a_log_is_replayed_as_it_was_looked_through(bench: Any, monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    """Each segment but the last one is read twice."""
    written, _ = bench.open()
    put(written, *(b"x" * 100 for _ in range(groups)))
    written.close()
    read: list[str] = []
    view, start = LogReader._view, LogReader._start
    monkeypatch.setattr(LogReader, "_view", lambda reader, path: read.append(path) or view(reader, path))
    monkeypatch.setattr(LogReader, "_start", lambda reader, path, size: read.append(path) or start(reader, path, size))
    log = WriteAheadLog.open(bench.disk, "wal", STORE)
    looked_through = [(lsn, bytes(payload)) for lsn, _, payload in chain.from_iterable(log.peek())]
    replayed = [(lsn, bytes(payload)) for lsn, _, payload in chain.from_iterable(log.replay())]
    assert replayed == looked_through == [(lsn, b"x" * 100) for lsn in range(1, groups + 1)]
    paths = [f"wal/{name}" for name in bench.disk.list("wal")]
    assert read == paths + paths[:-1]
    log.close()


@pytest.mark.parametrize("kept", range(ENDS[2], ENDS[3]))
def test_the_last_group_torn_at_every_byte(bench: Any, stop: CleanStop, kept: int) -> None:
    whole = bench.content()
    torn = whole[:kept].ljust(len(whole), b"\0")
    bench.replace(1, bytes(torn))
    log, records = bench.open()
    if torn == whole:
        assert payloads(records) == PAYLOADS
        return
    assert payloads(records) == PAYLOADS[:2]
    assert log.torn_bytes == content_end(memoryview(torn), ENDS[2]) - ENDS[2]
    put(log, b"third again")
    log.close()
    log, records = bench.open()
    assert payloads(records) == [*PAYLOADS[:2], b"third again"]
    assert log.torn_bytes == 0


@pytest.mark.parametrize("at", [ENDS[0], ENDS[0] + 20, ENDS[0] + 60, ENDS[1], ENDS[1] + 30, ENDS[2] - 1])
def test_a_bad_group_before_a_good_one_is_corruption(bench: Any, stop: CleanStop, at: int) -> None:
    damage(bench, at)
    with pytest.raises(CorruptionError) as caught:
        bench.open()
    assert caught.value.path == "wal/0000000001.wal"
    assert caught.value.offset == (ENDS[0] if at < ENDS[1] else ENDS[1])
    assert "a sound group follows at byte" in caught.value.why


@pytest.mark.parametrize("at", [ENDS[2], ENDS[2] + 50, ENDS[3], 1023])
def test_after_a_clean_stop_nothing_is_torn(bench: Any, stop: CleanStop, at: int) -> None:
    damage(bench, at)
    with pytest.raises(CorruptionError):
        bench.open(expect=stop)
    log, _ = bench.open()
    assert log.torn_bytes > 0


def test_a_clean_stop_that_is_not_in_the_log(bench: Any, stop: CleanStop) -> None:
    for other in (CleanStop(3, stop.crc ^ 1), CleanStop(4, 0), CleanStop(2, stop.crc)):
        with pytest.raises(CorruptionError):
            bench.open(expect=other)
    with pytest.raises(CorruptionError, match="noted"):
        bench.open(expect=CleanStop(0, 1))


def test_groups_after_a_clean_stop_in_its_segment_are_corruption(bench: Any) -> None:
    log, _ = bench.open()
    put(log, *PAYLOADS)
    group = list(LogReader(bench.disk, "wal").groups())[1]
    log.close()
    with pytest.raises(CorruptionError, match="goes on after its clean stop at lsn 2"):
        bench.open(expect=CleanStop(2, group.header.crc))


def test_a_clean_stop_is_stale_once_the_log_was_written_again(bench: Any, stop: CleanStop) -> None:
    """A store that dies before it has withdrawn the note of the stop opens all the same."""
    log, _ = bench.open(expect=stop)
    put(log, b"fourth")
    log.close()
    damage(bench, 64 + 60, number=2)
    log, records = bench.open(expect=stop)
    assert payloads(records) == PAYLOADS
    assert log.torn_bytes > 0


def test_a_lost_log_is_noticed(bench: Any, stop: CleanStop) -> None:
    bench.disk.unlink("wal/0000000001.wal")
    with pytest.raises(CorruptionError):
        bench.open(expect=stop)
    with pytest.raises(CorruptionError):
        bench.open(reached=1)


@pytest.fixture
def long(bench: Any) -> int:
    """Five segments of two groups each, closed."""
    log, _ = bench.open(segment_bytes=320)
    put(log, *[bytes([number]) * 72 for number in range(10)])
    log.close()
    assert len(log.sizes()) == 5
    return 320


@pytest.mark.parametrize("missing", [2, 3, 4])
def test_a_missing_segment_is_corruption(bench: Any, long: int, missing: int) -> None:
    bench.disk.unlink(f"wal/{missing:010d}.wal")
    with pytest.raises(CorruptionError, match="missing") as caught:
        bench.open()
    assert caught.value.path == f"wal/{missing:010d}.wal"


def test_a_missing_first_segment_was_freed(bench: Any, long: int) -> None:
    bench.disk.unlink("wal/0000000001.wal")
    log, records = bench.open()
    assert [lsn for lsn, _, _ in records] == list(range(3, 11))
    assert log.first_lsn == 3


@pytest.mark.parametrize("at", [64 + 128, 64 + 128 + 70])
def test_a_bad_group_at_the_end_of_a_middle_segment_is_corruption(bench: Any, long: int, at: int) -> None:
    damage(bench, at, number=3)
    with pytest.raises(CorruptionError, match="segment 4 starts with another group, at lsn 7") as caught:
        bench.open()
    assert (caught.value.path, caught.value.offset) == ("wal/0000000003.wal", 64 + 128)


def test_a_bad_byte_in_the_zeroes_of_a_middle_segment_is_corruption(bench: Any) -> None:
    log, _ = bench.open(segment_bytes=200)
    put(log, b"a", b"b", b"c", b"d")
    log.close()
    damage(bench, 195)
    with pytest.raises(CorruptionError, match="although the log continues in the next segment"):
        bench.open()


def test_a_bad_header_is_corruption_if_anything_follows(bench: Any, long: int) -> None:
    for number in (1, 3, 5):
        before = bench.content(number)
        damage(bench, 33, number)
        with pytest.raises(CorruptionError) as caught:
            bench.open()
        assert (caught.value.path, caught.value.offset) == (f"wal/{number:010d}.wal", 0)
        bench.replace(number, bytes(before))


@pytest.mark.parametrize("start", [b"", bytes(64), b"NYALAWAL garbage"])
def test_an_unborn_segment_is_removed(bench: Any, long: int, start: bytes) -> None:
    bench.replace(6, start.ljust(320, b"\0"))
    bench.replace(7, bytes(5))
    log, records = bench.open()
    assert len(records) == 10
    assert len(bench.disk.list("wal")) == 5
    put(log, b"eleventh")
    log.close()
    assert bench.disk.list("wal")[-1] == "0000000006.wal"
    assert len(bench.open()[1]) == 11


def test_a_segment_that_is_begun_while_it_is_read_is_not_damaged(bench: Any, stop: CleanStop) -> None:
    """A writer beside the reader wrote header and groups after the look for the header, before that for groups."""
    too_early = FaultRule(frozenset({"pread"}), path="wal/0000000001.wal", flip=0)
    reader = LogReader(FaultyFileSystem(bench.disk, [too_early]), "wal")
    assert [group.offset for group in reader.groups()] == ENDS[:3]


def test_a_truncated_segment_is_corruption(bench: Any, stop: CleanStop) -> None:
    bench.replace(1, bytes(bench.content()[:500]))
    with pytest.raises(CorruptionError, match="should have 1024 bytes"):
        bench.open()


def test_a_segment_under_another_name_is_corruption(bench: Any, long: int) -> None:
    second, third = bench.content(2), bench.content(3)
    bench.replace(2, bytes(third))
    bench.replace(3, bytes(second))
    with pytest.raises(
        CorruptionError, match="the header says segment 3, but the file has the name of another segment"
    ):
        bench.open()


def test_groups_that_changed_places_are_corruption(bench: Any, long: int) -> None:
    content = bench.content(2)
    content[64:192], content[192:320] = content[192:320], content[64:192]
    bench.replace(2, bytes(content))
    with pytest.raises(CorruptionError):
        bench.open()


def test_a_log_of_another_store_is_refused(bench: Any, stop: CleanStop) -> None:
    with pytest.raises(CorruptionError, match="belongs to store 000102"):
        WriteAheadLog.open(bench.disk, "wal", b"another store's!")


def test_an_unknown_version_is_named(bench: Any, stop: CleanStop) -> None:
    content = bench.content()
    content[8] = 9
    content[60:64] = struct.pack("<I", zlib.crc32(content[:60]))
    bench.replace(1, bytes(content))
    with pytest.raises(CorruptionError, match="version 9"):
        bench.open()


def test_a_cut_tail_stays_cut(bench: Any, stop: CleanStop) -> None:
    damage(bench, ENDS[2] + 1)
    log, _ = bench.open()
    put(log, b"after the cut")
    log.close()
    header = SegmentHeader.decode(bytes(bench.content(2)[:64]))
    assert header.previous_tail_cut
    assert (header.first_lsn, header.number) == (3, 2)
    for _ in range(2):
        log, records = bench.open()
        assert payloads(records) == [*PAYLOADS[:2], b"after the cut"]
        put(log)
        log.close()
    damage(bench, ENDS[1] + 1)
    with pytest.raises(CorruptionError):
        bench.open()


def test_other_files_are_left_alone(bench: Any, stop: CleanStop) -> None:
    bench.disk.create("wal/notes.txt").close()
    assert len(bench.open(expect=stop)[1]) == 3
    assert bench.disk.exists("wal/notes.txt")


def test_a_missing_directory_cannot_be_read() -> None:
    with pytest.raises(UnavailableError):
        LogReader(MemoryFileSystem(), "wal")
