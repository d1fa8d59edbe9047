"""The object ``copy`` of a store in a bucket: of which store it is a copy. Made before anything else of a copy is.

While there is no log beside it, the first copy was not finished, and nobody makes a store there. A document as in
``fs/document``: magic ``NYALACPY``, version 1, and JSON.
"""

from __future__ import annotations

from ...schemas.message import Message
from ..bucket import Bucket
from ..fs.document import pack, parsed

NAME = "copy"
_MAGIC = b"NYALACPY"
_VERSION = 1


class CopyMark(Message, frozen=True, extra="forbid"):
    """What the object says."""

    source: str
    """The uuid of the store that is copied."""


def pack_copy_mark(mark: CopyMark) -> bytes:
    """Return the bytes of the object."""
    return pack(_MAGIC, _VERSION, mark.model_dump_json().encode())


def read_copy_mark(bucket: Bucket, home: str) -> CopyMark | None:
    """Return the mark of the store whose objects begin with ``home``; None if there is none.

    Raises:
        CorruptionError: the object is not what was written.
        InvalidArgumentError: a later version of Nyala wrote it.
        UnavailableError: the bucket does not answer.
    """
    path = home + NAME
    try:
        return parsed(CopyMark, bucket.get(path), path, _MAGIC, _VERSION, "mark of a copy")
    except FileNotFoundError:
        return None
