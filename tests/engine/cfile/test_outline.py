"""One row of a page that left the page cache is read without the rest of the page."""

from __future__ import annotations

import numpy as np
import pytest

from nyala.engine.cfile import outline
from nyala.engine.cfile.cache import PageCache
from nyala.engine.cfile.format import StreamKey
from nyala.engine.cfile.page import Page
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.cfile.stream import StreamReader
from nyala.engine.cfile.writer import CFileWriter
from nyala.engine.codecs.registry import codec_by_name
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.rowset.native.page_rows import PageRows
from nyala.engine.rowset.native.row_columns import RowColumns
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.raw_cell import raw_cell
from nyala.engine.vectors.vector import BytesVector, FixedVector, Vector
from nyala.schemas.errors import CorruptionError
from nyala.schemas.table.column import ColumnSchema

KEY = StreamKey(1, "base")
ROWS, PAGE_ROWS = 70_003, 32_768
NAMES = ("plain", "bitshuffle", "run_length", "dictionary", "prefix", "frame_of_reference", "alp", "fsst")
TYPES = {
    PhysicalType.BOOL: "bool",
    PhysicalType.INT8: "int8",
    PhysicalType.INT16: "int16",
    PhysicalType.INT32: "int32",
    PhysicalType.INT64: "int64",
    PhysicalType.INT128: "decimal(38, 2)",
    PhysicalType.FLOAT32: "float",
    PhysicalType.FLOAT64: "double",
    PhysicalType.BYTES: "binary",
}
CASES = [
    (name, physical, kind)
    for name in NAMES
    for physical in TYPES
    for kind in ("wide", "narrow")
    if codec_by_name(name).supports(physical)
]


def cells_of(physical: PhysicalType, kind: str) -> Vector:
    """Return cells with NULLs among them: of many values, or of few."""
    random = np.random.default_rng(len(TYPES[physical]))
    valid = random.random(ROWS) < 0.9
    if physical is PhysicalType.BYTES:
        distinct, longest = (ROWS, 60) if kind == "wide" else (300, 9)
        words = [random.integers(97, 123, random.integers(0, longest), np.uint8).tobytes() for _ in range(distinct)]
        cells = [words[code] if code >= 0 else b"" for code in np.where(valid, random.integers(0, distinct, ROWS), -1)]
        offsets = np.cumsum([0, *map(len, cells)]).astype(np.int32)
        return BytesVector(offsets, np.frombuffer(b"".join(cells), np.uint8), valid)
    if kind == "wide" and physical.dtype.kind == "f":
        values = random.normal(size=ROWS).astype(physical.dtype)
    elif physical.dtype.kind == "f":
        values = (random.integers(0, 3000, ROWS) / 100).astype(physical.dtype)
    else:
        raw = random.integers(0, 256, (ROWS, physical.width), np.uint8)
        if kind == "narrow":
            raw[:, 1:] = 0
        raw = raw & 1 if physical is PhysicalType.BOOL else raw
        values = np.ascontiguousarray(raw).reshape(-1).view(physical.dtype)
    values[~valid] = np.zeros((), physical.dtype)
    return FixedVector(values, valid)


def file_of(
    cells: Vector,
    physical: PhysicalType,
    encoding: str,
    fs: MemoryFileSystem,
    compression: str = "none",
    page_rows: int = PAGE_ROWS,
) -> CFileReader:
    """Write a file of one stream and open it, over a page cache in which no page has room."""
    with CFileWriter(fs, "file", 1, "base") as writer:
        writer.write_stream(KEY, physical, [cells], encoding, compression, page_rows=page_rows)
        writer.finish({})
    return CFileReader.open(fs, "file", 1, PageCache(64 << 10))


