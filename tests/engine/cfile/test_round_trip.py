"""What is written comes back, for every type, encoding and compression, wherever the page boundaries fall."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.cfile import cutter
from nyala.engine.cfile.format import StreamKey
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.codecs.codec import PAGE_ROWS
from nyala.engine.codecs.registry import codec_by_name
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, DictionaryVector, FixedVector, nulls
from nyala.schemas.cells.encoding import COMPRESSIONS
from nyala.schemas.errors import InvalidArgumentError

ENCODINGS = [
    (physical, encoding)
    for physical in PhysicalType
    for encoding in ("plain", "bitshuffle", "run_length", "dictionary", "prefix", "frame_of_reference", "alp", "fsst")
    if codec_by_name(encoding).supports(physical)
]


def chunks(vector, size):
    return [vector.slice(first, min(first + size, len(vector))) for first in range(0, len(vector), size)]


def valid_pattern(pattern, row_count):
    if pattern == "none":
        return None
    if pattern == "all":
        return np.zeros(row_count, bool)
    random = np.random.default_rng(7)
    return random.random(row_count) < {"few": 0.95, "most": 0.03}[pattern]


@pytest.mark.parametrize("nulls_are", ["none", "few", "most", "all"])
@pytest.mark.parametrize(("physical", "encoding"), ENCODINGS)
def test_every_encoding(stored, make, physical, encoding, nulls_are):
    vector = make.vector_of(physical, 3000, valid_pattern(nulls_are, 3000))
    stream = stored(physical, chunks(vector, 700), encoding)
    assert stream.encoding_names == [encoding]
    assert make.cells_of(stream.read(0, 3000)) == make.cells_of(vector)
    assert make.cells_of(stream.read(1023, 2050)) == make.cells_of(vector.slice(1023, 2050))


@pytest.mark.parametrize(("physical", "encoding"), ENCODINGS)
def test_cells_under_null_are_read_as_nothing(stored, make, physical, encoding):
    valid = np.random.default_rng(7).random(3000) < 0.95
    stream = stored(physical, [make.vector_of(physical, 3000, valid)], encoding)
    for cells in (stream.read(0, 3000), stream.gather(np.arange(3000))):
        if isinstance(cells, FixedVector):
            assert not cells.values[~valid].view(np.uint8).any()


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(("physical", "encoding"), ENCODINGS)
def test_every_compression(stored, make, physical, encoding, compression):
    vector = make.vector_of(physical, 2500, valid_pattern("few", 2500))
    stream = stored(physical, [vector], encoding, compression)
    assert make.cells_of(stream.read(0, 2500)) == make.cells_of(vector)
    rows = np.array([2499, 0, 1024, 1024])
    assert make.cells_of(stream.gather(rows)) == make.cells_of(vector.take(rows))


@pytest.mark.parametrize("row_count", [0, 1, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 200_000])
@pytest.mark.parametrize(
    ("physical", "encoding"),
    [(PhysicalType.INT64, "bitshuffle"), (PhysicalType.BYTES, "dictionary")],
)
def test_page_boundaries(stored, make, physical, encoding, row_count):
    vector = make.vector_of(physical, row_count, valid_pattern("few", row_count))
    stream = stored(physical, chunks(vector, 50_000), encoding)
    assert stream.row_count == row_count and stream.page_count == -(-row_count // PAGE_ROWS)
    assert make.cells_of(stream.read(0, row_count)) == make.cells_of(vector)
    for first in range(0, row_count, PAGE_ROWS):
        part = slice(max(first - 3, 0), min(first + 3, row_count))
        read = stream.read(part.start, part.stop)
        assert make.cells_of(read) == make.cells_of(vector.slice(part.start, part.stop))


@pytest.mark.parametrize("encoding", ["plain", "dictionary"])
def test_pages_of_nulls_between_others(stored, make, encoding):
    valid = np.ones(3 * PAGE_ROWS, bool)
    valid[PAGE_ROWS : 2 * PAGE_ROWS] = False
    vector = make.vector_of(PhysicalType.BYTES, len(valid), valid)
    stream = stored(PhysicalType.BYTES, [vector], encoding)
    assert stream.entry.pages[1].length < 100
    assert make.cells_of(stream.read(0, len(valid))) == make.cells_of(vector)
    rows = np.array([PAGE_ROWS + 5, 3, 2 * PAGE_ROWS])
    assert make.cells_of(stream.gather(rows)) == make.cells_of(vector.take(rows))
    assert isinstance(stream.read(0, len(valid)), DictionaryVector) == (encoding == "dictionary")


def test_a_column_of_nulls_has_no_dictionary(stored, make):
    stream = stored(PhysicalType.BYTES, [nulls(PhysicalType.BYTES, 10)], "dictionary")
    assert stream.entry.dictionary is None
    assert make.cells_of(stream.read(0, 10)) == make.cells_of(nulls(PhysicalType.BYTES, 10))


def test_dictionary_is_shared_by_all_pages(stored, make):
    vector = make.vector_of(PhysicalType.BYTES, 2 * PAGE_ROWS)
    stream = stored(PhysicalType.BYTES, [vector], "dictionary")
    read = stream.read(10, PAGE_ROWS + 10)
    assert isinstance(read, DictionaryVector)
    assert read.dictionary is stream.read(0, 1).dictionary
    assert stream.compressed_bytes < stream.raw_bytes / 2


def test_a_dictionary_that_does_not_pay_is_dropped(stored, make):
    vector = make.strings([b"%d" % row for row in range(PAGE_ROWS + 10)])
    stream = stored(PhysicalType.BYTES, [vector], "dictionary")
    assert stream.encoding_names == ["plain"] and stream.entry.dictionary is None
    assert make.cells_of(stream.read(0, len(vector))) == make.cells_of(vector)


def test_a_dictionary_that_fills_up_mid_stream_leaves_the_rest_plain(stored, make):
    few = make.vector_of(PhysicalType.BYTES, PAGE_ROWS)
    many = make.strings([b"%d" % row for row in range(PAGE_ROWS)])
    stream = stored(PhysicalType.BYTES, [few, many, few], "dictionary")
    assert stream.encoding_names == ["dictionary", "plain"]
    for page, vector in enumerate([few, many, few]):
        read = stream.read(page * PAGE_ROWS, (page + 1) * PAGE_ROWS)
        assert make.cells_of(read) == make.cells_of(vector)
    rows = np.random.default_rng(5).integers(0, 3 * PAGE_ROWS, 1000)
    together = stream.read(0, 3 * PAGE_ROWS)
    assert make.cells_of(stream.gather(rows)) == make.cells_of(together.take(rows))


def test_a_dictionary_vector_is_written_as_it_reads(stored, make):
    codes = np.array([2, 0, 2, 0], np.int32)
    valid = np.array([True, True, True, False])
    vector = DictionaryVector(codes, make.strings([b"x", b"unused", b"z"]), valid)
    for encoding in ("plain", "dictionary"):
        stream = stored(PhysicalType.BYTES, [vector, vector], encoding)
        assert make.cells_of(stream.read(0, 4)) == make.cells_of(vector)
        assert stream.row_count == 8


def test_long_cells_get_pages_of_fewer_rows(stored):
    row_count, width = 3000, 60_000
    offsets = np.arange(row_count + 1, dtype=np.int32) * 8
    random = np.random.default_rng(0)
    small = BytesVector(offsets, random.integers(0, 255, 8 * row_count).astype(np.uint8))
    data = random.integers(0, 255, width * 200).astype(np.uint8)
    large = BytesVector(np.arange(201, dtype=np.int32) * width, data)
    assert stored(PhysicalType.BYTES, [small]).page_rows == PAGE_ROWS
    stream = stored(PhysicalType.BYTES, [large] * 10)
    assert stream.page_rows == 1 and sum(page.row_count for page in stream.entry.pages) == 2_000
    assert all(page.length <= cutter.TARGET_PAGE_BYTES + (1 << 16) for page in stream.entry.pages)
    assert stream.page_count <= 4
    read = stream.read(1000, 1100)
    assert bytes(read.data) == bytes(large.take(np.arange(1000, 1100) % 200).data)


def test_a_last_page_of_more_rows_than_those_of_one_long_cell(stored, make, monkeypatch):
    monkeypatch.setattr(cutter, "TARGET_PAGE_BYTES", 100)
    vector = make.strings([b"a" * 80, b"b" * 80, b"c", b"d", b"e"])
    stream = stored(PhysicalType.BYTES, [vector])
    assert [page.row_count for page in stream.entry.pages] == [1, 4] and not stream.entry.has_even_pages
    assert make.cells_of(stream.read(0, 5)) == make.cells_of(vector)
    assert make.cells_of(stream.gather(np.array([4, 0, 2]))) == make.cells_of(vector.take(np.array([4, 0, 2])))


@pytest.mark.parametrize("encoding", ["plain", "dictionary", "prefix"])
def test_cells_that_grow_long_late_get_pages_of_fewer_rows(stored, make, monkeypatch, encoding):
    """The first page has all of its rows; what comes behind may be a thousand times as long, and short again."""
    monkeypatch.setattr(cutter, "TARGET_PAGE_BYTES", 1 << 20)
    random = np.random.default_rng(5)
    lengths = [random.integers(0, 9, PAGE_ROWS), random.integers(0, 9_000, 3_000), random.integers(0, 9, PAGE_ROWS)]
    lengths.append(np.array([2 << 20, 0, 1]))
    cells = [bytes([65 + place % 26]) * length for place, length in enumerate(np.concatenate(lengths).tolist())]
    valid = random.random(len(cells)) < 0.99
    cells = [cell if there else None for cell, there in zip(cells, valid.tolist(), strict=True)]
    vector = make.strings([cell or b"" for cell in cells], valid)
    stream = stored(PhysicalType.BYTES, chunks(vector, 20_000), encoding)
    counts = [page.row_count for page in stream.entry.pages]
    assert counts[0] == PAGE_ROWS and sum(counts) == len(cells) and stream.page_rows == 1
    starts = np.cumsum([0, *counts])
    sizes = [sum(len(cell or b"") for cell in cells[first:last]) for first, last in pairwise(starts.tolist())]
    assert all(size <= 1 << 20 or count == 1 for size, count in zip(sizes, counts, strict=True))
    assert len(counts) < 4 * sum(sizes) / (1 << 20), "pages that are not much emptier than they must be"
    assert make.cells_of(stream.read(0, len(cells))) == make.cells_of(vector)
    for _ in range(50):
        first = int(random.integers(0, len(cells)))
        last = min(first + 3_000, len(cells))
        assert make.cells_of(stream.read(first, last)) == make.cells_of(vector.slice(first, last))
        for rows in (random.integers(0, len(cells), 20), random.integers(PAGE_ROWS, PAGE_ROWS + 3_000, 5)):
            assert make.cells_of(stream.gather(rows)) == make.cells_of(vector.take(rows))
    edges = np.unique(np.clip(np.concatenate([starts - 1, starts]), 0, len(cells) - 1))
    assert make.cells_of(stream.gather(edges)) == make.cells_of(vector.take(edges))
    assert len(stream.zone_maps) == len(counts)


def test_pages_of_one_smaller_size_are_read(stored, make):
    """As a column's block_rows asks for, and as they were written of long cells before pages were cut by bytes."""
    vector = make.vector_of(PhysicalType.BYTES, 5_000)
    stream = stored(PhysicalType.BYTES, [vector], page_rows=1_024)
    assert stream.page_rows == 1024 and stream.page_count == 5
    assert make.cells_of(stream.read(1_000, 4_200)) == make.cells_of(vector.slice(1_000, 4_200))
    rows = np.array([4_999, 0, 1_024, 1_023])
    assert make.cells_of(stream.gather(rows)) == make.cells_of(vector.take(rows))


