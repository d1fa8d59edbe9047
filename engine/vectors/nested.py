"""Nested arrays as byte strings, one for each cell, and back (`docs/format/nested.md`).

All that a cell holds is in its bytes, and equal cells have equal bytes: so deltas, the log, gets and moves take a cell
of a list as they take text. A tree of types is walked level by level, never value by value.

Arrays are trusted when they are written, as in `arrow`; cells are checked when they are read.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ..kernels.cells import nested as kernels
from .arrow_buffers import array_of, bytes_to_arrow, cells_of, fixed, from_strings, unpack_bits, validity_of
from .gather import check_data_bytes
from .memory.memory import address_of, address_or_0, allocate, allocate_zeroed
from .physical import INT128_DTYPE
from .vector import BytesVector

_DTYPES = {8: np.dtype("<u1"), 16: np.dtype("<u2"), 32: np.dtype("<u4"), 64: np.dtype("<u8"), 128: INT128_DTYPE}
"""Cells of Arrow by their bits, whatever they mean."""


class MalformedCellError(ValueError):
    """The bytes of a nested cell contradict themselves."""


def nested_from_arrow(array: pa.Array) -> BytesVector:
    """Return the cells of an array of lists, structs or maps, which may be a slice, as byte strings.

    Raises OverflowError for more than 2**31 - 1 bytes.
    """
    values = _values_of(array)
    sizes = values.sizes()
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = allocate_zeroed(check_data_bytes(int(offsets[-1])), np.uint8)
    values.write(offsets[:-1], address_of(data))
    return BytesVector(offsets.astype(np.int32), data, values.valid)


def nested_sizes(array: pa.Array) -> np.ndarray:
    """Return the bytes (int64) of each cell that ``nested_from_arrow`` makes of an array, 0 for a NULL."""
    return _values_of(array).sizes()


def nested_to_arrow(vector: BytesVector, arrow_type: pa.DataType) -> pa.Array:
    """Return byte strings, as ``nested_from_arrow`` makes them of an array of this type, as that array.

    Raises MalformedCellError if one is not such a string.
    """
    starts = vector.offsets[:-1].astype(np.int64)
    lengths = vector.lengths.astype(np.int64)
    if vector.valid is not None:
        lengths[~vector.valid] = -1
    return _read(arrow_type, vector.data, starts, lengths)


class _Values(ABC):
    """The values of an array on one level of its tree. ``sizes`` comes before ``write``."""

    width = 0
    """The bytes of each value; 0 if they differ."""

    def __init__(self, array: pa.Array) -> None:
        self.count = len(array)
        self.valid = validity_of(array)

    @property
    def valid_address(self) -> int:
        return address_or_0(self.valid)

    @abstractmethod
    def sizes(self) -> np.ndarray:
        """Return the bytes (int64) of each value, 0 for a NULL; nothing of use if all have one ``width``."""

    @abstractmethod
    def write(self, starts: np.ndarray, target: int) -> None:
        """Write the values to their places ``starts`` (int64) after the address ``target``; one at -1 is nowhere."""


class _Numbers(_Values):
    def __init__(self, array: pa.Array) -> None:
        super().__init__(array)
        if pa.types.is_boolean(array.type):
            cells = unpack_bits(array.buffers()[1], array.offset, len(array))
        else:
            cells = cells_of(array, number_dtype(array.type))
        self.cells = np.ascontiguousarray(fixed(cells, self.valid).values)
        self.width = self.cells.dtype.itemsize

    def sizes(self) -> np.ndarray:
        return _NO_SIZES

    def write(self, starts: np.ndarray, target: int) -> None:
        kernels.write_numbers(address_of(self.cells), self.width, self.count, address_of(starts), target)


class _Strings(_Values):
    def __init__(self, array: pa.Array) -> None:
        super().__init__(array)
        self._vector = from_strings(array, self.valid)

    def sizes(self) -> np.ndarray:
        return self._vector.lengths.astype(np.int64)

    def write(self, starts: np.ndarray, target: int) -> None:
        offsets, data = self._vector.offsets, self._vector.data
        kernels.write_strings(address_of(offsets), address_of(data), self.count, address_of(starts), target)


class _Lists(_Values):
    def __init__(self, array: pa.Array) -> None:
        super().__init__(array)
        offsets = list_offsets(array)
        first, last = int(offsets[0]), int(offsets[-1])
        self._offsets = offsets - first
        self._items = _values_of(array.values.slice(first, last - first))  # pyright: ignore[reportAttributeAccessIssue]
        self._item_sizes = self._items.sizes()

    def sizes(self) -> np.ndarray:
        sizes = np.empty(self.count, np.int64)
        lists = address_of(self._offsets), self.count, self.valid_address
        items = self._items.width, address_of(self._item_sizes), self._items.valid_address
        kernels.measure_lists(*lists, *items, address_of(sizes))
        return sizes

    def write(self, starts: np.ndarray, target: int) -> None:
        items = self._items
        cells = address_of(items.cells) if isinstance(items, _Numbers) else 0
        places = np.full(0 if cells else items.count, -1, np.int64)
        kernels.write_lists(
            address_of(self._offsets),
            self.count,
            self.valid_address,
            items.width,
            cells,
            address_of(self._item_sizes),
            items.valid_address,
            address_of(starts),
            target,
            address_of(places),
        )
        if not cells:
            items.write(places, target)


class _Structs(_Values):
    def __init__(self, array: pa.StructArray) -> None:
        super().__init__(array)
        self._fields = [_values_of(array.field(i)) for i in range(array.type.num_fields)]
        self._sizes = [values.sizes() for values in self._fields]

    def sizes(self) -> np.ndarray:
        head = _head_bytes([values.width for values in self._fields])
        sizes = np.full(self.count, head, np.int64)
        for values, part in zip(self._fields, self._sizes, strict=True):
            if not values.width:
                sizes += part
        if self.valid is not None:
            sizes[~self.valid] = 0
        return sizes

    def write(self, starts: np.ndarray, target: int) -> None:
        places = [np.full(self.count, -1, np.int64) for _ in self._fields]
        table = np.array(
            [
                (values.width, address_of(sizes), values.valid_address, address_of(place))
                for values, sizes, place in zip(self._fields, self._sizes, places, strict=True)
            ],
            np.int64,
        )
        where = self.count, self.valid_address, address_of(starts), target
        kernels.write_structs(*where, address_of(table), len(self._fields))
        for values, place in zip(self._fields, places, strict=True):
            values.write(place, target)


_NO_SIZES = np.zeros(1, np.int64)


def _values_of(array: pa.Array) -> _Values:
    kind = array.type
    if pa.types.is_struct(kind):
        assert isinstance(array, pa.StructArray)
        return _Structs(array)
    if pa.types.is_nested(kind):
        return _Lists(array)
    return _Strings(array) if is_text(kind) else _Numbers(array)


def is_text(kind: pa.DataType) -> bool:
    """For vectors of nested cells: whether values inside of them are strings or binaries."""
    is_ = pa.types
    return is_.is_string(kind) or is_.is_binary(kind) or is_.is_large_string(kind) or is_.is_large_binary(kind)


def number_dtype(kind: pa.DataType) -> np.dtype:
    """For vectors of nested cells, return the numpy type of values inside of them that have a width, whatever they
    mean; bools have none here."""
    return _DTYPES[kind.bit_width]


def parts_of(kind: pa.DataType) -> list[pa.DataType]:
    """For vectors of nested cells, return the types that a nested type is made of; none for others."""
    if pa.types.is_struct(kind):
        return [kind.field(i).type for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.value_type] if pa.types.is_nested(kind) else []


def list_offsets(array: pa.Array) -> np.ndarray:
    """For vectors of nested cells, return the ends (int64) of the lists of an array in its items, beginning with the
    start of the first."""
    count, kind = len(array), array.type
    if pa.types.is_fixed_size_list(kind):
        return np.arange(array.offset, array.offset + count + 1, dtype=np.int64) * kind.list_size
    if count == 0:  # Arrow allows an empty array to have no offsets at all
        return np.zeros(1, np.int64)
    dtype = np.dtype(np.int64 if pa.types.is_large_list(kind) else np.int32)
    ends = np.frombuffer(array.buffers()[1], dtype, count + 1, array.offset * dtype.itemsize)
    return ends.astype(np.int64)


def _width_of(kind: pa.DataType) -> int:
    """Return the bytes of a value inside of cells, 0 if they differ."""
    if pa.types.is_nested(kind) or is_text(kind):
        return 0
    return max(kind.bit_width // 8, 1)


def _head_bytes(widths: Sequence[int]) -> int:
    return (len(widths) + 7) // 8 + sum(width or kernels.LENGTH_BYTES for width in widths)


def _read(kind: pa.DataType, data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Return the values at ``starts`` (int64) of ``data``, of ``lengths`` (int64) bytes each, or -1 for a NULL."""
    if pa.types.is_struct(kind):
        return _read_structs(kind, data, starts, lengths)
    if pa.types.is_nested(kind):
        return _read_lists(kind, data, starts, lengths)
    count, valid = len(starts), _valid(lengths)
    if not is_text(kind):
        width = _width_of(kind)
        cells = allocate(count * width, np.uint8)
        kernels.read_numbers(address_of(data), address_of(starts), address_of(lengths), count, width, address_of(cells))
        return _numbers(kind, cells, count, valid)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    target = allocate(check_data_bytes(int(offsets[-1])), np.uint8)
    ends = offsets.astype(np.int32)
    where = address_of(data), address_of(starts), address_of(lengths), count
    kernels.read_strings(*where, address_of(ends), address_of(target))
    return bytes_to_arrow(BytesVector(ends, target, valid), kind)


