"""The source of a replica: where it gets the log and the manifests of a store that another process writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...schemas.errors import UnavailableError

if TYPE_CHECKING:
    from ..fs.filesystem import FileSystem
    from ..manifest.manifest import Manifest
    from ..manifest.rowset_entry import RowsetEntry
    from ..options import StoreOptions
    from ..wal.records import LogRecords


class GapError(Exception):
    """The log that a replica follows was freed after some point before it was read, or is none that follows."""


class OtherHistoryError(UnavailableError):
    """The log is another one than that which the replica applied: the store was put back to an earlier state."""


class ReplacedError(UnavailableError):
    """The process that has the store has replaced what a replica was to read: look again."""


class Point(Protocol):
    """A point of a log, to which a replica can be brought."""

    @property
    def number(self) -> int:
        """Orders the points of one log. The first is greater than 0."""
        ...

    @property
    def mark(self) -> object:
        """Differs at the same number of another log."""
        ...

    @property
    def manifest(self) -> object:
        """Identifies the manifest that counts here."""
        ...

    @property
    def store_uuid(self) -> str: ...

    @property
    def safe(self) -> int:
        """The log has all commits up to this timestamp that there will ever be."""
        ...

    @property
    def readable(self) -> int:
        """Users may read at timestamps up to this one, though a commit at or below may still come; 0: at none after
        ``safe``."""
        ...


AnyPoint = TypeVar("AnyPoint", bound=Point)
GivenPoint = TypeVar("GivenPoint", bound=Point, contravariant=True)


class NeededLog(Protocol[GivenPoint]):
    """What a replica needs to be opened: a manifest, and the log that it needs, up to one point."""

    @property
    def manifest(self) -> Manifest:
        """As it was written."""
        ...

    @property
    def attached(self) -> Sequence[tuple[int, RowsetEntry]]:
        """The rowsets that the log attaches, each with its tablet id, in log order."""
        ...

    def records(self, former: GivenPoint | None) -> Iterator[tuple[bool, LogRecords]]:
        """Yield the records in order, those after ``former`` with True. May be called again.

        Raises:
            GapError: they do not go back to ``former``.
            OtherHistoryError: ``former`` is a point of another log.
            CorruptionError, UnavailableError: the log cannot be read.
        """
        ...


class Source(Protocol[GivenPoint]):
    """Where a replica gets the log and the manifests of a store. One thread at a time calls it."""

    def make_files(self, point: GivenPoint, options: StoreOptions) -> FileSystem:
        """Return the files of the store, to be read as long as the replica is open."""
        ...

    def close_files(self) -> None:
        """Return at once; what reads the files ends."""
        ...

    def may_be_void(self, newest: GivenPoint) -> bool:
        """Whether it is not known yet that the log goes to this point."""
        ...

    def following(self, last: GivenPoint, newest: GivenPoint) -> Iterator[LogRecords]:
        """Yield the records after ``last``. Raises GapError, OtherHistoryError, and UnavailableError."""
        ...

    def reaches_back(self, last: GivenPoint, newest: GivenPoint) -> bool:
        """Whether ``newest`` needs the log that follows ``last``, as far as is known."""
        ...

    def needed(self, newest: GivenPoint) -> NeededLog[GivenPoint]:
        """Return what the store is at a point. Raises CorruptionError and UnavailableError."""
        ...

    def other_history(self) -> OtherHistoryError:
        """Return the error of a log that is another one than before."""
        ...

    def look_for(self, paths: Sequence[str]) -> None:
        """Look which of these files, all of one directory, there are."""
        ...

    def check_newest(self, point: GivenPoint) -> None:
        """Raise ReplacedError if another manifest counts by now: then it is no damage that something is gone."""
        ...


class LookingSource(Source[AnyPoint], Protocol[AnyPoint]):
    """A source of a replica that finds the end of the log itself."""

    def look(self) -> AnyPoint:
        """Return the end of the log: all that was acknowledged before the call is at or before it.

        Raises:
            UnavailableError: the disk fails, the bucket does not answer, or the store changes faster than it can be
                read.
            CorruptionError: the manifest or the log is not what was written.
            InvalidArgumentError: another version of Nyala wrote it, or it is an unfinished checkpoint.
        """
        ...

    def close(self) -> None:
        """Forget the log and the manifest."""
        ...


def replaced_meanwhile() -> ReplacedError:
    """Return a replica's error for a file of a manifest that counts no longer."""
    return ReplacedError("the process that has the store has replaced files meanwhile")
