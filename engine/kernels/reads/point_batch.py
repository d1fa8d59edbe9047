"""Rows by their keys, many at once: the locations of the keys, the cells of the rows, and the columns of those found.

Between them stands a table of cells (`point_read.read_cells`), a row for each key that was asked for: CELL_BYTES for
each column, in the form of `read_row`, and a byte each that says whether it is NULL. Its first columns are those of the
key, and its last one is the liveness of the row.

Nothing here is locked: the caller holds the lock of a table that others change, and keeps the memory of pages alive.
Pages have passed the `check` of their codecs.
"""

import numpy as np

from ..ahead.kernel import inline, kernel, short_kernel
from ..keys.hash_index import LOCATION_BITS, matching, tag_of
from ..simd.simd import (
    copy_bytes,
    load_u8,
    load_u32,
    load_u64,
    prefetch,
    store_u8,
    store_u64,
    view_i32,
    view_i64,
    view_u64,
)
from .point_read import ABSENT, CELL_BYTES, read_cells

INDEX_FIELDS = 3
"""int64 of each hash index in a list: its slots, their number, and what to add to a location that it holds."""
TARGET_FIELDS = 4
"""int64 of each column that is taken: the width of its cells, 0 for strings; where cells (or int32 offsets), bytes of
strings and flags of NULLs (0 for none) go. Cells at 0: it is left out."""
FORM_FIELDS = 5
"""int64 of the form of a batch, before the widths of its columns."""
_BUFFER_ALIGNMENT = 64

_GROUP = 64
_LOCATION_MASK = np.uint64((1 << LOCATION_BITS) - 1)
_HALF = np.uint64(32)


@kernel
def locate_keys(indexes: int, index_count: int, hashes: int, count: int, locations: int) -> int:
    """Read rows by their keys: write for each hash the location of the first entry with its tag, in the first hash
    index that has one, or ABSENT; return how many are absent. An entry of another key may have the same tag: the caller
    compares."""
    hashed, found = view_u64(hashes, count), view_i64(locations, count)
    missing = np.int64(count)
    for i in range(count):
        found[i] = ABSENT
    for number in range(index_count):
        if missing == 0:
            break
        index = view_i64(indexes + 8 * INDEX_FIELDS * number, INDEX_FIELDS)
        slots, capacity, base = index[0], index[1], index[2]
        table = view_u64(slots, capacity)
        for first in range(0, count, _GROUP):
            last = min(first + _GROUP, count)
            for i in range(first, last):
                prefetch(slots + 8 * np.int64(((hashed[i] >> _HALF) * np.uint64(capacity)) >> _HALF))
            for i in range(first, last):
                if found[i] == ABSENT:
                    home = np.int64(((hashed[i] >> _HALF) * np.uint64(capacity)) >> _HALF)
                    slot = matching(table, home, capacity, tag_of(hashed[i]))
                    if slot >= 0:
                        found[i] = np.int64(table[slot] & _LOCATION_MASK) + base
                        missing -= 1
    return missing


@kernel
def other_keys(
    cells: int, columns: int, widths: int, key_columns: int, keys: int, offsets: int, locations: int, count: int
) -> int:
    """Return how many rows that were read into a table of cells have another key than the one that was asked for.

    Rows without a location are left out. ``widths`` (int64) are those of the key columns, 0 for strings. The keys are
    uint64, or bytes from ``keys`` on at ``offsets`` (int32) if that is not 0.
    """
    wide, found, asked = view_i64(widths, key_columns), view_i64(locations, count), view_u64(keys, count)
    others = np.int64(0)
    for i in range(count):
        if found[i] == ABSENT:
            continue
        row = cells + i * columns * CELL_BYTES
        if offsets == 0:
            others += np.int64(_word_of(row, wide, key_columns) != asked[i])
        else:
            start, end = np.int64(load_u32(offsets + 4 * i)), np.int64(load_u32(offsets + 4 * i + 4))
            others += np.int64(_follows(row, wide, key_columns, keys + start, keys + end) == 0)
    return others


