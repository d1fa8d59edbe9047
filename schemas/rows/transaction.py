"""Transactions: rows are staged in parts, invisibly, and then committed together."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pydantic import Field, NonNegativeInt, model_validator

from ..message import Message, new_list
from .operation import Operation
from .write import RowError, TransactionName, WriteResult

if TYPE_CHECKING:
    import numpy as np

VERSION_MAX = (1 << 63) - 1


class StagedBatch(NamedTuple):
    """Rows to stage in a part of a transaction, with their operation; None means the command's."""

    batch: pa.RecordBatch
    op: Operation | None = None


class ServerRows(Message):
    """In the request to commit a transaction: which staged rows went to one of several servers."""

    server: str
    part_rows: list[int] = Field(default_factory=new_list)
    """How many rows of each part it has."""
    pieces: list[tuple[int, int, bytes | None]] = Field(default_factory=new_list)
    """In order: the first row of a piece, how many of its rows went there, and a packed bit mask of them; None: all."""

    def add(self, first: int, mine: np.ndarray, rows: int) -> None:
        """Add the rows ``mine`` of a piece of ``rows`` rows that begins at ``first``."""
        import numpy as np  # a client of a single server may lack it

        mask = None
        if len(mine) < rows:
            is_mine = np.zeros(rows, np.bool_)
            is_mine[mine] = True
            mask = zlib.compress(np.packbits(is_mine).tobytes(), 1)
        self.pieces.append((first, len(mine), mask))

    def position(self, row: int) -> int:
        """Return the staged position of the server's n-th row."""
        import numpy as np

        for first, count, mask in self.pieces:
            if row < count:
                if mask is None:
                    return first + row
                return first + int(np.flatnonzero(np.unpackbits(np.frombuffer(zlib.decompress(mask), np.uint8)))[row])
            row -= count
        raise IndexError(f"the server {self.server!r} got fewer than {row + 1} rows of this batch")


class StageResult(Message, frozen=True):
    """The answer for a part of a transaction that is staged and durable."""

    transaction: str
    part: str
    rows: int
    parts: list[str] = Field(default_factory=new_list)
    """All parts that hold the rows, in order, for the commit: a client may have split them."""
    part_rows: list[int] = Field(default_factory=new_list)
    """How many rows each of them has."""
    seconds_to_live: float
    """How long the transaction is kept, unless another part arrives or it is committed."""
    servers: list[ServerRows] = Field(default_factory=new_list, exclude=True)
    """Which of several servers has which rows. Known only to the client that routed them."""

    @model_validator(mode="before")
    @classmethod
    def _name_parts(cls, given: Any) -> Any:
        if isinstance(given, dict) and not given.get("parts"):
            return {**given, "parts": [given.get("part")], "part_rows": [given.get("rows")]}
        return given

    def as_staged(self, error: StagedRowError) -> StagedRowError:
        """Return an error with its row's position among all staged rows; unchanged if that is unknown."""
        mine = next((each for each in self.servers if each.server == error.server), None)
        if error.server is not None and mine is None:
            return error
        part_rows = self.part_rows if mine is None else mine.part_rows
        row = sum(part_rows[: self.parts.index(error.part)]) + error.row
        position = row if mine is None else mine.position(row)
        return error.model_copy(update={"row": position, "part": self.part, "server": None})


class TransactionCommit(Message, frozen=True, extra="forbid"):
    """The body of ``commit_transaction``: the staged rows to make visible, at one timestamp."""

    transaction: TransactionName
    parts: list[TransactionName] = Field(default_factory=new_list)
    """Parts to apply, in this order; other staged parts are dropped."""
    truncate: list[str] = Field(default_factory=new_list)
    """Tables whose rows are all deleted in the same commit, before the parts are applied."""
    table_ids: dict[str, int] | None = None
    """Which tables the names in ``truncate`` mean: refuse with CONFLICT if another one has such a name by now."""
    if_timestamp: int | str | None = None
    """A row that changed after this moment refuses the transaction with CONFLICT; excludes ``truncate``."""
    app_id: TransactionName | None = None
    app_version: NonNegativeInt | None = Field(default=None, le=VERSION_MAX)
    """With ``app_id``: skip the commit if this application has already committed this version or a later one."""


class TransactionAbort(Message, frozen=True, extra="forbid"):
    """The body of ``abort_transaction`` and ``staged_parts``: whose staged rows to drop, or to tell about."""

    transaction: TransactionName


class StagedShape(Message, frozen=True):
    """What rows a staged part of a transaction has: one for each operation and set of columns."""

    part: str
    table: str
    """Its name now; empty if it was dropped."""
    operation: Operation
    columns: list[str]


class StagedParts(Message, frozen=True):
    """The answer of ``staged_parts``: those of a transaction."""

    parts: list[StagedShape]


class StagedRowError(RowError, frozen=True):
    """Why one row of a transaction was rejected. ``row`` is its position in its part."""

    part: str
    table: str
    server: str | None = None
    """With several servers: ``row`` counts only the rows of the part that this server has."""

    @property
    def place(self) -> str:
        """Where the row is, as text."""
        which = "" if self.server is None else f" (of the rows that the server {self.server!r} has)"
        return f"row {self.row:,} of part {self.part!r}{which}, for table {self.table!r}"


class TransactionResult(WriteResult, frozen=True):
    """The outcome of a transaction. With errors nothing was applied, and it can still be committed or aborted.

    ``truncated`` counts the live rows of the tables in ``truncate``: all were removed, including those whose keys a
    part inserted again in the same commit. ``cells_truncated`` counts what ``truncated`` does in other results: cells
    that were cut to the length of their column.
    """

    errors: list[StagedRowError] = Field(default_factory=new_list)  # pyright: ignore[reportIncompatibleVariableOverride]
    truncated: int = 0
    cells_truncated: int = 0
    skipped: bool = False
    """The application had already committed this version or a later one: nothing was applied now."""
