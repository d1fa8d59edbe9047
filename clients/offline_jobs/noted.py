"""The location that the last holder of a store in a bucket noted for clients. Most buckets need the package obstore."""

from __future__ import annotations

from ...engine.bucket import bucket_of, hurried
from ...engine.home.where import read_where


def noted_locations(url: str, name: str, seconds: float | None = None) -> list[str]:
    """Read from a bucket, without a server, the locations in the object ``where`` of the store ``name``; return none if
    nobody noted any. ``seconds``: try once for about so long, not for as long as requests to a bucket are repeated.

    Whoever may write the bucket may have written them: ask the process there whether it has the store.

    Raises:
        InvalidArgumentError: the URL is none of a bucket, or the package is missing.
        UnavailableError: the bucket does not answer.
        CorruptionError: the object is damaged.
    """
    bucket = bucket_of(url)
    found = read_where(bucket if seconds is None else hurried(bucket, seconds), name)
    return found.holder.locations if found and found.holder else []
