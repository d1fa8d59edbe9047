"""Finds the home of a store that a user names by a URL, with the name of the store there."""

from __future__ import annotations

from ...schemas.errors import InvalidArgumentError
from ...schemas.uri import shown_uri
from ..bucket.opening import bucket_of
from .bucket import BucketHome


def home_at(url: str, name: str | None) -> BucketHome:
    """Return the home of the store ``name`` at a URL such as ``s3://bucket/root``.

    Raises:
        InvalidArgumentError: the URL is none of a bucket, the name is missing or is no name, or a package is missing.
    """
    shown = shown_uri(url)
    if url.startswith("grpc"):
        raise InvalidArgumentError(f"nyala.open opens a directory or a bucket; use nyala.connect for {shown!r}")
    if not name:
        raise InvalidArgumentError(f"a store in {shown} needs a name: give one, such as name='a', or --name a")
    return BucketHome(bucket_of(url), name, url)
