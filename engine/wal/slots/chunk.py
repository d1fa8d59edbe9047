"""Chunks: objects that have the payload of a slot, where it is too much to be put with the slot.

They are put before the slot, which names them: so a slot is small, and arrives well within the time of a lease. Their
names have the reign, so that a sweep knows those that nobody can come to name, and a nonce that the slot has, too. Who
puts the payload of a slot again, since another process had that number, or the bucket was put back to an earlier state,
has another nonce: no chunk is ever replaced, or taken for another's.

    table, 16 bytes for each chunk, in place of the payload
      0  bytes           u8   in the chunk, at least 1
      8  crc             u4   of its bytes
     12  zero            u4
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

_ENTRY = struct.Struct("<QII")
ENTRY_BYTES = _ENTRY.size


@dataclass(frozen=True, slots=True)
class PayloadChunk:
    """One chunk of a slot's payload."""

    size_bytes: int
    crc: int


def chunk_name(reign: int, nonce: bytes, index: int) -> str:
    """Return the name of a chunk of a slot's payload, the first of which has the index 0."""
    return f"{reign}-{nonce.hex()}-{index}"


def reign_of_chunk(name: str) -> int:
    """Return the reign in which a chunk of a slot's payload was put; a large number if the name is of none."""
    reign = name.partition("-")[0]
    return int(reign) if reign.isdigit() else 1 << 63


def encode_table(chunks: Iterable[PayloadChunk]) -> bytes:
    """Return the table of a slot: the chunks of its payload."""
    return b"".join(_ENTRY.pack(chunk.size_bytes, chunk.crc, 0) for chunk in chunks)


def decode_table(table: memoryview, count: int) -> tuple[PayloadChunk, ...] | None:
    """Return the chunks in the table of a slot; None if it has not so many, or is none."""
    if len(table) != count * ENTRY_BYTES:
        return None
    entries = list(_ENTRY.iter_unpack(table))
    if any(zero or not size for size, _, zero in entries):
        return None
    return tuple(PayloadChunk(size, crc) for size, crc, _ in entries)
