"""An encrypted disk over any other, with a key and random bytes that are always the same."""

from __future__ import annotations

import hashlib
from itertools import count
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from nyala.engine.fs.encryption.filesystem import EncryptedFileSystem
from nyala.engine.fs.encryption.keyring import Keyring
from nyala.engine.fs.filesystem import FileSystem
from nyala.schemas.store.store_key import StoreKey

KEY = StoreKey(bytes(range(32)))


def write_key(path: Path, text: str = KEY.text) -> Path:
    """Write a key file, for this user alone."""
    path.touch(0o600)
    path.write_text(text)
    return path


class RandomBytes:
    """Bytes that look random, the same ones in each run."""

    def __init__(self, seed: str = "") -> None:
        self._seed = seed
        self._count = count()

    def __call__(self, size: int) -> bytes:
        return hashlib.shake_256(f"{self._seed} {next(self._count)}".encode()).digest(size)


def encrypted(fs: FileSystem, seed: str = "") -> EncryptedFileSystem:
    """Return an encrypted disk over ``fs``; the same seed gives it the same keys, which ``fs`` does not have."""
    ring = Keyring(bytes(16), {1: AESGCM(bytes(32))}, 1, RandomBytes(seed))
    return EncryptedFileSystem(fs, ring)
