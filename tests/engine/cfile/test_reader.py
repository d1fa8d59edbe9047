"""A reader under many threads, over files that go away, and what a dump says of it."""

import json
from concurrent.futures import ThreadPoolExecutor
from random import Random

import numpy as np
import pytest

from nyala.engine.cfile import footer
from nyala.engine.cfile.describe import describe
from nyala.engine.cfile.footer import COMPRESS_ABOVE, UNEVEN_PAGES
from nyala.engine.cfile.format import TAIL_BYTES, StreamKey
from nyala.engine.cfile.reader import CFileReader, file_id_of
from nyala.engine.cfile.writer import CFileWriter
from nyala.engine.codecs.registry import codec_by_name
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.vectors.physical import PhysicalType
from nyala.schemas.errors import CorruptionError, InvalidArgumentError

ROWS = 150_000
SPECS = [
    (PhysicalType.INT64, "bitshuffle", "none"),
    (PhysicalType.BYTES, "dictionary", "none"),
    (PhysicalType.INT32, "plain", "lz4"),
]


@pytest.fixture(scope="module")
def vectors(make):
    valid = np.random.default_rng(3).random(ROWS) < 0.9
    return [make.vector_of(physical, ROWS, valid) for physical, _, _ in SPECS]


@pytest.fixture
def local(tmp_path, make, vectors):
    fs = LocalFileSystem(tmp_path)
    streams = {
        StreamKey(column, "base"): (physical, [vectors[column]], encoding, compression)
        for column, (physical, encoding, compression) in enumerate(SPECS)
    }
    make.write(fs, streams)
    return fs


def test_many_threads_read_one_reader(local, make, vectors):
    reader = CFileReader.open(local, "file", make.FILE_ID)

    def read(seed):
        random = np.random.default_rng(seed)
        for _ in range(10):
            column = int(random.integers(len(SPECS)))
            stream = reader.stream(StreamKey(column, "base"))
            first, last = np.sort(random.integers(0, ROWS, 2)).tolist()
            rows = random.integers(0, ROWS, 50)
            expected = vectors[column]
            assert make.cells_of(stream.read(first, last)) == make.cells_of(expected.slice(first, last))
            assert make.cells_of(stream.gather(rows)) == make.cells_of(expected.take(rows))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(24)))


def test_a_reader_outlives_its_file_and_vectors_outlive_the_reader(local, make, vectors):
    reader = CFileReader.open(local, "file", make.FILE_ID)
    local.unlink("file")
    read = [reader.stream(key).read(5, 100_000) for key in reader.streams()]
    reader.close()
    del reader
    for vector, expected in zip(read, vectors, strict=True):
        assert make.cells_of(vector) == make.cells_of(expected.slice(5, 100_000))


def test_large_footers_are_compressed_and_small_files_have_a_tail(fs, make):
    vector = make.vector_of(PhysicalType.INT8, 2)
    streams = {StreamKey(column, "base"): (PhysicalType.INT8, [vector], "plain", "none") for column in range(100)}
    make.write(fs, streams)
    reader = CFileReader.open(fs, "file", make.FILE_ID)
    reader.verify()
    assert reader.size_bytes - reader.image.footer_offset < COMPRESS_ABOVE
    make.write(fs, {}, "empty", kind="undo")
    reader = CFileReader.open(fs, "empty", make.FILE_ID)
    reader.verify()
    assert reader.size_bytes - reader.image.footer_offset >= TAIL_BYTES


def test_the_id_of_a_file_is_in_its_header(fs, make):
    make.write(fs, {}, file_id=2**64 - 1)
    assert file_id_of(fs, "file") == 2**64 - 1
    fs.create("other").append(b"x" * 500)
    with pytest.raises(CorruptionError, match="not a cfile"):
        file_id_of(fs, "other")


