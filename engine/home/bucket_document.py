"""BucketDocument: a small object of a bucket that is written as a whole, and has one message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ...schemas.message import Message
from ..bucket import Bucket
from ..fs.document import pack, parsed

M = TypeVar("M", bound=Message)
_VERSION = 1


@dataclass(frozen=True)
class BucketDocument(Generic[M]):
    """A kind of object beside a store in a bucket: a document as in ``fs/document``, of version 1, whose body is a
    message as JSON."""

    model: type[M]
    magic: bytes
    what: str
    """Its name in errors."""

    def pack(self, message: M) -> bytes:
        """Return the bytes of the object."""
        return pack(self.magic, _VERSION, message.model_dump_json(exclude_none=True).encode())

    def read(self, bucket: Bucket, path: str) -> M | None:
        """Return the message of the object at ``path``; None if there is no object.

        Raises:
            CorruptionError: the object is not what was written.
            InvalidArgumentError: a later version of Nyala wrote it.
            UnavailableError: the bucket does not answer.
        """
        try:
            return parsed(self.model, bucket.get(path), path, self.magic, _VERSION, self.what)
        except FileNotFoundError:
            return None
