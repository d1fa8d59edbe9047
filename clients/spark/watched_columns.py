"""Notices that a table was altered while a stream of its changes runs.

Spark fixes the columns of a query when it begins. So a query that would leave out new columns, or cannot read the old
ones any more, stops before the first change that was made since; started again, it continues there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.types import StructType

from ...schemas.errors import ConflictError, InvalidArgumentError
from .batch_read import schema_in
from .options import StreamReadOptions


@dataclass(frozen=True)
class WatchedColumns:
    """The columns that a Spark stream's query began with."""

    read: StructType
    """Those that it reads."""
    is_all: bool
    """Whether these are all that there were, so that new ones are missed."""

    @classmethod
    def of(cls, there: StructType, names: Iterable[str]) -> WatchedColumns:
        """Watch the columns called ``names`` of those that a read has."""
        read = StructType([there[name] for name in names])
        return cls(read, len(read) == len(there))

    def check(self, options: StreamReadOptions) -> None:
        """Compare them with those of the table now.

        Raises:
            ConflictError: some are gone, have another type, may be NULL or, where all are read, are new.
        """
        try:
            now = schema_in(options.server().describe_table(options.table), options)
        except InvalidArgumentError as error:  # of the option ``columns``
            raise _changed(options.table, [error.message]) from None
        if changes := self._changes(now):
            raise _changed(options.table, changes)

    def _changes(self, now: StructType) -> list[str]:
        there = {field.name: field for field in now}
        changes = [f"{field.name} is new" for field in now if self.is_all and field.name not in self.read.names]
        for field in self.read:
            found = there.get(field.name)
            if found is None:
                changes.append(f"{field.name} is gone")
            elif found.dataType != field.dataType:
                changes.append(f"{field.name} is {found.dataType.simpleString()}, not {field.dataType.simpleString()}")
            elif found.nullable and not field.nullable:
                changes.append(f"{field.name} may be NULL")
        return changes


def _changed(table: str, changes: list[str]) -> ConflictError:
    return ConflictError(
        f"the columns of table {table!r} have changed since the query began: {', '.join(changes)}; load the stream "
        "again and start the query with its checkpoint: it continues where it stopped, with the new columns"
    )
