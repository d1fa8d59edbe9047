"""The cells of key columns as the store takes them, to find the tablets of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.literal import from_json
from ...schemas.cells.wrapped import unwrapped
from ...schemas.table.column import ColumnSchema
from ..convert.casting import cast

_ANY: dict[str, Any] = {"binary": {"base64": ""}}
"""As JSON, some value for a type in which 0 is not one."""


def stored_cells(cells: pa.Array, column: ColumnSchema) -> pa.Array:
    """Return ``cells`` in the type of a key column, as the store casts and cuts them, for a client to find the servers
    of rows.

    A NULL, or a value that does not fit, becomes an arbitrary value: the store refuses its row in any tablet.

    Raises:
        InvalidArgumentError: no value of this type fits.
    """
    cells = unwrapped(cells)
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    target = column.logical
    if cells.type != target.arrow:
        try:
            cells = cells.cast(target.arrow, safe=False)
        except pa.ArrowException:
            cells = cast(cells, target, column.name)
    if cells.null_count:
        cells = cells.fill_null(any_value(column))
    if target.name == "varchar":
        cells = pc.utf8_slice_codeunits(cells, 0, target.length)
    return cells


def any_value(column: ColumnSchema) -> pa.Scalar:
    """Return some value of a key column, to stand for NULL where a client finds the servers of rows."""
    kind = column.logical
    value = "" if kind.is_text else _ANY.get(kind.name, 0)
    return pa.scalar(from_json(value, kind), kind.arrow)


def integers(cells: pa.Array) -> np.ndarray:
    """Return integers, dates, timestamps and decimals of up to 18 digits as the int64 that a client hashes and compares
    to find a row's server."""
    if pa.types.is_decimal(cells.type):
        return halves(cells)[:, 0]
    if pa.types.is_date32(cells.type):
        cells = cells.view(pa.int32())
    elif pa.types.is_timestamp(cells.type):
        cells = cells.view(pa.int64())
    return cells.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def halves(cells: pa.Array) -> np.ndarray:
    """Return decimals as their low and high 64 bits (n by 2, int64), which a client compares to find a row's server."""
    return np.frombuffer(cells.buffers()[1], np.int64, 2 * len(cells), cells.offset * 16).reshape(-1, 2)


def big_endian(cells: pa.Array) -> pa.Array:
    """Return decimals as the bytes that a client hashes to find a row's server: the shortest big-endian ones of their
    unscaled integers, two's complement."""
    digits = np.ascontiguousarray(halves(cells)).view(np.uint8).reshape(-1, 16)[:, ::-1]
    sign = np.where(digits[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    is_sign = digits == sign
    first = np.where(is_sign[:, :15].all(axis=1), 15, np.argmin(is_sign[:, :15], axis=1))
    leading = digits[np.arange(len(digits)), first]
    first = first - (((leading >= 0x80) != (sign[:, 0] == 0xFF)) & (first > 0))
    offsets = np.zeros(len(digits) + 1, np.int32)
    np.cumsum(16 - first, out=offsets[1:])
    data = digits[np.arange(16) >= first[:, None]]
    return pa.Array.from_buffers(pa.binary(), len(digits), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
