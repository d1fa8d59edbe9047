"""The keys of a store, in its file ``keys``: random ones, each encrypted with the store key.

A file's own key is encrypted with one of these, so to change the store key this file is written anew, and no other.
``keys.copy`` is a second copy: without these keys all is lost. Both are documents (`fs.document`) of JSON; layouts:
``docs/format/encryption.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ....schemas.errors import CorruptionError, InvalidArgumentError, UnreadableFileError
from ....schemas.message import Message
from ....schemas.store.store_key import KEY_BYTES, StoreKey
from ..document import pack, parsed, read, write
from ..failures import reading
from ..filesystem import FileSystem
from .key_source import RandomBytes, random_bytes
from .names import COPY_PATH, KEYS_MAGIC, PATH

RING_BYTES = 16
NONCE_BYTES = 12
TAG_BYTES = 16
WRAPPED_BYTES = NONCE_BYTES + KEY_BYTES + TAG_BYTES

Damage = CorruptionError | UnreadableFileError

_VERSION = 1
_SUBJECT = struct.Struct("<16sI")


class KeyEntry(Message, frozen=True):
    """One key of an encrypted store's ring: its number, and its encrypted form in hexadecimal digits."""

    id: int
    wrapped: str


class KeysFile(Message, frozen=True):
    """The body of the file ``keys`` of an encrypted store."""

    ring: str
    """What tells this ring from those of other stores: 32 hexadecimal digits."""
    store_key: str
    """The id of the store key."""
    keys: tuple[KeyEntry, ...]

    @property
    def ids(self) -> frozenset[int]:
        """The numbers of the keys."""
        return frozenset(entry.id for entry in self.keys)


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys of an encrypted store, ready to encrypt and decrypt those of its files."""

    ring: bytes
    ciphers: Mapping[int, AESGCM] = field(repr=False)
    newest: int
    random_bytes: RandomBytes = random_bytes

    def wrap(self, key: bytes, about: bytes) -> tuple[int, bytes]:
        """Return a file's key, encrypted and bound to ``about``, and the number of the key that opens it."""
        nonce = self.random_bytes(NONCE_BYTES)
        return self.newest, nonce + self.ciphers[self.newest].encrypt(nonce, key, about)

    def unwrap(self, number: int, wrapped: bytes, about: bytes) -> bytes | None:
        """Return a file's key; None if it was not encrypted with the key ``number`` and for ``about``."""
        try:
            return self.ciphers[number].decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], about)
        except InvalidTag:
            return None


def create_keyring(fs: FileSystem, key: StoreKey, random_bytes: RandomBytes = random_bytes) -> Keyring:
    """Make the keys of a new encrypted store, durably."""
    ring, secret = random_bytes(RING_BYTES), random_bytes(KEY_BYTES)
    _write(fs, _packed(_encrypted(ring, {1: secret}, key, random_bytes)))
    return Keyring(ring, {1: AESGCM(secret)}, 1, random_bytes)


def open_keyring(fs: FileSystem, key: StoreKey, random_bytes: RandomBytes = random_bytes) -> Keyring:
    """Return the keys of an encrypted store. Changes nothing.

    Raises:
        InvalidArgumentError: this is not the key of the store.
        CorruptionError: the file and its copy are damaged.
    """
    file = read_keys(fs)
    secrets = _decrypted(file, key)
    ciphers = {number: AESGCM(secret) for number, secret in secrets.items()}
    return Keyring(bytes.fromhex(file.ring), ciphers, max(ciphers), random_bytes)


def rotate_keyring(fs: FileSystem, old: StoreKey, new: StoreKey, random_bytes: RandomBytes = random_bytes) -> None:
    """Encrypt the keys of a store, which nobody may have open, with another store key, and add one for new files.

    Nothing happens if ``new`` is the store key already. A crash leaves the old key or the new one. Raises as
    ``open_keyring``.
    """
    file = read_keys(fs)
    if file.store_key != new.id:
        secrets = _decrypted(file, old)
        secrets[max(secrets) + 1] = random_bytes(KEY_BYTES)
        file = _encrypted(bytes.fromhex(file.ring), secrets, new, random_bytes)
    _write(fs, _packed(file))


