"""Streams that are written side by side hold what they hold when written one after the other."""

import numpy as np
import pytest

from nyala.engine.cfile.format import StreamKey
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.cfile.writer import CFileWriter
from nyala.engine.codecs.codec import PAGE_ROWS
from nyala.engine.vectors.physical import PhysicalType
from nyala.schemas.errors import InvalidArgumentError

ROWS = 2 * PAGE_ROWS + 777
STREAMS = {
    StreamKey(1, "base"): (PhysicalType.INT64, "bitshuffle", "none"),
    StreamKey(2, "base"): (PhysicalType.BYTES, "dictionary", "lz4"),
    StreamKey(3, "base"): (PhysicalType.BYTES, "plain", "zstd"),
    StreamKey(3, "rowid"): (PhysicalType.INT32, "run_length", "none"),
}


def columns(make):
    valid = np.random.default_rng(3).random(ROWS) < 0.9
    return {
        key: make.vector_of(physical, ROWS, valid, seed=number)
        for number, (key, (physical, *_)) in enumerate(STREAMS.items())
    }


def entries(reader):
    """What the footer says of each stream, but for where its pages are."""
    found = {}
    for key in reader.streams():
        entry = reader.stream(key).entry.model_dump()
        for page in [*entry["pages"], entry["dictionary"] or {}]:
            page.pop("offset", None)
        found[key] = entry
    return found


@pytest.mark.parametrize("seed", range(3))
def test_interleaved_equals_sequential(fs, make, seed):
    random, cells = np.random.default_rng(seed), columns(make)
    make.write(fs, {key: (physical, [cells[key]], *how) for key, (physical, *how) in STREAMS.items()}, "sequential")
    with CFileWriter(fs, "interleaved", make.FILE_ID, "base") as writer:
        open_streams = {key: writer.open_stream(key, *how) for key, how in STREAMS.items()}
        done = dict.fromkeys(STREAMS, 0)
        while any(row < ROWS for row in done.values()):
            for key, stream in open_streams.items():
                last = min(ROWS, done[key] + int(random.integers(0, 90_000)))
                stream.append(cells[key].slice(done[key], last))
                done[key] = last
        for stream in open_streams.values():
            stream.finish()
        writer.finish({})
    sequential, interleaved = (CFileReader.open(fs, name, make.FILE_ID) for name in ("sequential", "interleaved"))
    interleaved.verify()
    assert entries(interleaved) == entries(sequential)
    for key in STREAMS:
        assert make.cells_of(interleaved.stream(key).read(0, ROWS)) == make.cells_of(cells[key])
    first, second = (interleaved.stream(StreamKey(number, "base")).entry.pages for number in (1, 2))
    assert first[-1].offset > second[0].offset, "the pages stand in the order in which they filled up"


def test_a_stream_holds_no_more_than_a_page(fs, make):
    cells = make.vector_of(PhysicalType.INT64, PAGE_ROWS)
    with CFileWriter(fs, "file", make.FILE_ID, "base") as writer:
        stream = writer.open_stream(make.KEY, PhysicalType.INT64, "plain")
        for pages in range(1, 4):
            stream.append(cells.slice(0, PAGE_ROWS - 1))
            stream.append(cells.slice(PAGE_ROWS - 1, PAGE_ROWS))
            assert writer.size_bytes >= pages * cells.values.nbytes, "a page that is full is written"
            assert stream.row_count == pages * PAGE_ROWS
        assert stream.raw_bytes == 3 * cells.values.nbytes


def test_a_file_is_not_finished_before_its_streams(fs, make):
    with CFileWriter(fs, "file", make.FILE_ID, "base") as writer:
        writer.open_stream(make.KEY, PhysicalType.INT64, "plain")
        with pytest.raises(AssertionError, match="every stream"):
            writer.finish({})
        with pytest.raises(AssertionError, match="twice"):
            writer.open_stream(make.KEY, PhysicalType.INT64, "plain")
        with pytest.raises(InvalidArgumentError, match="no encoding"):
            writer.open_stream(StreamKey(9, "base"), PhysicalType.INT64, "morse")
    assert not fs.exists("file")
