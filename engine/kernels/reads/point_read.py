"""Rows by their keys: the location of a key, and the cells of rows, without decoding more than they need.

Nothing here is locked: the caller holds the lock of a table that others change, and keeps the memory of pages alive.
Pages have passed the `check` of their codecs.
"""

import numpy as np

from ..ahead.kernel import inline, kernel, short_kernel
from ..keys.hash_index import LOCATION_BITS, matching, tag_of
from ..keys.hashing import hash_string, hash_word
from ..pages import fsst, prefix
from ..pages.blocks import BLOCK_ROWS
from ..pages.frame_pages import frame_cell_address, read_frame_cell
from ..pages.lz4 import lz4_decompress
from ..simd.simd import (
    copy_bytes,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    prefetch,
    store_u8,
    store_u64,
    view_i32,
    view_i64,
    view_u64,
)

ABSENT = -1
DAMAGED, FULL = -1, -2

# What a column's place is (`KIND`): a page, or cells in memory. TEXTS are strings whose offsets and bytes lie apart,
# ONE is the same cell in every row. The cells of UNREAD become zero, those of KEPT stay as they are.
UNREAD, FIXED, SHUFFLED, RUNS, CODES, BITS, STRINGS, NULLS, TEXTS, ONE, KEPT, FRAMES, PREFIXES, SYMBOLS = range(14)

# The fields (int64) of a column's place. BITMAP has a bit for each row, VALID a byte; 0 if no row is NULL.
KIND, WIDTH, PAYLOAD, ROWS, BITMAP, FIRST_ROW, OFFSETS, VALUES, VALUE_COUNT, VALID = range(10)
PLACE_FIELDS = 10

CELL_BYTES = 16

# Room that readers need. First fields of int64: where the mini-block in it comes from, 0 for none; the addresses of
# free memory for strings that have to be restored, and of its end. Then one mini-block of the widest cells.
_BLOCK_OF, FREE, FREE_END = range(3)
SCRATCH_FIELDS_BYTES = 24
SCRATCH_BYTES = SCRATCH_FIELDS_BYTES + BLOCK_ROWS * 16
TEXTS_SLACK_BYTES = 16
"""Bytes behind the memory for strings that may be written too."""

_LOOK_AHEAD = 8
"""So many rows before a cell is read, its memory is asked for."""

_LOCATION_MASK = np.uint64((1 << LOCATION_BITS) - 1)
_HALF = np.uint64(32)
_ROW_MASK = np.uint64(0xFFFFFFFF)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@short_kernel
def locate(slots: int, capacity: int, key: int, length: int) -> int:
    """Read a row by its key: return the location of the first entry of a hash index whose tag is that of the key, or
    ABSENT.

    The key is ``length`` bytes at ``key``; with a negative ``length``, one uint64. An entry of another key may have
    the same tag: the caller compares.
    """
    hashed = hash_word(load_u64(key)) if length < 0 else hash_string(key, length)
    home = np.int64(((hashed >> _HALF) * np.uint64(capacity)) >> _HALF)
    table = view_u64(slots, capacity)
    slot = matching(table, home, capacity, tag_of(hashed))
    return np.int64(table[slot] & _LOCATION_MASK) if slot >= 0 else np.int64(ABSENT)


@short_kernel
def read_row(pages: int, count: int, row: int, target: int, nulls: int, scratch: int) -> int:
    """Read one row of a rowset: write its cells; return how many are NULL, or DAMAGED, or FULL if there is too little
    memory for strings; it is free again afterwards.

    ``pages`` describes the place of each column (PLACE_FIELDS int64). A cell takes CELL_BYTES of ``target``: a number
    of up to 8 bytes is extended by its sign to 16, a string is its address and length. ``nulls`` gets a byte for each
    column, 1 for NULL. NULL and UNREAD cells are zero.
    """
    null_count, texts = np.int64(0), load_u64(scratch + 8 * FREE)
    store_u64(scratch, np.uint64(0))
    for column in range(count):
        page = pages + column * (8 * PLACE_FIELDS)
        found = _read_place(page, row, target + column * CELL_BYTES, nulls + column, scratch)
        if found < 0:
            null_count = found
            break
        null_count += found
    store_u64(scratch + 8 * FREE, texts)
    return null_count