def test_empty_chunks_do_not_matter(stored, make):
    vector = make.vector_of(PhysicalType.INT32, 10)
    stream = stored(PhysicalType.INT32, [vector.slice(0, 0), vector, vector.slice(5, 5)])
    assert make.cells_of(stream.read(0, 10)) == make.cells_of(vector)


def test_a_page_stays_raw_when_compression_saves_little(stored, make):
    random = np.random.default_rng(0)
    noise = make.strings([random.bytes(30) for _ in range(1000)])
    raw = stored(PhysicalType.BYTES, [noise], "plain", "none").compressed_bytes
    assert stored(PhysicalType.BYTES, [noise], "plain", "zstd").compressed_bytes == raw
    words = make.vector_of(PhysicalType.BYTES, 1000)
    raw = stored(PhysicalType.BYTES, [words], "plain", "none").compressed_bytes
    assert stored(PhysicalType.BYTES, [words], "plain", "zstd").compressed_bytes < raw / 2


@pytest.fixture(scope="module")
def gathered(make):
    """A stream of three pages of each kind, next to what it holds."""
    from nyala.engine.fs.memory import MemoryFileSystem

    fs = MemoryFileSystem()
    row_count = 2 * PAGE_ROWS + 100
    kinds = [(PhysicalType.INT64, "bitshuffle"), (PhysicalType.BYTES, "plain")]
    kinds += [(PhysicalType.BYTES, "dictionary"), (PhysicalType.BOOL, "run_length")]
    streams = {
        StreamKey(column, "base"): (
            physical,
            [make.vector_of(physical, row_count, valid_pattern("few", row_count))],
            encoding,
            "none",
        )
        for column, (physical, encoding) in enumerate(kinds)
    }
    make.write(fs, streams)
    reader = CFileReader.open(fs, "file", make.FILE_ID)
    return [(reader.stream(key), streams[key][1][0]) for key in streams]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 2 * PAGE_ROWS + 99), max_size=40),
    st.integers(0, 2 * PAGE_ROWS + 100),
    st.integers(0, 2 * PAGE_ROWS + 100),
)
def test_gather_and_read_are_take_and_slice(make, gathered, rows, one, other):
    indices = np.array(rows, np.int64)
    first, last = sorted((one, other))
    for stream, vector in gathered:
        assert make.cells_of(stream.gather(indices)) == make.cells_of(vector.take(indices))
        assert make.cells_of(stream.read(first, last)) == make.cells_of(vector.slice(first, last))


