"""The bytes of encrypted files, as docs/format/encryption.md describes them, decrypted by hand."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.encryption.filesystem import EncryptedFileSystem
from nyala.engine.fs.encryption.keyring import create_keyring, open_keyring
from tests.doubles.encrypted import KEY, RandomBytes

BLOCKS_FILE = bytes(range(256)) * 65
RECORDS = [b"a" * 64, b"b" * 70]
GOLDEN = {
    "keys": (
        "4e59414c414b455901000000d900000000000000bb7a8cf67b2272696e67223a22663265663863363931373034373738",
        "8afe9d9db1e838662f73195df4e196e4a8839a3553c01267bd5dfc78b5155d58",
    ),
    "blocks": (
        "4e59414c41454e4301000100004000000000000000000000f2ef8c691704778a6f8b711652f21e400100000000000000",
        "5d2209f2504467f4327dab882238855179a848e395193bd1bb789eafda84b941",
    ),
    "records": (
        "4e59414c41454e4301000200000010000001000000000000f2ef8c691704778a6f8b711652f21e400100000000000000",
        "f0a08807b5f47715a52bee3cd80a89657ce8f97820abe0d8dda95c53da661010",
    ),
}
"""The beginning of each file, and SHA-256 of all of it."""


def made() -> MemoryFileSystem:
    """Return a disk with the keys of a store, a file of blocks and one of records."""
    disk = MemoryFileSystem()
    fs = EncryptedFileSystem(disk, create_keyring(disk, KEY, RandomBytes()))
    file = fs.create("blocks")
    file.append(BLOCKS_FILE)
    file.close()
    file = fs.create("records", preallocate=256)
    for record in RECORDS:
        file.append(record)
    file.close()
    return disk


def content(disk: MemoryFileSystem, path: str) -> bytes:
    file = disk.open(path)
    return file.pread(0, file.size)


def test_the_bytes_are_those_of_version_1() -> None:
    disk = made()
    found = {path: content(disk, path) for path in GOLDEN}
    assert {path: (each[:48].hex(), hashlib.sha256(each).hexdigest()) for path, each in found.items()} == GOLDEN


def test_what_version_1_wrote_is_read() -> None:
    disk = made()
    fs = EncryptedFileSystem(disk, open_keyring(disk, KEY))
    assert bytes(fs.open("blocks").view()) == BLOCKS_FILE
    assert bytes(fs.open("records").view()) == b"".join(RECORDS).ljust(256, b"\0")


def file_key(disk: MemoryFileSystem, head: bytes) -> AESGCM:
    """Return the cipher of a file, by the page's words alone."""
    keys = content(disk, "keys")
    magic, version, length, crc = struct.unpack_from("<8sIQI", keys)
    body = keys[24:]
    assert (magic, version, length, crc) == (b"NYALAKEY", 1, len(body), zlib.crc32(keys[:20] + body))
    said = json.loads(body)
    ring, wrapped = bytes.fromhex(said["ring"]), bytes.fromhex(said["keys"][0]["wrapped"])
    assert said["store_key"] == hashlib.sha256(b"nyala store key id\0" + KEY.secret).hexdigest()[:8]
    own = AESGCM(AESGCM(KEY.secret).decrypt(wrapped[:12], wrapped[12:], ring + struct.pack("<I", 1)))
    assert head[24:40] == ring and struct.unpack_from("<II", head, 40) == (1, 0)
    assert zlib.crc32(head[:124]) == struct.unpack_from("<I", head, 124)[0]
    return AESGCM(own.decrypt(head[48:60], head[60:108], head[:48]))


def test_a_file_of_blocks_is_as_described() -> None:
    disk = made()
    found = content(disk, "blocks")
    assert struct.unpack_from("<8sHHIQ", found) == (b"NYALAENC", 1, 1, 16_384, 0)
    cipher, stride = file_key(disk, found[:128]), 16_384 + 16
    first, last = found[128 : 128 + stride], found[128 + stride :]
    plain = cipher.decrypt(struct.pack("<QI", 0, 1), first, None) + cipher.decrypt(struct.pack("<QI", 1, 2), last, None)
    assert plain == BLOCKS_FILE


def test_a_file_of_records_is_as_described() -> None:
    disk = made()
    found = content(disk, "records")
    assert struct.unpack_from("<8sHHIQ", found) == (b"NYALAENC", 1, 2, 1 << 20, 256)
    assert len(found) == 128 + 256 + 5 * 40
    cipher, at, offset = file_key(disk, found[:128]), 128, 0
    for counter, record in enumerate(RECORDS, 1):
        head, sealed = found[at : at + 24], found[at + 24 : at + 40 + len(record)]
        assert struct.unpack("<4sIQI", head[:20]) == (b"NREC", len(record), offset, counter)
        assert zlib.crc32(head[:20], struct.unpack_from("<I", found, 124)[0]) == struct.unpack("<I", head[20:])[0]
        assert cipher.decrypt(struct.pack("<QI", counter, 3), sealed, head) == record
        offset += len(record)
        at += -(-(40 + len(record)) // 8) * 8
    assert not any(found[at:])
