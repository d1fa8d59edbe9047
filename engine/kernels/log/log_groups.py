"""Walk the groups of a segment of the log, and the records of a group (the layout stands in `wal/format.py`).

A record is named by three int64 in three arrays: its timestamp, the address of its payload, the length of that.
"""

import numpy as np

from ..ahead.kernel import inline, kernel
from ..pages.crc32 import CRC_SCRATCH_BYTES, crc32_at
from ..simd.simd import load_u16, load_u32, load_u64, store_u64, view_i64

GROUP_HEADER_BYTES = 40
_MAGIC = np.uint32(0x5052474E)
"""``NGRP``"""
_KIND_RECORDS = 1
_CRC_AT = 36
_RECORD_HEADER_BYTES = 16

SCRATCH_BYTES = 8 + CRC_SCRATCH_BYTES

# The state of a walk: int64 fields. What is to be read, and how far it has come.
SEGMENT, SIZE = 0, 1
PLACE = 2  # where the next group starts
SEED = 3  # the crc of the store's uuid and the segment's number: with the place, where the checksums of a group start
NEXT_LSN, CRC = 4, 5  # what the next group links to
UNTIL = 6  # no group is read that starts here or later
RECORDS = 7  # how many there are so far
STATE_FIELDS = 8


@inline
def _aligned(size):
    return (size + 7) & ~np.int64(7)


@kernel
def read_records(payload, size, count, timestamps, addresses, lengths):
    """Write what the checked payload of a log's group, of ``count`` records, holds; return 0, -1 - i if record i passes
    its end, -1 - count if bytes follow the last one."""
    stamps = view_i64(timestamps, count)
    starts = view_i64(addresses, count)
    sizes = view_i64(lengths, count)
    place = np.int64(0)
    for i in range(count):
        if place + _RECORD_HEADER_BYTES > size:
            return -1 - i
        length = np.int64(load_u64(payload + place))
        stamps[i] = np.int64(load_u64(payload + place + 8))
        place += _RECORD_HEADER_BYTES
        if length < 0 or length > size - place:
            return -1 - i
        starts[i] = payload + place
        sizes[i] = length
        place += _aligned(length)
        if place > size:
            return -1 - i
    return np.int64(0) if place == size else np.int64(-1 - count)


@kernel
def read_groups(state, groups, group_count, timestamps, addresses, lengths, record_count, scratch):
    """Read groups of a log's segment as long as they are sound, follow each other, and fit; return how many.

    ``groups`` (int64, ``group_count`` places) gets where each starts; the other arrays are those of records, with
    ``record_count`` places. ``scratch`` are SCRATCH_BYTES of
    memory. ``state`` says what to read, and then where it ended: why is left to the caller.
    """
    now = view_i64(state, STATE_FIELDS)
    places = view_i64(groups, group_count)
    read = np.int64(0)
    while read < group_count and now[PLACE] < now[UNTIL]:
        place = now[PLACE]
        header = now[SEGMENT] + place
        if place + GROUP_HEADER_BYTES > now[SIZE] or load_u32(header) != _MAGIC:
            break
        payload_bytes = np.int64(load_u64(header + 8))
        count = np.int64(load_u32(header + 16))
        if load_u16(header + 4) != _KIND_RECORDS or load_u16(header + 6) != 0 or count == 0 or payload_bytes & 7:
            break
        if np.int64(load_u32(header + 20)) != now[CRC] or np.int64(load_u64(header + 24)) != now[NEXT_LSN]:
            break
        if payload_bytes < 0 or payload_bytes > now[SIZE] - place - GROUP_HEADER_BYTES:
            break
        if count > record_count - now[RECORDS]:
            break
        store_u64(scratch, np.uint64(place))
        seed = crc32_at(scratch, 8, now[SEED], scratch + 8)
        crc = np.int64(load_u32(header + _CRC_AT))
        payload = header + GROUP_HEADER_BYTES
        if crc32_at(header, _CRC_AT, seed, scratch + 8) != crc:
            break
        if crc32_at(payload, payload_bytes, seed, scratch + 8) != np.int64(load_u32(header + 32)):
            break
        done = 8 * now[RECORDS]
        if read_records(payload, payload_bytes, count, timestamps + done, addresses + done, lengths + done) != 0:
            break
        places[read] = place
        now[PLACE] = place + GROUP_HEADER_BYTES + payload_bytes
        now[NEXT_LSN] += count
        now[CRC] = crc
        now[RECORDS] += count
        read += 1
    return read
