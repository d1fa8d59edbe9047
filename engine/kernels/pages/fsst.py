"""FSST: strings as codes of one byte, each for a symbol of up to 8 bytes; any string is decoded alone.

Boncz, Neumann, Leis, "FSST: Fast Random Access String Compression", VLDB 2020. Code 255 is an escape: the byte behind
it stands for itself. A table of up to 255 symbols is found in rounds: a sample is encoded with the symbols so far, and
those symbols and pairs of neighbours that would have saved most become the next table. The last round takes no pairs:
a pair and its halves would both have a place, and only one of them uses.

Block layout, little-endian, for up to 1,024 rows::

    | bytes of the strings u4 | width u1 | lengths of codes, width bits x rows | codes |

Lengths are packed as in `bit_packing`, up to a whole byte.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import (
    copy_bytes,
    leading_zeros64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
    view_i32,
    view_i64,
    view_u16,
    view_u64,
)
from .bit_packing import WIDEST, load_bits, pack_bits, packed_bytes
from .blocks import BLOCK_ROWS

ESCAPE = 255
SYMBOL_BYTES = 8
HEAD_BYTES = 5
"""Bytes of a block before its lengths."""

# A coder's memory. A code is a symbol's number, or 256 + the byte that it stands for.
_CODES = 512
_SLOTS = 2048
_TEXTS = 0
_LENGTHS = _TEXTS + 8 * _CODES
_SLOT_CODES = _LENGTHS + 8 * _CODES
_SHORTS = _SLOT_CODES + 8 * _SLOTS
_SINGLES = _SHORTS + 2 * 65_536
_COUNTS = _SINGLES + 2 * 256
_PAIRS = _COUNTS + 8 * _CODES
_BEST = _PAIRS + 2 * _CODES * _CODES
_BEST_FIELDS = 3
CODER_BYTES = _BEST + 8 * _BEST_FIELDS * 256
"""Room that a coder needs, zeroed."""

_ROUNDS = 8
"""A symbol doubles in a round at most; those that follow three take symbols apart that were cut in a bad place."""
_HASH = np.uint64(0x9E3779B97F4A7C15)
_TRIPLE = np.uint64(0xFFFFFF)


@inline
def _slot_of(word):
    return np.int64(((word & _TRIPLE) * _HASH) >> np.uint64(53))


@inline
def _mask_of_bytes(length):
    return ~np.uint64(0) >> np.uint64(8 * (SYMBOL_BYTES - length))


@kernel
def _word_at(place: int, length: int, data_end: int) -> np.uint64:
    """Return up to 8 bytes, of a string with ``length`` left; reads none at ``data_end`` or behind."""
    if place + SYMBOL_BYTES <= data_end:
        word = load_u64(place)
        return word if length >= SYMBOL_BYTES else word & _mask_of_bytes(max(length, 1))
    word = np.uint64(0)
    for i in range(min(length, SYMBOL_BYTES)):
        word |= np.uint64(load_u8(place + i)) << np.uint64(8 * i)
    return word


@kernel
def _index_symbols(coder: int, count: int) -> None:
    """Make the first ``count`` symbols those that are looked for; the first of those with the same three bytes wins."""
    texts, lengths = view_u64(coder + _TEXTS, _CODES), view_i64(coder + _LENGTHS, _CODES)
    slots, shorts = view_i64(coder + _SLOT_CODES, _SLOTS), view_u16(coder + _SHORTS, 65_536)
    slots[:] = -1
    for byte in range(256):
        texts[256 + byte], lengths[256 + byte] = np.uint64(byte), 1
    for short in range(65_536):
        shorts[short] = np.uint16(256 + (short & 255))
    singles = view_u16(coder + _SINGLES, 256)
    for byte in range(256):
        singles[byte] = np.uint16(256 + byte)
    for code in range(count):
        if lengths[code] == 1:
            singles[np.int64(texts[code])] = np.uint16(code)
            for second in range(256):
                shorts[np.int64(texts[code]) | second << 8] = np.uint16(code)
    for code in range(count):
        if lengths[code] == 2:
            shorts[np.int64(texts[code])] = np.uint16(code)
        elif lengths[code] > 2:
            slot = _slot_of(texts[code])
            if slots[slot] < 0:
                slots[slot] = code


@inline
def _code_at(coder, word, left):
    """Return the code of the longest symbol that the bytes of ``word``, ``left`` of a string, begin with."""
    if left > 2:
        code = np.int64(load_u64(coder + _SLOT_CODES + 8 * _slot_of(word)))
        if code >= 0:
            length = np.int64(load_u64(coder + _LENGTHS + 8 * code))
            if length <= left and (word ^ load_u64(coder + _TEXTS + 8 * code)) & _mask_of_bytes(length) == 0:
                return code
    code = np.int64(load_u16(coder + _SHORTS + 2 * np.int64(word & np.uint64(0xFFFF))))
    if np.int64(load_u64(coder + _LENGTHS + 8 * code)) <= left:
        return code
    return np.int64(load_u16(coder + _SINGLES + 2 * np.int64(word & np.uint64(0xFF))))


@kernel
def train(coder: int, offsets: int, data: int, data_end: int, rows: int, step: int) -> int:
    """Find the symbols for the strings of a page, of which one in ``step`` is looked at; return how many there are.

    The coder's memory is zeroed. ``offsets`` (i4) count from ``data``.
    """
    starts = view_i32(offsets, rows + 1)
    counts, pairs = view_i64(coder + _COUNTS, _CODES), view_u16(coder + _PAIRS, _CODES * _CODES)
    count = np.int64(0)
    for number in range(_ROUNDS):
        _index_symbols(coder, count)
        counts[:] = 0
        pairs[:] = 0
        for first in range(0, rows, step):
            row = first + np.int64((np.uint64(first) * _HASH) >> np.uint64(33)) % step  # rows may have a pattern
            if row >= rows:
                break
            place, end = data + np.int64(starts[row]), data + np.int64(starts[row + 1])
            before = np.int64(-1)
            while place < end:
                code = _code_at(coder, _word_at(place, end - place, data_end), end - place)
                counts[code] += 1
                if before >= 0 and pairs[before * _CODES + code] < 65_535:
                    pairs[before * _CODES + code] += 1
                before = code
                place += np.int64(load_u64(coder + _LENGTHS + 8 * code))
        count = _take_best(coder, number < _ROUNDS - 1)
    _index_symbols(coder, count)
    return count


@kernel
def _take_best(coder: int, has_pairs: bool) -> int:
    """Make those symbols, and pairs, the table that saved, or would have saved, most bytes; return how many."""
    texts, lengths = view_u64(coder + _TEXTS, _CODES), view_i64(coder + _LENGTHS, _CODES)
    counts, pairs = view_i64(coder + _COUNTS, _CODES), view_u16(coder + _PAIRS, _CODES * _CODES)
    best = view_u64(coder + _BEST, _BEST_FIELDS * 256)
    found = np.int64(0)
    for left in range(_CODES):
        if counts[left] <= 1:
            continue  # it takes more bytes than it saves
        found = _offer(best, found, texts[left], lengths[left], counts[left] * lengths[left])
        if not has_pairs:
            continue
        for right in range(_CODES):
            together = np.int64(pairs[left * _CODES + right])
            length = lengths[left] + lengths[right]
            if together > 1 and length <= SYMBOL_BYTES:
                text = texts[left] | texts[right] << np.uint64(8 * lengths[left])
                found = _offer(best, found, text, length, together * length)
    # The heap's least goes to the end: symbols stand by what they save, the best first.
    for last in range(found - 1, -1, -1):
        texts[last], lengths[last] = best[1], np.int64(best[2])
        for field in range(_BEST_FIELDS):
            best[field] = best[_BEST_FIELDS * last + field]
        _sink(best, 0, last)
    return found


@inline
def _offer(best, found, text, length, gain):
    """Put a symbol among the best 255, a heap with the least gain on top, unless it is there; return how many."""
    if found == ESCAPE and gain <= np.int64(best[0]):
        return found
    for i in range(found):
        if best[_BEST_FIELDS * i + 1] == text and np.int64(best[_BEST_FIELDS * i + 2]) == length:
            return found
    if found < ESCAPE:
        place = found
        found += 1
        while place > 0 and np.int64(best[_BEST_FIELDS * ((place - 1) >> 1)]) > gain:
            for field in range(_BEST_FIELDS):
                best[_BEST_FIELDS * place + field] = best[_BEST_FIELDS * ((place - 1) >> 1) + field]
            place = (place - 1) >> 1
        best[_BEST_FIELDS * place] = np.uint64(gain)
        best[_BEST_FIELDS * place + 1], best[_BEST_FIELDS * place + 2] = text, np.uint64(length)
    else:
        best[0], best[1], best[2] = np.uint64(gain), text, np.uint64(length)
        _sink(best, 0, found)
    return found


@inline
def _sink(best, place, count):
    """Move an entry of the heap of ``count`` down to where it belongs."""
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        if child + 1 < count and best[_BEST_FIELDS * (child + 1)] < best[_BEST_FIELDS * child]:
            child += 1
        if best[_BEST_FIELDS * place] <= best[_BEST_FIELDS * child]:
            break
        for field in range(_BEST_FIELDS):
            kept = best[_BEST_FIELDS * place + field]
            best[_BEST_FIELDS * place + field] = best[_BEST_FIELDS * child + field]
            best[_BEST_FIELDS * child + field] = kept
        place = child


@kernel
def write_symbols(coder: int, count: int, target: int) -> None:
    """Write the symbols of a page of strings: the lengths (u1) of all, then their 8 bytes each."""
    for code in range(count):
        store_u8(target + code, np.uint8(load_u64(coder + _LENGTHS + 8 * code)))
        store_u64(target + count + 8 * code, load_u64(coder + _TEXTS + 8 * code))


@kernel
def pack_strings(
    coder: int, offsets: int, data: int, data_end: int, row_count: int, ends: int, target: int, scratch: int
) -> int:
    """Encode a page of strings by symbols: write the blocks and the end (u4) of each; return the bytes written.

    ``target`` needs 13 bytes a block, 8 a row, two for each byte of the strings, and 8. ``scratch`` is 8 bytes for each
    row of a block, and two for each byte of the longest one.
    """
    starts = view_i32(offsets, row_count + 1)
    lengths, codes = view_u64(scratch, BLOCK_ROWS), scratch + 8 * BLOCK_ROWS
    position = np.int64(0)
    for first in range(0, row_count, BLOCK_ROWS):
        rows = min(BLOCK_ROWS, row_count - first)
        at, every = codes, np.uint64(0)
        for row in range(rows):
            place, end = data + np.int64(starts[first + row]), data + np.int64(starts[first + row + 1])
            begin = at
            while place < end:
                code = _code_at(coder, _word_at(place, end - place, data_end), end - place)
                if code < ESCAPE:
                    store_u8(at, np.uint8(code))
                    at += 1
                else:
                    store_u16(at, np.uint16(ESCAPE | (code & 255) << 8))
                    at += 2
                place += np.int64(load_u64(coder + _LENGTHS + 8 * code))
            lengths[row] = np.uint64(at - begin)
            every |= lengths[row]
        width = 64 - leading_zeros64(every)
        block = target + position
        store_u32(block, np.uint32(starts[first + rows] - starts[first]))
        store_u8(block + 4, np.uint8(width))
        packed = pack_bits(scratch, rows, width, block + HEAD_BYTES)
        copy_bytes(block + HEAD_BYTES + packed, codes, at - codes)
        position += HEAD_BYTES + packed + (at - codes)
        store_u32(ends + 4 * (first // BLOCK_ROWS), np.uint32(position))
    return position


@kernel
def check_strings(directory: int, row_count: int) -> int:
    """Check a page of strings in symbols: return 0, or -1 - n if block n contradicts itself or makes the page 2 GiB or
    more. The directory is checked, and 8 bytes behind the last block may be read."""
    blocks = (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS
    start = total = np.int64(0)
    for number in range(blocks):
        block = directory + 4 * blocks + start
        end = np.int64(load_u32(directory + 4 * number))
        rows, size = min(BLOCK_ROWS, row_count - BLOCK_ROWS * number), end - start
        width = np.int64(load_u8(block + 4)) if size >= HEAD_BYTES else np.int64(WIDEST)
        left = size - HEAD_BYTES - packed_bytes(rows, width)
        if width > 32 or left < 0:
            return -1 - number
        total += np.int64(load_u32(block))
        for row in range(rows):
            left -= np.int64(load_bits(block + HEAD_BYTES, row, width))
        if left != 0 or total > 2**31 - 1:
            return -1 - number
        start = end
    return 0


@inline
def _block_start(directory, blocks, number):
    start = np.int64(load_u32(directory + 4 * (number - 1))) if number > 0 else np.int64(0)
    return directory + 4 * blocks + start


@kernel
def measure_strings(directory: int, row_count: int, numbers: int, count: int) -> int:
    """Return the bytes of the strings in the listed blocks (i8) of a page."""
    wanted, blocks = view_i64(numbers, count), (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS
    total = np.int64(0)
    for i in range(count):
        total += np.int64(load_u32(_block_start(directory, blocks, wanted[i])))
    return total


@kernel
def unpack_strings(
    symbols: int, symbol_count: int, directory: int, row_count: int, numbers: int, count: int, ends: int, target: int
) -> int:
    """Decode a page of strings: write those of the listed blocks (i8), end to end, and where each ends (i4); return 0,
    or -1 - n if the codes of block n are not those of its strings.

    ``symbols`` are as `write_symbols` writes them. ``target`` needs 8 bytes more than the strings.
    """
    wanted, blocks = view_i64(numbers, count), (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS
    place, end_place = target, ends
    for i in range(count):
        block = _block_start(directory, blocks, wanted[i])
        rows = min(BLOCK_ROWS, row_count - BLOCK_ROWS * wanted[i])
        place = _unpack_rows(symbols, symbol_count, block, rows, 0, rows, end_place, target, place)
        if place < 0:
            return -1 - wanted[i]
        end_place += 4 * rows
    return 0


@kernel
def bytes_of_range(payload: int, row_count: int, first: int, last: int) -> int:
    """Return how many bytes `unpack_range` may write for rows [first, last) of a page."""
    blocks, directory = (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS, _directory(payload)
    total = np.int64(0)
    for number in range(first // BLOCK_ROWS, (last + BLOCK_ROWS - 1) // BLOCK_ROWS):
        total += np.int64(load_u32(_block_start(directory, blocks, number)))
    return total


@kernel
def unpack_range(payload: int, row_count: int, first: int, last: int, ends: int, target: int, end: int) -> int:
    """Write the strings of rows [first, last) of a page from ``target + end`` on, and where each ends (i4, counted from
    ``target``); return the last end, or -1 if the codes are not those of the strings. Writes up to 8 bytes more."""
    blocks, directory = (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS, _directory(payload)
    place, row = target + end, first
    while row < last:
        number = row // BLOCK_ROWS
        block, start = _block_start(directory, blocks, number), BLOCK_ROWS * number
        stop, rows = min(last, start + BLOCK_ROWS), min(BLOCK_ROWS, row_count - start)
        count = np.int64(load_u8(payload))
        place = _unpack_rows(payload + 1, count, block, rows, row - start, stop - start, ends, target, place)
        if place < 0:
            return -1
        ends += 4 * (stop - row)
        row = stop
    return place - target


@kernel
def read_string(payload: int, row_count: int, row: int, target: int, room: int) -> int:
    """Write the string of one row of a page; return its bytes, -1 if its codes have no symbols, or -2 if ``room`` bytes
    may not be enough."""
    blocks, number = (row_count + BLOCK_ROWS - 1) // BLOCK_ROWS, row // BLOCK_ROWS
    block = _block_start(_directory(payload), blocks, number)
    rows, i, width = min(BLOCK_ROWS, row_count - BLOCK_ROWS * number), row % BLOCK_ROWS, np.int64(load_u8(block + 4))
    codes = _codes_of(block, rows, width, i)
    length = np.int64(load_bits(block + HEAD_BYTES, i, width))
    if SYMBOL_BYTES * length > room:
        return -2
    limit = target + SYMBOL_BYTES * length
    end = _unpack_codes(payload + 1, np.int64(load_u8(payload)), codes, codes + length, target, limit)
    return end - target if end >= 0 else -1


@inline
def _directory(payload):
    return payload + 1 + (1 + SYMBOL_BYTES) * np.int64(load_u8(payload))


@inline
def _codes_of(block, rows, width, row):
    """Return where the codes of a row of a block begin."""
    place = block + HEAD_BYTES + packed_bytes(rows, width)
    for before in range(row):
        place += np.int64(load_bits(block + HEAD_BYTES, before, width))
    return place


@kernel
def _unpack_rows(
    symbols: int,
    symbol_count: int,
    block: int,
    rows: int,
    first: int,
    last: int,
    ends: int,
    target: int,
    place: int,
) -> int:
    """Write the strings of rows [first, last) of a block of ``rows`` from ``place`` on, and where each ends, counted
    from ``target``; return where the last one ends, or -1 if that is not where its block says."""
    width, limit = np.int64(load_u8(block + 4)), place + np.int64(load_u32(block))
    codes = _codes_of(block, rows, width, first)
    for row in range(first, last):
        length = np.int64(load_bits(block + HEAD_BYTES, row, width))
        place = _unpack_codes(symbols, symbol_count, codes, codes + length, place, limit)
        if place < 0:
            return -1
        codes += length
        store_u32(ends, np.uint32(place - target))
        ends += 4
    return place if last - first < rows or place == limit else np.int64(-1)


@inline
def _unpack_codes(symbols, symbol_count, codes, codes_end, place, limit):
    """Write the symbols of codes; return where they end, or -1 if a code has none or they go beyond ``limit``."""
    texts = symbols + symbol_count
    while codes + 4 <= codes_end and place + 4 * SYMBOL_BYTES <= limit:
        code0, code1 = np.int64(load_u8(codes)), np.int64(load_u8(codes + 1))
        code2, code3 = np.int64(load_u8(codes + 2)), np.int64(load_u8(codes + 3))
        if max(code0, code1, code2, code3) >= symbol_count:
            break
        store_u64(place, load_u64(texts + SYMBOL_BYTES * code0))
        place += np.int64(load_u8(symbols + code0))
        store_u64(place, load_u64(texts + SYMBOL_BYTES * code1))
        place += np.int64(load_u8(symbols + code1))
        store_u64(place, load_u64(texts + SYMBOL_BYTES * code2))
        place += np.int64(load_u8(symbols + code2))
        store_u64(place, load_u64(texts + SYMBOL_BYTES * code3))
        place += np.int64(load_u8(symbols + code3))
        codes += 4
    while codes < codes_end:
        code = np.int64(load_u8(codes))
        codes += 1
        if code < symbol_count:
            store_u64(place, load_u64(texts + SYMBOL_BYTES * code))
            place += np.int64(load_u8(symbols + code))
        elif code == ESCAPE and codes < codes_end:
            store_u8(place, load_u8(codes))
            codes += 1
            place += 1
        else:
            return np.int64(-1)
        if place > limit:
            return np.int64(-1)
    return place
