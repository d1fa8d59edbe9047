"""The object ``where`` of a store in a bucket: its last holder, and the addresses of that process.

A hint: the holder overwrites it after it opened the store. Nobody believes it, since a process that was replaced may
write late. Whoever reads it asks the server that it names.

A `BucketDocument`: magic ``NYALAWHR``, and JSON as in ``schemas/store/whereabouts``.
"""

from __future__ import annotations

from ...schemas.store.whereabouts import Whereabouts
from ..bucket import Bucket
from .bucket_document import BucketDocument

NAME = "where"
DOCUMENT = BucketDocument(Whereabouts, b"NYALAWHR", "hint where the store is")


def where_path(name: str) -> str:
    """Return the path below a bucket's root of the object ``where``, which tells who has the store ``name``."""
    return f"stores/{name}/{NAME}"


def read_where(bucket: Bucket, name: str) -> Whereabouts | None:
    """Return what the last holder of the store ``name`` wrote beside it in a bucket; None if no holder did. Raises as
    `BucketDocument.read`."""
    return DOCUMENT.read(bucket, where_path(name))


def write_where(bucket: Bucket, name: str, whereabouts: Whereabouts) -> None:
    """Note beside a store in a bucket who has the store ``name``. Raises UnavailableError."""
    bucket.put(where_path(name), DOCUMENT.pack(whereabouts))
