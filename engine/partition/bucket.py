"""The hash bucket of rows, the same as Spark's ``pmod(xxhash64(columns), buckets)``.

By type, as in Spark's expression: int8, int16, int32 and date as an int; int64, timestamp and decimals of up to 18
digits as a long; larger decimals as the fewest big-endian bytes of the unscaled integer; strings and binary as their
bytes. A seed other than 0 comes first, as an int: ``xxhash64(seed, columns)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

import numpy as np
import pyarrow as pa

from ...schemas.table.column import ColumnSchema
from ...schemas.table.partition_schema import HashSchema
from ..kernels.keys import xxhash64 as kernels
from ..vectors.memory.memory import address_of, allocate
from ..vectors.physical import PhysicalType, physical_of
from ..vectors.raw_cell import RawCell
from ..vectors.vector import BytesVector, FixedVector, Vector, as_bytes

_SPARK_SEED = 42
_LONG, _INTEGER, _ENDS = Struct("<q"), Struct("<i"), Struct("<ii")


def buckets_of(level: HashSchema, cells: Mapping[int, Vector], columns: Sequence[ColumnSchema]) -> np.ndarray:
    """Return the hash bucket (int64) of each row in one level of the partitions; ``cells`` are those of the level's
    ``columns``, by id."""
    count = len(cells[columns[0].id])
    states = allocate(count, np.uint64)
    states[:] = _SPARK_SEED
    if level.seed:
        _mix(FixedVector(np.full(count, level.seed, np.int32)), False, states)
    for column in columns:
        is_long = column.logical.name == "decimal"
        _mix(cells[column.id], is_long, states)
    return states.view(np.int64) % level.buckets  # numpy's remainder has the sign of the divisor, as pmod's


_NUMBER, _OFFSETS = 8, 16
"""Where a number and the offsets of a string are in the memory for one row, behind the state."""


def bucket_of(level: HashSchema, cells: Sequence[RawCell], columns: Sequence[ColumnSchema]) -> int:
    """Return the hash bucket of one row in one level of the partitions, given the raw cells of the level's
    ``columns``."""
    memory = bytearray(24)  # not shared: a signal's handler may write rows, too
    state = pa.py_buffer(memory).address
    number, offsets = state + _NUMBER, state + _OFFSETS
    _LONG.pack_into(memory, 0, _SPARK_SEED)
    if level.seed:
        _INTEGER.pack_into(memory, _NUMBER, level.seed)
        kernels.mix_int32(number, 1, state)
    for cell, column in zip(cells, columns, strict=True):
        kind = column.logical
        physical = physical_of(kind.arrow)
        assert isinstance(cell, int | bytes), "a key column holds neither NULL nor a float"
        if isinstance(cell, bytes) or physical is PhysicalType.INT128:
            text = cell if isinstance(cell, bytes) else _big_integer(cell)
            _ENDS.pack_into(memory, _OFFSETS, 0, len(text))
            kernels.mix_strings(offsets, pa.py_buffer(text).address, 1, state)
        elif kind.name == "decimal" or physical is PhysicalType.INT64:
            _LONG.pack_into(memory, _NUMBER, cell)
            kernels.mix_int64(number, 1, state)
        else:
            _INTEGER.pack_into(memory, _NUMBER, cell)
            kernels.mix_int32(number, 1, state)
    return _LONG.unpack_from(memory)[0] % level.buckets


def _big_integer(value: int) -> bytes:
    """Return one integer as Java's ``BigInteger.toByteArray`` does."""
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def _mix(cells: Vector, is_long: bool, states: np.ndarray) -> None:
    count, target = len(states), address_of(states)
    if not isinstance(cells, FixedVector):
        strings = as_bytes(cells)
        kernels.mix_strings(address_of(strings.offsets), address_of(strings.data), count, target)
    elif cells.values.dtype.itemsize == 16:
        strings = _big_integers(cells.values)
        kernels.mix_strings(address_of(strings.offsets), address_of(strings.data), count, target)
    elif is_long or cells.values.dtype.itemsize == 8:
        longs = np.ascontiguousarray(cells.values, np.int64)
        kernels.mix_int64(address_of(longs), count, target)
    else:
        integers = np.ascontiguousarray(cells.values, np.int32)
        kernels.mix_int32(address_of(integers), count, target)


def _big_integers(values: np.ndarray) -> BytesVector:
    """Return 128-bit integers as Java's ``BigInteger.toByteArray`` does: two's complement, without needless bytes."""
    digits = np.ascontiguousarray(values).view(np.uint8).reshape(-1, 16)[:, ::-1]
    sign = np.where(digits[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    is_sign = digits == sign
    # The first byte that carries more than the sign; the last one always remains.
    first = np.where(is_sign[:, :15].all(axis=1), 15, np.argmin(is_sign[:, :15], axis=1))
    leading = digits[np.arange(len(digits)), first]
    needs_sign = ((leading >= 0x80) != (sign[:, 0] == 0xFF)) & (first > 0)
    first -= needs_sign
    offsets = np.zeros(len(digits) + 1, np.int32)
    np.cumsum(16 - first, out=offsets[1:])
    return BytesVector(offsets, digits[np.arange(16) >= first[:, None]])
