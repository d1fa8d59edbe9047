"""The bytes of a slot: what one object of the log says.  All numbers are little-endian.

    header, 152 bytes, followed by the manifest's name, zeroes up to a multiple of 8, and the payload
      0  magic           8s   "NYALASLT"
      8  version         u2   1, or 2 if chunks have the payload
     10  kind            u2   1 claim, 2 records, 3 beat, 4 release
     12  record count    u4
     16  store           16s  uuid of the store
     32  holder          16s  uuid of the process that has the store, another one at each start
     48  nonce           16s  of a claim: another one at each attempt; else zeroes
     64  slot            u8   its number, also its name
     72  epoch           u8   the slot of the claim in force; a claim's own number
     80  reign           u4   how many claims came before this epoch, and its own
     84  previous crc    u4   crc of the slot before; 0 in slot 1
     88  first lsn       u8   of its records, or of the next one to come
     96  safe            u8   every commit up to this timestamp is in this slot or an earlier one
    104  ceiling         u8   the holder gives out no timestamp above this before its next slot; in a release, ``safe``
    112  needed slot     u8   the store needs the log from this slot on,
    120  needed lsn      u8   and of it the records from this one on
    128  payload bytes   u8
    136  manifest crc    u4   of the manifest's content
    140  name bytes      u2   of the manifest's name; 0: there is no manifest yet
    142  chunk count     u2   0 in version 1
    144  payload crc     u4
    148  crc             u4   of bytes 0..147 and of the name with its zeroes: what the next slot links to

The payload of a slot of records is that of a group (``wal/format.py``); that of a claim is a JSON object that tells
others about the holder; others have none. A large one is not in the slot, but in chunks (``chunk``), and their table
stands in its place. Then the slot has a nonce, too, which is in their names.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ....schemas.errors import CorruptionError
from ...codecs.checksum import crc32
from ..format import EncodedRecord, GroupHeader, MalformedError
from ..records import LogRecords, decode_records
from .chunk import PayloadChunk, chunk_name, decode_table, encode_table

VERSION = 1
VERSION_WITH_CHUNKS = 2
MAGIC = b"NYALASLT"
NO_NONCE = bytes(16)
NO_EPOCH = 0
"""No claim made the slots of a copy that nobody has opened."""

_HEADER = struct.Struct("<8sHHI16s16s16sQQIIQQQQQQIHHII")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size


class SlotKind(IntEnum):
    """The kind of a slot. The numbers are on disk: never reuse one."""

    CLAIM = 1
    RECORDS = 2
    BEAT = 3
    RELEASE = 4


@dataclass(frozen=True, slots=True)
class SlotHeader:
    """The header of a slot of the log: see the module's text."""

    kind: SlotKind
    count: int
    store_uuid: bytes
    holder: bytes
    nonce: bytes
    number: int
    epoch: int
    reign: int
    previous_crc: int
    first_lsn: int
    safe: int
    ceiling: int
    needed_slot: int
    needed_lsn: int
    manifest: str
    manifest_crc: int

    @property
    def next_lsn(self) -> int:
        return self.first_lsn + self.count

    @property
    def makers(self) -> dict[int, str]:
        """Who makes files in its reign, as a manifest notes it; nobody in a copy that nobody has opened."""
        return {self.reign: self.holder.hex()} if self.epoch != NO_EPOCH else {}


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot as it stands in the log. ``crc`` is what the next one links to. If it has ``chunks``, its payload is empty
    until it is fetched (``payload.whole``)."""

    header: SlotHeader
    crc: int
    payload: memoryview
    size_bytes: int
    """Of its object, and of its chunks."""
    chunks: tuple[PayloadChunk, ...] = ()

    def chunk_name(self, index: int) -> str:
        """Return the name of one of its chunks."""
        return chunk_name(self.header.reign, self.header.nonce, index)

    @property
    def chunk_names(self) -> list[str]:
        return list(map(self.chunk_name, range(len(self.chunks))))

    def records(self) -> LogRecords:
        """Decode the records. Raises CorruptionError if they do not fill the payload."""
        header = self.header
        assert self.payload or not self.chunks, "the payload is fetched first"
        payload = self.payload if header.count else memoryview(b"")
        group = GroupHeader(len(payload), header.count, header.first_lsn, 0, 0, self.crc)
        try:
            return decode_records(payload, group)
        except MalformedError as bad:
            raise CorruptionError(path_of(header.number), HEADER_BYTES, bad.why) from None


def path_of(number: int) -> str:
    """Return what messages call a slot."""
    return f"log/{number:020d}"


def encode_slot(
    header: SlotHeader, payload: Sequence[bytes | memoryview], chunks: Sequence[PayloadChunk] = ()
) -> tuple[bytes, int]:
    """Return the bytes of a slot, whose payload comes in pieces or is in chunks, and the crc that the next one links
    to."""
    if chunks:
        payload = [encode_table(chunks)]
    name = header.manifest.encode()
    padded = name + bytes(-len(name) % 8)
    payload_crc = 0
    for piece in payload:
        payload_crc = crc32(piece, payload_crc)
    start = _HEADER.pack(
        MAGIC,
        VERSION_WITH_CHUNKS if chunks else VERSION,
        header.kind,
        header.count,
        header.store_uuid,
        header.holder,
        header.nonce,
        header.number,
        header.epoch,
        header.reign,
        header.previous_crc,
        header.first_lsn,
        header.safe,
        header.ceiling,
        header.needed_slot,
        header.needed_lsn,
        sum(map(len, payload)),
        header.manifest_crc,
        len(name),
        len(chunks),
        payload_crc,
        0,
    )[: -_CRC.size]
    crc = zlib.crc32(padded, zlib.crc32(start))
    return b"".join([start, _CRC.pack(crc), padded, *payload]), crc


def payload_of(records: Sequence[EncodedRecord]) -> list[bytes | memoryview]:
    """Return the pieces of the payload of a slot with records."""
    return [piece for record in records for piece in record.pieces]


def has_chunks(content: bytes) -> bool:
    """Whether a slot says that chunks have its payload."""
    return content[len(MAGIC) : len(MAGIC) + 2] == VERSION_WITH_CHUNKS.to_bytes(2, "little")


def decode_slot(number: int, content: bytes) -> Slot:
    """Return what the slot of this number holds. Raises CorruptionError if these are not its bytes."""
    path = path_of(number)
    if len(content) < HEADER_BYTES:
        raise CorruptionError(path, len(content), f"a slot must have at least {HEADER_BYTES} bytes")
    magic, version, kind, count, *rest, name_bytes, chunk_count, payload_crc, crc = _HEADER.unpack_from(content)
    store, holder, nonce, slot, epoch, reign, previous_crc, first_lsn, safe, ceiling, *rest = rest
    needed_slot, needed_lsn, payload_bytes, manifest_crc = rest
    if magic != MAGIC:
        raise CorruptionError(path, 0, "this is not a slot of a log")
    payload_start = HEADER_BYTES + name_bytes + -name_bytes % 8
    padded = content[HEADER_BYTES:payload_start]
    if crc != zlib.crc32(padded, zlib.crc32(content[: HEADER_BYTES - _CRC.size])):
        raise CorruptionError(path, 0, "the checksum of the slot's header is wrong")
    is_known = version == (VERSION_WITH_CHUNKS if chunk_count else VERSION)
    if not is_known or kind not in SlotKind._value2member_map_:
        raise CorruptionError(path, 8, f"this build cannot read a slot of version {version} and kind {kind}")
    if slot != number:
        raise CorruptionError(path, 64, f"this object has the name of another slot: it is slot {slot}")
    payload = memoryview(content)[payload_start:]
    if len(payload) != payload_bytes or crc32(payload) != payload_crc:
        raise CorruptionError(path, payload_start, "the checksum of the slot's payload is wrong")
    chunks = decode_table(payload, chunk_count) if chunk_count else ()
    if chunks is None or (chunks and kind != SlotKind.RECORDS):
        raise CorruptionError(path, payload_start, f"the slot has no table of its {chunk_count} chunks of records")
    header = SlotHeader(
        SlotKind(kind),
        count,
        store,
        holder,
        nonce,
        slot,
        epoch,
        reign,
        previous_crc,
        first_lsn,
        safe,
        ceiling,
        needed_slot,
        needed_lsn,
        padded[:name_bytes].decode(),
        manifest_crc,
    )
    if chunks:
        return Slot(header, crc, payload[:0], len(content) + sum(chunk.size_bytes for chunk in chunks), chunks)
    return Slot(header, crc, payload, len(content))
