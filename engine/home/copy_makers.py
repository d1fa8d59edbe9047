"""The object ``makers`` of a copy of a store: which processes made the files that were brought there, by their reigns.

Runs that bring a copy up to date take a file that is there for the same if its name and its size are. Its maker must be
the same, too: see ``manifest/makers``. Each run that brings files of another reign overwrites the object first.

A document as in ``fs/document``: magic ``NYALACPM``, version 1, and JSON.
"""

from __future__ import annotations

from ...schemas.message import Message
from ..bucket import Bucket
from ..fs.document import pack, parsed

NAME = "makers"
_MAGIC = b"NYALACPM"
_VERSION = 1


class CopyMakers(Message, frozen=True, extra="forbid"):
    """What the object says."""

    makers: dict[int, str]
    """As in a manifest."""


def pack_copy_makers(found: CopyMakers) -> bytes:
    """Return the bytes of the object."""
    return pack(_MAGIC, _VERSION, found.model_dump_json().encode())


def read_copy_makers(bucket: Bucket, home: str) -> CopyMakers:
    """Return what the copy says whose objects begin with ``home``; nothing if there is no such object.

    Raises:
        CorruptionError: the object is not what was written.
        InvalidArgumentError: a later version of Nyala wrote it.
        UnavailableError: the bucket does not answer.
    """
    path = home + NAME
    try:
        return parsed(CopyMakers, bucket.get(path), path, _MAGIC, _VERSION, "note of who made the files of a copy")
    except FileNotFoundError:
        return CopyMakers(makers={})


def write_copy_makers(bucket: Bucket, home: str, found: CopyMakers) -> None:
    """Note who made the files of a copy. Raises UnavailableError."""
    bucket.put(home + NAME, pack_copy_makers(found))
