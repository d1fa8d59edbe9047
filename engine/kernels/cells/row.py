"""Rows in column-aware encoding: whole rows as byte strings that name their columns by id.

Layout of a row, little-endian (`docs/format/row.md`)::

    | flags u1 | N | column id x N | offset x (N - 1) | datum x N |

flags are ``1000 WWBB``: W is the unit of N and of the ids, B that of the offsets; 1, 2, 3 are 1, 2, 4 bytes. Ids rise.
A NULL has no datum. Offsets say where datums 1 to N - 1 start, counted from datum 0. A datum is the cell as it is in
memory; of a byte string, its length (u4) and its bytes.

Kernels that write take a table of columns by ascending id, five int64 each::

    | id | width of a cell, 0 for byte strings | cells | offsets (i4) of byte strings | validity or 0 |
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..pages.prefix import MAX_OUTPUT_BYTES
from ..simd.simd import (
    copy_bytes,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    view_f32,
    view_f64,
    view_i32,
    view_i64,
    view_u8,
)

COLUMN_FIELDS = 5
"""Numbers (int64) of a column in the table."""

LENGTH_BYTES = 4
"""What stands before the bytes of a string."""

_MARK = 0x80
_RESERVED = 0x70


@inline
def _unit(code):
    """Return the bytes of a number, 0 for a code that there is not."""
    return (1 << code) >> 1


@inline
def _code(largest):
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 3


@inline
def _load(address, unit):
    if unit == 1:
        return np.int64(load_u8(address))
    if unit == 2:
        return np.int64(load_u16(address))
    return np.int64(load_u32(address))


@inline
def _store(address, unit, number):
    if unit == 1:
        store_u8(address, np.uint8(number))
    elif unit == 2:
        store_u16(address, np.uint16(number))
    else:
        store_u32(address, np.uint32(number))


@inline
def _datum_bytes(column, row):
    """Return the size of a cell as a datum, -1 for a NULL."""
    if column[4] != 0 and load_u8(column[4] + row) == 0:
        return np.int64(-1)
    if column[1] > 0:
        return column[1]
    start = np.int64(np.int32(load_u32(column[3] + 4 * row)))
    return LENGTH_BYTES + np.int64(np.int32(load_u32(column[3] + 4 * row + 4))) - start


@kernel
def _measure_row(columns, column_count, row):
    """Return (codes of the units, datums, bytes of the datums) of a row; codes are WW * 4 + BB."""
    datums = np.int64(0)
    size = np.int64(0)
    last_start = np.int64(0)
    last_id = np.int64(0)
    for i in range(column_count):
        column = view_i64(columns + 8 * COLUMN_FIELDS * i, COLUMN_FIELDS)
        datum = _datum_bytes(column, row)
        if datum >= 0:
            datums += 1
            last_start, last_id = size, column[0]
            size += datum
    return _code(max(last_id, datums)) * 4 + _code(last_start), datums, size


@kernel
def measure_rows(columns, column_count, row_count, offsets):
    """Measure whole rows for row encoding: write where each will start, and the last end, to ``offsets`` (i4); return
    it, or -1 at 2 GiB and above."""
    starts = view_i32(offsets, row_count + 1)
    starts[0] = 0
    position = np.int64(0)
    for row in range(row_count):
        codes, datums, size = _measure_row(columns, column_count, row)
        wide = _unit(codes >> 2)
        position += 1 + wide * (1 + datums) + size
        if datums > 1:
            position += _unit(codes & 3) * (datums - 1)
        if position > MAX_OUTPUT_BYTES:
            return np.int64(-1)
        starts[row + 1] = np.int32(position)
    return position


@kernel
def write_rows(columns, column_count, row_count, offsets, target):
    """Write whole rows in row encoding to ``target``, each at its offset (i4) as measured."""
    starts = view_i32(offsets, row_count + 1)
    for row in range(row_count):
        codes, datums, _ = _measure_row(columns, column_count, row)
        wide, big = _unit(codes >> 2), _unit(codes & 3)
        place = target + np.int64(starts[row])
        store_u8(place, np.uint8(_MARK | codes))
        _store(place + 1, wide, datums)
        ids = place + 1 + wide
        places = ids + wide * datums
        first = places + big * max(datums - 1, 0)
        datum = first
        written = np.int64(0)
        for i in range(column_count):
            column = view_i64(columns + 8 * COLUMN_FIELDS * i, COLUMN_FIELDS)
            size = _datum_bytes(column, row)
            if size >= 0:
                _store(ids + wide * written, wide, column[0])
                if written > 0:
                    _store(places + big * (written - 1), big, datum - first)
                _write_datum(column, row, datum, size)
                datum += size
                written += 1


@inline
def _write_datum(column, row, target, size):
    width = column[1]
    if width == 1:
        store_u8(target, load_u8(column[2] + row))
    elif width == 2:
        store_u16(target, load_u16(column[2] + 2 * row))
    elif width == 4:
        store_u32(target, load_u32(column[2] + 4 * row))
    elif width == 8:
        store_u64(target, load_u64(column[2] + 8 * row))
    elif width == 16:
        store_u64(target, load_u64(column[2] + 16 * row))
        store_u64(target + 8, load_u64(column[2] + 16 * row + 8))
    else:
        start = np.int64(np.int32(load_u32(column[3] + 4 * row)))
        store_u32(target, np.uint32(size - LENGTH_BYTES))
        copy_bytes(target + LENGTH_BYTES, column[2] + start, size - LENGTH_BYTES)


@kernel
def _check_row(row, size):
    """Return 0 when the ids of a row rise and its datums fill it, else -1."""
    if size < 2:
        return -1
    flags = np.int64(load_u8(row))
    wide, big = _unit((flags >> 2) & 3), _unit(flags & 3)
    if flags & (_MARK | _RESERVED) != _MARK or wide == 0 or big == 0 or size < 1 + wide:
        return -1
    datums = _load(row + 1, wide)
    head = 1 + wide * (1 + datums) + big * max(datums - 1, 0)
    if head > size or (datums == 0 and head != size):
        return -1
    ids = row + 1 + wide
    places = ids + wide * datums
    for i in range(1, datums):
        if _load(ids + wide * i, wide) <= _load(ids + wide * (i - 1), wide):
            return -1
    previous = np.int64(0)
    for i in range(datums - 1):
        start = _load(places + big * i, big)
        if start < previous or start > size - head:
            return -1
        previous = start
    return 0


@kernel
def check_rows(offsets, data, row_count):
    """Check rows in row encoding: return 0, or -1 - n when row n contradicts itself. The offsets (i4) have been
    checked."""
    starts = view_i32(offsets, row_count + 1)
    for row in range(row_count):
        start = np.int64(starts[row])
        if _check_row(data + start, np.int64(starts[row + 1]) - start) < 0:
            return np.int64(-1 - row)
    return np.int64(0)


@kernel
def find_datums(offsets, data, row_count, wanted, wanted_count, starts, sizes):
    """Find the columns with the ids at ``wanted`` (i8, rising) in checked rows in row encoding, by binary search in
    each.

    Of wanted column w and row r, write where its datum is to ``starts`` (i8) and how long to ``sizes`` (i4), both at
    w * row_count + r; the size is -1 where the row does not have the column.
    """
    ends = view_i32(offsets, row_count + 1)
    ids_wanted = view_i64(wanted, wanted_count)
    places_found = view_i64(starts, wanted_count * row_count)
    sizes_found = view_i32(sizes, wanted_count * row_count)
    for row in range(row_count):
        place = data + np.int64(ends[row])
        end = data + np.int64(ends[row + 1])
        flags = np.int64(load_u8(place))
        wide, big = _unit((flags >> 2) & 3), _unit(flags & 3)
        datums = _load(place + 1, wide)
        ids = place + 1 + wide
        places = ids + wide * datums
        first = places + big * max(datums - 1, 0)
        low = np.int64(0)
        for i in range(wanted_count):
            column_id = ids_wanted[i]
            high = datums
            if low < datums and _load(ids + wide * low, wide) >= column_id:
                high = low  # as where most columns are wanted
            while low < high:
                middle = (low + high) >> 1
                if _load(ids + wide * middle, wide) < column_id:
                    low = middle + 1
                else:
                    high = middle
            at = i * row_count + row
            sizes_found[at] = -1
            places_found[at] = 0
            if low < datums and _load(ids + wide * low, wide) == column_id:
                start = first
                if low > 0:
                    start += _load(places + big * (low - 1), big)
                stop = end
                if low + 1 < datums:
                    stop = first + _load(places + big * low, big)
                places_found[at] = start
                sizes_found[at] = np.int32(stop - start)


@kernel
def read_integers(starts, sizes, row_count, width, target, valid):
    """Decode a column of rows in row encoding: write its integers, narrower ones sign-extended to ``width`` bytes, and
    whether there is one.

    Return 0, or -1 - n when the datum of row n is none of 1, 2, 4, 8, 16 bytes, or wider than ``width``.
    """
    places = view_i64(starts, row_count)
    lengths = view_i32(sizes, row_count)
    is_there = view_u8(valid, row_count)
    for row in range(row_count):
        size = np.int64(lengths[row])
        is_there[row] = size >= 0
        low = np.int64(0)
        high = np.int64(0)
        if size > width or size == 0:
            return np.int64(-1 - row)
        if size > 0:
            if size == 1:
                low = np.int64(np.int8(load_u8(places[row])))
            elif size == 2:
                low = np.int64(np.int16(load_u16(places[row])))
            elif size == 4:
                low = np.int64(np.int32(load_u32(places[row])))
            elif size == 8 or size == 16:
                low = np.int64(load_u64(places[row]))
            else:
                return np.int64(-1 - row)
            high = low >> 63
            if size == 16:
                high = np.int64(load_u64(places[row] + 8))
        place = target + width * row
        if width == 1:
            store_u8(place, np.uint8(low))
        elif width == 2:
            store_u16(place, np.uint16(low))
        elif width == 4:
            store_u32(place, np.uint32(low))
        else:
            store_u64(place, np.uint64(low))
        if width == 16:
            store_u64(place + 8, np.uint64(high))
    return np.int64(0)


@kernel
def read_floats(starts, sizes, row_count, width, target, valid):
    """Decode a column of rows in row encoding: write its floats, narrower ones widened to ``width`` bytes, and whether
    there is one.

    Return 0, or -1 - n when the datum of row n is neither 4 nor 8 bytes, or wider than ``width``.
    """
    places = view_i64(starts, row_count)
    lengths = view_i32(sizes, row_count)
    is_there = view_u8(valid, row_count)
    for row in range(row_count):
        size = np.int64(lengths[row])
        is_there[row] = size >= 0
        place = target + width * row
        if size < 0:
            if width == 4:
                store_u32(place, np.uint32(0))
            else:
                store_u64(place, np.uint64(0))
        elif size == 4 and width == 4:
            store_u32(place, load_u32(places[row]))
        elif size == 8 and width == 8:
            store_u64(place, load_u64(places[row]))
        elif size == 4 and width == 8:
            view_f64(place, 1)[0] = view_f32(places[row], 1)[0]
        else:
            return np.int64(-1 - row)
    return np.int64(0)


@kernel
def measure_strings(starts, sizes, row_count, offsets, valid):
    """Measure the strings of a column of rows in row encoding: write where each will start, and the last end, to
    ``offsets`` (i4), and whether there is one.

    Return the last end; -1 - n when the length that the datum of row n begins with is not its own.
    """
    places = view_i64(starts, row_count)
    lengths = view_i32(sizes, row_count)
    is_there = view_u8(valid, row_count)
    ends = view_i32(offsets, row_count + 1)
    ends[0] = 0
    position = np.int64(0)
    for row in range(row_count):
        size = np.int64(lengths[row])
        is_there[row] = size >= 0
        if size >= 0:
            if size < LENGTH_BYTES or np.int64(load_u32(places[row])) != size - LENGTH_BYTES:
                return np.int64(-1 - row)
            position += size - LENGTH_BYTES
        ends[row + 1] = np.int32(position)
    return position


@kernel
def read_strings(starts, row_count, offsets, target):
    """Decode a column of rows in row encoding: write its strings, as measured, end to end."""
    places = view_i64(starts, row_count)
    ends = view_i32(offsets, row_count + 1)
    for row in range(row_count):
        start = np.int64(ends[row])
        size = np.int64(ends[row + 1]) - start
        if size > 0:
            copy_bytes(target + start, places[row] + LENGTH_BYTES, size)
