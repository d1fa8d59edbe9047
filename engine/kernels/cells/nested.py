"""Cells of nested columns: values of lists and structs side by side in byte strings (`docs/format/nested.md`).

A tree of types is walked level by level, each level by one call for all values of it. To write: sizes from the leaves
up, then places from the root down. To read: places from the root down; only leaves are copied.

All integers are int64 but where said; places are counted from the start of the bytes. A value that is NULL has no
validity flag set when written, and the length -1 when read; a value that is nowhere has the place -1.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import (
    copy_bytes,
    load_u8,
    load_u32,
    load_u64,
    store_u8,
    store_u32,
    store_u64,
    view_i32,
    view_i64,
    view_u8,
)
from ..simd.widths import copy_cell

COUNT_BYTES = 4
"""What a list begins with: how many items it has, and above them whether one is NULL."""
LENGTH_BYTES = 4
"""What stands for each value without a fixed width, before all of them."""
FIELD_NUMBERS = 4
"""Numbers of a field in the table that `write_structs` takes."""

_HAS_NULLS = 1 << 31
_ITEMS = _HAS_NULLS - 1


@inline
def _is_null(valid, i):
    return valid != 0 and load_u8(valid + i) == 0


@inline
def _bit(bitmap, i):
    return (np.int64(load_u8(bitmap + (i >> 3))) >> (i & 7)) & 1


@inline
def _set_bit(bitmap, i):
    byte = bitmap + (i >> 3)
    store_u8(byte, np.uint8(np.int64(load_u8(byte)) | (1 << (i & 7))))


@inline
def _has_nulls(valid, first, last):
    if valid != 0:
        for i in range(first, last):
            if load_u8(valid + i) == 0:
                return True
    return False


@kernel
def measure_lists(offsets, count, valid, width, item_sizes, item_valid, sizes):
    """Write the bytes of lists to ``sizes``, 0 for a NULL. List i has the items ``offsets[i]`` to ``offsets[i + 1]``,
    of ``width`` bytes each, or of ``item_sizes`` if that is 0."""
    ends, measured = view_i64(offsets, count + 1), view_i64(sizes, count)
    for i in range(count):
        measured[i] = 0
        if _is_null(valid, i):
            continue
        first, last = ends[i], ends[i + 1]
        items = last - first
        size = COUNT_BYTES + items * (width if width > 0 else LENGTH_BYTES)
        if width == 0:
            for item in range(first, last):
                size += np.int64(load_u64(item_sizes + 8 * item))
        if _has_nulls(item_valid, first, last):
            size += (items + 7) >> 3
        measured[i] = size


@kernel
def write_lists(offsets, count, valid, width, items, item_sizes, item_valid, starts, target, item_starts):
    """Write lists, as measured, to their places ``starts`` after ``target``: items with a ``width`` from ``items``; of
    others the lengths, and where each item is to be written to ``item_starts``."""
    ends, places = view_i64(offsets, count + 1), view_i64(starts, count)
    for i in range(count):
        if places[i] < 0 or _is_null(valid, i):
            continue
        first, last = ends[i], ends[i + 1]
        number = last - first
        place = target + places[i]
        has_nulls = _has_nulls(item_valid, first, last)
        store_u32(place, np.uint32(number | (_HAS_NULLS if has_nulls else 0)))
        place += COUNT_BYTES
        if has_nulls:
            for j in range(number):
                if load_u8(item_valid + first + j) != 0:
                    _set_bit(place, j)
            place += (number + 7) >> 3
        if width > 0:
            copy_bytes(place, items + first * width, number * width)
            continue
        body = place + LENGTH_BYTES * number
        for j in range(number):
            size = np.int64(load_u64(item_sizes + 8 * (first + j)))
            store_u32(place + LENGTH_BYTES * j, np.uint32(size))
            store_u64(item_starts + 8 * (first + j), np.uint64(body - target))
            body += size


@kernel
def write_structs(count, valid, starts, target, fields, field_count):
    """Write the heads of structs to their places ``starts`` after ``target``, which is zero, and where the value of
    each field is to be written. ``fields`` has FIELD_NUMBERS of each::

        | bytes of a value, or 0 | their sizes (address) | validity (address or 0) | their places, written (address) |
    """
    table, places = view_i64(fields, FIELD_NUMBERS * field_count), view_i64(starts, count)
    bitmap = (field_count + 7) >> 3
    head = np.int64(bitmap)
    for field in range(field_count):
        width = table[FIELD_NUMBERS * field]
        head += width if width > 0 else LENGTH_BYTES
    for i in range(count):
        if places[i] < 0 or _is_null(valid, i):
            continue
        place = target + places[i]
        at, body = place + bitmap, place + head
        for field in range(field_count):
            width, sizes = table[FIELD_NUMBERS * field], table[FIELD_NUMBERS * field + 1]
            field_valid, field_starts = table[FIELD_NUMBERS * field + 2], table[FIELD_NUMBERS * field + 3]
            if not _is_null(field_valid, i):
                _set_bit(place, field)
            if width > 0:
                store_u64(field_starts + 8 * i, np.uint64(at - target))
                at += width
            else:
                size = np.int64(load_u64(sizes + 8 * i))
                store_u32(at, np.uint32(size))
                store_u64(field_starts + 8 * i, np.uint64(body - target))
                at += LENGTH_BYTES
                body += size


@kernel
def write_numbers(cells, width, count, starts, target):
    """Write cells of ``width`` bytes, 0 under NULL, to their places ``starts`` after ``target``."""
    places = view_i64(starts, count)
    for i in range(count):
        if places[i] >= 0:
            copy_cell(target + places[i], cells + width * i, width)


@kernel
def write_strings(offsets, data, count, starts, target):
    """Write byte strings, empty under NULL, to their places ``starts`` after ``target``; ``offsets`` are int32."""
    ends, places = view_i32(offsets, count + 1), view_i64(starts, count)
    for i in range(count):
        if places[i] >= 0:
            copy_bytes(target + places[i], data + np.int64(ends[i]), np.int64(ends[i + 1]) - np.int64(ends[i]))


@kernel
def count_items(data, starts, lengths, count, width, offsets):
    """Count the items of lists at ``starts`` of ``data``: write the ends to ``offsets``, beginning with 0; return the
    last, or -1 - i if list i contradicts itself. ``width`` is that of an item, or 0."""
    places, sizes, ends = view_i64(starts, count), view_i64(lengths, count), view_i64(offsets, count + 1)
    end = np.int64(0)
    ends[0] = 0
    for i in range(count):
        if sizes[i] >= 0:
            if sizes[i] < COUNT_BYTES:
                return np.int64(-1 - i)
            word = np.int64(load_u32(data + places[i]))
            items = word & _ITEMS
            size = COUNT_BYTES + items * (width if width > 0 else LENGTH_BYTES)
            if word & _HAS_NULLS != 0:
                size += (items + 7) >> 3
            if size > sizes[i] or (width > 0 and size != sizes[i]):
                return np.int64(-1 - i)
            end += items
        ends[i + 1] = end
    return end


@kernel
def read_numbers_of_lists(data, starts, lengths, count, width, offsets, cells, valid):
    """Copy the items of counted lists, of ``width`` bytes each, to ``cells``, and a flag for each to ``valid``; return
    how many are NULL."""
    places, sizes, ends = view_i64(starts, count), view_i64(lengths, count), view_i64(offsets, count + 1)
    flags = view_u8(valid, ends[count])
    nulls = np.int64(0)
    for i in range(count):
        if sizes[i] < 0:
            continue
        first = ends[i]
        items = ends[i + 1] - first
        place = data + places[i]
        has_nulls = np.int64(load_u32(place)) & _HAS_NULLS != 0
        bitmap = place + COUNT_BYTES
        for j in range(items):
            flag = 1
            if has_nulls:
                flag = _bit(bitmap, j)
            flags[first + j] = np.uint8(flag)
            nulls += 1 - flag
        body = bitmap + ((items + 7) >> 3 if has_nulls else 0)
        copy_bytes(cells + first * width, body, items * width)
    return nulls


@kernel
def find_items(data, starts, lengths, count, offsets, item_starts, item_lengths):
    """Write where the items of counted lists are, and how long; return 0, or -1 - i if list i contradicts itself."""
    places, sizes, ends = view_i64(starts, count), view_i64(lengths, count), view_i64(offsets, count + 1)
    item_places, item_sizes = view_i64(item_starts, ends[count]), view_i64(item_lengths, ends[count])
    for i in range(count):
        if sizes[i] < 0:
            continue
        first = ends[i]
        items = ends[i + 1] - first
        place = data + places[i]
        has_nulls = np.int64(load_u32(place)) & _HAS_NULLS != 0
        bitmap = place + COUNT_BYTES
        table = bitmap + ((items + 7) >> 3 if has_nulls else 0)
        body, end = table + LENGTH_BYTES * items, place + sizes[i]
        for j in range(items):
            size = np.int64(load_u32(table + LENGTH_BYTES * j))
            item_places[first + j] = body - data
            item_sizes[first + j] = size
            if has_nulls and _bit(bitmap, j) == 0:
                if size != 0:
                    return np.int64(-1 - i)
                item_sizes[first + j] = -1
            body += size
            if body > end:
                return np.int64(-1 - i)
        if body != end:
            return np.int64(-1 - i)
    return np.int64(0)


@kernel
def find_fields(data, starts, lengths, count, widths, field_count, field_starts, field_lengths):
    """Write where the values of each field of structs are, and how long, field after field; return 0, or -1 - i if
    struct i contradicts itself. ``widths`` are the bytes of a value of each field, or 0."""
    places, sizes, wide = view_i64(starts, count), view_i64(lengths, count), view_i64(widths, field_count)
    value_places = view_i64(field_starts, field_count * count)
    value_sizes = view_i64(field_lengths, field_count * count)
    bitmap = (field_count + 7) >> 3
    head = np.int64(bitmap)
    for field in range(field_count):
        head += wide[field] if wide[field] > 0 else LENGTH_BYTES
    for i in range(count):
        if sizes[i] < 0:
            for field in range(field_count):
                value_places[field * count + i] = 0
                value_sizes[field * count + i] = -1
            continue
        if sizes[i] < head:
            return np.int64(-1 - i)
        place = data + places[i]
        at, body, end = place + bitmap, place + head, place + sizes[i]
        for field in range(field_count):
            value = field * count + i
            is_there = _bit(place, field)
            if wide[field] > 0:
                value_places[value] = at - data
                value_sizes[value] = wide[field] if is_there else -1
                at += wide[field]
                continue
            size = np.int64(load_u32(at))
            at += LENGTH_BYTES
            value_places[value] = body - data
            value_sizes[value] = size if is_there else -1
            body += size
            if body > end or (size != 0 and not is_there):
                return np.int64(-1 - i)
        if body != end:
            return np.int64(-1 - i)
    return np.int64(0)


@kernel
def read_numbers(data, starts, lengths, count, width, cells):
    """Copy values of ``width`` bytes from their places to ``cells``, 0 for a NULL."""
    places, sizes = view_i64(starts, count), view_i64(lengths, count)
    for i in range(count):
        if sizes[i] < 0:
            for byte in range(width):
                store_u8(cells + width * i + byte, np.uint8(0))
        else:
            copy_cell(cells + width * i, data + places[i], width)


@kernel
def read_strings(data, starts, lengths, count, offsets, target):
    """Copy byte strings from their places to ``target``, end to end, as ``offsets`` (int32) says."""
    places, ends = view_i64(starts, count), view_i32(offsets, count + 1)
    for i in range(count):
        start = np.int64(ends[i])
        copy_bytes(target + start, data + places[i], np.int64(ends[i + 1]) - start)
