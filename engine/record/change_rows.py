"""The rows of a small change in the log: in row encoding, a tenth of an Arrow stream of one row.

    | columns u4 | rows u4 | column id u4 x columns | type u1 x columns | end u4 x rows | rows | 0 to a multiple of 8 |

An end counts from the first byte of the first row. Columns without any cell are named too: setting a cell to NULL
differs from leaving it. Types are the physical ones, by number.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ..codecs.codec import CorruptPageError, require
from ..codecs.row import WantedColumn, check, decode, encode
from ..vectors.arrow import to_arrow
from ..vectors.memory import allocate
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, Vector, stored_as

_COUNTS = struct.Struct("<II")
_UNIT = np.dtype("<u4")
CELLS_MAX = 1 << 22
"""More rows in one change are corruption; writers use thousands. NULLs take no bytes, so the length of a change does
not limit the memory of its cells."""

_CODES = {
    PhysicalType.BOOL: 1,
    PhysicalType.INT8: 2,
    PhysicalType.INT16: 3,
    PhysicalType.INT32: 4,
    PhysicalType.INT64: 5,
    PhysicalType.INT128: 6,
    PhysicalType.FLOAT32: 7,
    PhysicalType.FLOAT64: 8,
    PhysicalType.BYTES: 9,
}
"""In the log: never reuse or renumber."""

_PHYSICAL = {code: physical for physical, code in _CODES.items()}

_ARROW: dict[PhysicalType, pa.DataType] = {
    PhysicalType.BOOL: pa.bool_(),
    PhysicalType.INT8: pa.int8(),
    PhysicalType.INT16: pa.int16(),
    PhysicalType.INT32: pa.int32(),
    PhysicalType.INT64: pa.int64(),
    PhysicalType.INT128: pa.decimal128(38),
    PhysicalType.FLOAT32: pa.float32(),
    PhysicalType.FLOAT64: pa.float64(),
    PhysicalType.BYTES: pa.binary(),
}


def pack_rows(cells: Mapping[int, Vector], row_count: int) -> bytes:
    """Return the cells of some rows by column id. Raises OverflowError if they take 2 GiB or more."""
    return pack_row_parts(cells, row_count, (0, row_count))[0]


def pack_row_parts(cells: Mapping[int, Vector], row_count: int, bounds: Sequence[int]) -> list[bytes]:
    """Return rows [bounds[i], bounds[i + 1]) of the cells, packed each for itself. Raises as ``pack_rows``."""
    encoded = encode(cells, row_count)
    data, offsets = encoded.data.tobytes(), encoded.offsets
    types = {column_id: stored_as(vector) for column_id, vector in cells.items()}
    parts: list[bytes] = []
    for first, last in pairwise(bounds):
        start, end = int(offsets[first]), int(offsets[last])
        ends = (offsets[first + 1 : last + 1] - start).tobytes()
        body = head_of(types, last - first) + ends + data[start:end]
        parts.append(body + bytes(-len(body) % 8))
    return parts


def head_of(columns: Mapping[int, PhysicalType], row_count: int) -> bytes:
    """Return what comes before the ends of the rows; the columns are types by id."""
    ids = np.array(list(columns), _UNIT).tobytes()
    return _COUNTS.pack(len(columns), row_count) + ids + bytes(_CODES[physical] for physical in columns.values())


def unpack_rows(body: memoryview) -> tuple[dict[int, Vector], pa.RecordBatch]:
    """Return the cells by column id, and the same as a batch of the Arrow types for the physical ones: a date as an
    int32.

    Raises CorruptPageError if the body is not what was packed.
    """
    require(len(body) >= _COUNTS.size, "a change without counts")
    column_count, row_count = _COUNTS.unpack_from(body)
    types_at = _COUNTS.size + _UNIT.itemsize * column_count
    ends_at = types_at + column_count
    rows_at = ends_at + _UNIT.itemsize * row_count
    require(rows_at <= len(body), f"{len(body)} bytes are too few for {column_count} columns of {row_count} rows")
    require(column_count * row_count <= CELLS_MAX, f"{column_count} columns of {row_count} rows are no small change")
    content = np.frombuffer(body, np.uint8)
    ids = content[_COUNTS.size : types_at].view(_UNIT).tolist()
    require(len(set(ids)) == len(ids), "a column twice")
    rows = _rows(content[ends_at:rows_at].view(_UNIT), content[rows_at:])
    wanted = [
        WantedColumn(column_id, _type(code))
        for column_id, code in zip(ids, content[types_at:ends_at].tolist(), strict=True)
    ]
    cells = dict(zip(ids, decode(rows, wanted), strict=True))
    arrays = [to_arrow(cells[column.column_id], _ARROW[column.physical]) for column in wanted]
    return cells, pa.RecordBatch.from_arrays(arrays, names=[str(column_id) for column_id in ids])


def _rows(ends: np.ndarray, data: np.ndarray) -> BytesVector:
    """Return the checked rows, in their own memory."""
    size = int(ends[-1]) if len(ends) else 0
    require(size <= len(data) < size + 8, f"rows of {size} bytes in {len(data)}")
    offsets = allocate(len(ends) + 1, np.int32)
    offsets[0], offsets[1:] = 0, ends
    cells = allocate(size, np.uint8)
    cells[:] = data[:size]
    rows = BytesVector(offsets, cells)
    check(rows)
    return rows


def _type(code: int) -> PhysicalType:
    physical = _PHYSICAL.get(code)
    if physical is None:
        raise CorruptPageError(f"no type has the number {code}")
    return physical
