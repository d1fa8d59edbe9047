"""The object ``cluster`` of a root in a bucket: made once, and the same for all stores there.

A document as in ``fs/document``: magic ``NYALACLU``, version 1, and JSON with the cluster's ``uuid``.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ...schemas.errors import CorruptionError
from ...schemas.message import Message
from ..bucket import Bucket
from ..fs.document import pack, parsed

NAME = "cluster"
_MAGIC = b"NYALACLU"
_VERSION = 1


class Cluster(Message, frozen=True, extra="forbid"):
    """What the object says."""

    uuid: str


def pack_cluster(cluster: Cluster) -> bytes:
    """Return the bytes of the object."""
    return pack(_MAGIC, _VERSION, cluster.model_dump_json().encode())


def read_cluster(bucket: Bucket, root: str) -> Cluster | None:
    """Return what is at a root, which is empty or ends with a slash; None if nothing is.

    Raises:
        CorruptionError: the object is not what was written.
        InvalidArgumentError: a later version of Nyala wrote it.
        UnavailableError: the bucket does not answer.
    """
    path = root + NAME
    try:
        return parsed(Cluster, bucket.get(path), path, _MAGIC, _VERSION, "cluster")
    except FileNotFoundError:
        return None


def make_cluster(bucket: Bucket, root: str, new_uuid: Callable[[], UUID]) -> Cluster:
    """Return what is at a root, and make it if nothing is. Raises as ``read_cluster``."""
    found = read_cluster(bucket, root)
    if found is None:
        made = Cluster(uuid=new_uuid().hex)
        found = made if bucket.create(root + NAME, pack_cluster(made)) else read_cluster(bucket, root)
    if found is None:
        raise CorruptionError(root + NAME, 0, "the object was there, and is gone")
    return found
