"""Pages that are read often row by row stay in the cache with their mini-blocks uncompressed."""

from __future__ import annotations

import numpy as np
import pytest

from nyala.engine.cfile.cache import PageCache
from nyala.engine.cfile.format import StreamKey
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.cfile.stream import OFTEN, StreamReader
from nyala.engine.cfile.writer import CFileWriter
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector, Vector, as_bytes

ROWS = 5_003


def numbers(physical: PhysicalType) -> FixedVector:
    values = np.zeros(ROWS, physical.dtype)
    if physical is PhysicalType.INT128:
        values["lo"], values["hi"] = np.arange(ROWS), -(np.arange(ROWS) % 3)
    else:
        values[:] = np.arange(ROWS) % 100
    valid = np.arange(ROWS) % 7 > 0
    values[~valid] = np.zeros((), physical.dtype)
    return FixedVector(values, valid)


def texts() -> BytesVector:
    cells = [b"text %d" % (row % 300) for row in range(ROWS)]
    return BytesVector(np.cumsum([0, *map(len, cells)]).astype(np.int32), np.frombuffer(b"".join(cells), np.uint8))


def stream_of(cells: Vector, physical: PhysicalType, encoding: str, cache: PageCache) -> StreamReader:
    fs, key = MemoryFileSystem(), StreamKey(1, "base")
    with CFileWriter(fs, "file", 1, "base") as writer:
        writer.write_stream(key, physical, [cells], encoding, "none", page_rows=4096)
        writer.finish({})
    return CFileReader.open(fs, "file", 1, cache).stream(key)


CASES = [
    *((numbers(kind), kind, "bitshuffle") for kind in PhysicalType if kind not in (PhysicalType.BYTES,)),
    (texts(), PhysicalType.BYTES, "dictionary"),
    (texts(), PhysicalType.BYTES, "prefix"),
    (texts(), PhysicalType.BYTES, "fsst"),
]


def as_python(cells: Vector) -> tuple[list, list | None]:
    valid = None if cells.valid is None else cells.valid.tolist()
    if isinstance(cells, FixedVector):
        return cells.values.tolist(), valid
    plain = as_bytes(cells)
    return [plain.data[a:z].tobytes() for a, z in zip(plain.offsets, plain.offsets[1:], strict=False)], valid


@pytest.mark.parametrize(("cells", "physical", "encoding"), CASES, ids=[f"{case[1]}, {case[2]}" for case in CASES])
def test_cells_stay_the_same(cells: Vector, physical: PhysicalType, encoding: str) -> None:
    cache = PageCache()
    stream = stream_of(cells, physical, encoding, cache)
    rows = np.random.default_rng(1).integers(0, ROWS, OFTEN // 2)
    expected, tight = as_python(stream.gather(rows)), cache.size_bytes
    for _ in range(6):
        assert as_python(stream.gather(rows)) == expected
    assert cache.size_bytes > tight, "both pages are uncompressed now"
    assert as_python(stream.gather(rows)) == expected
    assert as_python(stream.read(0, ROWS)) == as_python(cells)
    with pytest.raises(IndexError):
        stream.gather(np.array([ROWS]))
    assert stream.stored_page(0).nbytes < stream.page(0).nbytes, "a copy of the page is as it was in the file"


def test_a_full_cache_keeps_pages_as_they_are() -> None:
    cache = PageCache(40_000)
    stream = stream_of(numbers(PhysicalType.INT64), PhysicalType.INT64, "bitshuffle", cache)
    for row in range(2 * OFTEN):
        stream.gather(np.array([row]))
    assert stream.page(0).nbytes < 4096 * 8


def test_a_pass_over_all_rows_changes_nothing() -> None:
    cache = PageCache()
    stream = stream_of(numbers(PhysicalType.INT64), PhysicalType.INT64, "bitshuffle", cache)
    for _ in range(3):
        stream.gather(np.arange(0, ROWS, 5))
    assert stream.page(0).nbytes < 4096 * 8


@pytest.mark.parametrize("encoding", ["prefix", "fsst"])
def test_strings_that_are_read_as_a_whole_again_become_plain(encoding: str) -> None:
    cache = PageCache()
    stream = stream_of(texts(), PhysicalType.BYTES, encoding, cache)
    assert stream.page(0, is_taken_whole=True).codec.name == encoding
    assert [stream.page(0, is_taken_whole=True).codec.name for _ in range(2)] == ["plain", "plain"]
    assert stream.page(0).codec.name == "plain" and stream.stored_page(0).codec.name == encoding
    assert stream.page(1, is_taken_whole=True).codec.name == encoding, "each page is counted alone"
    assert as_python(stream.read(0, ROWS)) == as_python(texts())


@pytest.mark.parametrize("encoding", ["prefix", "fsst"])
def test_so_do_those_of_a_scan(encoding: str) -> None:
    stream = stream_of(texts(), PhysicalType.BYTES, encoding, PageCache())
    names = [[page.codec.name for page, _, _ in stream.parts(0, ROWS - 1)] for _ in range(3)]
    assert names == [[encoding, encoding], ["plain", encoding], ["plain", encoding]], "the last page is not taken whole"


@pytest.mark.parametrize("encoding", ["prefix", "fsst"])
def test_strings_stay_as_they_are_where_plain_ones_have_no_room(encoding: str) -> None:
    cache = PageCache(60_000)
    stream = stream_of(texts(), PhysicalType.BYTES, encoding, cache)
    for _ in range(5):
        assert stream.page(0, is_taken_whole=True).codec.name == encoding
