"""The bytes of a cfile, pinned: a change that moves one of them is a new format version.

Only plain pages are pinned here; what a codec writes is its own format.
"""

import struct
import zlib

import numpy as np
import pytest

from nyala.engine.cfile.format import MAGIC, FileHeader, StreamKey, Trailer
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.cfile.writer import CFileWriter
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector, nulls
from nyala.schemas.errors import CorruptionError, InvalidArgumentError

FILE_ID = 0x0102030405060708
METADATA = {"max_timestamp": 2**53 + 1}
STREAMS = [
    (
        StreamKey(1, "value"),
        PhysicalType.INT16,
        FixedVector(np.array([5, 0, -2], np.int16), np.array([True, False, True])),
    ),
    (StreamKey(2, "value"), PhysicalType.FLOAT64, nulls(PhysicalType.FLOAT64, 2)),
    (
        StreamKey(3, "value"),
        PhysicalType.BYTES,
        BytesVector(np.array([0, 2, 2, 3], np.int32), np.frombuffer(b"ab\xff", np.uint8)),
    ),
    (StreamKey(4, "base"), PhysicalType.FLOAT32, FixedVector(np.array([0.0, np.nan], "f4"))),
]

#         magic              version  kind  file id            crc
HEADER = "4e59414c4143460a01000200080706050403020137f357b9"
#   crc        rows       enc  cmp  flags  raw        stored     bitmap     payload, bitmap, padding
PAGES = [
    "a6dadb6e030000000100010006000000060000000100000005000000feff0500",
    "8ede89f30200000001000200000000000000000000000000",
    "d3eb998e0300000001000000130000001300000000000000000000000200000002000000030000006162ff0000000000",
    "f57e41ca0200000001000000080000000800000000000000000000000000c07f",
]
FOOTER = (
    '{"file_id":72623859790382856,"kind":"redo","streams":['
    '{"column_id":1,"role":"value","physical":"int16","row_count":3,"page_rows":65536,"raw_bytes":6,'
    '"encodings":["plain"],"pages":[{"offset":24,"length":32,"row_count":3,"null_count":1,'
    '"zone":{"min":-2,"max":5,"exact":true}}]},'
    '{"column_id":2,"role":"value","physical":"float64","row_count":2,"page_rows":65536,"raw_bytes":16,'
    '"encodings":["plain"],"pages":[{"offset":56,"length":24,"row_count":2,"null_count":2,'
    '"zone":{"min":null,"max":null,"exact":true}}]},'
    '{"column_id":3,"role":"value","physical":"bytes","row_count":3,"page_rows":65536,"raw_bytes":3,'
    '"encodings":["plain"],"pages":[{"offset":80,"length":48,"row_count":3,'
    '"zone":{"min":"","max":"/w==","exact":true}}]},'
    '{"column_id":4,"role":"base","physical":"float32","row_count":2,"page_rows":65536,"raw_bytes":8,'
    '"encodings":["plain"],"pages":[{"offset":128,"length":32,"row_count":2,'
    '"zone":{"min":"-0x0.0p+0","max":"0x0.0p+0","exact":true,"has_nan":true}}]}'
    '],"metadata":{"max_timestamp":9007199254740993}}'
)
#          stored     raw        cmp    version footer crc crc        magic
TRAILER = "ef030000ef03000000000100afeabd4da5be54964e59414c4143460a"

GOLDEN = bytes.fromhex(HEADER + "".join(PAGES)) + FOOTER.encode() + bytes.fromhex(TRAILER)


def open_bytes(content, file_id=FILE_ID):
    fs = MemoryFileSystem()
    fs.create("golden").append(content)
    return CFileReader.open(fs, "golden", file_id)


def test_writer_writes_these_bytes():
    fs = MemoryFileSystem()
    with CFileWriter(fs, "golden", FILE_ID, "redo") as writer:
        for key, physical, vector in STREAMS:
            writer.write_stream(key, physical, [vector], "plain")
        info = writer.finish(METADATA)
    assert bytes(fs.open("golden").view()) == GOLDEN
    assert (info.file_id, info.size_bytes, info.crc) == (FILE_ID, len(GOLDEN), zlib.crc32(GOLDEN))


def test_reader_reads_these_bytes():
    reader = open_bytes(GOLDEN)
    reader.verify()
    assert (reader.kind, reader.metadata) == ("redo", METADATA)
    for key, physical, vector in STREAMS:
        stream = reader.stream(key)
        read = stream.read(0, stream.row_count)
        assert stream.physical is physical and type(read) is type(vector)
        for field in ("values", "offsets", "data", "valid"):
            np.testing.assert_array_equal(getattr(read, field, None), getattr(vector, field, None))


def test_checksums_are_seeded_with_file_id_and_offset():
    offset = len(bytes.fromhex(HEADER))
    for page in map(bytes.fromhex, PAGES):
        seed = zlib.crc32(struct.pack("<QQ", FILE_ID, offset))
        assert struct.pack("<I", zlib.crc32(page[4:], seed)) == page[:4]
        assert offset % 8 == 0
        offset += len(page)
    seed = zlib.crc32(struct.pack("<QQ", FILE_ID, offset))
    assert bytes.fromhex(TRAILER)[12:16] == struct.pack("<I", zlib.crc32(FOOTER.encode(), seed))


def test_header_and_trailer_alone():
    header = FileHeader("redo", FILE_ID)
    assert header.pack().hex() == HEADER and FileHeader.unpack("f", memoryview(GOLDEN)) == header
    trailer = Trailer(len(FOOTER), len(FOOTER), 0, 0x4DBDEAAF)
    assert trailer.pack().hex() == TRAILER and Trailer.unpack("f", len(GOLDEN), memoryview(GOLDEN[-28:])) == trailer


def test_a_newer_version_is_refused_by_number():
    newer_header = GOLDEN[:8] + b"\x02\x00" + GOLDEN[10:20]
    newer = newer_header + struct.pack("<I", zlib.crc32(newer_header)) + GOLDEN[24:]
    with pytest.raises(InvalidArgumentError, match="format version 2; this build reads version 1"):
        open_bytes(newer)
    fields = GOLDEN[-28:-18] + b"\x03\x00" + GOLDEN[-16:-12]
    newer = GOLDEN[:-28] + fields + struct.pack("<I", zlib.crc32(fields)) + MAGIC
    with pytest.raises(InvalidArgumentError, match="format version 3"):
        open_bytes(newer)


def test_an_unknown_kind_is_corruption():
    fields = GOLDEN[:10] + b"\x09\x00" + GOLDEN[12:20]
    with pytest.raises(CorruptionError, match="the kind of the file is unknown: 9"):
        open_bytes(fields + struct.pack("<I", zlib.crc32(fields)) + GOLDEN[24:])
