"""A log in segments is followed group by group, whatever state its writer, or a crash, has left it in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nyala.engine.fs import LocalFileSystem
from nyala.engine.fs.encryption.keyring import create_keyring
from nyala.engine.wal import segment_tail
from nyala.engine.wal.format import GROUP_HEADER_BYTES, MalformedError, decode_group_header, seed_of
from nyala.engine.wal.log import WriteAheadLog
from nyala.engine.wal.options import WalOptions
from nyala.engine.wal.records import decode_records
from nyala.engine.wal.segment_tail import LogGapError, LogPlace, SegmentTail
from nyala.engine.wal.segments import segment_path
from nyala.schemas.errors import CorruptionError
from nyala.schemas.store.store_key import StoreKey

UUID = bytes(range(16))
START = LogPlace(0, 0, 0, 0)


@pytest.fixture(params=["plain", "encrypted"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    plain = LocalFileSystem(tmp_path, keeps_open=True)
    if request.param == "plain":
        return plain
    from nyala.engine.fs.encryption.filesystem import EncryptedFileSystem

    return EncryptedFileSystem(plain, create_keyring(plain, StoreKey(bytes(32))))


def opened(fs: Any, segment_bytes: int = 64 << 10) -> WriteAheadLog:
    log = WriteAheadLog.open(fs, "wal", UUID, WalOptions(segment_bytes, 1 << 20))
    for _ in log.replay():
        pass
    return log


class Writer:
    """Appends records, each a group of its own."""

    def __init__(self, log: WriteAheadLog) -> None:
        self.log = log
        self.count = 0

    def append(self, *sizes: int) -> None:
        for size in sizes:
            self.count += 1
            stamp: Callable[[int], list[int]] = lambda count: [self.log.writer.last_lsn + 1] * count  # noqa: E731
            self.log.writer.wait(self.log.writer.append([[bytes([self.count % 251]) * size]], stamp))


def read(tail: SegmentTail) -> list[tuple[int, int, int]]:
    """Return the lsn, the length and the first byte of each new record."""
    return [(record.lsn, len(record.payload), record.payload[0]) for records in tail.read() for record in records]


def test_each_look_shows_the_groups_that_have_come_since(fs: Any) -> None:
    log = opened(fs)
    writer, tail, random = Writer(log), SegmentTail(fs, "wal", UUID, START), Random(4)
    assert read(tail) == []
    for _ in range(60):
        before = writer.count
        sizes = [random.choice((1, 8, 100, 5_000, 70_000)) for _ in range(random.randrange(4))]
        writer.append(*sizes)
        found = read(tail)
        assert [(lsn, size) for lsn, size, _ in found] == list(enumerate(sizes, before + 1))
        assert all(first == lsn % 251 for lsn, _, first in found)
    assert tail.place.segment > 3, "it has gone from segment to segment"
    log.close()
    assert read(tail) == []
    again = opened(fs)
    writer = Writer(again)
    writer.append(7)
    assert [size for _, size, _ in read(tail)] == [7], "the next process begins another segment"
    again.close()


def test_a_tail_begins_where_another_one_stands(fs: Any) -> None:
    log = opened(fs)
    writer, tail = Writer(log), SegmentTail(fs, "wal", UUID, START)
    writer.append(10, 20)
    read(tail)
    other = SegmentTail(fs, "wal", UUID, tail.place)
    writer.append(30)
    assert [size for _, size, _ in read(other)] == [30] == [size for _, size, _ in read(tail)]
    log.close()


def half_written(tmp_path: Path, shown_by: type[SegmentTail]) -> None:
    """Show a group of which a part has been written, whatever part. Raises AssertionError if any of it is shown."""
    fs = LocalFileSystem(tmp_path, keeps_open=True)
    log = opened(fs)
    writer, tail = Writer(log), SegmentTail(fs, "wal", UUID, START)
    writer.append(100)
    read(tail)
    start = tail.place.offset
    place = LogPlace(1, start, 1, tail.place.crc)
    writer.append(300)
    log.close()
    path = tmp_path / segment_path("wal", 1)
    whole = path.read_bytes()
    end = start + 40 + 16 + 304
    group = whole[start:end]
    for shown in range(0, len(group) - 4, 7):  # the last four bytes are zeroes anyway
        first = group[:shown] + bytes(len(group) - shown)
        last = bytes(len(group) - shown) + group[len(group) - shown :]
        for part in (first, last):
            path.write_bytes(whole[:start] + part + whole[end:])
            assert read(shown_by(fs, "wal", UUID, place)) == []
    path.write_bytes(whole)
    assert [size for _, size, _ in read(shown_by(fs, "wal", UUID, place))] == [300]


def test_a_group_is_shown_when_all_of_it_is_there(tmp_path: Path) -> None:
    half_written(tmp_path, SegmentTail)


class HastyTail(SegmentTail):
    """A planted mistake: it believes a group's header, and does not look at the payload."""

    def _new_groups(self) -> Any:
        assert self._file is not None
        view = self._file.view()
        seed = seed_of(UUID, self.place.segment, self.place.offset)
        try:
            header = decode_group_header(view, self.place.offset, seed)
        except MalformedError:
            return
        payload = view[self.place.offset + GROUP_HEADER_BYTES : self.place.offset + header.extent]
        self.place = LogPlace(1, self.place.offset + header.extent, header.last_lsn, header.crc)
        yield decode_records(payload, header)


