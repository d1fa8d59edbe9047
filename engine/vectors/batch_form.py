"""BatchForm: the Arrow message of batches with one schema, for cells that kernels write where Arrow looks for them.

A message is a head, a flatbuffer of one size for all batches of a schema, and a body. A sample shows the head; the
numbers in it are replaced: of rows, of NULLs, and where each buffer is (Arrow, `format/Message.fbs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import numpy as np
import pyarrow as pa

from .memory.memory import SLACK_BYTES

_PREFIX_BYTES = 8
"""The mark of a message, and the size of its head."""
_ALIGNMENT = 64
_OFFSET_BYTES = 4
_MESSAGE_HEADER, _MESSAGE_BODY_LENGTH = 2, 3
_BATCH_LENGTH, _BATCH_NODES, _BATCH_BUFFERS = 0, 1, 2
_NUMBER, _OFFSETS = Struct("<q"), Struct("<ii")

Places = tuple[int, int, int]
"""Where in a message the bitmap of a column is, its cells or int32 offsets, and the bytes of its strings."""


class BatchForm:
    """Lays out vectors as batches of one Arrow schema, at least one column. Thread safe."""

    def __init__(self, schema: pa.Schema, widths: Sequence[int]) -> None:
        """``widths`` are the bytes of a cell of each column, 0 for strings and binaries with 32-bit offsets."""
        self.width = len(widths)
        self._widths = tuple(widths)
        sample = pa.RecordBatch.from_arrays([_sample(kind) for kind in schema.types], schema=schema)
        self._head = bytearray(sample.serialize().slice(0, _head_bytes(sample)).to_pybytes())
        message = _PREFIX_BYTES + self._u32(_PREFIX_BYTES)
        batch = self._followed(message, _MESSAGE_HEADER)
        self._body_length = self._field(message, _MESSAGE_BODY_LENGTH)
        self._length = self._field(batch, _BATCH_LENGTH)
        self._nodes = self._followed(batch, _BATCH_NODES) + 4
        self._buffers = self._followed(batch, _BATCH_BUFFERS) + 4
        buffers = sum(2 if width else 3 for width in widths)
        self._node_numbers, self._buffer_numbers = Struct(f"<{2 * self.width}q"), Struct(f"<{2 * buffers}q")

    def laid_out(self, count: int, measured: Sequence[int]) -> tuple[np.ndarray, list[Places]]:
        """Return a message (uint8) for so many rows, at least one, whose body is zero, and the places of the columns.
        ``measured`` has for each column the bytes of its strings and the number of its NULLs."""
        nodes: list[int] = []
        buffers: list[int] = []
        places: list[Places] = []
        base, end = len(self._head), 0
        for i, width in enumerate(self._widths):
            bytes_, nulls = measured[2 * i], measured[2 * i + 1]
            nodes += count, nulls
            at: list[int] = []
            cells = (width * count,) if width else (_OFFSET_BYTES * (count + 1), bytes_)
            for size in ((count + 7) // 8 if nulls else 0, *cells):
                at.append(base + end)
                buffers += end, size
                end += -(-size // _ALIGNMENT) * _ALIGNMENT
            places.append((at[0], at[1], 0 if width else at[2]))
        message = bytearray(base + end + SLACK_BYTES)
        message[:base] = self._head
        _NUMBER.pack_into(message, self._body_length, end)
        _NUMBER.pack_into(message, self._length, count)
        self._node_numbers.pack_into(message, self._nodes, *nodes)
        self._buffer_numbers.pack_into(message, self._buffers, *buffers)
        return np.frombuffer(message, np.uint8, base + end), places

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
