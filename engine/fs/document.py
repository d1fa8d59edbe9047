"""A document that is written as a whole, under one checksum (little-endian)::

magic 8 | format version u4 | body length u8 | crc u4 of magic to length and body | body
"""

from __future__ import annotations

import struct
import zlib
from typing import TypeVar

from pydantic import ValidationError

from ...schemas.errors import CorruptionError, InvalidArgumentError
from ...schemas.message import Message
from .filesystem import FileSystem

M = TypeVar("M", bound=Message)
HEADER = struct.Struct("<8sIQI")


def pack(magic: bytes, version: int, body: bytes) -> bytes:
    crc = zlib.crc32(body, zlib.crc32(HEADER.pack(magic, version, len(body), 0)[:-4]))
    return HEADER.pack(magic, version, len(body), crc) + body


def unpack(document: bytes, path: str, magic: bytes, version: int, what: str) -> bytes:
    """Check magic, version and checksum of a file that is written as a whole, and return its body; ``what`` names it in
    errors.

    Raises:
        CorruptionError: the bytes are not what was written.
        InvalidArgumentError: another version of Nyala wrote it.
    """
    if len(document) < HEADER.size:
        raise CorruptionError(path, 0, f"{len(document)} bytes are too few for a {what}")
    found, written, length, crc = HEADER.unpack_from(document)
    body = document[HEADER.size :]
    if zlib.crc32(body, zlib.crc32(document[: HEADER.size - 4])) != crc or length != len(body):
        raise CorruptionError(path, 0, f"the checksum of the {what} is wrong")
    if found != magic:
        raise CorruptionError(path, 0, f"this is not a {what}")
    if written != version:
        raise InvalidArgumentError(f"the {what} has format version {written}; this build reads version {version}")
    return body


def parsed(model: type[M], document: bytes, path: str, magic: bytes, version: int, what: str) -> M:
    """Return the message whose JSON is the body of a document in a file. Raises as ``unpack``, also if it is none."""
    body = unpack(document, path, magic, version, what)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise CorruptionError(path, HEADER.size, f"the {what} cannot be parsed: {error}") from error


def read(fs: FileSystem, path: str) -> bytes:
    """Return the bytes of the file of a document. Raises OSError."""
    file = fs.open(path)
    try:
        return file.pread(0, file.size)
    finally:
        file.close()


def write(fs: FileSystem, path: str, document: bytes) -> None:
    """Make the file of a document, durably but for its name; one that a crash left is replaced. Raises OSError."""
    if fs.exists(path):
        fs.unlink(path)
    file = fs.create(path)
    try:
        file.append(document)
        file.sync()
    finally:
        file.close()


def replace(fs: FileSystem, path: str, document: bytes) -> None:
    """Replace a file of the root as a whole, or make it: durably, and after a crash it is the former or the new one.
    Raises OSError."""
    new = f"{path}.new"
    write(fs, new, document)
    fs.rename(new, path)
    fs.sync_directory("")
