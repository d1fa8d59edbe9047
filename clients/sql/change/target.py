"""The table that a statement changes, and what statements ask of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from sqlglot import exp

from ....schemas.errors import InvalidArgumentError
from ....schemas.protocol.service import StoreService
from ....schemas.store.description import TableDescription
from ....schemas.table.column import ColumnSchema
from ....schemas.table.table import AUTO_INCREMENTING
from ..text.names import checked_column, refuse_repeated, table_name

Read = Callable[[exp.Query, int, Mapping[str, pa.Table]], pa.Table]
"""Runs a query at a snapshot and returns all its rows. The mapping has tables in memory, which the query may name."""


@dataclass(frozen=True)
class Reading:
    """The reads of one try of an SQL statement that changes rows: all at one snapshot."""

    read: Read
    moment: int

    def rows(self, query: exp.Query, tables: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Return the rows of a query, which may name ``tables`` in memory."""
        return self.read(query, self.moment, tables or {})


@dataclass(frozen=True)
class ChangeTarget:
    """The table that an SQL statement changes, as it is described when a try of the statement begins."""

    about: TableDescription

    @classmethod
    def of(cls, store: StoreService, table: exp.Expr | None) -> ChangeTarget:
        """Return the table that a statement names. Raises NotFoundError: there is none."""
        return cls(store.describe_table(table_name(table)))

    @property
    def name(self) -> str:
        return self.about.name

    @property
    def key(self) -> list[str]:
        return self.about.primary_key

    @property
    def is_numbered(self) -> bool:
        """Whether the store numbers new rows in the last column of the key."""
        return not self.about.unique_key

    @cached_property
    def columns(self) -> dict[str, ColumnSchema]:
        """All columns by name, in order."""
        return {column.name: column for column in self.about.columns}

    @cached_property
    def given(self) -> list[str]:
        """The columns of new rows, in order: those that the store does not number."""
        return [name for name in self.columns if not (self.is_numbered and name == AUTO_INCREMENTING)]

    def for_new_rows(self, names: Sequence[str]) -> list[str]:
        """Return the columns that a statement lists for new rows.

        Raises:
            InvalidArgumentError: one does not exist, is listed twice, or the store fills it in.
        """
        listed = [checked_column(name, self.columns, self.name) for name in names]
        refuse_repeated(listed, f"the list of columns of table {self.name!r}")
        if self.is_numbered and AUTO_INCREMENTING in listed:
            raise InvalidArgumentError(
                f"the store gives numbers to new rows of table {self.name!r}: leave out the column "
                f"{AUTO_INCREMENTING!r}"
            )
        return listed

    def for_changes(self, names: Sequence[str], takes_key: bool = False) -> list[str]:
        """Return the columns that a statement sets.

        Raises:
            InvalidArgumentError: one does not exist, is set twice, is immutable, or is of a key that cannot change.
        """
        listed = [checked_column(name, self.columns, self.name) for name in names]
        refuse_repeated(listed, "SET")
        for name in listed:
            if self.columns[name].immutable:
                raise InvalidArgumentError(f"column {name!r} of table {self.name!r} is immutable: it keeps its values")
            if name in self.key and (self.is_numbered or not takes_key):
                raise InvalidArgumentError(
                    f"column {name!r} is part of the primary key of table {self.name!r}, which this statement cannot "
                    "change: delete the rows and insert them with the new keys, in one transaction"
                )
        return listed
