"""TabletVersions: which versions of applications each tablet has, where tablets move from one store to another.

The store itself remembers the newest version of each application (`commit/transaction_memory`), and skips what it has
committed. A tablet that moves takes its rows along, but a store that it comes to may never have committed that version.
So each tablet has the newest version of each application that wrote to it, as the answer to a numbered write: these
survive restarts, and move with the tablet. A tablet that was split or merged has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...schemas.rows.transaction import TransactionCommit
from ...schemas.rows.write import WriteResult
from ...schemas.rows.writer_name import name_of_application
from ...schemas.table.partition_schema import sum_of
from ..commit.commit_log import Commit
from ..commit.numbered_writes import Number, NumberedWrites, Ticket
from ..record.log_note import Note
from ..tablet.tablet import Tablet

_ANSWER = WriteResult(timestamp=0, rows=0, applied=0)
"""Nobody gets it: the transaction has an answer of its own."""


@dataclass(frozen=True, slots=True)
class TabletVersions:
    """The versions that the tablets of one store have. Thread safe."""

    writers: NumberedWrites
    can_move: bool
    """Whether other stores share the tables; else the versions of the store are those of all its tablets."""

    def having(self, asked: TransactionCommit, table_id: int, tablets: Iterable[Tablet]) -> frozenset[int]:
        """Return the numbers of the tablets of a table that have the version of a transaction, or a later one."""
        if not self.can_move or asked.app_id is None or asked.app_version is None:
            return frozenset()
        return frozenset(
            tablet.tablet_id
            for tablet in tablets
            if self.writers.newest(table_id, _name(asked.app_id, tablet)) >= asked.app_version
        )

    def tickets(self, asked: TransactionCommit, table_id: int, tablets: Iterable[Tablet]) -> list[Ticket]:
        """Return what remembers the version of a transaction in the tablets of a table that it writes to."""
        if not self.can_move or asked.app_id is None or asked.app_version is None:
            return []
        names = [_name(asked.app_id, tablet) for tablet in tablets if tablet.elsewhere is None]
        return [Ticket(self.writers, Number(table_id, name, asked.app_version)) for name in names]


def note_of_version(ticket: Ticket) -> Note:
    """Return the note that has a tablet's version, for the log record of the transaction."""
    return ticket.note(_ANSWER)


def keep_version(ticket: Ticket, commit: Commit) -> None:
    """Remember a tablet's version, under the lock under which it was logged."""
    ticket.keep(_ANSWER, commit.lsn, commit.timestamp)


def _name(app_id: str, tablet: Tablet) -> str:
    return name_of_application(app_id, sum_of([tablet.partition]))
