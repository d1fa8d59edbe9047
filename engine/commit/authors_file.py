"""The file ``authors`` of a store, in a bucket the object: the operations and users of its newest commits.

It helps people to read ``commits``, and nothing else needs it. So it may be behind the log, missing, damaged or of a
later version: then the store opens all the same, and what it lacks is NULL. It is written when the store closes, and
meanwhile at most once in ten seconds while there are new commits.

A document as in ``fs/document``: magic ``NYALAAUT``, version 1, and a body (little-endian)::

    head length u4 | head, JSON | a timestamp i8 for each commit, ascending | the number of its origin u4 for each
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field, NonNegativeInt, ValidationError

from ...schemas.errors import CorruptionError, InvalidArgumentError, StoreError
from ...schemas.message import Message, new_list
from .. import threads
from ..fs.document import HEADER, pack, unpack
from ..mvcc.clock import elapsed_seconds
from .commit_authors import COMMITS_KEPT, NOTHING, Authored, CommitAuthors, Origin

if TYPE_CHECKING:
    from ..home.home import Aside

log = logging.getLogger("nyala.commits")

NAME = "authors"
_MAGIC = b"NYALAAUT"
_VERSION = 1
_WHAT = "file of commit authors"
_LENGTH_BYTES = 4
_COMMIT_BYTES = 12
_SAVE_SECONDS = 10.0


class _Head(Message, frozen=True):
    """How many commits follow, and the origins that they have by number."""

    commits: NonNegativeInt
    origins: Annotated[list[Origin], Field(default_factory=new_list)]


def pack_authors(authored: Authored) -> bytes:
    """Return the bytes of the file ``authors``: by which operation and user the newest commits were made."""
    head = _Head(commits=len(authored.timestamps), origins=list(authored.origins)).model_dump_json().encode()
    cells = authored.timestamps.astype("<i8").tobytes() + authored.numbers.astype("<u4").tobytes()
    return pack(_MAGIC, _VERSION, len(head).to_bytes(_LENGTH_BYTES, "little") + head + cells)


def unpack_authors(document: bytes) -> Authored:
    """Return the authors of commits that the bytes of the file ``authors`` name.

    Raises:
        CorruptionError: they are not what was written.
        InvalidArgumentError: a later version of Nyala wrote them.
    """
    body = unpack(document, NAME, _MAGIC, _VERSION, _WHAT)
    length = int.from_bytes(body[:_LENGTH_BYTES], "little")
    first = _LENGTH_BYTES + length
    try:
        head = _Head.model_validate_json(body[_LENGTH_BYTES:first])
    except ValidationError as error:
        raise CorruptionError(NAME, HEADER.size, f"the {_WHAT} cannot be parsed: {error}") from error
    if len(body) != first + head.commits * _COMMIT_BYTES:
        raise CorruptionError(NAME, HEADER.size, f"the {_WHAT} does not have the length that its head says")
    timestamps = np.frombuffer(body, "<i8", head.commits, first)
    numbers = np.frombuffer(body, "<u4", head.commits, first + timestamps.nbytes)
    if np.any(np.diff(timestamps) <= 0) or np.any(numbers >= len(head.origins)):
        raise CorruptionError(NAME, HEADER.size, f"the {_WHAT} has commits that are out of order, or have no origin")
    return Authored(timestamps, numbers, head.origins)


class AuthorsFile:
    """Keeps the authors of one store's commits over restarts, in the file ``authors``. Thread safe."""

    def __init__(
        self,
        aside: Aside,
        authors: CommitAuthors,
        newest: int,
        elapsed: Callable[[], float] = elapsed_seconds,
    ) -> None:
        """``newest`` is the timestamp of the last commit before the store was opened: what the file says of later ones
        is of commits that a crash undid. The file is read when it is first needed."""
        self._aside = aside
        self._authors = authors
        self._newest = newest
        self._elapsed = elapsed
        self._earlier: Authored | None = None
        self._saved: object = None
        """The last commit that the file has."""
        self._saved_at = elapsed()
        self._has_failed = False
        self._lock = threads.Lock()

    def authored(self) -> Authored:
        """Return the origins of the newest commits. Raises UnavailableError if a bucket does not answer."""
        with self._lock:
            return self._authored()

    def document(self) -> bytes:
        """Return the bytes of the file as of now. Raises as ``authored``."""
        return pack_authors(self.authored())

    def save(self) -> None:
        """Write the file, if there are new commits. A failure is logged, and the next time is another attempt."""
        with self._lock:
            last = self._authors.last
            if last is self._saved:
                return
            self._saved_at = self._elapsed()
            try:
                self._aside.write_aside(NAME, pack_authors(self._authored()))
            except (OSError, StoreError) as error:
                if not self._has_failed:
                    log.warning("the file %s of commit authors cannot be written; this is tried again: %s", NAME, error)
                self._has_failed = True
            else:
                self._saved, self._has_failed = last, False

    def save_if_due(self) -> None:
        """Do so, if that was long ago. Cheap otherwise."""
        if self._authors.last is not self._saved and self._elapsed() - self._saved_at >= _SAVE_SECONDS:
            self.save()

    def _authored(self) -> Authored:
        if self._earlier is None:
            self._earlier = self._read()
        return self._earlier.followed_by(self._authors.newest(), COMMITS_KEPT)

    def _read(self) -> Authored:
        try:
            document = self._aside.read_aside(NAME)
            return NOTHING if document is None else unpack_authors(document).up_to(self._newest)
        except (CorruptionError, InvalidArgumentError, OSError) as error:
            log.warning("commits before this start are listed without operation and user: %s", error)
            return NOTHING
