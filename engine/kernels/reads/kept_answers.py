"""Answers that are kept by the bytes of their questions, until what they say may have changed.

A table of sets and a ring. A set has WAYS slots, each the hash of a question and the position of an entry in the ring;
0 is empty. The ring has the entries one after the other: a new one overwrites the oldest. Positions count all bytes
that were ever written, so an entry is there while its position is at most a ring behind the head. Entries do not wrap.

::

    entry:  8 fields (u64) | question, padded to 8 bytes | answer, padded to 8 bytes

An answer was right at its moment, and is as long as each of its three sources, addresses of timestamps (uint64), has
one that is no later. Who asks is a number: others do not get its answers.

Any thread may call these, with and without the interpreter's lock. Who finds the lock of the answers taken does not
wait: there is no answer then, or it is not kept.
"""

import numpy as np

from ..ahead.kernel import inline, kernel, short_kernel
from ..keys.hashing import hash_string, hash_word
from ..simd.simd import copy_bytes, load_u64, release_lock, store_u64, take_lock, view_u8

MISSING = -1
"""There is no answer."""
NOT_KEPT = 0

# The fields (u64) of kept answers.
LOCK, IS_OPEN, SETS, SET_COUNT, RING, RING_BYTES, HEAD, HITS = range(8)
FIELDS = 8

WAYS = 4
SET_BYTES = WAYS * 16
ENTRY_BYTES = 64
_ASKER, _MOMENT, _FIRST, _SECOND, _THIRD, _ASKED, _ANSWERED = range(7)
_SHARE = 16
"""No entry takes more of the ring, as a divisor."""
_LAST = 0x7FFFFFFFFFFFFFFF


@kernel
def find_answer(answers: int, asker: int, question: int, length: int, target: int, room: int) -> int:
    """Copy the answer that is kept for a question to ``target``, where ``room`` bytes are; return its length, or
    MISSING if there is none that is right and fits."""
    if _field(answers, IS_OPEN) == 0 or not take_lock(answers):
        return np.int64(MISSING)
    size = np.int64(MISSING)
    hashed, place = _set_of(answers, asker, question, length)
    for way in range(WAYS):
        entry = _entry(answers, place + way * 16, hashed)
        if entry != 0 and _is_of(entry, asker, question, length):
            if _field(entry, _ANSWERED) <= room and _is_right(entry):
                size = _field(entry, _ANSWERED)
                copy_bytes(target, entry + ENTRY_BYTES + _padded(length), size)
                store_u64(answers + 8 * HITS, load_u64(answers + 8 * HITS) + np.uint64(1))
            break
    release_lock(answers)
    return size


@short_kernel
def keep_answer(answers: int, asker: int, moment: int, sources: int, texts: int) -> int:
    """Keep an answer; return its bytes in the ring, or NOT_KEPT.

    ``sources`` has the three addresses (int64) of timestamps; ``texts`` has the address and length (int64) of the
    question, and of the answer.
    """
    question, length = _field(texts, 0), _field(texts, 1)
    answer, answered = _field(texts, 2), _field(texts, 3)
    size, ring = ENTRY_BYTES + _padded(length) + _padded(answered), _field(answers, RING_BYTES)
    if size > ring // _SHARE or _field(answers, IS_OPEN) == 0 or not take_lock(answers):
        return np.int64(NOT_KEPT)
    head = _field(answers, HEAD)
    if head % ring + size > ring:
        head += ring - head % ring
    hashed, place = _set_of(answers, asker, question, length)
    slot = _slot_for(answers, place, hashed, asker, question, length)
    store_u64(answers + 8 * HEAD, np.uint64(head + size))
    entry = _field(answers, RING) + head % ring
    store_u64(entry + 8 * _ASKER, np.uint64(asker))
    store_u64(entry + 8 * _MOMENT, np.uint64(moment))
    copy_bytes(entry + 8 * _FIRST, sources, 24)
    store_u64(entry + 8 * _ASKED, np.uint64(length))
    store_u64(entry + 8 * _ANSWERED, np.uint64(answered))
    copy_bytes(entry + ENTRY_BYTES, question, length)
    copy_bytes(entry + ENTRY_BYTES + _padded(length), answer, answered)
    store_u64(slot, hashed)
    store_u64(slot + 8, np.uint64(head + 1))
    release_lock(answers)
    return size


@inline
def _slot_for(answers, place, hashed, asker, question, length):
    """Return the slot for an answer: that of an earlier one to the question, else the one with the oldest entry."""
    chosen, oldest = place, np.int64(_LAST)
    for way in range(WAYS):
        slot = place + way * 16
        entry = _entry(answers, slot, hashed)
        if entry != 0 and _is_of(entry, asker, question, length):
            return slot
        position = _field(slot, 1)
        if position < oldest:
            chosen, oldest = slot, position
    return chosen


@inline
def _field(address, number):
    return np.int64(load_u64(address + 8 * number))


@inline
def _padded(length):
    return (length + 7) & ~7


@inline
def _set_of(answers, asker, question, length):
    """Return the hash of a question, and the address of its set."""
    hashed = hash_word(hash_string(question, length) ^ np.uint64(asker))
    number = np.int64(((hashed >> np.uint64(32)) * np.uint64(_field(answers, SET_COUNT))) >> np.uint64(32))
    return hashed, _field(answers, SETS) + number * SET_BYTES


@inline
def _entry(answers, slot, hashed):
    """Return the address of the entry of a slot, 0 if it has none of this hash that is still there. A slot has its
    position + 1."""
    position, ring = _field(slot, 1) - 1, _field(answers, RING_BYTES)
    if position < 0 or load_u64(slot) != hashed or position < _field(answers, HEAD) - ring:
        return np.int64(0)
    return _field(answers, RING) + position % ring


@inline
def _is_of(entry, asker, question, length):
    if _field(entry, _ASKER) != asker or _field(entry, _ASKED) != length:
        return False
    kept, given = view_u8(entry + ENTRY_BYTES, length), view_u8(question, length)
    i = 0
    while i < length and kept[i] == given[i]:
        i += 1
    return i == length


@inline
def _is_right(entry):
    moment = load_u64(entry + 8 * _MOMENT)
    latest = max(load_u64(_field(entry, _FIRST)), load_u64(_field(entry, _SECOND)))
    return max(latest, load_u64(_field(entry, _THIRD))) <= moment
