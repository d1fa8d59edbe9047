"""The bytes of the log.  All numbers are little-endian; everything begins at a multiple of 8.

A segment is one file of a fixed, preallocated size::

    +----------------+-------+-------+-----+-----------------------------+
    | segment header | group | group | ... | zeroes to the file's end    |
    +----------------+-------+-------+-----+-----------------------------+

    segment header, 64 bytes
     0  magic           8s   "NYALAWAL"
     8  version         u2   1
    10  flags           u2   bit 0: the tail of the previous segment was cut
    12  previous crc    u4   crc of the last group before this segment, 0 if there is none
    16  store           16s  uuid of the store
    32  number          u8   of the segment, also its file's name
    40  first lsn       u8   of the first record in this segment, or to come
    48  size            u8   of the file
    56  zero            u4
    60  crc             u4   of bytes 0..59

    group header, 40 bytes, followed by the payload
     0  magic           4s   "NGRP"
     4  kind            u2   1: records
     6  zero            u2
     8  payload bytes   u8   a multiple of 8
    16  record count    u4   at least 1
    20  previous crc    u4   crc field of the group before, in this or an earlier segment
    24  first lsn       u8   the others follow without a gap
    32  payload crc     u4
    36  crc             u4   of bytes 0..35, hence also of the payload: it is what the next group links to

    payload: for each record
     0  length          u8
     8  timestamp       u8
    16  bytes           length of them, then zeroes up to a multiple of 8

Both checksums of a group start from a seed made of (store, segment number, offset), so that a group which is sound but
in the wrong place, or of another store, fails.  The reasons, and what a reader concludes from what it finds, stand in
``docs/format/wal.md``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..codecs.checksum import crc32

VERSION = 1
ALIGNMENT = 8
KIND_RECORDS = 1

SEGMENT_MAGIC = b"NYALAWAL"
GROUP_MAGIC = b"NGRP"
FLAG_PREVIOUS_TAIL_CUT = 1

_SEGMENT = struct.Struct("<8sHHI16sQQQII")
_GROUP = struct.Struct("<4sHHQIIQII")
_RECORD = struct.Struct("<QQ")
_JOINED_BYTES = 16 << 10
"""A group of so few bytes is copied: that takes less than to check and write its pieces one by one."""
_CRC = struct.Struct("<I")
_SEED = struct.Struct("<16sQ")
_OFFSET = struct.Struct("<Q")

SEGMENT_HEADER_BYTES = _SEGMENT.size
GROUP_HEADER_BYTES = _GROUP.size
_PADDING = [bytes(-length % ALIGNMENT) for length in range(ALIGNMENT)]


class MalformedError(Exception):
    """Bytes of the log that are not what they should be. Whether that is a torn write or corruption, the reader
    decides.

    ``extent`` is how many bytes are known to belong to the bad thing.
    """

    def __init__(self, why: str, extent: int = ALIGNMENT) -> None:
        super().__init__(why)
        self.why = why
        self.extent = extent


class EncodedRecord(NamedTuple):
    """A record of the log as it will stand in a payload, in pieces of ``extent`` bytes in all."""

    pieces: list[bytes | memoryview]
    extent: int

    @property
    def footprint(self) -> int:
        """The most space that the record takes on the disk: in a group of its own."""
        return GROUP_HEADER_BYTES + self.extent


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    store_uuid: bytes
    number: int
    first_lsn: int
    previous_crc: int
    size: int
    previous_tail_cut: bool

    def encode(self) -> bytes:
        flags = FLAG_PREVIOUS_TAIL_CUT if self.previous_tail_cut else 0
        header = _SEGMENT.pack(
            SEGMENT_MAGIC,
            VERSION,
            flags,
            self.previous_crc,
            self.store_uuid,
            self.number,
            self.first_lsn,
            self.size,
            0,
            0,
        )
        return header[: -_CRC.size] + _CRC.pack(zlib.crc32(header[: -_CRC.size]))

    @classmethod
    def decode(cls, header: bytes) -> SegmentHeader:
        """Raises MalformedError.  The crc stands in the same place in every version to come."""
        if len(header) < SEGMENT_HEADER_BYTES:
            raise MalformedError(f"a segment header must have {SEGMENT_HEADER_BYTES} bytes, not {len(header)}")
        magic, version, flags, previous_crc, store, number, first_lsn, size, _, crc = _SEGMENT.unpack(header)
        if magic != SEGMENT_MAGIC:
            raise MalformedError("no segment header begins here")
        if crc != zlib.crc32(header[: -_CRC.size]):
            raise MalformedError("the checksum of the segment header is wrong")
        if version != VERSION or flags & ~FLAG_PREVIOUS_TAIL_CUT:
            raise MalformedError(f"this build cannot read a log of version {version} with flags {flags:#x}")
        return cls(store, number, first_lsn, previous_crc, size, bool(flags & FLAG_PREVIOUS_TAIL_CUT))


@dataclass(frozen=True, slots=True)
class GroupHeader:
    payload_bytes: int
    record_count: int
    first_lsn: int
    previous_crc: int
    payload_crc: int
    crc: int

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.record_count - 1

    @property
    def extent(self) -> int:
        """Bytes from the group's first to the next group's first."""
        return GROUP_HEADER_BYTES + self.payload_bytes


def footprint(length: int) -> int:
    """Return the most space that a record of ``length`` bytes takes in the log: in a group of its own."""
    return GROUP_HEADER_BYTES + record_extent(length)


def record_extent(length: int) -> int:
    """Return the space that a record of ``length`` bytes takes in the payload of the log's group."""
    return _RECORD.size + length + -length % ALIGNMENT


