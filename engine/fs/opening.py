"""Decides whether a store's files are encrypted, and with which key they are read.

A store is encrypted from its first file on, or never. Its file ``keys`` says so. A store without it imports no cipher.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...schemas.errors import CorruptionError, InvalidArgumentError
from ...schemas.store_key import StoreKey
from .encryption.key_source import NO_KEY, KeySource
from .encryption.names import COPY_PATH, MAGIC, PATH
from .filesystem import FileSystem
from .local import LocalFileSystem

if TYPE_CHECKING:
    from .encryption.filesystem import EncryptedFileSystem

_MANIFEST = "manifest"
_HOW = "--key-file, --key-command, NYALA_KEY_FILE, NYALA_KEY_COMMAND or nyala.open(key=...)"


def is_encrypted(fs: FileSystem) -> bool:
    """Whether the store in ``fs`` is encrypted. Raises CorruptionError if it is, and its keys are missing."""
    if fs.exists(PATH) or fs.exists(COPY_PATH):
        return True
    if _first_bytes(fs) == MAGIC:
        raise CorruptionError(PATH, 0, "the file with the store's keys is missing: bring it back from a copy")
    return False


def opened(fs: FileSystem, key: StoreKey | None) -> FileSystem:
    """Return the files of an existing store as they were written. Changes nothing.

    Raises:
        InvalidArgumentError: the store is encrypted, and there is no key, or another one.
        CorruptionError: the keys of the store are damaged or missing.
    """
    return _encrypted(fs, key) if is_encrypted(fs) else fs


def opened_to_write(fs: FileSystem, source: KeySource) -> FileSystem:
    """Return the files of a store that this process has locked. A new one is encrypted if there is a key.

    Raises as ``opened``, and InvalidArgumentError if there is a key and the store is not encrypted.
    """
    key = source.read()
    if is_encrypted(fs):
        found = _encrypted(fs, key)
        with _cipher():
            from .encryption.keyring import mend_copy
        mend_copy(fs)
        return found
    if key is None:
        return fs
    if fs.exists(_MANIFEST):
        raise InvalidArgumentError(
            "the store is not encrypted, and a key was given: leave it out, or copy the tables into a new store with it"
        )
    with _cipher():
        from .encryption.filesystem import EncryptedFileSystem
        from .encryption.keyring import create_keyring
    return EncryptedFileSystem(fs, create_keyring(fs, key))


def store_files(where: str | os.PathLike[str], key: KeySource = NO_KEY) -> FileSystem:
    """Return the files of the store in a directory, for a tool. Raises as ``opened``."""
    fs = LocalFileSystem(where)
    return opened(fs, key.read()) if is_encrypted(fs) else fs


def files_beside(path: Path, key: KeySource = NO_KEY) -> tuple[FileSystem, str]:
    """Return a file system with a file of a store, and its path there; the keys are in a directory above.

    Raises as ``opened``.
    """
    fs = LocalFileSystem(path.parent)
    if _first_bytes(fs, path.name) != MAGIC:
        return fs, path.name
    for root in path.parents:
        if (root / PATH).exists() or (root / COPY_PATH).exists():
            return store_files(root, key), path.relative_to(root).as_posix()
    raise CorruptionError(PATH, 0, f"{path.name} is encrypted, and no directory above it has the keys of a store")


def _encrypted(fs: FileSystem, key: StoreKey | None) -> EncryptedFileSystem:
    with _cipher():
        from .encryption.filesystem import EncryptedFileSystem
        from .encryption.keyring import open_keyring, read_keys
    if key is None:
        raise InvalidArgumentError(f"the store is encrypted with the key {read_keys(fs).store_key}: give it by {_HOW}")
    return EncryptedFileSystem(fs, open_keyring(fs, key))


def _first_bytes(fs: FileSystem, path: str = _MANIFEST) -> bytes:
    if not fs.exists(path):
        return b""
    file = fs.open(path)
    try:
        return file.pread(0, len(MAGIC))
    finally:
        file.close()


@contextmanager
def _cipher() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(
            f"an encrypted store needs the package {error.name}: pip install 'nyala[encryption]'"
        ) from None
