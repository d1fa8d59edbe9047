"""The object ``copy`` of a store in a bucket: of which store it is a copy. Made before anything else of a copy is.

While there is no log beside it, the first copy was not finished, and nobody makes a store there. A `BucketDocument`:
magic ``NYALACPY``.
"""

from __future__ import annotations

from ...schemas.message import Message
from ..bucket import Bucket
from .bucket_document import BucketDocument

NAME = "copy"


class CopyMark(Message, frozen=True, extra="forbid"):
    """The content of the object ``copy`` of a store in a bucket: of which store it is a copy."""

    source: str
    """The uuid of the store that is copied."""


DOCUMENT = BucketDocument(CopyMark, b"NYALACPY", "mark of a copy")


def read_copy_mark(bucket: Bucket, home: str) -> CopyMark | None:
    """Return the mark that makes the store whose objects begin with ``home`` a copy; None if there is none. Raises as
    `BucketDocument.read`."""
    return DOCUMENT.read(bucket, home + NAME)
