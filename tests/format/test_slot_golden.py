"""The bytes of a slot, pinned: a change that moves one of them is a new format version."""

import pytest

from nyala.engine.wal.format import encode_record
from nyala.engine.wal.slots.chunk import PayloadChunk
from nyala.engine.wal.slots.slot import NO_EPOCH, NO_NONCE, SlotHeader, SlotKind, decode_slot, encode_slot, payload_of

STORE, HOLDER, NONCE = bytes(range(16)), bytes(range(16, 32)), bytes(range(32, 48))
CLAIM = SlotHeader(SlotKind.CLAIM, 0, STORE, HOLDER, NONCE, 7, 7, 2, 0x11, 42, 0x1000, 0x3000, 5, 40, "", 0)
RECORDS = SlotHeader(
    SlotKind.RECORDS, 2, STORE, HOLDER, NO_NONCE, 8, 7, 2, 0x22, 42, 0x2000, 0x4000, 8, 42, "manifests/2-1", 0x33
)
COPY = SlotHeader(
    SlotKind.RECORDS, 2, STORE, HOLDER, NO_NONCE, 3, NO_EPOCH, 2, 0, 42, 0x2000, 0x4000, 3, 42, "2-1", 0x33
)
RELEASE = SlotHeader(
    SlotKind.RELEASE, 0, STORE, HOLDER, NO_NONCE, 4, NO_EPOCH, 2, 0xEF08A2E9, 44, 0x4000, 0x4000, 3, 42, "2-1", 0x33
)
"""The slots of a copy that nobody has opened."""
APART = SlotHeader(SlotKind.RECORDS, 2, STORE, HOLDER, NONCE, 9, 7, 2, 0x44, 42, 0x2000, 0x4000, 8, 42, "2-1", 0x33)
CHUNKS = (PayloadChunk(0x800000, 0x55), PayloadChunk(0x28, 0x66))
"""A slot whose payload is in chunks."""

