"""The bytes of the whole rows in a base file are pinned: the stream, its page, and each row in row encoding."""

import numpy as np
import pytest

from nyala.engine.cfile.reader import CFileReader
from nyala.engine.delta.file import ColumnEncoding
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.rowset import base_file
from nyala.engine.rowset.base_file import BaseFileWriter
from nyala.engine.vectors.keys.key_vector import U64Keys
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector

ROWS = (
    "02000000 01 00 0000 2b000000 2b000000 00000000"  # two rows, plain, uncompressed, no flags, 43 bytes, no bitmap
    "00000000 14000000 1f000000"  # where the rows start and end
    "85 02 01 02 08 0500000000000000 03000000 616263"  # columns 1 and 2, the second 8 bytes behind the first
    "85 01 01 0900000000000000"  # column 1 alone: the other is NULL
    "0000000000"  # up to a multiple of 8
)

WITHOUT_THE_FIRST = (
    "02000000 01 00 0000 17000000 17000000 00000000"  # 23 bytes
    "00000000 00000000 0b000000"  # the first row is empty
    "85 01 01 0900000000000000"
    "00"
)


def test_whole_rows() -> None:
    assert page_of_rows() == (0, ROWS.replace(" ", ""))


def test_a_long_row_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_file, "_LONG_ROW_BYTES", 18)
    assert page_of_rows() == (0, WITHOUT_THE_FIRST.replace(" ", ""))


def page_of_rows() -> tuple[int, str]:
    """Return the column of the stream of rows, and its page without its checksum."""
    fs = MemoryFileSystem()
    encodings = {
        1: ColumnEncoding(PhysicalType.INT64, "plain", "none"),
        2: ColumnEncoding(PhysicalType.BYTES, "plain", "none"),
    }
    writer = BaseFileWriter(fs, "file", 7, encodings, [1, 2], row_column=True)
    keys = np.array([5, 9], np.int64)
    writer.append(1, FixedVector(keys))
    text = BytesVector(np.array([0, 3, 3], np.int32), np.frombuffer(b"abc", np.uint8), np.array([True, False]))
    writer.append(2, text)
    writer.end_run(U64Keys(keys.astype(np.uint64), 8), np.ones(2, np.bool_))
    writer.finish(3, 1)
    reader = CFileReader.open(fs, "file", 7)
    (key,) = [key for key in reader.streams() if key.role == "row"]
    (page,) = reader.stream(key).entry.pages
    content = fs.open("file").pread(page.offset, page.length)
    return key.column_id, content[4:].hex()