def test_describe_lists_every_byte_of_a_file(local):
    described = json.loads(json.dumps(describe(local, "file")))
    pages = [page for stream in described["streams"] for page in stream["pages"]]
    pages += [stream["dictionary"] for stream in described["streams"] if stream["dictionary"]]
    end = 24
    for page in sorted(pages, key=lambda page: page["offset"]):
        assert page["offset"] == end
        end += page["length"]
    assert described["footer"]["offset"] == end
    assert [stream["encodings"] for stream in described["streams"]] == [[spec[1]] for spec in SPECS]
    assert {page["compression"] for page in described["streams"][2]["pages"]} == {"lz4"}
    assert described["streams"][1]["dictionary"]["flags"] == ["dictionary"]
    first = described["streams"][0]["pages"][0]
    assert first["zone"]["min"] == -100 and first["null_count"] > 0


def test_describe_goes_on_after_a_damaged_page(fs, make):
    vector = make.vector_of(PhysicalType.INT64, 70_000)
    make.write(fs, {make.KEY: (PhysicalType.INT64, [vector], "plain", "none")})
    content = bytearray(fs.open("file").view())
    content[500] ^= 1
    fs.create("damaged").append(bytes(content))
    pages = describe(fs, "damaged")["streams"][0]["pages"]
    assert "checksum" in pages[0]["fault"] and "fault" not in pages[1]


def test_a_finished_file_survives_a_power_failure(fs, make):
    vector = make.vector_of(PhysicalType.INT64, 5000)
    make.write(fs, {make.KEY: (PhysicalType.INT64, [vector], "plain", "none")})
    fs.sync_directory("")
    for seed in range(20):
        CFileReader.open(fs.crash_image(Random(seed)), "file", make.FILE_ID).verify()


def test_an_error_between_streams_leaves_no_file(fs, make):
    with pytest.raises(ZeroDivisionError), CFileWriter(fs, "file", 1, "base") as writer:
        writer.write_stream(make.KEY, PhysicalType.INT8, [make.vector_of(PhysicalType.INT8, 5)], "plain")
        raise ZeroDivisionError
    assert not fs.exists("file")
    writer.abort()


def test_a_cell_of_too_many_bytes_is_refused(fs, make, monkeypatch):
    from nyala.engine.cfile import cutter, page
    from nyala.schemas.errors import InvalidArgumentError

    vector = make.strings([b"x" * 100] * 50)
    monkeypatch.setattr(cutter, "TARGET_PAGE_BYTES", 90)
    monkeypatch.setattr(cutter, "MAX_PAGE_BYTES", 99)
    with pytest.raises(InvalidArgumentError, match="a cell takes 100 bytes; a page holds at most 99"):
        make.write(fs, {make.KEY: (PhysicalType.BYTES, [vector], "plain", "none")})
    monkeypatch.undo()
    monkeypatch.setattr(page, "MAX_PAGE_BYTES", 5100)
    with pytest.raises(InvalidArgumentError, match="50 cells take 5204 bytes"):
        make.write(fs, {make.KEY: (PhysicalType.BYTES, [vector], "plain", "none")})
    assert not fs.exists("file")


@pytest.mark.parametrize("encoding", sorted(footer.NEW_ENCODINGS))
def test_a_reader_that_does_not_know_an_encoding_names_it(fs, make, monkeypatch, encoding):
    physical = next(one for one in PhysicalType if codec_by_name(encoding).supports(one))
    make.write(fs, {make.KEY: (physical, [make.vector_of(physical, 100)], encoding, "none")})
    CFileReader.open(fs, "file", make.FILE_ID).verify()
    monkeypatch.setattr(footer, "KNOWN_FEATURES", frozenset({UNEVEN_PAGES}))  # those of version 0.1
    with pytest.raises(
        InvalidArgumentError, match=f"file requires {encoding}, which this version of Nyala does not support"
    ):
        CFileReader.open(fs, "file", make.FILE_ID)


def test_old_encodings_require_nothing(fs, make):
    vector = make.vector_of(PhysicalType.INT64, 100)
    make.write(fs, {make.KEY: (PhysicalType.INT64, [vector], "bitshuffle", "none")})
    assert describe(fs, "file")["required_features"] == []