def _read_structs(kind: pa.StructType, data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    count, fields = len(starts), [kind.field(i) for i in range(kind.num_fields)]
    widths = np.array([_width_of(field.type) for field in fields], np.int64)
    places, sizes = np.empty((len(fields), count), np.int64), np.empty((len(fields), count), np.int64)
    where = address_of(data), address_of(starts), address_of(lengths), count
    outcome = kernels.find_fields(*where, address_of(widths), len(fields), address_of(places), address_of(sizes))
    _check(int(outcome), kind)
    children = [_read(field.type, data, *each) for field, *each in zip(fields, places, sizes, strict=True)]
    return array_of(kind, count, _valid(lengths), [], children)


def _read_lists(kind: pa.DataType, data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    count, item = len(starts), _item_type(kind)
    width = _width_of(item)
    offsets = np.empty(count + 1, np.int64)
    where = address_of(data), address_of(starts), address_of(lengths), count
    total = int(kernels.count_items(*where, width, address_of(offsets)))
    _check(total, kind)
    if width:
        cells, valid = allocate(total * width, np.uint8), np.empty(total, np.bool_)
        nulls = kernels.read_numbers_of_lists(*where, width, address_of(offsets), address_of(cells), address_of(valid))
        items = _numbers(item, cells, total, valid if nulls else None)
    else:
        places, sizes = np.empty(total, np.int64), np.empty(total, np.int64)
        outcome = kernels.find_items(*where, address_of(offsets), address_of(places), address_of(sizes))
        _check(int(outcome), kind)
        items = _read(item, data, places, sizes)
    if pa.types.is_map(kind) and (items.null_count or items.field(0).null_count):  # Arrow would end the process
        raise MalformedCellError(f"a cell is not a valid {kind}: a key is NULL")
    valid = _valid(lengths)
    if pa.types.is_fixed_size_list(kind):
        return array_of(kind, count, valid, [], [_in_fixed_lists(items, kind, offsets, valid)])
    if not pa.types.is_large_list(kind):
        check_data_bytes(total)
        offsets = offsets.astype(np.int32)
    return array_of(kind, count, valid, [pa.py_buffer(offsets)], [items])


def _in_fixed_lists(
    items: pa.Array, kind: pa.FixedSizeListType, offsets: np.ndarray, valid: np.ndarray | None
) -> pa.Array:
    """Return the items of lists of one size as Arrow has them: with as many NULLs for a list that is NULL."""
    size, present = kind.list_size, np.diff(offsets)
    if (wrong := present[slice(None) if valid is None else valid] != size).any():
        _check(-1 - int(np.argmax(wrong)), kind)
    if valid is None or valid.all():
        return items
    places = np.repeat(valid, size)
    indices = np.cumsum(places, dtype=np.int64) - 1
    return items.take(pa.array(indices, mask=~places))


def _item_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.struct([kind.key_field, kind.item_field])
    return kind.value_type


def _numbers(kind: pa.DataType, cells: np.ndarray, count: int, valid: np.ndarray | None) -> pa.Array:
    packed = np.packbits(cells, bitorder="little") if pa.types.is_boolean(kind) else cells
    return array_of(kind, count, valid, [pa.py_buffer(packed)])


def _valid(lengths: np.ndarray) -> np.ndarray | None:
    valid = lengths >= 0
    return None if valid.all() else valid


def _check(outcome: int, kind: pa.DataType) -> None:
    if outcome < 0:
        raise MalformedCellError(f"a cell is not a valid {kind}")