def row_reader(file: CFileReader, physical: PhysicalType) -> PageRows:
    column = ColumnSchema(id=1, name="x", type=TYPES[physical], nullable=True, encoding="auto", compression="none")
    return PageRows(RowColumns.of((column,), 0), [file.stream(KEY), None], 0, file)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages begin with bytes that are not theirs."""

    def allocate(count: int, dtype: type) -> np.ndarray:
        return np.random.default_rng(count).integers(0, 256, count, dtype)

    monkeypatch.setattr(outline, "allocate", allocate)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("name", "physical", "kind"), CASES)
def test_a_row_is_what_it_was(name: str, physical: PhysicalType, kind: str) -> None:
    cells = cells_of(physical, kind)
    file = file_of(cells, physical, name, MemoryFileSystem())
    stream = file.stream(KEY)
    reader = row_reader(file, physical)
    for first in range(0, ROWS, PAGE_ROWS):
        reader.read(first)
    parts = 0
    for row in np.random.default_rng(3).integers(0, ROWS, 200).tolist():
        page = stream.page_for(row)
        if page.part_bytes is not None:
            parts += 1
            is_long = name in ("prefix", "run_length") or (name, physical.width) == ("bitshuffle", 16)
            assert page.part_bytes <= 16 << 10 or is_long
        (cell, _) = reader.read(row)
        wanted = raw_cell(cells, row)
        assert cell == wanted or (cell != cell and wanted != wanted), row
    assert parts > 50 or max(page.length for page in stream.entry.pages) < 64 << 10


def text(row: int) -> bytes:
    return b"row %08d " % row * 8


def texts(rows: int = 9_000) -> BytesVector:
    cells = [text(row) for row in range(rows)]
    return BytesVector(np.cumsum([0, *map(len, cells)]).astype(np.int32), np.frombuffer(b"".join(cells), np.uint8))


def damage(file: CFileReader, row: int) -> None:
    """Flip a bit of a cell in the file."""
    content = file.image.file._file.content  # type: ignore[attr-defined]
    place = content.find(text(row))
    content[place] ^= 1


def test_damage_of_the_row_is_found_and_other_damage_is_not_looked_at() -> None:
    file = file_of(texts(), PhysicalType.BYTES, "plain", MemoryFileSystem())
    reader = row_reader(file, PhysicalType.BYTES)
    reader.read(0)
    damage(file, 5_000)
    assert reader.read(100)[0] == text(100)
    with pytest.raises(CorruptionError, match="checksum"):
        reader.read(5_000)


def test_compressed_pages_are_read_whole() -> None:
    file = file_of(texts(), PhysicalType.BYTES, "plain", MemoryFileSystem(), "lz4")
    stream = file.stream(KEY)
    assert [stream.page_for(row).part_bytes for row in (1, 2)] == [None, None]


def test_a_page_is_read_whole_if_it_has_room_or_after_many_rows() -> None:
    file = file_of(texts(), PhysicalType.BYTES, "plain", MemoryFileSystem())
    stream = file.stream(KEY)
    pages = [stream.page_for(row) for row in range(2_000)]
    blocks = pages[0].header.page_length // outline.BLOCK_BYTES
    whole = [place for place, page in enumerate(pages) if page.part_bytes is None]
    assert whole[0] == 0 and abs(whole[1] - blocks // 2) < 3 and len(whole) == 2_000 * 2 // blocks + 1
    file.pages._cache.capacity_bytes = 100 << 20
    assert stream.page_for(0).part_bytes is None is stream.page_for(1).part_bytes


def test_pages_that_are_read_for_one_row_do_not_push_out_the_outlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A get of a table four times the cache read 200 KB: pages without a use had taken the place of all outlines."""
    rows, page_rows = 60_000, 1024
    file = file_of(texts(rows), PhysicalType.BYTES, "plain", MemoryFileSystem(), page_rows=page_rows)
    file.pages._cache.capacity_bytes = 1 << 20
    whole: list[int] = []
    stored_page = StreamReader.stored_page

    def counted(stream: StreamReader, number: int, is_kept: bool = False) -> Page:
        whole.append(number)
        return stored_page(stream, number, is_kept)

    monkeypatch.setattr(StreamReader, "stored_page", counted)
    reader = row_reader(file, PhysicalType.BYTES)
    for turn in range(9):
        for row in range(turn, rows, page_rows):
            assert reader.read(row)[0] == text(row)
    assert 59 == len(set(whole)) <= len(whole) < 70, "again a few that had room at first"
