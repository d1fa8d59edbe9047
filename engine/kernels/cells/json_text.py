"""JSON text (RFC 8259): its check, and the values at a path of it.

Texts lie end to end in ``data``; int32 ``offsets`` locate them. A ``stack`` of DEPTH_MAX bytes remembers the open
brackets. Places are addresses, -1 stands for text that is not JSON. No function reads beyond the end that it is given,
whatever the text.

An escaped character is a number: its code point, and above 32 bits the bytes that its escape takes.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..simd.simd import copy_bytes, load_u8, load_u64, store_u8, store_u64, view_i32, view_i64, view_u8

DEPTH_MAX = 512
"""Objects and arrays inside of each other, at most."""
WORK_BYTES = DEPTH_MAX + 32
"""A stack, and behind it the ends of a value, the end of the outermost object, and that of the innermost."""
STEP_FIELDS = 2
"""Numbers of a step of a path: the address of a key and its bytes, or the number of an item and -1."""

_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_ARRAY, _ARRAY_END, _OBJECT, _OBJECT_END = 0x5B, 0x5D, 0x7B, 0x7D
_MINUS, _PLUS, _POINT, _ZERO, _NINE = 0x2D, 0x2B, 0x2E, 0x30, 0x39
_B, _E, _F, _N, _R, _T, _U = 0x62, 0x65, 0x66, 0x6E, 0x72, 0x74, 0x75
_REPLACEMENT = 0xFFFD


@inline
def _is_digit(place, end):
    return place < end and load_u8(place) >= _ZERO and load_u8(place) <= _NINE


@inline
def _has(place, end, byte):
    return place < end and load_u8(place) == byte


@kernel
def _after_blanks(place, end):
    while place < end:
        byte = np.int64(load_u8(place))
        if byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09:
            break
        place += 1
    return place


@kernel
def _hex_of(place, end):
    """Return the number of four hexadecimal digits; -1 if there are other bytes."""
    if place + 4 > end:
        return np.int64(-1)
    number = np.int64(0)
    for i in range(4):
        byte = np.int64(load_u8(place + i))
        if byte >= _ZERO and byte <= _NINE:
            digit = byte - _ZERO
        elif (byte | 0x20) >= 0x61 and (byte | 0x20) <= 0x66:
            digit = (byte | 0x20) - 0x57
        else:
            return np.int64(-1)
        number = number * 16 + digit
    return number


@kernel
def _after_string(place, end):
    """Return the place after the string whose first character is at ``place``."""
    while place < end:
        byte = np.int64(load_u8(place))
        if byte == _QUOTE:
            return place + 1
        if byte < 0x20:
            return np.int64(-1)
        place += 1
        if byte == _BACKSLASH:
            if place >= end:
                return np.int64(-1)
            byte = np.int64(load_u8(place))
            place += 1
            if byte == _U:
                if _hex_of(place, end) < 0:
                    return np.int64(-1)
                place += 4
            elif byte not in (_QUOTE, _BACKSLASH, 0x2F, _B, _F, _N, _R, _T):
                return np.int64(-1)
    return np.int64(-1)


@kernel
def _after_digits(place, end):
    if not _is_digit(place, end):
        return np.int64(-1)
    while _is_digit(place, end):
        place += 1
    return place


@kernel
def _after_number(place, end):
    if _has(place, end, _MINUS):
        place += 1
    if _has(place, end, _ZERO):
        place += 1
    else:
        place = _after_digits(place, end)
    if place >= 0 and _has(place, end, _POINT):
        place = _after_digits(place + 1, end)
    if place >= 0 and (_has(place, end, _E) or _has(place, end, 0x45)):
        place += 1
        if _has(place, end, _MINUS) or _has(place, end, _PLUS):
            place += 1
        place = _after_digits(place, end)
    return place


@kernel
def _after_word(place, end):
    """Return the place after true, false or null."""
    first = np.int64(load_u8(place))
    if first == _T and _has(place + 1, end, _R) and _has(place + 2, end, _U) and _has(place + 3, end, _E):
        return place + 4
    if first == _N and _has(place + 1, end, _U) and _has(place + 2, end, 0x6C) and _has(place + 3, end, 0x6C):
        return place + 4
    if first == _F and _has(place + 1, end, 0x61) and _has(place + 2, end, 0x6C) and _has(place + 3, end, 0x73):
        return place + 5 if _has(place + 4, end, _E) else np.int64(-1)
    return np.int64(-1)


@kernel
def _after_key(place, end):
    """Return the place after the key of an object and its colon."""
    place = _after_blanks(place, end)
    if not _has(place, end, _QUOTE):
        return np.int64(-1)
    place = _after_string(place + 1, end)
    if place < 0:
        return place
    place = _after_blanks(place, end)
    return place + 1 if _has(place, end, _COLON) else np.int64(-1)


@kernel
def _after_plain(place, end):
    """Return the place after a string, a number or a word."""
    if _has(place, end, _QUOTE):
        return _after_string(place + 1, end)
    if _has(place, end, _MINUS) or _is_digit(place, end):
        return _after_number(place, end)
    return _after_word(place, end) if place < end else np.int64(-1)


@kernel
def _after_value(place, end, stack):
    """Return the place after the value at ``place``, before which there may be blanks."""
    depth = 0
    while True:
        place = _after_blanks(place, end)
        is_object = _has(place, end, _OBJECT)
        if is_object or _has(place, end, _ARRAY):
            if depth == DEPTH_MAX:
                return np.int64(-1)
            place = _after_blanks(place + 1, end)
            if _has(place, end, _OBJECT_END if is_object else _ARRAY_END):
                place += 1
            else:
                store_u8(stack + depth, np.uint8(is_object))
                depth += 1
                if is_object:
                    place = _after_key(place, end)
                    if place < 0:
                        return place
                continue
        else:
            place = _after_plain(place, end)
            if place < 0:
                return place
        while depth > 0:
            place = _after_blanks(place, end)
            is_object = load_u8(stack + depth - 1) != 0
            if _has(place, end, _COMMA):
                place += 1
                if is_object:
                    place = _after_key(place, end)
                    if place < 0:
                        return place
                break
            if not _has(place, end, _OBJECT_END if is_object else _ARRAY_END):
                return np.int64(-1)
            place += 1
            depth -= 1
        if depth == 0:
            return place


@kernel
def check_texts(data, offsets, count, stack, valid):
    """Write to ``valid`` (uint8) 1 for each text that is JSON, else 0; return how many are not."""
    ends, flags = view_i32(offsets, count + 1), view_u8(valid, count)
    wrong = 0
    for i in range(count):
        end = data + np.int64(ends[i + 1])
        after = _after_value(data + np.int64(ends[i]), end, stack)
        is_json = after >= 0 and _after_blanks(after, end) == end
        flags[i] = np.uint8(is_json)
        wrong += 1 - np.int64(is_json)
    return np.int64(wrong)


# Escaped characters


@kernel
def _character(place, end):
    """Return the character whose escape begins at ``place``; half of a surrogate pair is a replacement character."""
    byte = np.int64(load_u8(place + 1))
    if byte != _U:
        code = byte
        if byte == _B:
            code = np.int64(0x08)
        elif byte == _F:
            code = np.int64(0x0C)
        elif byte == _N:
            code = np.int64(0x0A)
        elif byte == _R:
            code = np.int64(0x0D)
        elif byte == _T:
            code = np.int64(0x09)
        return code | (np.int64(2) << 32)
    code = _hex_of(place + 2, end)
    if code < 0xD800 or code > 0xDFFF:
        return code | (np.int64(6) << 32)
    if code < 0xDC00 and _has(place + 6, end, _BACKSLASH) and _has(place + 7, end, _U):
        low = _hex_of(place + 8, end)
        if low >= 0xDC00 and low <= 0xDFFF:
            return (0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)) | (np.int64(12) << 32)
    return np.int64(_REPLACEMENT) | (np.int64(6) << 32)


@kernel
def _size_of(code):
    return np.int64(1) + (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)


@kernel
def _byte_of(code, size, i):
    """Return byte i of the UTF-8 of a code point that has ``size`` bytes."""
    bits = code >> (6 * (size - 1 - i))
    if size == 1:
        return bits
    if i > 0:
        return (bits & 0x3F) | 0x80
    return bits | (0xF0 if size == 4 else 0xE0 if size == 3 else 0xC0)


@kernel
def _is_key(place, end, key, length):
    """Whether the string whose first character is at ``place``, and which ends, is a key of ``length`` bytes."""
    at = 0
    while load_u8(place) != _QUOTE:
        if load_u8(place) != _BACKSLASH:
            if at >= length or load_u8(place) != load_u8(key + at):
                return False
            place += 1
            at += 1
            continue
        character = _character(place, end)
        code = character & 0xFFFFFFFF
        size = _size_of(code)
        if at + size > length:
            return False
        for i in range(size):
            if np.int64(load_u8(key + at + i)) != _byte_of(code, size, i):
                return False
        place += character >> 32
        at += size
    return at == length


# Values at a path


@kernel
def _find_member(place, end, key, length, stack, span, closed):
    """Write the ends of the value of a key to ``span``, of the last if there are several, and the end of the object to
    ``closed``. Return 1, or 0 if there is none, or -1."""
    if not _has(place, end, _OBJECT):
        return np.int64(0)
    place = _after_blanks(place + 1, end)
    if _has(place, end, _OBJECT_END):
        store_u64(closed, np.uint64(place + 1))
        return np.int64(0)
    there = np.int64(0)
    while True:
        first = place + 1
        place = _after_key(place, end)
        if place < 0:
            return np.int64(-1)
        place = _after_blanks(place, end)
        after = _after_value(place, end, stack)
        if after < 0:
            return np.int64(-1)
        if _is_key(first, end, key, length):
            store_u64(span, np.uint64(place))
            store_u64(span + 8, np.uint64(after))
            there = np.int64(1)
        place = _after_blanks(after, end)
        if not _has(place, end, _COMMA):
            store_u64(closed, np.uint64(place + 1))
            return there if _has(place, end, _OBJECT_END) else np.int64(-1)
        place = _after_blanks(place + 1, end)


@kernel
def _find_item(place, end, number, stack, span):
    """Write the ends of an item of an array to ``span``, return as ``_find_member``. With a ``number`` below 0 return
    how many items there are."""
    if not _has(place, end, _ARRAY):
        return np.int64(0)
    place = _after_blanks(place + 1, end)
    if _has(place, end, _ARRAY_END):
        return np.int64(0)
    at = np.int64(0)
    while True:
        place = _after_blanks(place, end)
        after = _after_value(place, end, stack)
        if after < 0:
            return np.int64(-1)
        if at == number:
            store_u64(span, np.uint64(place))
            store_u64(span + 8, np.uint64(after))
            return np.int64(1)
        at += 1
        place = _after_blanks(after, end)
        if not _has(place, end, _COMMA):
            if not _has(place, end, _ARRAY_END):
                return np.int64(-1)
            return at if number < 0 else np.int64(0)
        place += 1


@kernel
def _find(place, end, steps, step_count, stack, span):
    """Write the ends of the value at a path to ``span``. Return 1, or 0 if there is none, or -1."""
    table = view_i64(steps, STEP_FIELDS * step_count)
    store_u64(span, np.uint64(place))
    store_u64(span + 8, np.uint64(end))
    for step in range(step_count):
        place, end = np.int64(load_u64(span)), np.int64(load_u64(span + 8))
        key, length = table[STEP_FIELDS * step], table[STEP_FIELDS * step + 1]
        if length >= 0:
            there = _find_member(place, end, key, length, stack, span, span + (16 if step == 0 else 24))
        else:
            number = key
            if number < 0:  # from the end
                items = _find_item(place, end, np.int64(-1), stack, span)
                if items < 0:
                    return np.int64(-1)
                number += items
            there = _find_item(place, end, number, stack, span) if number >= 0 else np.int64(0)
        if there != 1:
            return there
    return np.int64(1)


@kernel
def find_values(data, offsets, count, valid, steps, step_count, work, starts, lengths):
    """Write where the value at a path of each JSON text lies after ``data``, and its bytes, -1 if the text has none
    there or is NULL. Return the number of the first text that is not JSON, ``count`` if all are.

    ``valid`` is 0, or a byte for each text; ``work`` has WORK_BYTES.
    """
    ends, places, sizes = view_i32(offsets, count + 1), view_i64(starts, count), view_i64(lengths, count)
    span = work + DEPTH_MAX
    begins_with_key = step_count > 0 and view_i64(steps, STEP_FIELDS)[1] >= 0
    for i in range(count):
        places[i], sizes[i] = 0, -1
        if valid != 0 and load_u8(valid + i) == 0:
            continue
        end = data + np.int64(ends[i + 1])
        place = _after_blanks(data + np.int64(ends[i]), end)
        is_walked = begins_with_key and _has(place, end, _OBJECT)  # the first step reads it all
        after = end if is_walked else _after_value(place, end, work)
        there = _find(place, after, steps, step_count, work, span) if after >= 0 else np.int64(-1)
        if is_walked:
            after = np.int64(load_u64(span + 16))
        if there < 0 or _after_blanks(after, end) != end:
            return np.int64(i)
        if there == 1:
            places[i] = np.int64(load_u64(span)) - data
            sizes[i] = np.int64(load_u64(span + 8)) - np.int64(load_u64(span))
    return np.int64(count)


@kernel
def _write_string(place, end, target):
    """Write the characters of the string whose first one is at ``place``, and which ends; return how many bytes."""
    written = target
    while load_u8(place) != _QUOTE:
        if load_u8(place) != _BACKSLASH:
            store_u8(written, load_u8(place))
            place += 1
            written += 1
            continue
        character = _character(place, end)
        code = character & 0xFFFFFFFF
        size = _size_of(code)
        for i in range(size):
            store_u8(written + i, np.uint8(_byte_of(code, size, i)))
        place += character >> 32
        written += size
    return written - target


@kernel
def write_texts(data, starts, lengths, count, is_text, offsets, target):
    """Write values of JSON texts end to end: their JSON, or with ``is_text`` the characters of strings, which are never
    longer; then the length of a null becomes -1."""
    places, sizes, ends = view_i64(starts, count), view_i64(lengths, count), view_i32(offsets, count + 1)
    size = np.int64(0)
    ends[0] = np.int32(0)
    for i in range(count):
        if sizes[i] >= 0:
            place = data + places[i]
            if is_text != 0 and load_u8(place) == _QUOTE:
                size += _write_string(place + 1, place + sizes[i], target + size)
            elif is_text != 0 and load_u8(place) == _N:
                sizes[i] = -1
            else:
                copy_bytes(target + size, place, sizes[i])
                size += sizes[i]
        ends[i + 1] = np.int32(size)
