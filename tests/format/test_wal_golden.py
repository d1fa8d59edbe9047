"""The bytes of the log, pinned: a change that moves one of them is a new format version."""

import zlib
from itertools import chain

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.wal.format import MalformedError, SegmentHeader, decode_group_header, seed_of
from nyala.engine.wal.log import WriteAheadLog
from nyala.engine.wal.options import WalOptions
from nyala.engine.wal.reader import CleanStop
from nyala.engine.wal.records import decode_records
from tests.engine.wal.appending import append_record

STORE = bytes(range(16))
RECORDS = [(1, 0x1000, b"abc"), (2, 0x2000, b"defghijk"), (3, 0x3000, b"")]
STOP = CleanStop(last_lsn=3, crc=0x1B4CB0CB)

FIRST = """
     0 magic                        4e59414c4157414c
     8 version, flags               0100 0000
    12 previous crc                 00000000
    16 store                        000102030405060708090a0b0c0d0e0f
    32 number                       0100000000000000
    40 first lsn                    0100000000000000
    48 size                         c800000000000000
    56 zero, crc                    00000000 bbba6b52
    64 magic, kind, zero            4e475250 0100 0000
    72 payload bytes                1800000000000000
    80 record count, previous crc   01000000 00000000
    88 first lsn                    0100000000000000
    96 payload crc, crc             15559ac5 62d01d4b
   104 length, timestamp            0300000000000000 0010000000000000
   120 bytes, zeroes                6162630000000000
   128 magic, kind, zero            4e475250 0100 0000
   136 payload bytes                1800000000000000
   144 record count, previous crc   01000000 62d01d4b
   152 first lsn                    0200000000000000
   160 payload crc, crc             04b3fe16 b62a60d6
   168 length, timestamp            0800000000000000 0020000000000000
   184 bytes                        6465666768696a6b
"""
SECOND = """
     0 magic                        4e59414c4157414c
     8 version, flags               0100 0000
    12 previous crc                 b62a60d6
    16 store                        000102030405060708090a0b0c0d0e0f
    32 number                       0200000000000000
    40 first lsn                    0300000000000000
    48 size                         c800000000000000
    56 zero, crc                    00000000 91f41e70
    64 magic, kind, zero            4e475250 0100 0000
    72 payload bytes                1000000000000000
    80 record count, previous crc   01000000 b62a60d6
    88 first lsn                    0300000000000000
    96 payload crc, crc             6ed8dc91 cbb04c1b
   104 length, timestamp            0000000000000000 0030000000000000
"""


def pinned(text: str) -> bytes:
    """Return the bytes of an annotated listing, with the zeroes that fill the segment."""
    fields = [line[36:].replace(" ", "") for line in text.strip("\n").splitlines()]
    offsets = [int(line[:6]) for line in text.strip("\n").splitlines()]
    content = bytes.fromhex("".join(fields))
    assert offsets == [sum(len(field) // 2 for field in fields[:number]) for number in range(len(fields))]
    return content.ljust(200, b"\0")


def test_the_bytes_written() -> None:
    fs = MemoryFileSystem()
    log = WriteAheadLog.open(fs, "wal", STORE, WalOptions(segment_bytes=200))
    assert list(log.replay()) == []
    for _, timestamp, payload in RECORDS:
        log.wait(append_record(log, timestamp, [payload]))
    assert log.close() == STOP
    assert fs.list("wal") == ["0000000001.wal", "0000000002.wal"]
    assert bytes(fs.open("wal/0000000001.wal").view()).hex(" ", 8) == pinned(FIRST).hex(" ", 8)
    assert bytes(fs.open("wal/0000000002.wal").view()).hex(" ", 8) == pinned(SECOND).hex(" ", 8)


def test_the_bytes_read() -> None:
    fs = MemoryFileSystem()
    fs.make_directory("wal")
    for number, text in enumerate((FIRST, SECOND), 1):
        fs.create(f"wal/{number:010d}.wal").append(pinned(text))
    log = WriteAheadLog.open(fs, "wal", STORE, expect=STOP)
    assert [
        (lsn, timestamp, bytes(payload)) for lsn, timestamp, payload in chain.from_iterable(log.replay())
    ] == RECORDS


def test_the_checksums_are_those_described() -> None:
    first = pinned(FIRST)
    assert int.from_bytes(first[60:64], "little") == zlib.crc32(first[:60])
    seed = zlib.crc32(STORE + (1).to_bytes(8, "little") + (64).to_bytes(8, "little"))
    assert seed_of(STORE, 1, 64) == seed
    assert int.from_bytes(first[96:100], "little") == zlib.crc32(first[104:128], seed)
    assert int.from_bytes(first[100:104], "little") == zlib.crc32(first[64:100], seed)


def test_many_records_in_one_group() -> None:
    """Records stand one after the other, each padded to 8 bytes."""
    fs = MemoryFileSystem()
    log = WriteAheadLog.open(fs, "wal", STORE, WalOptions(segment_bytes=2000))
    assert list(log.replay()) == []
    for number in range(20):
        append_record(log, number, [b"x" * number])
    log.close()
    view = fs.open("wal/0000000001.wal").view()
    offset, lsn = 64, 0
    while lsn < 20:
        header = decode_group_header(view, offset, seed_of(STORE, 1, offset))
        for record in decode_records(view[offset + 40 : offset + header.extent], header):
            lsn += 1
            assert record == (lsn, lsn - 1, b"x" * (lsn - 1))
        offset += header.extent
    assert offset == 64 + sum(16 + (number + 7) // 8 * 8 for number in range(20)) + 40 * log.stats().groups


@pytest.mark.parametrize(("at", "value"), [(4, 2), (6, 1), (16, 0)], ids=["unknown kind", "unknown flag", "no record"])
def test_a_group_that_no_writer_writes_is_malformed(at: int, value: int) -> None:
    content = bytearray(pinned(FIRST))
    content[64 + at] = value
    seed = seed_of(STORE, 1, 64)
    content[100:104] = zlib.crc32(content[64:100], seed).to_bytes(4, "little")
    with pytest.raises(MalformedError, match="cannot read a group of kind"):
        decode_group_header(memoryview(content), 64, seed)


@pytest.mark.parametrize(("length", "why"), [(2**40, "extends"), (2**64 - 1, "extends"), (100, "extends")])
def test_a_record_longer_than_its_group_is_malformed(length: int, why: str) -> None:
    first = pinned(FIRST)
    header = decode_group_header(memoryview(first), 64, seed_of(STORE, 1, 64))
    payload = length.to_bytes(8, "little") + first[112:128]
    with pytest.raises(MalformedError, match=why):
        list(decode_records(memoryview(payload), header))


def test_bytes_after_the_last_record_are_malformed() -> None:
    first = pinned(FIRST)
    header = decode_group_header(memoryview(first), 64, seed_of(STORE, 1, 64))
    with pytest.raises(MalformedError, match="bytes follow"):
        list(decode_records(memoryview(first[104:128] + bytes(8)), header))


def test_a_segment_header_survives_the_round_trip() -> None:
    header = SegmentHeader(STORE, 7, 2**40, 0xFFFFFFFF, 1 << 26, previous_tail_cut=True)
    assert SegmentHeader.decode(header.encode()) == header
    assert len(header.encode()) == 64