@inline
def _word_of(row, wide, key_columns):
    """Return the cells of a key as one uint64, the first column on top."""
    word = np.uint64(0)
    for column in range(key_columns):
        bits = np.uint64(8 * wide[column])
        cell = load_u64(row + column * CELL_BYTES) ^ (np.uint64(1) << (bits - np.uint64(1)))
        word = cell if wide[column] == 8 else word << bits | cell & ((np.uint64(1) << bits) - np.uint64(1))
    return word


@inline
def _follows(row, wide, key_columns, at, end):
    """Return 1 if the bytes from ``at`` to ``end`` are the encoded key of a row."""
    for column in range(key_columns):
        cell, width = row + column * CELL_BYTES, wide[column]
        if width > 0:
            if end - at < width:
                return 0
            for byte in range(width):
                flipped = np.uint8(0x80) if byte == 0 else np.uint8(0)
                if load_u8(at + byte) != load_u8(cell + width - 1 - byte) ^ flipped:
                    return 0
            at += width
            continue
        text, length = np.int64(load_u64(cell)), np.int64(load_u64(cell + 8))
        is_last = column == key_columns - 1
        for byte in range(length):
            is_zero = load_u8(text + byte) == 0
            needed = 2 if is_zero and not is_last else 1
            if end - at < needed or load_u8(at) != load_u8(text + byte):
                return 0
            if needed == 2 and load_u8(at + 1) != np.uint8(1):
                return 0
            at += needed
        if not is_last:
            if end - at < 2 or load_u8(at) != 0 or load_u8(at + 1) != 0:
                return 0
            at += 2
    return np.int64(at == end)


@kernel
def measure_columns(cells: int, nulls: int, columns: int, rows: int, count: int, sizes: int) -> None:
    """Write, for each column of rows that were read, how many bytes their strings have, and how many are NULL (int64
    each). Of numbers the former means nothing."""
    kept, measured = view_i64(rows, count), view_i64(sizes, 2 * columns)
    for i in range(2 * columns):
        measured[i] = 0
    for i in range(count):
        first = kept[i] * columns
        for column in range(columns):
            at = first + column
            measured[2 * column] += np.int64(load_u64(cells + at * CELL_BYTES + 8))
            measured[2 * column + 1] += np.int64(load_u8(nulls + at))


@kernel
def measure_alive(
    cells: int, nulls: int, columns: int, locations: int, count: int, most: int, rows: int, sizes: int
) -> int:
    """Write (int64) which rows that were read into a table of cells have a location and are alive, the first ``most``
    of them, and their sizes as ``measure_columns`` does; return how many they are."""
    found, kept = view_i64(locations, count), view_i64(rows, count)
    total = np.int64(0)
    for i in range(count):
        if total == most:
            break
        if found[i] != ABSENT and load_u64(cells + ((i + 1) * columns - 1) * CELL_BYTES) != 0:
            kept[total] = i
            total += 1
    measure_columns(cells, nulls, columns, rows, total, sizes)
    return total


@kernel
def take_columns(cells: int, nulls: int, columns: int, rows: int, count: int, targets: int) -> None:
    """Write the cells of rows that were read column by column; ``targets`` has TARGET_FIELDS for each column."""
    kept = view_i64(rows, count)
    for column in range(columns):
        target = view_i64(targets + 8 * TARGET_FIELDS * column, TARGET_FIELDS)
        width, values, data, valid = target[0], target[1], target[2], target[3]
        if values == 0:
            continue
        if width == 0:
            _take_strings(cells + column * CELL_BYTES, columns, rows, count, values, data)
        else:
            _take_numbers(cells + column * CELL_BYTES, columns, rows, count, values, width)
        if valid != 0:
            for i in range(count):
                store_u8(valid + i, load_u8(nulls + kept[i] * columns + column) ^ np.uint8(1))


@kernel
def _take_strings(cells: int, columns: int, rows: int, count: int, offsets: int, data: int) -> None:
    kept, ends = view_i64(rows, count), view_i32(offsets, count + 1)
    end = np.int64(0)
    ends[0] = 0
    for i in range(count):
        cell = cells + kept[i] * columns * CELL_BYTES
        length = np.int64(load_u64(cell + 8))
        copy_bytes(data + end, np.int64(load_u64(cell)), length)
        end += length
        ends[i + 1] = np.int32(end)


