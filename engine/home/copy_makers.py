"""The object ``makers`` of a copy of a store: by reign, the process that made the files that were brought there.

Runs that bring a copy up to date take a file that is there for the same if its name and its size are. Its maker must be
the same, too: see ``manifest/makers``. Each run that brings files of another reign overwrites the object first.

A `BucketDocument`: magic ``NYALACPM``.
"""

from __future__ import annotations

from ...schemas.message import Message
from ..bucket import Bucket
from .bucket_document import BucketDocument

NAME = "makers"


class CopyMakers(Message, frozen=True, extra="forbid"):
    """The content of the object ``makers`` of a copied store in a bucket: who made the files that were brought
    there."""

    makers: dict[int, str]
    """As in a manifest."""


DOCUMENT = BucketDocument(CopyMakers, b"NYALACPM", "note of who made the files of a copy")


def read_copy_makers(bucket: Bucket, home: str) -> CopyMakers:
    """Return the makers of the copied store in a bucket whose objects begin with ``home``: none if there is no such
    object. Raises as `BucketDocument.read`."""
    return DOCUMENT.read(bucket, home + NAME) or CopyMakers(makers={})


def write_copy_makers(bucket: Bucket, home: str, makers: CopyMakers) -> None:
    """Note in a bucket who made the files of a copied store. Raises UnavailableError."""
    bucket.put(home + NAME, DOCUMENT.pack(makers))
