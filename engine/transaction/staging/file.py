"""The file of a staged part: rows that wait for the commit of their transaction.

A file is read once, after it is complete; so it is a sequence of Arrow streams, each under a checksum, not encoded
columns. Little-endian, everything at a multiple of 8, drawn in docs/format/staging.md::

    head   magic 8s "NYALASTG" | version u4 | body bytes u4 | crc u4 | zero u4 | body: JSON, filled up with spaces
    block  kind u4 | operation u4 | rows u8 | body bytes u8 | crc u4 | zero u4 | body: an Arrow stream of one batch
    end    a block of kind 2 without a body, whose rows are those of all blocks; nothing follows

A checksum covers the preceding fields of its header, and the body; that of a block starts from its offset, so that a
sound block in the wrong place fails.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from pydantic import NonNegativeInt, PositiveInt, ValidationError

from ....schemas.errors import CorruptionError
from ....schemas.message import Message
from ....schemas.rows.operation import Operation
from ...codecs.checksum import crc32
from ...fs.copy import read_exactly
from ...fs.failures import reading
from ...fs.far import FarFile, fetched_again
from ...fs.filesystem import FileSystem, ReadableFile, WritableFile
from ...vectors.arrow_stream import stream_of

_MAGIC = b"NYALASTG"
_VERSION = 1
_HEAD = struct.Struct("<8sIIII")
_BLOCK = struct.Struct("<IIQQII")
_ROWS, _END = 1, 2
_OPERATIONS: dict[Operation, int] = {
    Operation.INSERT: 1,
    Operation.INSERT_IGNORE: 2,
    Operation.UPSERT: 3,
    Operation.UPSERT_IGNORE: 4,
    Operation.UPDATE: 5,
    Operation.UPDATE_IGNORE: 6,
    Operation.DELETE: 7,
    Operation.DELETE_IGNORE: 8,
    Operation.MERGE: 9,
}
"""In files: never reuse or renumber."""
Shape = tuple[Operation, *tuple[str, ...]]
"""The operation and the columns of a batch."""
_BY_NUMBER = {number: operation for operation, number in _OPERATIONS.items()}


class PartInfo(Message, frozen=True, extra="forbid"):
    """The metadata of a staged part, in the head of its file."""

    transaction: str
    part: str
    table_id: PositiveInt
    staged_at: NonNegativeInt
    """When the part was begun, in microseconds since 1970."""


class PartWriter:
    """Writes the file of one staged part. For one thread. An unfinished file is no part."""

    def __init__(self, fs: FileSystem, path: str, info: PartInfo) -> None:
        """Create the file. Raises OSError: it cannot be created, or its head not be written."""
        self._file: WritableFile = fs.create(path)
        self.rows = 0
        self.shapes: set[Shape] = set()
        body = info.model_dump_json().encode()
        body += b" " * (-len(body) % 8)
        head = _HEAD.pack(_MAGIC, _VERSION, len(body), 0, 0)
        try:
            self._file.append(_HEAD.pack(_MAGIC, _VERSION, len(body), crc32(body, crc32(head[:16])), 0) + body)
        except BaseException:
            self._file.close()
            raise

    def add(self, operation: Operation, batch: pa.RecordBatch) -> None:
        """Append rows."""
        parts = [memoryview(part) for part in stream_of(batch)]
        self._append(_ROWS, _OPERATIONS[operation], batch.num_rows, parts)
        self.rows += batch.num_rows
        self.shapes.add((operation, *batch.schema.names))

    def finish(self) -> None:
        """Append the end block and make the content durable."""
        self._append(_END, 0, self.rows, [])
        self._file.sync()

    def close(self) -> None:
        """Forget the file."""
        self._file.close()

    def _append(self, kind: int, operation: int, rows: int, body: list[memoryview]) -> None:
        size = sum(part.nbytes for part in body)
        head = _BLOCK.pack(kind, operation, rows, size, 0, 0)
        crc = _crc_of(head, body, self._file.size)
        self._file.pwrite(self._file.size, _BLOCK.pack(kind, operation, rows, size, crc, 0), *body)


def read_info(fs: FileSystem, path: str) -> tuple[PartInfo, int] | None:
    """Return the metadata of a staged part and its number of rows; None if the file was not finished.

    Raises:
        CorruptionError: the file is not what was written.
        UnreadableFileError: the disk does not return its bytes.
    """
    with _opened(fs, path) as file:
        if file.size < _HEAD.size + _BLOCK.size:
            return None
        info, _ = fetched_again(file, lambda: _read_head(file, path))
        rows = _rows_at_end(file, path)
        if rows is None and isinstance(file, FarFile):
            file.forget(0, file.size)
            rows = _rows_at_end(file, path)
        return None if rows is None else (info, rows)


def read_rows(fs: FileSystem, path: str) -> Iterator[tuple[Operation, pa.RecordBatch]]:
    """Yield the rows in the finished file of a staged part, with their operations. Reads and verifies one block at a
    time.

    Raises:
        CorruptionError: the file is not what was written.
        UnreadableFileError: the disk does not return its bytes.
    """
    with _opened(fs, path) as file:
        _, at = fetched_again(file, lambda: _read_head(file, path))
        rows = 0
        while True:
            kind, number, count, body = fetched_again(file, partial(_read_block, file, path, at))
            end = at + _BLOCK.size + len(body)
            if kind == _END:
                if count != rows or end != file.size:
                    raise CorruptionError(path, at, f"the file has {rows} rows, but its end mark says {count}")
                return
            yield _batch(path, at, kind, number, count, body)
            rows += count
            at = end


@contextmanager
def _opened(fs: FileSystem, path: str) -> Iterator[ReadableFile]:
    with reading(path):
        file = fs.open(path)
    try:
        yield file
    finally:
        file.close()


def _read_head(file: ReadableFile, path: str) -> tuple[PartInfo, int]:
    """Return the metadata and the offset of the first block."""
    if file.size < _HEAD.size:
        raise CorruptionError(path, 0, "the file ends within its head")
    head = read_exactly(file, path, 0, _HEAD.size)
    magic, version, length, crc, zero = _HEAD.unpack(head)
    end = _HEAD.size + length
    body = read_exactly(file, path, _HEAD.size, length) if end <= file.size else None
    if magic != _MAGIC or zero or body is None or crc != crc32(body, crc32(head[:16])):
        raise CorruptionError(path, 0, "the checksum of the head is wrong")
    if version != _VERSION:
        raise CorruptionError(path, 8, f"the file has format version {version}; this build reads version {_VERSION}")
    try:
        return PartInfo.model_validate_json(bytes(body)), _HEAD.size + length
    except ValidationError as error:
        raise CorruptionError(path, _HEAD.size, f"the head cannot be parsed: {error}") from error


def _rows_at_end(file: ReadableFile, path: str) -> int | None:
    """Return what the end block says; None if there is none."""
    at = file.size - _BLOCK.size
    kind, operation, rows, length, crc, zero = _BLOCK.unpack(read_exactly(file, path, at, _BLOCK.size))
    head = _BLOCK.pack(kind, operation, rows, length, 0, 0)
    is_end = (kind, operation, length, zero) == (_END, 0, 0, 0) and crc == _crc_of(head, [], at)
    return rows if is_end else None


def _read_block(file: ReadableFile, path: str, at: int) -> tuple[int, int, int, memoryview]:
    """Return the kind, the number of the operation, the rows and the body of the block at ``at``."""
    if at + _BLOCK.size > file.size:
        raise CorruptionError(path, at, "the file ends within a block")
    kind, number, count, length, crc, zero = _BLOCK.unpack(read_exactly(file, path, at, _BLOCK.size))
    end = at + _BLOCK.size + length
    body = read_exactly(file, path, at + _BLOCK.size, length) if end <= file.size else None
    head = _BLOCK.pack(kind, number, count, length, 0, 0)
    if zero or body is None or crc != _crc_of(head, [body], at):
        raise CorruptionError(path, at, "the checksum of a block is wrong")
    return kind, number, count, body


def _batch(
    path: str, at: int, kind: int, number: int, count: int, body: memoryview
) -> tuple[Operation, pa.RecordBatch]:
    operation = _BY_NUMBER.get(number)
    if kind != _ROWS or operation is None:
        raise CorruptionError(path, at, f"a block has the unknown kind {kind} or operation {number}")
    try:
        batch = pa.ipc.open_stream(pa.py_buffer(body)).read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise CorruptionError(path, at, f"the rows cannot be read: {error}") from error
    if batch.num_rows != count:
        raise CorruptionError(path, at, f"a block has {batch.num_rows} rows, but its head says {count}")
    return operation, batch


def _crc_of(head: bytes, body: list[memoryview], offset: int) -> int:
    crc = crc32(head[:24], crc32(offset.to_bytes(8, "little")))
    for part in body:
        crc = crc32(part, crc) if len(part) else crc
    return crc