def test_a_reader_that_takes_a_half_written_group_is_found(tmp_path: Path) -> None:
    with pytest.raises((AssertionError, MalformedError)):
        half_written(tmp_path, HastyTail)


def test_a_torn_tail_is_left_when_the_next_segment_begins(tmp_path: Path) -> None:
    fs = LocalFileSystem(tmp_path, keeps_open=True)
    log = opened(fs)
    writer, tail = Writer(log), SegmentTail(fs, "wal", UUID, START)
    writer.append(100)
    read(tail)
    writer.append(300)
    log.close()
    with (tmp_path / segment_path("wal", 1)).open("r+b") as file:
        file.seek(tail.place.offset + 100)
        file.write(b"torn")
    assert read(tail) == []
    again = opened(fs)
    Writer(again).append(9)
    assert [(lsn, size) for lsn, size, _ in read(tail)] == [(2, 9)]
    again.close()


def test_a_damaged_group_that_others_follow_is_corruption(fs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(fs)
    writer, tail = Writer(log), SegmentTail(fs, "wal", UUID, START)
    writer.append(100)
    read(tail)
    place, file = tail.place, tail._file
    start: int = getattr(file, "_at", place.offset)  # in the file on the disk
    writer.append(300, 50)
    log.close()
    root = Path(fs.root) / segment_path("wal", 1)
    content = bytearray(root.read_bytes())
    content[start + 200] ^= 1
    root.write_bytes(content)
    later = SegmentTail(fs, "wal", UUID, place)
    assert read(later) == [], "it may be a write under way"
    monkeypatch.setattr(segment_tail, "elapsed_seconds", lambda: 1e9)
    with pytest.raises(CorruptionError, match="yet a sound group follows"):
        read(later)


def test_a_log_that_was_freed_or_replaced_is_not_followed(tmp_path: Path) -> None:
    fs = LocalFileSystem(tmp_path, keeps_open=True)
    log = opened(LocalFileSystem(tmp_path))
    writer, tail = Writer(log), SegmentTail(fs, "wal", UUID, START)
    writer.append(100)
    read(tail)
    writer.append(*[30_000] * 8)
    assert log.free_before(writer.count) > 0
    with pytest.raises(LogGapError):
        read(tail)
    log.close()
    newest = log._segments.all()[-1].number
    last = SegmentTail(fs, "wal", UUID, LogPlace(newest, 30_000, 1, 0))
    assert read(last) == []
    (tmp_path / "wal").rename(tmp_path / "gone")
    with pytest.raises(LogGapError):
        read(last)


def test_a_segment_that_links_elsewhere_is_not_followed(tmp_path: Path) -> None:
    fs = LocalFileSystem(tmp_path, keeps_open=True)
    log = opened(fs)
    writer, tail = Writer(log), SegmentTail(fs, "wal", UUID, START)
    writer.append(100)
    read(tail)
    log.close()
    other = opened(fs)
    Writer(other).append(5)
    other.close()
    stranger = SegmentTail(fs, "wal", UUID, LogPlace(1, tail.place.offset, 1, tail.place.crc ^ 1))
    with pytest.raises(LogGapError):
        read(stranger)
