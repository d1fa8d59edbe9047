"""Copy cells of many vectors into one, by place: no vector is copied whole before.

Places are words (uint64) as `vectors.places` describes them: in the low ``place_bits`` the number of a vector <<
``row_bits`` | a row of it. What is known of the vectors, such as where their cells are, stands in tables of addresses
(int64), one entry a vector.
"""

import numpy as np

from ..ahead.families import family
from ..ahead.kernel import inline, kernel
from ..simd.simd import (
    copy16,
    copy32,
    load_u8,
    load_u32,
    load_u64,
    prefetch,
    view_i32,
    view_i64,
    view_u64,
)
from ..simd.widths import copy_cell
from .gather import copy_string, load_offset

CODE_BITS = 32
"""Row bits of the places of values in dictionaries, whose rows are codes."""
_LOW_HALF = np.uint64(0xFFFFFFFF)
SHORT_BYTES = 32
"""Strings up to so long are copied in one piece, where so many bytes can be read."""
_BYTES_AHEAD = 1024
"""So far after the cells that are copied, others of the same vector are fetched into the cache: merges take the rows of
each vector in order, but from so many at once that the processor does not see it."""
_OFFSETS_AHEAD = 256


@inline
def _mask(bits):
    return (np.int64(1) << bits) - 1


@inline
def _entry(table, number):
    """Return the entry of a table (int64) for the vector of that number."""
    return np.int64(load_u64(table + number * 8))


def _gather_at_places(width):
    def gather(bases, places, count, row_bits, place_bits, result):
        """Write the cells at ``places``; ``bases`` says where the cells of each vector are."""
        wanted = view_u64(places, count)
        place_mask, row_mask = _mask(place_bits), _mask(row_bits)
        for i in range(count):
            place = np.int64(wanted[i]) & place_mask
            cell = _entry(bases, place >> row_bits) + (place & row_mask) * width
            if width < 16:
                prefetch(cell + _BYTES_AHEAD)
            copy_cell(result + i * width, cell, width)

    return gather


gather_u8_at_places, gather_u16_at_places, gather_u32_at_places, gather_u64_at_places, gather_u128_at_places = family(
    "gather_u{}_at_places", _gather_at_places
)


@kernel
def gather_codes_at_places(bases, places, count, row_bits, place_bits, result):
    """Write for each place that of the value which its code (int32) names in the dictionary of its vector: the number
    of the vector << CODE_BITS | the code."""
    wanted = view_u64(places, count)
    values = view_i64(result, count)
    place_mask, row_mask = _mask(place_bits), _mask(row_bits)
    for i in range(count):
        place = np.int64(wanted[i]) & place_mask
        number = place >> row_bits
        values[i] = (number << CODE_BITS) | np.int64(load_u32(_entry(bases, number) + (place & row_mask) * 4))


@kernel
def gather_offsets_of_values(offset_bases, values, count, valid, result):
    """Write offsets as `gather_offsets` does, of values that `gather_codes_at_places` found; return the last."""
    wanted = view_i64(values, count)
    ends = view_i32(result, count + 1)
    code_mask = _mask(CODE_BITS)
    end = np.int64(0)
    ends[0] = 0
    for i in range(count):
        offsets, row = _entry(offset_bases, wanted[i] >> CODE_BITS), wanted[i] & code_mask
        length = load_offset(offsets, row + 1) - load_offset(offsets, row)
        if valid != 0 and load_u8(valid + i) == 0:
            length = 0
        end += length
        ends[i + 1] = end
    return end


@kernel
def gather_values(offset_bases, data_bases, data_ends, values, count, result_offsets, result):
    """Write strings as `gather_strings` does, of many dictionaries; each has its data's address and the one past it."""
    wanted = view_i64(values, count)
    ends = view_i32(result_offsets, count + 1)
    code_mask = _mask(CODE_BITS)
    for i in range(count):
        number = wanted[i] >> CODE_BITS
        start = np.int64(ends[i])
        source = _entry(data_bases, number) + load_offset(_entry(offset_bases, number), wanted[i] & code_mask)
        copy_string(result + start, source, np.int64(ends[i + 1]) - start, _entry(data_ends, number))


@kernel
def copy_strings_at_places(
    offset_bases, data_bases, data_ends, places, count, row_bits, place_bits, valid, result_offsets, result
):
    """Gather strings from many vectors: write them and their offsets in one pass; ``result`` has room for whatever they
    turn out to take.

    ``valid`` is the address of one bool a result, or 0; where it is False the string is empty. The bases and ends are
    tables, and ``result`` has slack, as `gather_values` wants them.
    """
    wanted = view_u64(places, count)
    ends = view_i32(result_offsets, count + 1)
    place_mask, row_mask = _mask(place_bits), _mask(row_bits)
    end = np.int64(0)
    ends[0] = 0
    for i in range(count):
        place = np.int64(wanted[i]) & place_mask
        number = place >> row_bits
        offset = _entry(offset_bases, number) + (place & row_mask) * 4
        start = load_offset(offset, 0)
        length = load_offset(offset, 1) - start
        if valid != 0 and load_u8(valid + i) == 0:
            length = np.int64(0)
        source, source_end = _entry(data_bases, number) + start, _entry(data_ends, number)
        prefetch(offset + _OFFSETS_AHEAD)
        prefetch(source + _BYTES_AHEAD)
        if length <= SHORT_BYTES and source + SHORT_BYTES <= source_end:
            copy32(result + end, source)
        else:
            copy_string(result + end, source, length, source_end)
        end += length
        ends[i + 1] = end


@kernel
def copy_coded_at_places(
    code_bases, offset_bases, data, longest, places, count, row_bits, place_bits, valid, result_offsets, result
):
    """Gather short strings from the dictionaries of many vectors: write them, and their offsets, by code: a place names
    a code (int32), and that one of the strings whose offsets begin where the entry of its vector in ``offset_bases``
    says.

    All strings, of at most ``longest`` <= 32 bytes, are at ``data``, which has slack, as ``result`` has beside room for
    all; ``valid`` is as in `copy_strings_at_places`.
    """
    wanted = view_u64(places, count)
    ends = view_i32(result_offsets, count + 1)
    place_mask, row_mask = _mask(place_bits), _mask(row_bits)
    end = np.int64(0)
    ends[0] = 0
    for i in range(count):
        place = np.int64(wanted[i]) & place_mask
        number = place >> row_bits
        code = _entry(code_bases, number) + (place & row_mask) * 4
        prefetch(code + _BYTES_AHEAD)
        span = load_u64(_entry(offset_bases, number) + np.int64(load_u32(code)) * 4)
        start = np.int64(span & _LOW_HALF)
        if longest <= 16:  # fewer stores straddle cache lines
            copy16(result + end, data + start)
        else:
            copy32(result + end, data + start)
        length = np.int64(span >> np.uint64(32)) - start
        if valid != 0 and load_u8(valid + i) == 0:
            length = np.int64(0)
        end += length
        ends[i + 1] = end
