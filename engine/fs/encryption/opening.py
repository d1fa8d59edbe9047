"""Decides whether a store's files are encrypted, and with which key they are read.

A store is encrypted from its first file on, or never. Its file ``keys`` says so. A store without it imports no cipher.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ....schemas.errors import CorruptionError, InvalidArgumentError, StoreError, UnreadableFileError
from ....schemas.store.store_key import StoreKey
from ... import threads
from ..failures import is_of_the_file
from ..filesystem import FileSystem
from ..local import LocalFileSystem
from .key_source import NO_KEY, KeySource
from .names import COPY_PATH, KEYS_MAGIC, MAGIC, PATH

if TYPE_CHECKING:
    from .filesystem import EncryptedFileSystem
    from .keyring import Keyring

_MANIFEST = "manifest"
_MANIFEST_COPY = "manifest.copy"
_STORE_HAS = (_MANIFEST_COPY, "tablets", "wal")
"""What a store has besides its manifest."""
_RINGS_MAX = 16
"""Stores whose keys a process remembers."""
_asking = threads.Lock()
_HOW = "--key-file, --key-command, NYALA_KEY_FILE, NYALA_KEY_COMMAND or nyala.open(key=...)"


def _ignore(damage: StoreError) -> None:
    """Do nothing."""


def is_encrypted(fs: FileSystem) -> bool:
    """Whether the store in ``fs`` is encrypted. Raises CorruptionError if it is, and its keys are missing."""
    if KEYS_MAGIC in (_first_bytes(fs, PATH), _first_bytes(fs, COPY_PATH)):
        return True
    if _first_bytes(fs) == MAGIC:
        raise CorruptionError(PATH, 0, "the file with the store's keys is missing: restore it from a copy")
    return False


def opened(fs: FileSystem, key: StoreKey | None) -> FileSystem:
    """Return the files of an existing store as they were written, decrypted if they are encrypted. Changes nothing.

    Raises:
        InvalidArgumentError: the store is encrypted, and there is no key, or another one.
        CorruptionError: the keys of the store are damaged or missing.
    """
    return _encrypted(fs, key) if is_encrypted(fs) else fs


def opened_to_write(fs: FileSystem, source: KeySource, note: Callable[[StoreError], None] = _ignore) -> FileSystem:
    """Return the files of a store that this process has locked. A new one is encrypted if there is a key. ``note`` gets
    what is damaged and was mended.

    Raises as ``check_key``.
    """
    is_new = not is_encrypted(fs) and not fs.exists(_MANIFEST)
    key = source.read_for_new() if is_new else source.read()
    found = check_key(fs, key)
    if found is fs or key is None:
        return fs
    with _cipher():
        from .filesystem import EncryptedFileSystem
        from .keyring import create_keyring, mend_copy
    if found is None:
        return EncryptedFileSystem(fs, create_keyring(fs, key))
    if _are_its_keys(found):
        damaged = mend_copy(fs)
        for damage in damaged if fs.exists(_MANIFEST) else ():  # else a crash came while they were made
            note(damage)
    return found


def check_key(fs: FileSystem, key: StoreKey | None) -> FileSystem | None:
    """Return the files of a store as they were written, decrypted; None if there is none yet, and ``key`` is for a new
    one. Changes nothing.

    Raises:
        InvalidArgumentError: as ``opened``, or there is a key and the store is not encrypted.
        CorruptionError: the keys of the store are damaged or missing.
    """
    if is_encrypted(fs):
        return _encrypted(fs, key)
    if key is None:
        return fs
    if fs.exists(_MANIFEST):
        raise InvalidArgumentError(
            "the store is not encrypted, but a key was given: leave the key out, or copy the tables into a new "
            "store that is created with the key"
        )
    for path in _STORE_HAS:
        if fs.exists(path) and (path == _MANIFEST_COPY or fs.list(path)):
            raise InvalidArgumentError(
                f"the directory has {path}, but no manifest: it is not a new store, and a key cannot open it; "
                "restore the missing files, or choose another directory"
            )
    return None


def damage_of_keys(fs: FileSystem) -> Sequence[CorruptionError | UnreadableFileError]:
    """Return what is wrong with the files with the keys of an open encrypted store; a plain one has none."""
    if not is_encrypted(fs):
        return []
    from .keyring import damage_of_keys

    return damage_of_keys(fs)


@runtime_checkable
class Encrypted(Protocol):
    """The files of an encrypted store: ``EncryptedFileSystem``, which plain stores do not import."""

    def over(self, fs: FileSystem) -> FileSystem: ...
    def give_keys(self, fs: FileSystem) -> None: ...


def files_of_copy(fs: FileSystem, target: FileSystem) -> FileSystem:
    """Return the files of a copy, in ``target``, of the open store with these files, encrypted like it. Changes
    nothing."""
    return fs.over(target) if isinstance(fs, Encrypted) else target


def give_keys(fs: FileSystem, target: FileSystem) -> None:
    """Give a copy, in ``target``, the keys of the open store with these files, if it is encrypted."""
    if isinstance(fs, Encrypted):
        fs.give_keys(target)


def store_files(where: str | os.PathLike[str], key: KeySource = NO_KEY) -> FileSystem:
    """Return the files of the store in a directory, decrypted if they are encrypted, for a tool. Raises as ``opened``.

    A process that reads or builds files opens the directory for each of its tasks, and asks for the key once.
    """
    fs = LocalFileSystem(where)
    if not is_encrypted(fs):
        return fs
    with _cipher():
        from .filesystem import EncryptedFileSystem
    with _asking:
        return EncryptedFileSystem(fs, _known_keyring(fs.root, _identity(fs.root), key.named()))


@lru_cache(_RINGS_MAX)
def _known_keyring(root: str, identity: tuple[object, ...], source: KeySource) -> Keyring:
    """Return the keys of a store, as long as the files with them, whose ``identity`` it is, are not replaced."""
    return _keyring(LocalFileSystem(root), source.read())


def _identity(root: str) -> tuple[object, ...]:
    """Return what changes with the files of keys."""
    found: list[object] = []
    for path in (PATH, COPY_PATH):
        try:
            state = os.stat(os.path.join(root, path))
        except OSError as error:
            found.append(error.errno)
        else:
            found.append((state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size))
    return tuple(found)


def files_beside(path: Path, key: KeySource = NO_KEY) -> tuple[FileSystem, str]:
    """Return a file system with a file of a store, decrypted if it is encrypted, and its path there; the keys are in a
    directory above.

    Raises as ``opened``.
    """
    fs = LocalFileSystem(path.parent)
    if _first_bytes(fs, path.name) != MAGIC:
        return fs, path.name
    for root in path.parents:
        if is_encrypted(LocalFileSystem(root)):
            return store_files(root, key), path.relative_to(root).as_posix()
    raise CorruptionError(PATH, 0, f"{path.name} is encrypted, but no directory above it has the keys of its store")


def _encrypted(fs: FileSystem, key: StoreKey | None) -> EncryptedFileSystem:
    with _cipher():
        from .filesystem import EncryptedFileSystem
    return EncryptedFileSystem(fs, _keyring(fs, key))


def _keyring(fs: FileSystem, key: StoreKey | None) -> Keyring:
    with _cipher():
        from .keyring import open_keyring, read_keys
    if key is None:
        raise InvalidArgumentError(f"the store is encrypted with the key {read_keys(fs).store_key}: give it by {_HOW}")
    return open_keyring(fs, key)


def _are_its_keys(found: FileSystem) -> bool:
    """Whether the manifest, if there is one, was written with the keys of the store: damage is for others to report.

    Raises:
        InvalidArgumentError: it was written with newer ones.
    """
    if found.exists(_MANIFEST):
        try:
            found.open(_MANIFEST).close()
        except (CorruptionError, OSError):
            return False
    return True


def _first_bytes(fs: FileSystem, path: str = _MANIFEST) -> bytes:
    """Return how a file begins; nothing if it is none, or cannot be read."""
    if not fs.exists(path):
        return b""
    try:
        file = fs.open(path)
        try:
            return file.pread(0, len(MAGIC))
        finally:
            file.close()
    except OSError as error:
        if not is_of_the_file(error):
            raise
        return b""


@contextmanager
def _cipher() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(
            f"an encrypted store needs the package {error.name}: pip install 'nyala[encryption]'"
        ) from None