def mend_copy(fs: FileSystem) -> list[Damage]:
    """Bring the file ``keys`` and its copy to the same state, after a crash between their writes, or damage of one.
    Return the damage. Raises as ``read_keys``."""
    file = read_keys(fs)
    found = [_state(fs, path) for path in (PATH, COPY_PATH)]
    if any(each != file for each in found):
        _write(fs, _packed(file))
    return [each for each in found if not isinstance(each, KeysFile)]


def damage_of_keys(fs: FileSystem) -> list[Damage]:
    """Return what is wrong with the file ``keys`` and its copy, of which one is enough."""
    return [each for path in (PATH, COPY_PATH) if not isinstance(each := _state(fs, path), KeysFile)]


def copy_keys(source: FileSystem, target: FileSystem) -> None:
    """Give another directory the keys of an encrypted store, durably. Nothing happens if it has them. Raises as
    ``read_keys``."""
    file = read_keys(source)
    if any(_state(target, path) != file for path in (PATH, COPY_PATH)):
        _write(target, _packed(file))


def read_keys(fs: FileSystem) -> KeysFile:
    """Return the file ``keys`` of an encrypted store, or its copy if that is damaged.

    Raises:
        InvalidArgumentError: the copy is sound too, and was not made before the file.
        CorruptionError: both are damaged.
    """
    file, copy = _state(fs, PATH), _state(fs, COPY_PATH)
    if not isinstance(file, KeysFile):
        if not isinstance(copy, KeysFile):
            raise CorruptionError(file.path, 0, f"{file.why}: restore the file from a copy of the directory")
        return copy
    if not isinstance(copy, KeysFile) or copy == file:
        return file
    if copy.ring != file.ring or not copy.ids < file.ids:  # a rotation writes the file first, and adds a key
        raise InvalidArgumentError(
            f"{PATH} (with the store key {file.store_key}) is older than {COPY_PATH} (with {copy.store_key}), "
            f"or belongs to another store: if {COPY_PATH} is the newest, replace {PATH} by a copy of {COPY_PATH}, and "
            f"give the key {copy.store_key}"
        )
    return file


def _state(fs: FileSystem, path: str) -> KeysFile | Damage:
    """Return the file or its copy, or why it cannot be used."""
    if not fs.exists(path):
        return CorruptionError(path, 0, "the file with the store's keys is missing")
    try:
        return _unpacked(_content(fs, path), path)
    except (CorruptionError, UnreadableFileError) as error:
        return error


def _decrypted(file: KeysFile, key: StoreKey) -> dict[int, bytes]:
    if file.store_key != key.id:
        raise InvalidArgumentError(
            f"the store is encrypted with the key {file.store_key}, and the key {key.id} was given: give the right one"
        )
    ring, cipher = bytes.fromhex(file.ring), AESGCM(key.secret)
    secrets: dict[int, bytes] = {}
    for entry in file.keys:
        wrapped = bytes.fromhex(entry.wrapped)
        try:
            secrets[entry.id] = cipher.decrypt(
                wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], _SUBJECT.pack(ring, entry.id)
            )
        except InvalidTag:
            raise CorruptionError(PATH, 0, f"key {entry.id} was changed: restore the file from a copy") from None
    return secrets


def _encrypted(ring: bytes, secrets: Mapping[int, bytes], key: StoreKey, random_bytes: RandomBytes) -> KeysFile:
    cipher = AESGCM(key.secret)
    entries: list[KeyEntry] = []
    for number, secret in secrets.items():
        nonce = random_bytes(NONCE_BYTES)
        wrapped = nonce + cipher.encrypt(nonce, secret, _SUBJECT.pack(ring, number))
        entries.append(KeyEntry(id=number, wrapped=wrapped.hex()))
    return KeysFile(ring=ring.hex(), store_key=key.id, keys=tuple(entries))


def _packed(file: KeysFile) -> bytes:
    return pack(KEYS_MAGIC, _VERSION, file.model_dump_json().encode())


def _unpacked(document: bytes, path: str) -> KeysFile:
    return parsed(KeysFile, document, path, KEYS_MAGIC, _VERSION, "file with the store's keys")


def _content(fs: FileSystem, path: str) -> bytes:
    with reading(path):
        return read(fs, path)


def _write(fs: FileSystem, document: bytes) -> None:
    """Replace the file, then its copy: a power failure leaves one of them whole."""
    for path in (PATH, COPY_PATH):
        new = f"{path}.new"
        write(fs, new, document)
        fs.rename(new, path)
        fs.sync_directory("")
