"""Pages of one file that are written into another as they are encoded, and the ones that may not be."""

import numpy as np
import pytest

from nyala.engine.cfile.format import StreamKey
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.cfile.writer import CFileWriter
from nyala.engine.codecs.codec import PAGE_ROWS
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import concat
from nyala.schemas.errors import CorruptionError

KEY = StreamKey(1, "base")
ROWS = 2 * PAGE_ROWS + 500
BYTES, INT64 = PhysicalType.BYTES, PhysicalType.INT64
HOW: list[tuple[PhysicalType, str, str]] = [
    (INT64, "bitshuffle", "none"),
    (INT64, "plain", "lz4"),
    (PhysicalType.FLOAT32, "plain", "none"),
    (INT64, "auto", "none"),
    (BYTES, "auto", "none"),
    (BYTES, "dictionary", "none"),
    (BYTES, "dictionary", "zstd"),
    (BYTES, "plain", "lz4"),
]


def source_of(make, fs, physical, encoding, compression, seed=5, **more):
    """Write two full pages and a short one; return their stream and the cells."""
    valid = np.random.default_rng(seed).random(ROWS) < 0.9
    cells = make.vector_of(physical, ROWS, valid, seed=seed, **more)
    path = f"source-{seed}"
    make.write(fs, {KEY: (physical, [cells], encoding, compression)}, path, file_id=100 + seed)
    return CFileReader.open(fs, path, 100 + seed).stream(KEY), cells


def written(fs, physical, encoding, compression, fill):
    """Write one stream by ``fill``, verify every byte of it and return it."""
    with CFileWriter(fs, "target", 9, "base") as writer:
        stream = writer.open_stream(KEY, physical, encoding, compression)
        fill(stream)
        stream.finish()
        writer.finish({})
    reader = CFileReader.open(fs, "target", 9)
    reader.verify()
    return reader.stream(KEY)


def bodies(stream):
    """The encoded pages without what depends on where they stand."""
    return [stream.stored_page(number).encoded[:2] for number in range(stream.page_count)]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_pages_before_and_after_others(fs, make, how):
    source, cells = source_of(make, fs, *how)
    others = make.vector_of(how[0], PAGE_ROWS + 7, seed=8, distinct=900)

    def fill(stream):
        assert stream.copy_rows(source, PAGE_ROWS)
        stream.append(others.slice(0, PAGE_ROWS))
        assert stream.copy_rows(source, 0)
        assert not stream.copy_rows(source, 2 * PAGE_ROWS), "a short page"
        stream.append(others.slice(PAGE_ROWS, PAGE_ROWS + 7))
        assert not stream.copy_rows(source, 0), "rows are pending"

    target = written(fs, *how, fill=fill)
    expected = concat([cells.slice(PAGE_ROWS, 2 * PAGE_ROWS), others.slice(0, PAGE_ROWS), cells.slice(0, PAGE_ROWS)])
    assert make.cells_of(target.read(0, 3 * PAGE_ROWS)) == make.cells_of(expected)
    assert make.cells_of(target.read(3 * PAGE_ROWS, target.row_count)) == make.cells_of(
        others.slice(PAGE_ROWS, len(others))
    )
    assert [bytes(page[1]) for page in bodies(target)[:3:2]] == [bytes(bodies(source)[number][1]) for number in (1, 0)]
    assert target.zone_maps[0] == source.zone_maps[1] and target.zone_maps[2] == source.zone_maps[0]
    assert target.entry.pages[2].null_count == source.entry.pages[0].null_count > 0


def test_codes_of_another_dictionary_are_not_copied(fs, make):
    how = (BYTES, "dictionary", "none")
    first, _ = source_of(make, fs, *how)
    second, cells = source_of(make, fs, *how, seed=6)

    def fill(stream):
        assert stream.copy_rows(first, 0)
        assert not stream.copy_rows(second, 0)
        stream.append(cells.slice(0, PAGE_ROWS))
        assert stream.copy_rows(first, PAGE_ROWS)

    target = written(fs, *how, fill=fill)
    assert make.cells_of(target.read(PAGE_ROWS, 2 * PAGE_ROWS)) == make.cells_of(cells.slice(0, PAGE_ROWS))


def test_a_stream_that_begins_with_plain_pages_gets_no_dictionary(fs, make):
    cells = make.strings([b"%09d" % number for number in range(ROWS)])
    make.write(fs, {KEY: (BYTES, [cells], "dictionary", "none")}, "plain", file_id=50)
    source = CFileReader.open(fs, "plain", 50).stream(KEY)

    def fill(stream):
        assert stream.copy_rows(source, 0)
        stream.append(cells.slice(0, PAGE_ROWS))

    target = written(fs, BYTES, "dictionary", "none", fill)
    assert target.entry.dictionary is None and target.encoding_names == ["plain"]


@pytest.mark.parametrize(
    "other",
    [(PhysicalType.INT32, "bitshuffle", "none"), (INT64, "plain", "none"), (INT64, "bitshuffle", "lz4")],
    ids=["type", "encoding", "compression"],
)
def test_pages_of_another_kind_are_not_copied(fs, make, other):
    source, _ = source_of(make, fs, INT64, "bitshuffle", "none")
    cells = make.vector_of(other[0], 3)

    def fill(stream):
        assert not stream.copy_rows(source, 0)
        stream.append(cells)

    assert make.cells_of(written(fs, *other, fill=fill).read(0, 3)) == make.cells_of(cells)


def test_a_damaged_page_is_not_copied(fs, make):
    source, _ = source_of(make, fs, INT64, "plain", "none")
    source.page(1)  # it was sound when it was first read
    data = bytearray(fs.open("source-5").view())
    data[source.entry.pages[1].offset + 5_000] ^= 1
    fs.unlink("source-5")
    file = fs.create("source-5")
    file.pwrite(0, bytes(data))
    file.close()
    damaged = CFileReader.open(fs, "source-5", 105).stream(KEY)
    with CFileWriter(fs, "target", 9, "base") as writer:
        stream = writer.open_stream(KEY, INT64, "plain", "none")
        assert stream.copy_rows(damaged, 0)
        with pytest.raises(CorruptionError, match="checksum"):
            stream.copy_rows(damaged, PAGE_ROWS)