@kernel
def read_cells(
    places: int, step: int, rows: int, positions: int, count: int, columns: int, cells: int, nulls: int, scratch: int
) -> int:
    """Read many rows of a rowset into a table of cells; return 0, or DAMAGED, or FULL if there is too little memory for
    strings.

    Row ``rows[i]`` (int64) becomes row ``positions[i]`` (int64) of the table; a negative one is left out. The address
    of its places is ``step`` bytes after that of the row before it. With ascending rows each mini-block is
    decompressed once.
    """
    numbers, targets = view_i64(rows, count), view_i64(positions, count)
    for column in range(columns):
        store_u64(scratch, np.uint64(0))
        for i in range(count):
            page = np.int64(load_u64(places + i * step)) + column * (8 * PLACE_FIELDS)
            at = targets[i] * columns + column
            after = i + _LOOK_AHEAD
            if after < count and numbers[after] >= 0:
                _fetch_soon(np.int64(load_u64(places + after * step)) + column * (8 * PLACE_FIELDS), numbers[after])
            if numbers[i] < 0 or _field(page, KIND) == KEPT:
                continue
            found = _read_place(page, numbers[i], cells + at * CELL_BYTES, nulls + at, scratch)
            if found < 0:
                return found
    return 0


@inline
def _fetch_soon(page, row):
    """Ask for the memory of a cell that is read some rows later: the rows of a call lie far apart, and to wait for one
    cell after the other takes longer than to decode them."""
    kind, payload, i = _field(page, KIND), _field(page, PAYLOAD), row - _field(page, FIRST_ROW)
    if kind == FRAMES:
        prefetch(frame_cell_address(payload, _field(page, ROWS), i))
    elif kind == CODES:
        prefetch(_shuffled_address(payload + 1, _field(page, ROWS), np.int64(load_u8(payload)), i))
    elif kind == FIXED:
        prefetch(payload + i * _field(page, WIDTH))
    elif kind == STRINGS:
        prefetch(payload + 4 * i)