def test_rows_outside_are_refused(gathered):
    for stream, _ in gathered:
        for rows in ([-1], [stream.row_count], [0, stream.row_count], [5, -1]):
            with pytest.raises(IndexError):
                stream.gather(np.array(rows))
        for first, last in [(-1, 3), (5, 4), (0, stream.row_count + 1)]:
            with pytest.raises(IndexError):
                stream.read(first, last)


def test_streams_differ_in_length_and_metadata_comes_back(fs, make):
    lengths = {StreamKey(1, "base"): 10, StreamKey(1, "value"): 3, StreamKey(2, "rowid"): 0}
    physical = PhysicalType.INT32
    streams = {
        key: (physical, [make.vector_of(physical, row_count)], "plain", "none") for key, row_count in lengths.items()
    }
    metadata = {"flushed_at": 2**62, "bounds": ["YQ==", None], "deep": {"list": [1, 2.5, "x"]}}
    info = make.write(fs, streams, kind="redo", metadata=metadata)
    reader = CFileReader.open(fs, "file", make.FILE_ID)
    assert reader.kind == "redo" and reader.metadata == metadata and reader.streams() == list(lengths)
    assert {key: reader.stream(key).row_count for key in reader.streams()} == lengths
    assert info.size_bytes == fs.size("file") == reader.size_bytes
    assert StreamKey(1, "base") in reader and StreamKey(9, "base") not in reader