def seed_of(store_uuid: bytes, number: int, offset: int) -> int:
    """Return where the checksums of the log's group at ``offset`` of segment ``number`` start."""
    return seed_at(seed_of_segment(store_uuid, number), offset)


def seed_of_segment(store_uuid: bytes, number: int) -> int:
    """Return what the seeds of all groups of a segment of the log continue."""
    return zlib.crc32(_SEED.pack(store_uuid, number))


def seed_at(seed_of_segment: int, offset: int) -> int:
    """Return the seed of the group at ``offset`` of a segment of the log."""
    return zlib.crc32(_OFFSET.pack(offset), seed_of_segment)


def encode_record(timestamp: int, payload: Sequence[bytes | memoryview]) -> EncodedRecord:
    """Return a record of the log without a copy of its payload; struct.error if the timestamp is not an unsigned 64-bit
    number."""
    length = sum(map(len, payload))
    header = _RECORD.pack(length, timestamp)
    return EncodedRecord([header, *payload, _PADDING[length % ALIGNMENT]], record_extent(length))


def timestamp_of_record(record: EncodedRecord) -> int:
    return _RECORD.unpack(record.pieces[0])[1]


def encode_group(
    records: Sequence[EncodedRecord], seed: int, first_lsn: int, previous_crc: int
) -> tuple[list[bytes | memoryview], int]:
    """Return a group of the log as pieces to be written one after the other, and the crc that the next one links to."""
    pieces: list[bytes | memoryview] = [piece for record in records for piece in record.pieces]
    payload_bytes = sum([record.extent for record in records])
    if payload_bytes <= _JOINED_BYTES:
        pieces = [b"".join(pieces)]
    payload_crc = seed
    for piece in pieces:
        payload_crc = crc32(piece, payload_crc)
    fields = (GROUP_MAGIC, KIND_RECORDS, 0, payload_bytes, len(records), previous_crc, first_lsn, payload_crc)
    header = _GROUP.pack(*fields, 0)[: -_CRC.size]
    crc = zlib.crc32(header, seed)
    pieces = [header, _CRC.pack(crc), *pieces]
    return ([b"".join(pieces)] if payload_bytes <= _JOINED_BYTES else pieces), crc


def decode_group_header(view: memoryview, offset: int, seed: int) -> GroupHeader:
    """Return the header of the group at ``offset`` of a segment of the log; raises MalformedError if there is no sound
    one."""
    if offset + GROUP_HEADER_BYTES > len(view):
        raise MalformedError("the segment ends within a group header")
    magic, kind, zero, payload_bytes, count, previous_crc, first_lsn, payload_crc, crc = _GROUP.unpack_from(
        view, offset
    )
    if magic != GROUP_MAGIC:
        raise MalformedError("no group begins here")
    if crc != zlib.crc32(view[offset : offset + GROUP_HEADER_BYTES - _CRC.size], seed):
        raise MalformedError("the checksum of the group header is wrong")
    if kind != KIND_RECORDS or zero or not count or payload_bytes % ALIGNMENT:
        raise MalformedError(
            f"this build cannot read a group of kind {kind} with {count} records in {payload_bytes} bytes"
        )
    return GroupHeader(payload_bytes, count, first_lsn, previous_crc, payload_crc, crc)


def decode_payload(view: memoryview, offset: int, header: GroupHeader, seed: int) -> memoryview:
    """Return the payload of the log's group at ``offset``, checked; raises MalformedError."""
    payload = view[offset + GROUP_HEADER_BYTES : offset + header.extent]
    if len(payload) < header.payload_bytes:
        raise MalformedError(f"a group of {header.extent} bytes extends past the segment's end", header.extent)
    if crc32(payload, seed) != header.payload_crc:
        raise MalformedError("the checksum of the group's payload is wrong", header.extent)
    return payload
