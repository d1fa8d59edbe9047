"""Copy of a whole store in a bucket: to another bucket, or to another name."""

from __future__ import annotations

from ...schemas.store.checkpoint import StoreCopied
from ..executors.progress import Show
from .link import Store, StoreLink


def copy_store(
    source: Store,
    url: str,
    name: str,
    *,
    source_url: str | None = None,
    workers: int | None = None,
    show: Show = "auto",
) -> StoreCopied:
    """Run a job that copies a store in a bucket to the store ``name`` in the bucket at ``url``, while it is in use.

    The copy has all tables with their history, grants, and the answers to numbered writes, at one moment: every write
    acknowledged before the call. Run it again to bring it up to date: only new files are copied, and those that the
    store has replaced are deleted. Until it is finished, the earlier copy is there, or none. Within one bucket, also
    between two roots of it, the service copies; else the bytes come here, and are checked. ``source_url`` is the
    source's bucket, if this process reaches it by another URL than the server. Credentials are the environment's.

    ``nyala.open(url, name=name)`` or ``nyala serve`` makes a store of its own of the copy; then no more is copied
    there.

    Raises:
        ConflictError: at the target is another store, or a copy that was opened.
        InvalidArgumentError: the store is not in a bucket, has no table, or is the target.
        CorruptionError: a file is not what was written.
        PermissionDeniedError: the caller has not the grants ``maintain`` and ``read`` on all tables.
        UnavailableError: a bucket or the server does not answer. Run it again.
    """
    from ..offline_jobs.store_copy import copy_store  # needs the engine, which clients of a server may lack

    return copy_store(StoreLink.to(source).service, url, name, source_url, workers, show)
