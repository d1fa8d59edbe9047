"""The interface of a source: tables, a snapshot with a position, and then committed transactions with positions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pydantic import Field

from ...schemas.cells.types import LogicalType
from ...schemas.errors import ConflictError
from ...schemas.message import Message, new_dict


class SourceChangedError(ConflictError):
    """A transaction of a source cannot be mirrored. The runner first applies all transactions before it."""


class SourceColumn(Message, frozen=True):
    """A column of a source's table."""

    name: str
    type: str
    """The name of its type in the store, such as ``int64``."""
    detail: dict[str, int] = Field(default_factory=new_dict)
    """What the source itself needs to recognize the column again; kept with the position."""


class SourceTable(Message, frozen=True):
    """A table of a source, and the table of the store that mirrors it."""

    name: str
    """Its name in the source, such as ``public.orders``."""
    target: str
    columns: list[SourceColumn]
    """Those of the table of the store: also columns that the source has dropped since."""
    key: list[str]
    detail: dict[str, int] = Field(default_factory=new_dict)
    """What the source itself needs to recognize the table again."""

    @property
    def schema(self) -> pa.Schema:
        """The columns as the store has them; only those of the key are NOT NULL."""
        return pa.schema(
            [LogicalType.parse(each.type).field(each.name, each.name not in self.key) for each in self.columns]
        )


@dataclass(frozen=True)
class ChangedRows:
    """A step of a source: changes of one of its tables, in order."""

    table: str
    """Its name in the source."""
    rows: pa.RecordBatch
    """A row for each change; of a delete only the cells of the key count."""
    is_delete: np.ndarray
    absent: Mapping[str, np.ndarray] = field(default_factory=dict)
    """For columns that some rows lack, which rows: these cells keep their values."""
    is_moved: np.ndarray | None = None
    """Which rows continue the row that the change before them deletes, under a new key: their absent cells are those of
    that row. None: no row."""


@dataclass(frozen=True)
class Truncation:
    """A step of a source: all rows of one of its tables are deleted."""

    table: str


@dataclass(frozen=True)
class NewColumns:
    """A step of a source: one of its tables has other columns from now on."""

    table: SourceTable
    """The table as it is now. Columns that it lost are still in the store."""
    filled: Mapping[str, object] = field(default_factory=dict)
    """The values that rows from before have in each new column."""


Step: TypeAlias = ChangedRows | Truncation | NewColumns


@dataclass(frozen=True)
class SourceBatch:
    """What a source has brought: whole transactions, or a part of a large one."""

    steps: Sequence[Step] = ()
    position: str | None = None
    """The position after the last transaction, None if it goes on in the next batch. Without transactions: one up to
    which nothing concerns the tables."""
    source_time: datetime | None = None
    """When the last transaction was committed in the source, in UTC."""
    transactions: int = 0
    """How many end in it; the steps of one may all be in earlier batches."""
    behind_bytes: int | None = None
    """The distance to the newest position of the source; None if it is not known."""
    is_caught_up: bool = False
    """Whether everything has come that the source had when it was opened."""

    @property
    def changes(self) -> int:
        """The number of changed rows."""
        return sum(step.rows.num_rows for step in self.steps if isinstance(step, ChangedRows))


@dataclass(frozen=True)
class SnapshotPart:
    """A part of the rows of one table at a source's snapshot."""

    table: str
    read: Callable[[], Iterator[pa.RecordBatch]]
    """Reads the rows; called once, in any thread."""


@dataclass(frozen=True)
class Snapshot:
    """The rows of a source's tables at one position."""

    position: str
    parts: Sequence[SnapshotPart]


@dataclass(frozen=True)
class BatchLimits:
    """How much a source may put into one batch, and so how much the store commits at once."""

    rows: int = 100_000
    bytes: int = 64 << 20
    seconds: float = 0.2
    """How long a committed transaction may wait for others."""


class Source(ABC):
    """A source of changes. One thread uses it, except for the parts of a snapshot.

    Its methods raise ``UnavailableError`` if it cannot be reached now: the runner then tries again from the position
    that the store has. Every other error ends the run.
    """

    kind: str
    """The word for this kind of source, such as ``postgresql``."""
    name: str
    """Identifies it in the store."""

    chosen: Mapping[str, str]
    """The tables that are asked for: their names in the source, and those of the tables that will mirror them."""

    @abstractmethod
    def tables(self) -> list[SourceTable]:
        """Return the tables as they are now.

        Raises:
            InvalidArgumentError: one of them cannot be mirrored.
        """

    @abstractmethod
    def new_memo(self) -> str:
        """Return a text that the store keeps for the source, before the source makes anything outside: it names what it
        will make."""

    @abstractmethod
    def snapshot(self, memo: str, tables: Sequence[SourceTable]) -> AbstractContextManager[Snapshot]:
        """Begin a snapshot, from whose position ``changes`` can continue."""

    @abstractmethod
    def abandon(self, memo: str) -> None:
        """Remove what was made for ``memo``; nothing, if nothing was.

        Raises:
            UnavailableError: another process uses it.
        """

    @abstractmethod
    def changes(
        self, memo: str, tables: Sequence[SourceTable], after: str, limits: BatchLimits
    ) -> Iterator[SourceBatch]:
        """Yield the transactions whose positions are above ``after``, in the order of their commits, at least one batch
        a second, empty if there is nothing.

        Raises:
            NotFoundError, ConflictError: changes after the position are lost. The message says what to do.
            SourceChangedError: a table has changed in a way that cannot be mirrored, or a value has no place.
        """

    @abstractmethod
    def confirm(self, position: str) -> None:
        """Tell the source that the store has everything up to a position, durably. Also called again and again, so that
        the source knows that the runner is alive."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""
