"""Encodes the cells of the key columns as keys, like Kudu.

* An integer (also a date, a timestamp, a decimal) is its big-endian bytes with the sign bit flipped.
* A string that is not the last key column has each 0x00 written as 0x00 0x01 and ends with
  0x00 0x00, so that it sorts before every longer one whatever follows.
* A string that is the last key column is its raw bytes.
* The key is the concatenation, and its memcmp order is the order of the columns.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ...kernels.keys import keys as kernels
from ..gather import check_data_bytes
from ..memory.memory import address_of, allocate
from ..physical import PhysicalType
from ..vector import BytesVector, FixedVector, Vector, as_bytes
from .key_vector import BytesKeys, KeyVector, U64Keys

_WRITE_INTEGER: dict[PhysicalType, Callable[[int, int, int, int], None]] = {
    PhysicalType.INT8: kernels.write_int8,
    PhysicalType.INT16: kernels.write_int16,
    PhysicalType.INT32: kernels.write_int32,
    PhysicalType.INT64: kernels.write_int64,
    PhysicalType.INT128: kernels.write_int128,
}
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class KeyEncoder:
    """Encodes the keys of one table, whose key columns have the given physical types, in order."""

    def __init__(self, physicals: Sequence[PhysicalType]) -> None:
        """Raises TypeError for a type that key columns may not have (bool, float, double)."""
        for physical in physicals:
            if physical is not PhysicalType.BYTES and not physical.is_integer:
                raise TypeError(f"{physical} cannot be part of a primary key")
        self.physicals = tuple(physicals)
        has_fixed_width = PhysicalType.BYTES not in self.physicals
        self.width = sum(physical.width for physical in self.physicals) if has_fixed_width else 0
        """Bytes of every key, or 0 if keys have different lengths."""
        self.is_u64 = 0 < self.width <= 8
        """Whether `encode` returns U64Keys, else BytesKeys."""

    def encode(self, columns: Sequence[Vector], overwrite: bool = False) -> KeyVector:
        """Return the keys of rows whose key cells are ``columns``, which are never NULL.

        ``overwrite`` allows keys to reuse the memory of the cells, with or without slack.
        """
        assert len(columns) == len(self.physicals), "one vector for each key column"
        assert all(column.valid is None or column.valid.all() for column in columns), "NULL in key"
        if self.is_u64:
            return U64Keys(_pack([_fixed(column) for column in columns], overwrite), self.width)
        if self.physicals == (PhysicalType.BYTES,):
            cells = as_bytes(columns[0])
            return BytesKeys(cells.offsets, cells.data)
        return self._encode_bytes(
            [column if isinstance(column, FixedVector) else as_bytes(column) for column in columns]
        )

    def encode_bound(self, values: Sequence[int | bytes | str]) -> bytes:
        """Return the encoding of the first ``len(values)`` key columns, to compare with keys.

        Integers are of the physical type; a str is encoded as UTF-8. Raises OverflowError for an integer outside its
        column's type.
        """
        assert len(values) <= len(self.physicals), "more values than key columns"
        last = len(self.physicals) - 1
        return b"".join(
            _encode_value(value, physical, is_last=column == last)
            for column, (value, physical) in enumerate(zip(values, self.physicals, strict=False))
        )

    def _encode_bytes(self, columns: Sequence[FixedVector | BytesVector]) -> BytesKeys:
        count = len(columns[0])
        places = np.zeros(count + 1, np.int64)  # lengths, then ends, then each row's write position
        for column in columns:
            self._add_lengths(column, places[1:], is_last=column is columns[-1])
        np.cumsum(places, out=places)
        data = allocate(check_data_bytes(int(places[-1])), np.uint8)
        offsets = allocate(count + 1, np.int32)
        offsets[:] = places
        for physical, column in zip(self.physicals, columns, strict=True):
            target = count, address_of(places), address_of(data)
            if isinstance(column, FixedVector):
                _WRITE_INTEGER[physical](address_of(column.values), *target)
            else:
                is_last = column is columns[-1]
                write = kernels.write_raw if is_last else kernels.write_escaped
                write(address_of(column.offsets), address_of(column.data), *target)
        return BytesKeys(offsets, data)

    def _add_lengths(self, column: FixedVector | BytesVector, lengths: np.ndarray, is_last: bool) -> None:
        if isinstance(column, FixedVector):
            lengths += column.values.dtype.itemsize
        elif is_last:
            lengths += column.lengths
        else:
            places = address_of(column.offsets), address_of(column.data)
            kernels.add_escaped_lengths(*places, len(column), address_of(lengths))


def _fixed(column: Vector) -> FixedVector:
    assert isinstance(column, FixedVector), "an integer key column is a fixed vector"
    return column


def _pack(columns: Sequence[FixedVector], overwrite: bool) -> np.ndarray:
    """Return the columns side by side in one uint64 a row, the first column on top."""
    keys = None
    for column in columns:
        bits = column.values.dtype.itemsize * 8
        unsigned = column.values.view(_UNSIGNED[bits // 8])
        flipped = unsigned if overwrite else allocate(len(unsigned), unsigned.dtype)
        np.bitwise_xor(unsigned, unsigned.dtype.type(1 << (bits - 1)), out=flipped)
        if keys is None:
            keys = flipped.astype(np.uint64, copy=False)
        else:
            keys <<= np.uint64(bits)
            keys |= flipped
    assert keys is not None, "a key has at least one column"
    return keys


def _encode_value(value: int | bytes | str, physical: PhysicalType, is_last: bool) -> bytes:
    if physical is PhysicalType.BYTES:
        assert not isinstance(value, int), "a string column takes bytes or str"
        cells = value.encode() if isinstance(value, str) else bytes(value)
        return cells if is_last else cells.replace(b"\0", b"\0\1") + b"\0\0"
    assert isinstance(value, int), "an integer column takes an int"
    bits = physical.width * 8
    return (value + (1 << (bits - 1))).to_bytes(physical.width, "big")
