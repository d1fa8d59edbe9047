"""The bytes of a staged part, pinned, and what is made of a file that is not as it was written."""

import zlib

import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.transaction.staging.file import PartInfo, PartWriter, read_info, read_rows
from nyala.schemas.errors import CorruptionError
from nyala.schemas.rows.operation import Operation

INFO = PartInfo(transaction="load \u00e9", part="1", table_id=7, staged_at=1_700_000_000_000_000)
ROWS = pa.record_batch({"k": pa.array([1, 2], pa.int64())})
KEYS = pa.record_batch({"k": pa.array([2], pa.int64())})
BODY = '{"transaction":"load \u00e9","part":"1","table_id":7,"staged_at":1700000000000000}'.encode().ljust(80)
HEAD = b"NYALASTG\x01\x00\x00\x00\x50\x00\x00\x00"


def stream(batch: pa.RecordBatch) -> bytes:
    """What Arrow makes of a batch: its bytes are not ours to pin."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def block(head: str, body: bytes, offset: int) -> bytes:
    packed = bytes.fromhex(head)
    crc = zlib.crc32(body, zlib.crc32(packed, zlib.crc32(offset.to_bytes(8, "little"))))
    return packed + crc.to_bytes(4, "little") + bytes(4) + body


def pinned() -> bytes:
    rows, keys = stream(ROWS), stream(KEYS)
    content = HEAD + zlib.crc32(BODY, zlib.crc32(HEAD)).to_bytes(4, "little") + bytes(4) + BODY
    for operation, count, body in (("03", "02", rows), ("07", "01", keys), ("09", "02", rows)):
        length = len(body).to_bytes(8, "little").hex()
        content += block(f"01000000 {operation}000000 {count}00000000000000 {length}", body, len(content))
    return content + block("02000000 00000000 0500000000000000 0000000000000000", b"", len(content))


def on_disk(content: bytes) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    file = fs.create("x")
    file.append(content)
    file.close()
    return fs


def test_the_bytes_of_a_part() -> None:
    fs = MemoryFileSystem()
    writer = PartWriter(fs, "x", INFO)
    writer.add(Operation.UPSERT, ROWS)
    writer.add(Operation.DELETE, KEYS)
    writer.add(Operation.MERGE, ROWS)
    writer.finish()
    writer.close()
    file = fs.open("x")
    assert file.pread(0, file.size) == pinned()
    assert read_info(fs, "x") == (INFO, 5)
    assert list(read_rows(fs, "x")) == [(Operation.UPSERT, ROWS), (Operation.DELETE, KEYS), (Operation.MERGE, ROWS)]


def test_a_file_without_its_end_is_no_part() -> None:
    content = pinned()
    for size in range(0, len(content), 5):
        fs = on_disk(content[:size])
        if size < len(HEAD) + 8 + len(BODY) and size >= 56:  # long enough for an end, but not for its own head
            with pytest.raises(CorruptionError):
                read_info(fs, "x")
        else:
            assert read_info(fs, "x") is None
        with pytest.raises(CorruptionError):
            list(read_rows(fs, "x"))


def test_every_flipped_bit_is_found() -> None:
    content = pinned()
    for at in range(len(content)):
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        with pytest.raises(CorruptionError):
            list(read_rows(on_disk(bytes(flipped)), "x"))
    with pytest.raises(CorruptionError):
        list(read_rows(on_disk(content + bytes(8)), "x"))
