"""Where a store in a bucket is, as those are told who read or build its files past its server."""

from __future__ import annotations

from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from ..message import Message


class BucketPlace(Message, frozen=True, extra="forbid"):
    """The place of a store in a bucket, as messages name it. It has no secrets: whoever goes there has credentials of
    its own."""

    url: str
    """The bucket, as the server calls it."""
    prefix: str
    """The names of the store's objects begin with it."""


class InBucket(Message, frozen=True, extra="forbid"):
    """A message about a store that tells where in a bucket it is."""

    bucket: BucketPlace | None = None
    """The bucket of the store; None: it is in a directory."""

    @model_serializer(mode="wrap")
    def _as_sent(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out ``bucket`` for a store in a directory: version 0.1 rejects members that it does not know."""
        parts = written(self)
        if self.bucket is None:
            parts.pop("bucket")
        return parts
