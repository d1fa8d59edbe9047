"""The object ``where`` of a store in a bucket: who opened it last, and at which addresses.

A hint: the holder overwrites it after it opened the store. Nobody believes it, since a process that was replaced may
write late. Whoever reads it asks the server that it names.

A document as in ``fs/document``: magic ``NYALAWHR``, version 1, and JSON as in ``schemas/store/whereabouts``.
"""

from __future__ import annotations

from ...schemas.store.whereabouts import Whereabouts
from ..bucket import Bucket
from ..fs.document import pack, parsed

NAME = "where"
_MAGIC = b"NYALAWHR"
_VERSION = 1


def where_path(name: str) -> str:
    """Return the object's path below the root, for the store ``name``."""
    return f"stores/{name}/{NAME}"


def pack_where(found: Whereabouts) -> bytes:
    """Return the bytes of the object."""
    return pack(_MAGIC, _VERSION, found.model_dump_json(exclude_none=True).encode())


def read_where(bucket: Bucket, name: str) -> Whereabouts | None:
    """Return what the last holder of the store ``name`` wrote; None if nobody did.

    Raises:
        CorruptionError: the object is not what was written.
        InvalidArgumentError: a later version of Nyala wrote it.
        UnavailableError: the bucket does not answer.
    """
    path = where_path(name)
    try:
        return parsed(Whereabouts, bucket.get(path), path, _MAGIC, _VERSION, "hint where the store is")
    except FileNotFoundError:
        return None


def write_where(bucket: Bucket, name: str, found: Whereabouts) -> None:
    """Note who has the store ``name``. Raises UnavailableError."""
    bucket.put(where_path(name), pack_where(found))
