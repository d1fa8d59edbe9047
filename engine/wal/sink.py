"""The target of the log's writer: segments, or another place where a log is kept."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ...schemas.errors import UnavailableError
from .. import threads
from .format import EncodedRecord
from .group import TakenGroup
from .reader import CleanStop

AnyGroup = TypeVar("AnyGroup", bound=TakenGroup)


class UnansweredError(Exception):
    """Nobody knows yet whether a group of the log is durable. To write it again is allowed, and the way to find out."""


class LogLostError(UnavailableError):
    """This process has the log no longer. Its message says all there is to say; its ``locations``, whether nothing was
    written of what waits."""


class Sink(Protocol[AnyGroup]):
    """Takes the groups of a log, one after the other. One thread at a time writes; others may make room meanwhile.

    A signal's handler may interrupt ``write``, ``survives_process`` and ``sync`` in the main thread: unless the sink is
    ``in_doubt`` then, the group is written again from the start, and nothing but the same bytes in the same place
    may come of that.
    """

    free_bytes: int
    """How many bytes of claims there is room for; under the writer's mutex."""
    group_bytes: int
    """The most bytes of claims in a group; a record that is larger has a group of its own."""
    in_doubt: bool
    """Whether an interruption now would leave something half done."""

    heard_at: float
    """When a part of what is being synced arrived, as ``elapsed_seconds`` counts; 0 if none did."""

    @property
    def has_request(self) -> bool:
        """Whether a group is wanted even if it has no records."""
        ...

    def make_room(self, claimed: int, mutex: threads.Lock) -> None:
        """Make room for so many bytes of claims, one thread at a time; publish it under the writer's mutex.

        Raises StorageFullError (nothing has happened), and OSError for any other failure.
        """
        ...

    def take(self, records: list[EncodedRecord], first_lsn: int, claims: int, is_all: bool) -> AnyGroup:
        """Give records, whose claims are within the room, their place; under the writer's mutex.

        ``is_all``: every record that has a timestamp is in this group or an earlier one.
        """
        ...

    def write(self, group: AnyGroup) -> None:
        """Write a group. Raises OSError."""
        ...

    def survives_process(self, group: AnyGroup) -> bool:
        """Whether a group that is written, and not yet synced, will survive this process. Raises OSError."""
        ...

    def sync(self, group: AnyGroup) -> None:
        """Make a written group durable.

        Raises OSError; UnansweredError if it must be written again; LogLostError if somebody else has the log.
        """
        ...

    def close(self, is_clean: bool) -> None:
        """Forget what is open; if it ``is_clean``, remove what is prepared and unused. Raises OSError."""
        ...

    def clean_stop(self, last_lsn: int) -> CleanStop | None:
        """Return the end of a log without a failure that was closed; None if none is to be expected."""
        ...


def why_it_failed(error: BaseException) -> str:
    """Return the reason for which the log fails, in words."""
    if isinstance(error, LogLostError):
        return error.message
    return f"the log cannot be written: {error or type(error).__name__}; reads continue; restart to recover"


def outcome_unknown() -> UnavailableError:
    """Return the error for a writer that has waited too long for its record in the log."""
    return UnavailableError("the log does not answer: whether the change was applied is not known yet")


def queue_stuck() -> UnavailableError:
    """Return the error for a writer that has waited too long for a place in the log's queue."""
    return UnavailableError(
        "the log does not answer, and too many changes wait for it; nothing was applied: try again later"
    )
