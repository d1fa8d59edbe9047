"""Copy cells of many vectors into one, by place: no vector is copied whole before.

A place is an int64: a vector's number << 32 | a row of it. What is known of the vectors, such as where their cells are,
stands in tables of addresses (int64), one entry a vector.
"""

import numpy as np

from .gather import copy_string, load_offset
from .kernel import inline, kernel
from .simd import (
    copy16,
    copy32,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    prefetch,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    view_i32,
    view_i64,
)

ROW_BITS = 32
_ROW_MASK = (1 << ROW_BITS) - 1
_SHORT_BYTES = 32
_BYTES_AHEAD = 1024
"""So far after the cells that are copied, others of the same vector are fetched into the cache: merges take the rows of
each vector in order, but from so many at once that the processor does not see it."""
_OFFSETS_AHEAD = 256


@inline
def _address_at(bases, place):
    """Return the entry of ``bases`` (int64 addresses) for the vector that a place names."""
    return np.int64(load_u64(bases + (place >> ROW_BITS) * 8))


@kernel
def gather_u8_at_places(bases, places, count, result):
    """Write the cells of 1 byte at ``places``; ``bases`` says where the cells of each vector are."""
    wanted = view_i64(places, count)
    for i in range(count):
        cell = _address_at(bases, wanted[i]) + (wanted[i] & _ROW_MASK)
        prefetch(cell + _BYTES_AHEAD)
        store_u8(result + i, load_u8(cell))


@kernel
def gather_u16_at_places(bases, places, count, result):
    """Write cells of 2 bytes, as `gather_u8_at_places` does."""
    wanted = view_i64(places, count)
    for i in range(count):
        cell = _address_at(bases, wanted[i]) + (wanted[i] & _ROW_MASK) * 2
        prefetch(cell + _BYTES_AHEAD)
        store_u16(result + i * 2, load_u16(cell))


@kernel
def gather_u32_at_places(bases, places, count, result):
    """Write cells of 4 bytes, as `gather_u8_at_places` does."""
    wanted = view_i64(places, count)
    for i in range(count):
        cell = _address_at(bases, wanted[i]) + (wanted[i] & _ROW_MASK) * 4
        prefetch(cell + _BYTES_AHEAD)
        store_u32(result + i * 4, load_u32(cell))


@kernel
def gather_u64_at_places(bases, places, count, result):
    """Write cells of 8 bytes, as `gather_u8_at_places` does."""
    wanted = view_i64(places, count)
    for i in range(count):
        cell = _address_at(bases, wanted[i]) + (wanted[i] & _ROW_MASK) * 8
        prefetch(cell + _BYTES_AHEAD)
        store_u64(result + i * 8, load_u64(cell))


@kernel
def gather_u128_at_places(bases, places, count, result):
    """Write cells of 16 bytes, as `gather_u8_at_places` does."""
    wanted = view_i64(places, count)
    for i in range(count):
        copy16(result + i * 16, _address_at(bases, wanted[i]) + (wanted[i] & _ROW_MASK) * 16)


@kernel
def gather_codes_at_places(bases, places, count, result):
    """Write for each place that of the value which its code (int32) names in the dictionary of its vector."""
    wanted = view_i64(places, count)
    values = view_i64(result, count)
    for i in range(count):
        code = np.int64(load_u32(_address_at(bases, wanted[i]) + (wanted[i] & _ROW_MASK) * 4))
        values[i] = ((wanted[i] >> ROW_BITS) << ROW_BITS) | code


@kernel
def gather_offsets_at_places(offset_bases, places, count, valid, result):
    """Write offsets as `gather_offsets` does, of the strings of many vectors; return the last."""
    wanted = view_i64(places, count)
    ends = view_i32(result, count + 1)
    end = np.int64(0)
    ends[0] = 0
    for i in range(count):
        offsets, row = _address_at(offset_bases, wanted[i]), wanted[i] & _ROW_MASK
        length = load_offset(offsets, row + 1) - load_offset(offsets, row)
        if valid != 0 and load_u8(valid + i) == 0:
            length = 0
        end += length
        ends[i + 1] = end
    return end


@kernel
def gather_strings_at_places(offset_bases, data_bases, data_ends, places, count, result_offsets, result):
    """Write strings as `gather_strings` does, of many vectors; each has its data's address and the one past its end."""
    wanted = view_i64(places, count)
    ends = view_i32(result_offsets, count + 1)
    for i in range(count):
        start = np.int64(ends[i])
        offsets, row = _address_at(offset_bases, wanted[i]), wanted[i] & _ROW_MASK
        source = _address_at(data_bases, wanted[i]) + load_offset(offsets, row)
        copy_string(result + start, source, np.int64(ends[i + 1]) - start, _address_at(data_ends, wanted[i]))


@kernel
def copy_strings_at_places(
    code_bases, offset_bases, data_bases, data_ends, places, count, valid, result_offsets, result
):
    """Write strings and their offsets in one pass; ``result`` has room for whatever they turn out to take.

    With ``code_bases``, unless it is 0, a place names a code (int32), and that the string of its vector. ``valid`` is
    the address of one bool a result, or 0; where it is False the string is empty. The bases and ends are tables, and
    ``result`` has slack, as `gather_strings_at_places` wants them.
    """
    wanted = view_i64(places, count)
    ends = view_i32(result_offsets, count + 1)
    end = np.int64(0)
    ends[0] = 0
    for i in range(count):
        row = wanted[i] & _ROW_MASK
        if code_bases != 0:
            code = _address_at(code_bases, wanted[i]) + row * 4
            prefetch(code + _BYTES_AHEAD)
            row = np.int64(load_u32(code))
        offset = _address_at(offset_bases, wanted[i]) + row * 4
        start = load_offset(offset, 0)
        length = load_offset(offset, 1) - start
        if valid != 0 and load_u8(valid + i) == 0:
            length = np.int64(0)
        source, source_end = _address_at(data_bases, wanted[i]) + start, _address_at(data_ends, wanted[i])
        if code_bases == 0:
            prefetch(offset + _OFFSETS_AHEAD)
            prefetch(source + _BYTES_AHEAD)
        if length <= _SHORT_BYTES and source + _SHORT_BYTES <= source_end:
            copy32(result + end, source)
        else:
            copy_string(result + end, source, length, source_end)
        end += length
        ends[i + 1] = end
