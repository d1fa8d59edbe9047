"""The rows of a small change in the log: in row encoding, a tenth of an Arrow stream of one row.

    | columns u4 | rows u4 | column id u4 x columns | type u1 x columns | end u4 x rows | rows | 0 to a multiple of 8 |

An end counts from the first byte of the first row. Columns without any cell are named too: setting a cell to NULL
differs from leaving it. Types are the physical ones, by number.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ..codecs.row import encode
from ..vectors.physical import PhysicalType
from ..vectors.vector import Vector, stored_as

_COUNTS = struct.Struct("<II")
COUNTS_BYTES = _COUNTS.size
_UNIT = np.dtype("<u4")
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

PHYSICAL_TYPES = {code: physical for physical, code in _CODES.items()}

ARROW_TYPES: dict[PhysicalType, pa.DataType] = {
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
"""What shows cells whose logical type the log does not say: a date as an int32."""


def pack_rows(cells: Mapping[int, Vector], row_count: int) -> bytes:
    """Return the bytes of a change's rows in a log record, from their cells by column id. Raises OverflowError if they
    take 2 GiB or more."""
    encoded = encode(cells, row_count)
    types = {column_id: stored_as(vector) for column_id, vector in cells.items()}
    ends = encoded.offsets[1 : row_count + 1]
    body = head_of(types, row_count) + ends.tobytes() + encoded.data[: encoded.offsets[row_count]].tobytes()
    return body + bytes(-len(body) % 8)


def head_of(columns: Mapping[int, PhysicalType], row_count: int) -> bytes:
    """Return what comes before the ends of a change's rows in a log record; the columns are types by id."""
    ids = np.array(list(columns), _UNIT).tobytes()
    return _COUNTS.pack(len(columns), row_count) + ids + bytes(_CODES[physical] for physical in columns.values())
