"""Streams whose pages have fewer rows because their cells are long."""

import numpy as np
import pytest

from nyala.engine.cfile.format import StreamKey
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.cfile.writer import NARROW_PAGE_BYTES, WIDE_PAGE_BYTES, CFileWriter
from nyala.engine.codecs.codec import PAGE_ROWS
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector
from tests.dose import by_night

KEY = StreamKey(1, "base")
BYTES = PhysicalType.BYTES
ROWS = 2 * PAGE_ROWS + 5_000


def long_cells(row_count: int, cell_bytes: int, seed: int = 3) -> BytesVector:
    """Cells of one length that nothing compresses; one of 13 is NULL."""
    random = np.random.default_rng(seed)
    valid = np.arange(row_count) % 13 != 5
    lengths = np.where(valid, cell_bytes, 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return BytesVector(offsets, random.integers(0, 256, int(offsets[-1]), np.uint8), valid)


@pytest.mark.parametrize(
    ("row_count", "cell_bytes", "page_rows"),
    [
        (ROWS, 5, PAGE_ROWS),
        (ROWS, 100, 2_048),
        (ROWS, 40, 4_096),
        (3_000, 2_000, 1_024),
        (1, 3 * WIDE_PAGE_BYTES, 1_024),
        pytest.param(40_000, 2_000, 1_024, marks=pytest.mark.night),  # 80 MB, which the cutter cuts too
    ],
)
@pytest.mark.parametrize("encoding", by_night(["plain", "auto", "dictionary"], ["auto"]))
def test_the_length_of_cells_decides(stored, make, row_count, cell_bytes, page_rows, encoding):
    cells = long_cells(row_count, cell_bytes)
    stream = stored(
        BYTES, [cells.slice(0, row_count // 3), cells.slice(row_count // 3, row_count)], encoding, "none", None
    )
    assert stream.page_rows == page_rows and stream.page_shift is not None
    assert make.cells_of(stream.read(0, row_count)) == make.cells_of(cells)
    some = np.random.default_rng(1).integers(0, row_count, 300)
    assert make.cells_of(stream.gather(some)) == make.cells_of(cells.take(some))
    assert [zone.row_count for zone in stream.zone_maps] == [page.row_count for page in stream.entry.pages]
    lengths = [page.length for page in stream.entry.pages]
    longest = {PAGE_ROWS: WIDE_PAGE_BYTES, 1_024: 4 * WIDE_PAGE_BYTES}.get(page_rows, NARROW_PAGE_BYTES * 5 // 4)
    assert max(lengths) <= longest


def test_short_pages_of_text_share_a_choice_and_symbols(stored, make):
    random = np.random.default_rng(6)
    words = [b"tablet ", b"snapshot ", b"delta ", b"compaction ", b"of ", b"the ", b"and "]
    cells = make.strings(
        [b"".join(words[code] for code in random.integers(0, 7, 30)) for _ in range(PAGE_ROWS + 9_000)]
    )
    stream = stored(BYTES, [cells], "auto", "none", None)
    assert stream.encoding_names == ["fsst"] and stream.page_rows < PAGE_ROWS
    assert make.cells_of(stream.read(0, len(cells))) == make.cells_of(cells)
    pages = [bytes(stream.stored_page(number).encoded[1]) for number in range(stream.page_count)]
    heads = [page[: 1 + 9 * page[0]] for page in pages]
    in_stretch = PAGE_ROWS // stream.page_rows
    assert len(set(heads[:in_stretch])) == 1 and heads[in_stretch] != heads[0]


@pytest.mark.parametrize("encoding", ["fsst", "auto", "dictionary", "prefix"])
@pytest.mark.parametrize("start", [b"", b"a", None])
def test_the_first_page_does_not_say_what_later_ones_are_like(stored, make, encoding, start):
    """Nothing can be learned from NULLs, nor from strings without a byte or with one, about the long ones behind."""
    random = np.random.default_rng(7)
    letters = random.integers(97, 101, (20_000, 300), np.uint8)
    cells = [start or b""] * 9_000 + [row.tobytes() for row in letters]
    valid = None if start is not None else np.arange(len(cells)) >= 9_000
    vector = make.strings(cells, valid)
    for page_rows in (None, 1_024):
        stream = stored(BYTES, [vector], encoding, "none", page_rows)
        assert make.cells_of(stream.read(0, len(cells))) == make.cells_of(vector)
        if encoding == "fsst":
            assert stream.compressed_bytes < 0.6 * vector.data_bytes
        if encoding == "dictionary" and page_rows is None:
            assert stream.entry.dictionary is None, "the wide page has shown that it does not pay"


def test_each_page_of_numbers_has_its_encoding(stored):
    cells = np.concatenate([np.zeros(1_024, np.int64), np.arange(64_512)])
    assert stored(PhysicalType.INT64, [FixedVector(cells)], "auto", "none", 1_024).compressed_bytes < 20_000


def test_short_cells_behind_a_page_of_very_long_ones(stored, make):
    cells = make.strings([bytes(100_000)] * 700 + [b"%0100d" % number for number in range(70_000)])
    stream = stored(BYTES, [cells], "plain", "none", None)
    assert make.cells_of(stream.read(0, len(cells))) == make.cells_of(cells)
    assert stream.page_rows == 1 and max(page.row_count for page in stream.entry.pages) == 1_024


def test_who_says_how_many_rows_gets_them(stored):
    stream = stored(BYTES, [long_cells(PAGE_ROWS + 1, 100)], "plain", "none", PAGE_ROWS)
    assert stream.page_rows == PAGE_ROWS and stream.page_count == 2


def test_numbers_have_long_pages(stored, make):
    cells = make.vector_of(PhysicalType.INT128, PAGE_ROWS + 1)
    assert stored(PhysicalType.INT128, [cells], "plain", "none", None).page_rows == PAGE_ROWS


def source_of(make, fs, cells, page_rows, encoding="plain"):
    path = f"source-{len(fs.list(''))}"
    make.write(fs, {KEY: (BYTES, [cells], encoding, "none", True, page_rows)}, path, file_id=50)
    return CFileReader.open(fs, path, 50).stream(KEY)


def written(fs, fill, page_rows=None, encoding="plain"):
    with CFileWriter(fs, "target", 9, "base") as writer:
        stream = writer.open_stream(KEY, BYTES, encoding, page_rows=page_rows)
        fill(stream)
        stream.finish()
        writer.finish({})
    reader = CFileReader.open(fs, "target", 9)
    reader.verify()
    return reader.stream(KEY)


def test_narrow_pages_are_copied_beside_others(fs, make):
    cells, others = long_cells(ROWS, 100), long_cells(PAGE_ROWS + 7, 110, seed=8)
    source = source_of(make, fs, cells, None)

    def fill(stream):
        assert stream.copy_rows(source, PAGE_ROWS)
        stream.append(others.slice(0, PAGE_ROWS))
        assert stream.copy_rows(source, 0)
        assert not stream.copy_rows(source, 2 * PAGE_ROWS), "too few rows"
        stream.append(others.slice(PAGE_ROWS, PAGE_ROWS + 7))
        assert not stream.copy_rows(source, 0), "rows are pending"

    target = written(fs, fill)
    assert target.page_rows == source.page_rows == 2_048
    assert make.cells_of(target.read(0, PAGE_ROWS)) == make.cells_of(cells.slice(PAGE_ROWS, 2 * PAGE_ROWS))
    assert make.cells_of(target.read(PAGE_ROWS, 2 * PAGE_ROWS)) == make.cells_of(others.slice(0, PAGE_ROWS))
    assert make.cells_of(target.read(2 * PAGE_ROWS, 3 * PAGE_ROWS)) == make.cells_of(cells.slice(0, PAGE_ROWS))
    assert make.cells_of(target.read(3 * PAGE_ROWS, target.row_count)) == make.cells_of(
        others.slice(PAGE_ROWS, len(others))
    )
    assert [bytes(target.stored_page(number).encoded[1]) for number in (0, 31, 64)] == [
        bytes(source.stored_page(number).encoded[1]) for number in (32, 63, 0)
    ]


def test_long_pages_of_long_cells_are_cut_anew(fs, make):
    cells = long_cells(PAGE_ROWS + 1, 100)
    source = source_of(make, fs, cells, PAGE_ROWS)

    def fill(stream):
        assert not stream.copy_rows(source, 0)
        stream.append(cells)

    assert written(fs, fill).page_rows == 2_048


def test_short_pages_of_short_cells_become_long(fs, make):
    cells = make.vector_of(BYTES, PAGE_ROWS + 1)
    source = source_of(make, fs, cells, 2_048)

    def fill(stream):
        assert not stream.copy_rows(source, 0)
        stream.append(cells)

    assert written(fs, fill).page_rows == PAGE_ROWS


def test_rows_that_another_dictionary_encodes_are_appended(fs, make):
    cells = make.vector_of(BYTES, 2 * PAGE_ROWS, seed=4)
    first = source_of(make, fs, make.vector_of(BYTES, PAGE_ROWS, seed=9, distinct=90), 4_096, "dictionary")
    second = source_of(make, fs, cells, 4_096, "dictionary")

    def fill(stream):
        assert stream.copy_rows(first, 0)
        assert not stream.copy_rows(second, 0), "codes of another dictionary"
        stream.append(cells)

    target = written(fs, fill, 4_096, "dictionary")
    assert target.page_rows == 4_096
    assert make.cells_of(target.read(PAGE_ROWS, 3 * PAGE_ROWS)) == make.cells_of(cells)


def test_a_page_that_cannot_be_copied_is_encoded_among_others(fs, make):
    cells = make.strings([b"abcdefgh" * 12 + b"%d" % number for number in range(PAGE_ROWS)])
    with CFileWriter(fs, "mixed", 50, "base") as writer:
        stream = writer.open_stream(KEY, BYTES, "auto", page_rows=2_048)
        stream.append(long_cells(PAGE_ROWS, 100))
        stream.append(cells)
        stream.finish()
        writer.finish({})
    source = CFileReader.open(fs, "mixed", 50).stream(KEY)
    assert source.encoding_names == ["plain", "prefix"]

    def fill(stream):
        assert stream.copy_rows(source, PAGE_ROWS // 2)

    target = written(fs, fill, 2_048, "plain")
    assert target.encoding_names == ["plain"] and target.page_count == 32
    assert make.cells_of(target.read(0, PAGE_ROWS)) == make.cells_of(source.read(PAGE_ROWS // 2, PAGE_ROWS * 3 // 2))
