"""Find the parts of many records of the log, and of those the rows of changes in row encoding and numbered answers.

Layouts stand in `record/change.py`, `record/change_rows.py` and `commit/numbered_writes.py`. Rows stay where they are
until `gather_rows` puts those of one form end to end, for the kernels of `row`.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..keys.hashing import hash_string, hash_word
from ..keys.keys import strings_equal
from ..simd.simd import copy_bytes, load_u8, load_u32, load_u64, view_i32, view_i64, view_u64

PART_FIELDS = 5
"""int64 of a part in a table: its record, its owner, its kind * 256 + its form, where its body is, how long that is."""

_HEADER_BYTES = 16
_COUNTS_BYTES = 8

TOO_SHORT, TOO_MANY_CELLS, ROWS_OUTSIDE, REASONS = range(4)
"""Why a change is not one; REASONS is how many there are."""

_SPACE, _QUOTE, _ESCAPE, _BRACE = 32, 34, 92, 125
_WRITER_BYTES, _SEQ_BYTES, _ANSWER_BYTES = 11, 8, 10
_WORDS_BYTES = _WRITER_BYTES + _SEQ_BYTES + _ANSWER_BYTES
_DIGITS_MAX = 18


@kernel
def count_parts(addresses, lengths, record_count):
    """Return how many parts log records have; -1 - 2 * i if record i ends in the middle of a header, -2 - 2 * i if a
    part passes the end of its record."""
    starts = view_i64(addresses, record_count)
    sizes = view_i64(lengths, record_count)
    parts = np.int64(0)
    for record in range(record_count):
        place = np.int64(0)
        while place < sizes[record]:
            if place + _HEADER_BYTES > sizes[record]:
                return np.int64(-1 - 2 * record)
            size = np.int64(load_u64(starts[record] + place + 8))
            place += _HEADER_BYTES
            if size < 0 or size > sizes[record] - place:
                return np.int64(-2 - 2 * record)
            place += size
            parts += 1
    return parts


@kernel
def find_parts(addresses, lengths, record_count, table):
    """Write a line for each part of log records that were counted."""
    starts = view_i64(addresses, record_count)
    sizes = view_i64(lengths, record_count)
    line = table
    for record in range(record_count):
        place = np.int64(0)
        while place < sizes[record]:
            header = starts[record] + place
            size = np.int64(load_u64(header + 8))
            part = view_i64(line, PART_FIELDS)
            part[0] = record
            part[1] = np.int64(load_u32(header))
            part[2] = np.int64(load_u8(header + 4)) * 256 + np.int64(load_u8(header + 5))
            part[3] = header + _HEADER_BYTES
            part[4] = size
            place += _HEADER_BYTES + size
            line += 8 * PART_FIELDS


@kernel
def measure_changes(bodies, sizes, count, cells_max, head_bytes, rows, row_bytes):
    """Write of each logged change in row encoding how many bytes name its columns, how many rows it has and their
    bytes.

    Return 0, or -1 - (i * REASONS + reason) when body i contradicts itself.
    """
    places = view_i64(bodies, count)
    lengths = view_i64(sizes, count)
    heads = view_i64(head_bytes, count)
    row_counts = view_i64(rows, count)
    data_bytes = view_i64(row_bytes, count)
    for i in range(count):
        if lengths[i] < _COUNTS_BYTES:
            return np.int64(-1 - (i * REASONS + TOO_SHORT))
        column_count = np.int64(load_u32(places[i]))
        row_count = np.int64(load_u32(places[i] + 4))
        start = _COUNTS_BYTES + 5 * column_count + 4 * row_count
        if start > lengths[i]:
            return np.int64(-1 - (i * REASONS + TOO_SHORT))
        if column_count * row_count > cells_max:
            return np.int64(-1 - (i * REASONS + TOO_MANY_CELLS))
        ends = places[i] + _COUNTS_BYTES + 5 * column_count
        end = np.int64(0)
        for row in range(row_count):
            next_end = np.int64(load_u32(ends + 4 * row))
            if next_end < end:
                return np.int64(-1 - (i * REASONS + ROWS_OUTSIDE))
            end = next_end
        if end > lengths[i] - start or lengths[i] - start - end >= 8:
            return np.int64(-1 - (i * REASONS + ROWS_OUTSIDE))
        heads[i] = 5 * column_count
        row_counts[i] = row_count
        data_bytes[i] = end
    return np.int64(0)


@inline
def _slot_of(hashed, mask):
    return np.int64(hashed & np.uint64(mask))


@kernel
def number_strings(starts, sizes, owners, count, slots, slot_count, numbers, firsts):
    """Number byte strings of log records with owners (int64): equal ones of one owner alike, by first appearance.
    Return how many differ; ``firsts`` gets where each number is first seen.

    ``slots`` are ``slot_count`` zeroed uint64, a power of two above ``count``: the upper half of a slot is that of the
    hash, the lower half the number + 1; 0 is empty.
    """
    places = view_i64(starts, count)
    lengths = view_i64(sizes, count)
    owned = view_i64(owners, count)
    table = view_u64(slots, slot_count)
    given = view_i64(numbers, count)
    seen = view_i64(firsts, count)
    half = np.uint64(32)
    different = np.int64(0)
    for i in range(count):
        hashed = hash_string(places[i], lengths[i]) ^ hash_word(np.uint64(owned[i]))
        slot = _slot_of(hashed, slot_count - 1)
        while True:
            entry = table[slot]
            if entry == 0:
                table[slot] = (hashed >> half << half) | np.uint64(different + 1)
                seen[different] = i
                given[i] = different
                different += 1
                break
            number = np.int64(entry & np.uint64(0xFFFFFFFF)) - 1
            first = seen[number]
            is_same = entry >> half == hashed >> half and owned[first] == owned[i] and lengths[first] == lengths[i]
            if is_same and strings_equal(places[first], places[i], lengths[i]):
                given[i] = number
                break
            slot = (slot + 1) & (slot_count - 1)
    return different


@kernel
def gather_rows(bodies, head_bytes, rows, change_count, changes, count, offsets, data):
    """Put the rows of measured changes in log records end to end: ``changes`` (int64) says which, ``offsets`` (i4) gets
    where each row starts, and the last end."""
    places = view_i64(bodies, change_count)
    heads = view_i64(head_bytes, change_count)
    row_counts = view_i64(rows, change_count)
    chosen = view_i64(changes, count)
    starts = view_i32(offsets, 1)
    starts[0] = 0
    line = offsets + 4
    position = np.int64(0)
    for i in range(count):
        change = chosen[i]
        ends = places[change] + _COUNTS_BYTES + heads[change]
        row_count = row_counts[change]
        those = view_i32(line, row_count)
        end = np.int64(0)
        for row in range(row_count):
            end = np.int64(load_u32(ends + 4 * row))
            those[row] = np.int32(position + end)
        copy_bytes(data + position, ends + 4 * row_count, end)
        position += end
        line += 4 * row_count


@inline
def _is_plain(byte):
    """Whether a byte stands for itself in a JSON string, and is ASCII."""
    return _SPACE <= byte < 128 and byte != _QUOTE and byte != _ESCAPE


@kernel
def read_answers(bodies, sizes, count, words, names, name_bytes, numbers, answers, answer_bytes):
    """Find writer, number and answer in notes of log records that are written in the plain way; those of others get
    length -1.

    ``words`` are the texts before the three: ``{"writer":"``, ``","seq":`` and ``,"answer":``, end to end.
    """
    places = view_i64(bodies, count)
    lengths = view_i64(sizes, count)
    name_starts = view_i64(names, count)
    name_lengths = view_i64(name_bytes, count)
    seqs = view_i64(numbers, count)
    answer_starts = view_i64(answers, count)
    answer_lengths = view_i64(answer_bytes, count)
    for i in range(count):
        name_lengths[i] = answer_lengths[i] = -1
        place, end = places[i], places[i] + lengths[i]
        while end > place and load_u8(end - 1) == _SPACE:
            end -= 1
        if end - place < _WORDS_BYTES or not strings_equal(place, words, _WRITER_BYTES):
            continue
        place += _WRITER_BYTES
        name = place
        while place < end and _is_plain(load_u8(place)):
            place += 1
        length = place - name
        if end - place < _SEQ_BYTES or not strings_equal(place, words + _WRITER_BYTES, _SEQ_BYTES):
            continue
        place += _SEQ_BYTES
        first_digit = place
        seq = np.int64(0)
        while place < end and place - first_digit < _DIGITS_MAX and 48 <= load_u8(place) <= 57:
            seq = seq * 10 + np.int64(load_u8(place)) - 48
            place += 1
        if place == first_digit or (load_u8(first_digit) == 48 and place - first_digit > 1):
            continue
        if end - place < _ANSWER_BYTES or not strings_equal(place, words + _WRITER_BYTES + _SEQ_BYTES, _ANSWER_BYTES):
            continue
        place += _ANSWER_BYTES
        if end - place < 1 or load_u8(end - 1) != _BRACE:
            continue
        name_starts[i], name_lengths[i], seqs[i] = name, length, seq
        answer_starts[i], answer_lengths[i] = place, end - 1 - place
