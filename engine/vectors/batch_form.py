"""BatchForm: the Arrow message of batches with one schema, for cells that kernels write where Arrow looks for them.

A message is a head, a flatbuffer of one size for all batches of a schema, and a body. A sample shows the head; the
numbers in it are replaced: of rows, of NULLs, and where each buffer is (Arrow, `format/Message.fbs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import numpy as np
import pyarrow as pa

from .memory.memory import SLACK_BYTES, address_of

_PREFIX_BYTES = 8
"""The mark of a message, and the size of its head."""
_ALIGNMENT = 64
_OFFSET_BYTES = 4
_MESSAGE_HEADER, _MESSAGE_BODY_LENGTH = 2, 3
_BATCH_LENGTH, _BATCH_NODES, _BATCH_BUFFERS = 0, 1, 2
_BUFFERS_MAX = 3
"""Of a column: a bitmap, cells or offsets, the bytes of strings."""
_OFFSETS = Struct("<ii")


class BatchForm:
    """Lays out vectors as batches of one Arrow schema, at least one column. Thread safe."""

    def __init__(self, schema: pa.Schema, widths: Sequence[int]) -> None:
        """``widths`` are the bytes of a cell of each column, 0 for strings and binaries with 32-bit offsets."""
        self.width = len(widths)
        sample = pa.RecordBatch.from_arrays([_sample(kind) for kind in schema.types], schema=schema)
        self._head = bytearray(sample.serialize().slice(0, _head_bytes(sample)).to_pybytes())
        self.head_bytes = len(self._head)
        message = _PREFIX_BYTES + self._u32(_PREFIX_BYTES)
        batch = self._followed(message, _MESSAGE_HEADER)
        lengths = self._field(message, _MESSAGE_BODY_LENGTH), self._field(batch, _BATCH_LENGTH)
        lists = self._followed(batch, _BATCH_NODES) + 4, self._followed(batch, _BATCH_BUFFERS) + 4
        self._fields = np.array([*lengths, *lists, self.head_bytes, *widths], np.int64)
        self.address = address_of(self._fields)
        """Of what `write_batch` takes as the form: int64, where the numbers are, the bytes of the head, the widths."""

    def message(self, count: int, size: int) -> np.ndarray:
        """Return room (uint8) for the message of so many rows, with ``size`` bytes of cells, offsets and strings: a
        head whose numbers are missing, and zeros."""
        more = self.width * (_BUFFERS_MAX * _ALIGNMENT + _OFFSET_BYTES + (count + 7) // 8)
        message = bytearray(self.head_bytes + size + more + SLACK_BYTES)
        message[: self.head_bytes] = self._head
        return np.frombuffer(message, np.uint8)

    def _u32(self, place: int) -> int:
        return int.from_bytes(self._head[place : place + 4], "little")

    def _field(self, table: int, number: int) -> int:
        """Return the place of a table's field, which must be there."""
        directory = table - int.from_bytes(self._head[table : table + 4], "little", signed=True)
        offset = int.from_bytes(self._head[directory + 4 + 2 * number :][:2], "little")
        assert offset, "a sample has no field of its default"
        return table + offset

    def _followed(self, table: int, number: int) -> int:
        """Return where a field of a table points to."""
        place = self._field(table, number)
        return place + self._u32(place)


def _sample(kind: pa.DataType) -> pa.Array:
    """Return an array of one cell, which is not NULL and has a byte if it can."""
    cells = [pa.py_buffer(bytes(16))]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        cells = [pa.py_buffer(_OFFSETS.pack(0, 1)), pa.py_buffer(b"x")]
    return pa.Array.from_buffers(kind, 1, [None, *cells], 0)


def _head_bytes(batch: pa.RecordBatch) -> int:
    message = batch.serialize()
    return _PREFIX_BYTES + int.from_bytes(message.slice(4, 4).to_pybytes(), "little")
