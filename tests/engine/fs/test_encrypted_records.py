"""Segments of an encrypted log on which a write was interrupted, repeated, and torn."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.encryption import filesystem, records
from nyala.engine.fs.encryption.header import HEADER_BYTES, RECORDS, new_header
from nyala.engine.fs.encryption.keyring import create_keyring
from nyala.engine.fs.encryption.records import RECORD_BYTES, RecordWriter
from nyala.engine.fs.salvage import salvaged
from nyala.schemas.errors import CorruptionError
from tests.doubles.encrypted import KEY, encrypted

SIZE = 3 << 20
FIRST = b"F" * 64
BIG = bytes(range(256)) * 6000
"""More than one record."""


def disk_with(*writes: tuple[int, bytes]) -> tuple[MemoryFileSystem, list[int]]:
    """Return a disk with a file of these writes, and where each begins on it."""
    disk = MemoryFileSystem()
    file: Any = encrypted(disk).create("a", preallocate=SIZE)
    starts: list[int] = []
    for offset, content in writes:
        starts.append(file._end)
        file.pwrite(offset, content)
        file.sync()
    file.close()
    return disk, starts


def zeroed(disk: MemoryFileSystem, start: int, stop: int) -> MemoryFileSystem:
    """Return the disk without some bytes of the file."""
    file = disk.open("a")
    content = bytearray(file.pread(0, file.size))
    content[start:stop] = bytes(stop - start)
    other = MemoryFileSystem()
    other.create("a").append(bytes(content))
    return other


def shown(disk: MemoryFileSystem) -> bytes:
    return bytes(encrypted(disk).open("a").view()).rstrip(b"\0")


@pytest.mark.parametrize("content", [b"A" * 8192, BIG], ids=["one record", "two records"])
@pytest.mark.parametrize("place", [512, 0, 4096])
def test_of_a_repeated_write_one_copy_is_enough(content: bytes, place: int) -> None:
    disk, (_, one, two) = disk_with((0, FIRST), (64, content), (64, content))
    for start, stop in ((one + place, one + 8192), (two + place, two + 8192)):
        view = shown(zeroed(disk, start, stop))
        assert view[: 64 + len(content)] == FIRST + content
        assert set(view[64 + len(content) :]) <= {0xFF}, "as of a torn write"
    both = zeroed(zeroed(disk, one + place, one + 8192), two + place, two + 8192)
    assert 0xFF in set(shown(both)[64:]) - set(FIRST)


def test_a_repeated_write_of_two_records_is_put_together_from_what_is_left_of_it() -> None:
    disk, (_, one, two) = disk_with((0, FIRST), (64, BIG), (64, BIG))
    second = one + RECORD_BYTES + 40
    assert shown(zeroed(zeroed(disk, second, two), two + 512, two + 1024)) == FIRST + BIG


def test_what_a_later_write_proves_durable_is_damage() -> None:
    disk, (_, _, two, three) = disk_with((0, FIRST), (64, b"A" * 8192), (64, b"A" * 8192), (8256, b"B" * 64))
    damaged = zeroed(disk, two + 512, two + 1024)
    with pytest.raises(CorruptionError) as caught:
        shown(damaged)
    assert caught.value.offset == two
    found = salvaged(encrypted(damaged).open("a"))
    assert bytes(found.content).rstrip(b"\0") == FIRST + b"A" * 8192 + b"B" * 64
    assert [offset for offset, _ in found.faults] == [two] and three > two


def test_a_file_that_was_cut_is_refused_and_yet_salvaged() -> None:
    disk, (_, _, last) = disk_with((0, FIRST), (64, b"A" * 800), (864, b"B" * 800))
    file = disk.open("a")
    for size, kept in ((file.size - 8, 1664), (last + 100, 864), (last, 864), (HEADER_BYTES, 0)):
        cut = MemoryFileSystem()
        cut.create("a").append(file.pread(0, size))
        for _ in range(2):
            with pytest.raises(CorruptionError, match="should have") as caught:
                encrypted(cut).open("a").view()
        assert caught.value.offset == size
        found = salvaged(encrypted(cut).open("a"))
        assert bytes(found.content[:kept]) == (FIRST + b"A" * 800 + b"B" * 800)[:kept]
        assert not set(found.content[kept:]) - {0, 0xFF}
        assert [offset for offset, _ in found.faults] == [size]


class Nowhere:
    """A file that keeps nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_a_large_write_is_not_copied_as_a_whole() -> None:
    _, opened = new_header(create_keyring(MemoryFileSystem(), KEY), RECORDS, RECORD_BYTES, 64 << 20)
    file: Any = RecordWriter(cast(Any, Nowhere()), opened)
    pieces = [b"header", bytes(20 << 20), b"tail"]
    tracemalloc.start()
    try:
        file.pwrite(0, *pieces)
        assert tracemalloc.get_traced_memory()[1] < 4 * RECORD_BYTES
    finally:
        tracemalloc.stop()
    assert file.size == (20 << 20) + 10


def test_only_a_file_of_zeroes_was_never_begun() -> None:
    disk, _ = disk_with((0, FIRST))
    file = disk.open("a")
    for size in (1, 64, 127):
        cut = MemoryFileSystem()
        cut.create("a").append(file.pread(0, size))
        with pytest.raises(CorruptionError):
            encrypted(cut).open("a")
        empty = MemoryFileSystem()
        empty.create("a").append(bytes(size))
        assert encrypted(empty).open("a").size == 0


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(8, 60), max_size=4),
    st.integers(8, 600),
    st.lists(st.booleans(), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 1 << 20),
)
def test_whatever_is_left_of_repeated_writes_what_was_durable_is_shown(
    before: list[int], last: int, repeated: list[bool], is_full: bool, seed: int
) -> None:
    """Groups of some words, each durable before the next, then one that is written several times, durably or not."""
    random = Random(seed)
    groups = [FIRST, *(random.randbytes(8 * words) for words in before)]
    content = random.randbytes(8 * last)
    start = sum(map(len, groups))
    disk = MemoryFileSystem()
    with pytest.MonkeyPatch.context() as patch:
        for module in (records, filesystem):
            patch.setattr(module, "RECORD_BYTES", 1024)
        file = encrypted(disk).create("a", preallocate=start + len(content) + (0 if is_full else 512))
        disk.sync_directory("")
        for group in groups:
            file.append(group)
            file.sync()
        for is_durable in repeated:
            file.pwrite(start, content)
            if is_durable:
                file.sync()
    view = bytes(encrypted(disk.crash_image(random)).open("a").view())
    assert view[:start] == b"".join(groups)
    if any(repeated):
        assert view[start : start + len(content)] == content
    shown = zip(view[start:], content.ljust(len(view) - start, b"\0"), strict=True)
    assert all(found in (0, 0xFF, written) for found, written in shown)
