"""A note in a log record beside its changes, for `commit/numbered_writes` or `commit/transaction_memory`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class NoteKind(IntEnum):
    """The kind of a note in a log record, among the kinds of changes: never reuse or renumber."""

    ANSWER = 4
    """The answer to the numbered write whose record this is."""
    WRITERS = 5
    """Answers from a part of the log that is about to be freed."""
    TRANSACTIONS = 7
    """The transaction of this commit; or all of them, from a part of the log that is about to be freed."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note in a log record beside its changes. ``body`` is JSON; ``table_id`` is 0 in a note about several tables."""

    table_id: int
    kind: NoteKind
    body: bytes