@kernel
def write_batch(
    cells: int, nulls: int, columns: int, rows: int, count: int, sizes: int, form: int, message: int
) -> int:
    """Write rows that were read as the message of an Arrow batch, whose head is there and the rest of which is zero;
    return the bytes of its body. ``sizes`` are those that ``measure_columns`` wrote for the rows; ``form`` has (int64)
    where in the head the length of the body is, the number of rows, and the lists of nodes and buffers, then the bytes
    of the head, and the width of each column, 0 for strings."""
    measured, fields = view_i64(sizes, 2 * columns), view_i64(form, FORM_FIELDS + columns - 1)
    node, buffer, body = message + fields[2], message + fields[3], message + fields[4]
    end = np.int64(0)
    for column in range(columns - 1):
        width, null_count = fields[FORM_FIELDS + column], measured[2 * column + 1]
        store_u64(node, np.uint64(count))
        store_u64(node + 8, np.uint64(null_count))
        node += 16
        bitmap, size = body + end, (count + 7) // 8 if null_count > 0 else np.int64(0)
        end = _add_buffer(buffer, end, size)
        values, size = body + end, width * count if width > 0 else 4 * (count + 1)
        end = _add_buffer(buffer + 16, end, size)
        buffer += 32
        if width > 0:
            _take_numbers(cells + column * CELL_BYTES, columns, rows, count, values, width)
        else:
            data, size = body + end, measured[2 * column]
            end = _add_buffer(buffer, end, size)
            buffer += 16
            _take_strings(cells + column * CELL_BYTES, columns, rows, count, values, data)
        if null_count > 0:
            _take_bits(nulls + column, columns, rows, count, bitmap)
    store_u64(message + fields[0], np.uint64(end))
    store_u64(message + fields[1], np.uint64(count))
    return end


@inline
def _add_buffer(entry, start, size):
    """Write where a buffer is in the body of a message; return where the next one may be."""
    store_u64(entry, np.uint64(start))
    store_u64(entry + 8, np.uint64(size))
    return start + (size + _BUFFER_ALIGNMENT - 1) // _BUFFER_ALIGNMENT * _BUFFER_ALIGNMENT


@kernel
def _take_numbers(cells: int, columns: int, rows: int, count: int, values: int, width: int) -> None:
    kept = view_i64(rows, count)
    for i in range(count):
        copy_bytes(values + i * width, cells + kept[i] * columns * CELL_BYTES, width)


@kernel
def _take_bits(nulls: int, columns: int, rows: int, count: int, bitmap: int) -> None:
    """Write a bit for each row, 1 if its cell is not NULL."""
    kept = view_i64(rows, count)
    for i in range(count):
        if load_u8(nulls + kept[i] * columns) == 0:
            at = bitmap + (i >> 3)
            store_u8(at, load_u8(at) | np.uint8(1 << (i & 7)))


@short_kernel
def read_few_cells(
    places: int, step: int, rows: int, positions: int, count: int, columns: int, cells: int, nulls: int, scratch: int
) -> int:
    """Read rows by their keys as ``read_cells`` does, for a few rows, and keep the GIL."""
    return read_cells(places, step, rows, positions, count, columns, cells, nulls, scratch)


@short_kernel
def measure_few(
    cells: int, nulls: int, columns: int, locations: int, count: int, most: int, rows: int, sizes: int
) -> int:
    """Write which rows that were read are alive, and their sizes, as ``measure_alive`` does, for a few rows, and keep
    the GIL."""
    return measure_alive(cells, nulls, columns, locations, count, most, rows, sizes)


@short_kernel
def write_few(cells: int, nulls: int, columns: int, rows: int, count: int, sizes: int, form: int, message: int) -> int:
    """Write the message of rows that were read as ``write_batch`` does, for a few rows of few bytes, and keep the
    GIL."""
    return write_batch(cells, nulls, columns, rows, count, sizes, form, message)