@inline
def _shuffled_address(directory, row_count, width, row):
    """Return where about a cell of a page of mini-blocks is: right if its mini-block is stored as it is."""
    number = row // BLOCK_ROWS
    start = np.int64(load_u32(directory + 4 * (number - 1))) if number > 0 else np.int64(0)
    return directory + 4 * ((row_count + BLOCK_ROWS - 1) // BLOCK_ROWS) + start + (row - number * BLOCK_ROWS) * width


@inline
def _field(page, number):
    return np.int64(load_u64(page + 8 * number))


@kernel
def _read_place(page: int, row: int, cell: int, flag: int, scratch: int) -> int:
    """Write a cell, and whether it is NULL; return that, or DAMAGED or FULL."""
    kind = _field(page, KIND)
    i = row - _field(page, FIRST_ROW)
    bitmap, valid = _field(page, BITMAP), _field(page, VALID)
    is_null = kind == NULLS
    if bitmap != 0 and kind != UNREAD:
        is_null = ((load_u8(bitmap + (i >> 3)) >> np.uint8(i & 7)) & np.uint8(1)) == 0
    elif valid != 0:
        is_null = load_u8(valid + i) == 0
    store_u8(flag, np.uint8(is_null))
    if is_null or kind == UNREAD:
        store_u64(cell, np.uint64(0))
        store_u64(cell + 8, np.uint64(0))
    else:
        found = _read_cell(page, kind, i, cell, scratch)
        if found < 0:
            return found
    return np.int64(is_null)


@kernel
def _read_cell(page: int, kind: int, i: int, target: int, scratch: int) -> int:
    """Write row ``i`` of a page, which is not NULL; return 0, or DAMAGED or FULL."""
    payload, rows, width = _field(page, PAYLOAD), _field(page, ROWS), _field(page, WIDTH)
    if kind == FIXED:
        _write_number(payload + i * width, width, target)
    elif kind == SHUFFLED:
        return _read_shuffled(payload, rows, width, i, target, scratch)
    elif kind == RUNS:
        runs = np.int64(load_u32(payload))
        run = run_of(payload + 4, runs, i)
        _write_number(payload + 4 + 2 * runs + run * width, width, target)
    elif kind == CODES:
        if _read_shuffled(payload + 1, rows, np.int64(load_u8(payload)), i, target, scratch) < 0:
            return DAMAGED
        # Narrow codes were extended by their sign, and are never negative.
        bits = np.uint64(8) * np.uint64(load_u8(payload))
        code = np.int64(load_u64(target) & ((np.uint64(1) << bits) - np.uint64(1)))
        if code >= _field(page, VALUE_COUNT):
            return DAMAGED
        _write_string(_field(page, OFFSETS), _field(page, VALUES), code, target)
    elif kind == BITS:
        bit = (load_u8(payload + (i >> 3)) >> np.uint8(i & 7)) & np.uint8(1)
        store_u64(target, np.uint64(bit))
        store_u64(target + 8, np.uint64(0))
    elif kind == FRAMES:
        read_frame_cell(payload, rows, width, i, target)
        _extend(target, width)
    elif kind in (PREFIXES, SYMBOLS):
        return _restore_string(kind, payload, rows, i, target, scratch)
    elif kind == TEXTS:
        _write_string(_field(page, OFFSETS), _field(page, VALUES), i, target)
    elif kind == ONE:
        store_u64(target, load_u64(payload))
        store_u64(target + 8, load_u64(payload + 8))
    else:
        _write_string(payload, payload + 4 * (rows + 1), i, target)
    return 0


@inline
def _write_string(offsets, data, i, target):
    start = np.int64(load_u32(offsets + 4 * i))
    store_u64(target, np.uint64(data + start))
    store_u64(target + 8, np.uint64(np.int64(load_u32(offsets + 4 * i + 4)) - start))


@kernel
def _restore_string(kind: int, payload: int, rows: int, i: int, target: int, scratch: int) -> int:
    """Restore a string in the memory for it; return 0, or DAMAGED or FULL."""
    text = np.int64(load_u64(scratch + 8 * FREE))
    room = np.int64(load_u64(scratch + 8 * FREE_END)) - text
    if kind == SYMBOLS:
        length = fsst.read_string(payload, rows, i, text, room)
    else:
        length = prefix.read_string(payload, rows, i, text, room)
    if length < 0:
        return length
    store_u64(target, np.uint64(text))
    store_u64(target + 8, np.uint64(length))
    store_u64(scratch + 8 * FREE, np.uint64(text + length))
    return 0


@kernel
def _write_number(source: int, width: int, target: int) -> None:
    """Write a number of 1 to 16 bytes, extended by its sign."""
    copy_bytes(target, source, width)
    _extend(target, width)


@inline
def _extend(target, width):
    """Extend a number by its sign."""
    sign = np.uint8(0xFF) if (load_u8(target + width - 1) & np.uint8(0x80)) != 0 else np.uint8(0)
    for byte in range(width, CELL_BYTES):
        store_u8(target + byte, sign)


@inline
def run_of(lasts, runs, i):
    """Return the first run of a page whose last row is ``i`` or later, to read that row."""
    low, high = np.int64(0), runs - 1
    while low < high:
        middle = (low + high) >> 1
        if np.int64(load_u16(lasts + 2 * middle)) < i:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _read_shuffled(directory: int, row_count: int, width: int, row: int, target: int, scratch: int) -> int:
    """Write a cell of a page of mini-blocks (see `blocks`); return 0, or DAMAGED. A mini-block that is in ``scratch``
    already is not decompressed again."""
    number = row // BLOCK_ROWS
    start = np.int64(0)
    if number > 0:
        start = np.int64(load_u32(directory + 4 * (number - 1)))
    size = np.int64(load_u32(directory + 4 * number)) - start
    rows = min(BLOCK_ROWS, row_count - number * BLOCK_ROWS)
    data = directory + 4 * ((row_count + BLOCK_ROWS - 1) // BLOCK_ROWS) + start
    i = row - number * BLOCK_ROWS
    raw_size = rows * width
    if size == raw_size:
        _write_number(data + i * width, width, target)
        return 0
    if np.int64(load_u64(scratch)) != data:
        store_u64(scratch, np.uint64(0))
        if lz4_decompress(data, scratch + SCRATCH_FIELDS_BYTES, np.int32(size), np.int32(raw_size)) != raw_size:
            return DAMAGED
        store_u64(scratch, np.uint64(data))
    block = scratch + SCRATCH_FIELDS_BYTES
    stride = rows >> 3
    if i >= stride * 8:  # the last cells of a page are not shuffled
        _write_number(block + i * width, width, target)
        return 0
    at, bit = block + (i >> 3), np.uint8(i & 7)
    store_u64(target, np.uint64(0))
    store_u64(target + 8, np.uint64(0))
    last = np.uint8(0)
    for byte in range(width):
        last = np.uint8(0)
        for plane in range(8):
            last |= ((load_u8(at) >> bit) & np.uint8(1)) << np.uint8(plane)
            at += stride
        store_u8(target + byte, last)
    if (last & np.uint8(0x80)) != 0:
        for byte in range(width, CELL_BYTES):
            store_u8(target + byte, np.uint8(0xFF))
    return 0


# The newest delta of a row, in a log of deltas: an open-addressing table of uint64, each the row + 1 in the upper half
# and the number of its newest entry in the lower half; 0 is empty. ``previous`` (int32) has for each entry the one
# before it of the same row, or ABSENT.


@inline
def _home_of(row, mask):
    return np.int64(((np.uint64(row) * _GOLDEN) >> _HALF) & np.uint64(mask))


@kernel
def index_rows(slots: int, mask: int, previous: int, rowids: int, first: int, last: int) -> None:
    """Index the deltas of a rowset by row, for reads: add entries [first, last) of a log to the table, which has room;
    ``mask`` is its power of two less one."""
    table, rows, chain = view_u64(slots, mask + 1), view_i32(rowids, last), view_i32(previous, last)
    for entry in range(first, last):
        row = np.uint64(rows[entry])
        slot = _home_of(row, mask)
        while table[slot] != 0 and (table[slot] >> _HALF) != row + np.uint64(1):
            slot = (slot + 1) & mask
        chain[entry] = ABSENT if table[slot] == 0 else np.int32(table[slot] & _ROW_MASK)
        table[slot] = ((row + np.uint64(1)) << _HALF) | np.uint64(entry)


@kernel
def newest_entries(
    slots: int, mask: int, previous: int, timestamps: int, snapshot: int, rows: int, count: int, entries: int
) -> int:
    """Write (int64) the newest delta of each of ``rows`` (int64) to read that ``snapshot`` sees, or ABSENT; return how
    many there are. ``timestamps`` (int64) are those of all entries."""
    table = view_u64(slots, mask + 1)
    asked, found = view_i64(rows, count), view_i64(entries, count)
    total = np.int64(0)
    for i in range(count):
        row = asked[i]
        slot = _home_of(row, mask)
        entry = np.int64(ABSENT)
        while table[slot] != 0:
            if (table[slot] >> _HALF) == np.uint64(row + 1):
                entry = np.int64(table[slot] & _ROW_MASK)
                break
            slot = (slot + 1) & mask
        while entry >= 0 and np.int64(load_u64(timestamps + 8 * entry)) > snapshot:
            entry = np.int64(np.int32(load_u32(previous + 4 * entry)))
        found[i] = entry
        total += np.int64(entry >= 0)
    return total


@kernel
def last_entries(
    rowids: int, delta_count: int, timestamps: int, snapshot: int, rows: int, count: int, entries: int
) -> int:
    """Write (int64) the last delta of each of ``rows`` (int64, ascending) to read that ``snapshot`` sees, or ABSENT;
    return how many there are.

    Deltas are in row order (``rowids``, int32), those of a row in time order; with ``timestamps`` 0 all are seen.
    """
    numbers, asked, found = view_i32(rowids, delta_count), view_i64(rows, count), view_i64(entries, count)
    total, start = np.int64(0), np.int64(0)
    for i in range(count):
        low, high = start, np.int64(delta_count)
        while low < high:
            middle = (low + high) >> 1
            if numbers[middle] < asked[i]:
                low = middle + 1
            else:
                high = middle
        start = low
        found[i] = ABSENT
        while low < delta_count and numbers[low] == asked[i]:
            if timestamps != 0 and np.int64(load_u64(timestamps + 8 * low)) > snapshot:
                break
            found[i] = low
            low += 1
        total += np.int64(found[i] >= 0)
    return total


@short_kernel
def newest_entry(slots: int, mask: int, row: int) -> int:
    """Return the newest delta of a row to read, or ABSENT."""
    table = view_u64(slots, mask + 1)
    slot = _home_of(row, mask)
    while table[slot] != 0:
        if (table[slot] >> _HALF) == np.uint64(row + 1):
            return np.int64(table[slot] & _ROW_MASK)
        slot = (slot + 1) & mask
    return np.int64(ABSENT)
