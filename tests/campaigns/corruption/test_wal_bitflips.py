"""Every bit of a small closed log is flipped: nobody may believe what was not written.

With the note of the clean stop every flip is found.  Without it, one thing cannot be told from a power failure: damage
in the very last group, or in the zeroes after it.  Then exactly that group is missing, and the log says what it cut.
"""

from collections.abc import Iterator

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.wal.log import WriteAheadLog
from nyala.engine.wal.options import WalOptions
from nyala.engine.wal.reader import CleanStop, LogReader
from nyala.schemas.errors import CorruptionError
from tests.engine.wal.appending import append_record

STORE = bytes(range(16))
PAYLOADS = [b"one", b"two" * 9, b"", b"four" * 8, b"five", b"six" * 5]


@pytest.fixture(scope="module")
def log() -> tuple[dict[str, bytes], CleanStop]:
    """The files of a log of three segments, and its clean stop."""
    fs = MemoryFileSystem()
    log = WriteAheadLog.open(fs, "wal", STORE, WalOptions(segment_bytes=250))
    assert list(log.replay()) == []
    for payload in PAYLOADS:
        log.wait(append_record(log, 7, [payload]))
    stop = log.close()
    assert stop is not None
    files = {name: bytes(fs.open(f"wal/{name}").view()) for name in fs.list("wal")}
    assert len(files) == 3
    return files, stop


def read(files: dict[str, bytes], expect: CleanStop | None) -> tuple[list[tuple[int, int, bytes]], int]:
    """Return the records and the count of torn bytes."""
    fs = MemoryFileSystem()
    fs.make_directory("wal")
    for name, content in files.items():
        fs.create(f"wal/{name}").append(content)
    reader = LogReader(fs, "wal", STORE, expect)
    records = [(lsn, stamp, bytes(payload)) for group in reader.groups() for lsn, stamp, payload in group.records]
    return records, reader.torn_bytes


def flips(files: dict[str, bytes]) -> Iterator[tuple[str, int, dict[str, bytes]]]:
    for name, content in files.items():
        for bit in range(len(content) * 8):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            yield name, bit // 8, {**files, name: bytes(flipped)}


def test_the_log_is_sound(log: tuple[dict[str, bytes], CleanStop]) -> None:
    files, stop = log
    expected = [(lsn, 7, payload) for lsn, payload in enumerate(PAYLOADS, 1)]
    assert read(files, stop) == read(files, None) == (expected, 0)


def test_every_flip_is_found_after_a_clean_stop(log: tuple[dict[str, bytes], CleanStop]) -> None:
    files, stop = log
    missed = []
    for name, offset, flipped in flips(files):
        try:
            read(flipped, stop)
            missed.append((name, offset))
        except CorruptionError as error:
            assert error.path.startswith("wal/")
            assert 0 <= error.offset <= 256
    assert missed == []


def test_without_it_every_flip_is_found_or_a_torn_tail(log: tuple[dict[str, bytes], CleanStop]) -> None:
    files, _ = log
    whole = read(files, None)[0]
    last_file, last_group = max(files), 64 + 40 + 16 + 8
    found = 0
    for name, offset, flipped in flips(files):
        try:
            records, torn_bytes = read(flipped, None)
        except CorruptionError:
            found += 1
            continue
        assert name == last_file, offset
        assert offset >= last_group, offset
        assert torn_bytes > 0
        assert records in (whole, whole[:-1])
    assert found == sum(len(content) for content in files.values()) * 8 - (len(files[last_file]) - last_group) * 8


def test_every_truncation_is_found(log: tuple[dict[str, bytes], CleanStop]) -> None:
    """Only a last segment cut to nothing looks as if the power had failed while it was made."""
    files, stop = log
    for name, content in files.items():
        for size in range(len(content)):
            cut = {**files, name: content[:size]}
            with pytest.raises(CorruptionError):
                read(cut, stop)
            if size > 0 or name != max(files):
                with pytest.raises(CorruptionError):
                    read(cut, None)