CLAIM_BYTES = """
     0 magic                    4e59414c41534c54
     8 version, kind, count     0100 0100 00000000
    16 store                    000102030405060708090a0b0c0d0e0f
    32 holder                   101112131415161718191a1b1c1d1e1f
    48 nonce                    202122232425262728292a2b2c2d2e2f
    64 slot, epoch              0700000000000000 0700000000000000
    80 reign, previous crc      02000000 11000000
    88 first lsn, safe          2a00000000000000 0010000000000000
   104 ceiling                  0030000000000000
   112 needed slot, needed lsn  0500000000000000 2800000000000000
   128 payload bytes            0e00000000000000
   136 manifest crc             00000000
   140 name bytes, zero         0000 0000
   144 payload crc, crc         71349057 400e5f03
   152 payload                  7b226174223a2022686f7374227d
"""
RECORDS_BYTES = """
     0 magic                    4e59414c41534c54
     8 version, kind, count     0100 0200 02000000
    16 store                    000102030405060708090a0b0c0d0e0f
    32 holder                   101112131415161718191a1b1c1d1e1f
    48 nonce                    00000000000000000000000000000000
    64 slot, epoch              0800000000000000 0700000000000000
    80 reign, previous crc      02000000 22000000
    88 first lsn, safe          2a00000000000000 0020000000000000
   104 ceiling                  0040000000000000
   112 needed slot, needed lsn  0800000000000000 2a00000000000000
   128 payload bytes            3000000000000000
   136 manifest crc             33000000
   140 name bytes, zero         0d00 0000
   144 payload crc, crc         01931465 5d53ddf5
   152 manifest's name          6d616e6966657374732f322d31000000
   168 length, timestamp        0300000000000000 0011000000000000
   184 bytes, zeroes            6162630000000000
   192 length, timestamp        0800000000000000 0012000000000000
   208 bytes                    6465666768696a6b
"""
COPY_BYTES = """
     0 magic                    4e59414c41534c54
     8 version, kind, count     0100 0200 02000000
    16 store                    000102030405060708090a0b0c0d0e0f
    32 holder                   101112131415161718191a1b1c1d1e1f
    48 nonce                    00000000000000000000000000000000
    64 slot, epoch              0300000000000000 0000000000000000
    80 reign, previous crc      02000000 00000000
    88 first lsn, safe          2a00000000000000 0020000000000000
   104 ceiling                  0040000000000000
   112 needed slot, needed lsn  0300000000000000 2a00000000000000
   128 payload bytes            3000000000000000
   136 manifest crc             33000000
   140 name bytes, zero         0300 0000
   144 payload crc, crc         01931465 e9a208ef
   152 manifest's name          322d310000000000
   160 length, timestamp        0300000000000000 0011000000000000
   176 bytes, zeroes            6162630000000000
   184 length, timestamp        0800000000000000 0012000000000000
   200 bytes                    6465666768696a6b
"""
RELEASE_BYTES = """
     0 magic                    4e59414c41534c54
     8 version, kind, count     0100 0400 00000000
    16 store                    000102030405060708090a0b0c0d0e0f
    32 holder                   101112131415161718191a1b1c1d1e1f
    48 nonce                    00000000000000000000000000000000
    64 slot, epoch              0400000000000000 0000000000000000
    80 reign, previous crc      02000000 e9a208ef
    88 first lsn, safe          2c00000000000000 0040000000000000
   104 ceiling                  0040000000000000
   112 needed slot, needed lsn  0300000000000000 2a00000000000000
   128 payload bytes            0000000000000000
   136 manifest crc             33000000
   140 name bytes, zero         0300 0000
   144 payload crc, crc         00000000 dc6eb4f0
   152 manifest's name          322d310000000000
"""
APART_BYTES = """
     0 magic                    4e59414c41534c54
     8 version, kind, count     0200 0200 02000000
    16 store                    000102030405060708090a0b0c0d0e0f
    32 holder                   101112131415161718191a1b1c1d1e1f
    48 nonce                    202122232425262728292a2b2c2d2e2f
    64 slot, epoch              0900000000000000 0700000000000000
    80 reign, previous crc      02000000 44000000
    88 first lsn, safe          2a00000000000000 0020000000000000
   104 ceiling                  0040000000000000
   112 needed slot, needed lsn  0800000000000000 2a00000000000000
   128 payload bytes            2000000000000000
   136 manifest crc             33000000
   140 name bytes, chunk count  0300 0200
   144 payload crc, crc         c18ab5eb 9f02de19
   152 manifest's name          322d310000000000
   160 bytes, crc, zero         0000800000000000 55000000 00000000
   176 bytes, crc, zero         2800000000000000 66000000 00000000
"""
SLOTS = [
    (CLAIM, CLAIM_BYTES),
    (RECORDS, RECORDS_BYTES),
    (COPY, COPY_BYTES),
    (RELEASE, RELEASE_BYTES),
    (APART, APART_BYTES),
]


def pinned(listing: str) -> bytes:
    """Return the bytes of an annotated listing."""
    return b"".join(bytes.fromhex(line[32:].replace(" ", "")) for line in listing.strip("\n").splitlines())


def made(header: SlotHeader) -> bytes:
    if header is APART:
        return encode_slot(header, [], CHUNKS)[0]
    records = [encode_record(0x1100, [b"abc"]), encode_record(0x1200, [b"defghijk"])][: header.count]
    claim = [b'{"at": "host"}'] if header.kind is SlotKind.CLAIM else []
    return encode_slot(header, payload_of(records) or claim)[0]


@pytest.mark.parametrize(("header", "listing"), SLOTS)
def test_a_slot_has_the_pinned_bytes(header: SlotHeader, listing: str) -> None:
    assert made(header).hex(" ", 8) == pinned(listing).hex(" ", 8)


@pytest.mark.parametrize(("header", "listing"), SLOTS)
def test_pinned_bytes_are_read(header: SlotHeader, listing: str) -> None:
    slot = decode_slot(header.number, pinned(listing))
    assert slot.header == header
    if header is CLAIM:
        assert bytes(slot.payload) == b'{"at": "host"}'
    elif header is APART:
        assert slot.chunks == CHUNKS and slot.size_bytes == 192 + 0x800000 + 0x28
        assert slot.chunk_names == [f"2-{NONCE.hex()}-0", f"2-{NONCE.hex()}-1"]
    else:
        assert [(lsn, time, bytes(what)) for lsn, time, what in slot.records()] == [
            (42, 0x1100, b"abc"),
            (43, 0x1200, b"defghijk"),
        ][: header.count]
