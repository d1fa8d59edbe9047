"""The interface of an object store, as far as a store needs it.

One verb decides between rivals: ``create`` puts an object if its name is free. All else is plain: names are used once,
so an object has one content as long as it exists, and every call may be repeated. No update on a condition and no
delete on a condition is asked for: those are what object stores get wrong.

Four things may be trusted, and nothing else:

* an object is there whole or not at all, and is durable when ``create`` or ``put`` has returned;
* of all who ``create`` one name with different bytes, one gets True;
* whoever asks after a call has returned sees its effect, in ``get``, ``size`` and ``list`` alike;
* a call that fails may have had its effect, may have it later, or never.

Names are relative POSIX paths of letters, digits and ``._-``, as in ``log/00000000000000000042``. There are no
directories, but no name may be the directory of another. Every implementation may be used by many threads at once, and
by a process that forks before its first request, not after.

All calls raise UnavailableError if the store gave no answer in time, or refused the credentials. They repeat what is
worth repeating themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ...schemas.errors import InvalidArgumentError

if TYPE_CHECKING:
    from ..fs.filesystem import BytesLike, ReadableFile

_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class Bucket(Protocol):
    """An object store, such as S3, as far as a store needs it. See the module's text for what is promised."""

    def create(self, name: str, content: bytes) -> bool:
        """Put an object if the name is free. Return whether the name now has exactly these bytes: because of this call,
        or of an earlier one with equal bytes; False means that it has others.

        Whoever must know that the object is its own puts a number used once into the bytes. UnavailableError says that
        the outcome is unknown: the object may still appear. Call again with the same bytes to learn it.
        """
        ...

    def put(self, name: str, content: BytesLike | ReadableFile) -> None:
        """Put an object under a name that nobody else puts; a file is read by position, in parts. To repeat a call with
        the same bytes is allowed. When it raises, the object may appear nevertheless."""
        ...

    def get(self, name: str) -> bytes:
        """Return a whole object. FileNotFoundError if there is none."""
        ...

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` on, at least one. FileNotFoundError if there is no such object;
        another OSError if it ends before."""
        ...

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of many ranges, each (offset, length), in their order; fetched at once. Errors as in
        ``get_range``."""
        ...

    def size(self, name: str) -> int:
        """Return the bytes in an object. FileNotFoundError if there is none."""
        ...

    def list(self, prefix: str, after: str = "") -> list[tuple[str, int]]:
        """Return (name, size) of all objects under ``prefix``, which ends with a slash or is empty; names are whole and
        sorted. With ``after`` only of names greater than it."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, in any order. It does not matter if some are missing."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Put an object's content under a second name, as ``put`` does. FileNotFoundError if there is no source."""
        ...


def check_name(name: str) -> str:
    """Return the ``name`` of an object in a bucket; InvalidArgumentError if no object can have it."""
    if not all(_SEGMENT.fullmatch(segment) for segment in name.split("/")):
        raise InvalidArgumentError(
            f"{name!r} is not a valid name of an object: use letters, digits and '._-', with '/' between parts"
        )
    return name


def check_prefix(prefix: str) -> str:
    """Return a ``prefix`` of objects' names; InvalidArgumentError if it is neither empty nor ends with a slash."""
    if prefix:
        if not prefix.endswith("/"):
            raise InvalidArgumentError(f"{prefix!r} is not a prefix of objects: it must end with '/'")
        check_name(prefix[:-1])
    return prefix
