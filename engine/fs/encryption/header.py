"""The head of an encrypted file, 128 bytes, with the file's own key::

      0  magic      8s   "NYALAENC"
      8  version    u2   1
     10  layout     u2   1 blocks, 2 records
     12  piece      u4   bytes of a whole block, or the most of a record
     16  size       u8   of the file of records as callers see it; 0 for blocks
     24  ring       16s  of the keyring
     40  key        u4   number of the key in the ring
     44  zero       u4
     48  wrapped    60s  nonce, the file's key, tag: encrypted, and bound to bytes 0..47
    108  zero       16s
    124  crc        u4   of bytes 0..123

The crc tells damage from a wrong key. All numbers are little-endian.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ....schemas.errors import CorruptionError, InvalidArgumentError
from ....schemas.store.store_key import KEY_BYTES
from .keyring import RING_BYTES, Keyring
from .names import MAGIC

BLOCKS = 1
RECORDS = 2
HEADER_BYTES = 128

_VERSION = 1
_ABOUT = struct.Struct("<8sHHIQ16sII")
_HEADER = struct.Struct("<48s60s16sI")


@dataclass(frozen=True, slots=True)
class OpenedHeader:
    """The head of an encrypted file, opened: what it says, and the cipher with its key."""

    layout: int
    piece: int
    size: int
    cipher: AESGCM = field(repr=False)
    seed: int
    """A number of this file alone, for checksums of what needs none of the key."""


def new_header(keyring: Keyring, layout: int, piece: int, size: int) -> tuple[bytes, OpenedHeader]:
    """Return the head of a new encrypted file, with a key of its own."""
    key = keyring.random_bytes(KEY_BYTES)
    about = _ABOUT.pack(MAGIC, _VERSION, layout, piece, size, keyring.ring, keyring.newest, 0)
    _, wrapped = keyring.wrap(key, about)
    crc = zlib.crc32(_HEADER.pack(about, wrapped, b"", 0)[:-4])
    return _HEADER.pack(about, wrapped, b"", crc), OpenedHeader(layout, piece, size, AESGCM(key), crc)


def open_header(keyring: Keyring, path: str, header: bytes) -> OpenedHeader:
    """Return what the head of an encrypted file says.

    Raises:
        InvalidArgumentError: it needs a key of the store that the file ``keys`` does not have.
        CorruptionError: it is not one of this store.
    """
    if len(header) < HEADER_BYTES or zlib.crc32(header[:-4]) != int.from_bytes(header[-4:], "little"):
        raise CorruptionError(path, 0, "the checksum of the encrypted file's head is wrong")
    about, wrapped, zero, crc = _HEADER.unpack(header)
    magic, version, layout, piece, size, ring, number, _ = _ABOUT.unpack(about)
    if magic != MAGIC or version != _VERSION or layout not in (BLOCKS, RECORDS) or any(zero):
        raise CorruptionError(path, 0, f"this build cannot read the head, of version {version}, of an encrypted file")
    assert len(ring) == RING_BYTES
    if ring != keyring.ring:
        raise CorruptionError(path, 0, "this file belongs to another store")
    if number not in keyring.ciphers:
        why = f"{path} needs key {number} of the store, but the newest in `keys` is {keyring.newest}"
        raise InvalidArgumentError(f"{why}: `keys` is older than this file; restore the newest `keys` from a copy")
    key = keyring.unwrap(number, wrapped, about)
    if key is None:
        raise CorruptionError(path, 0, "the head of this file was changed, or belongs to another store")
    return OpenedHeader(layout, piece, size, AESGCM(key), crc)