def test_a_stream_may_do_without_zone_maps(fs, make):
    from nyala.engine.cfile.writer import CFileWriter

    vector = make.vector_of(PhysicalType.INT32, 10)
    with CFileWriter(fs, "file", 1, "base") as writer:
        writer.write_stream(make.KEY, PhysicalType.INT32, [vector], "plain", zone_maps=False)
        writer.finish({})
    reader = CFileReader.open(fs, "file", 1)
    reader.verify()
    assert reader.stream(make.KEY).zone_maps == []


@pytest.mark.parametrize(
    ("physical", "encoding", "compression"),
    [
        (PhysicalType.INT32, "prefix", "none"),
        (PhysicalType.BYTES, "bitshuffle", "none"),
        (PhysicalType.INT32, "no such", "none"),
        (PhysicalType.INT32, "plain", "no such"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_file(fs, make, physical, encoding, compression):
    vector = make.vector_of(physical, 3)
    with pytest.raises(InvalidArgumentError):
        make.write(fs, {make.KEY: (physical, [vector], encoding, compression)})
    assert not fs.exists("file")


def test_files_are_equal_whatever_the_chunks(fs, make):
    vector = make.vector_of(PhysicalType.BYTES, 5000, valid_pattern("few", 5000))
    infos = [
        make.write(fs, {make.KEY: (PhysicalType.BYTES, parts, "dictionary", "lz4")}, f"file-{number}")
        for number, parts in enumerate([[vector], chunks(vector, 100)])
    ]
    assert infos[0] == infos[1]
