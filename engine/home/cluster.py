"""The object ``cluster`` of a root in a bucket: made once, and the same for all stores there.

A `BucketDocument`: magic ``NYALACLU``, and JSON with the cluster's ``uuid``.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ...schemas.errors import CorruptionError
from ...schemas.message import Message
from ..bucket import Bucket
from .bucket_document import BucketDocument

NAME = "cluster"


class Cluster(Message, frozen=True, extra="forbid"):
    """The content of the object ``cluster`` in a bucket, the same for all stores below a root."""

    uuid: str


DOCUMENT = BucketDocument(Cluster, b"NYALACLU", "cluster")


def read_cluster(bucket: Bucket, root: str) -> Cluster | None:
    """Return the cluster of a root in a bucket, which is empty or ends with a slash; None if it has none. Raises as
    `BucketDocument.read`."""
    return DOCUMENT.read(bucket, root + NAME)


def make_cluster(bucket: Bucket, root: str, new_uuid: Callable[[], UUID]) -> Cluster:
    """Return the cluster of a root in a bucket, which is made if it has none. Raises as `BucketDocument.read`."""
    cluster = read_cluster(bucket, root)
    if cluster is None:
        mine = Cluster(uuid=new_uuid().hex)
        cluster = mine if bucket.create(root + NAME, DOCUMENT.pack(mine)) else read_cluster(bucket, root)
    if cluster is None:
        raise CorruptionError(root + NAME, 0, "the object existed, but is now missing")
    return cluster
