"""Transactions: rows that are staged part by part, out of sight, and then committed all at once."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator

from .operation import Operation
from .write import RowError, TransactionName, WriteResult

if TYPE_CHECKING:
    import numpy as np

VERSION_MAX = (1 << 63) - 1


class StagedBatch(NamedTuple):
    """Rows of a part, with the operation that they ask for; None is that of the command."""

    batch: pa.RecordBatch
    op: Operation | None = None


class ServerRows(BaseModel):
    """Which rows of what was staged went to one of several servers."""

    server: str
    part_rows: list[int] = Field(default_factory=list)
    """How many rows each part has there."""
    pieces: list[tuple[int, int, bytes | None]] = Field(default_factory=list)
    """In order: the first row of a piece, how many of its rows went there, and which: a packed bit mask; None: all."""

    def add(self, first: int, mine: np.ndarray, rows: int) -> None:
        """Take note of the rows ``mine`` of a piece of so many rows that begins at ``first``."""
        import numpy as np  # a client of one server has none

        mask = None
        if len(mine) < rows:
            is_mine = np.zeros(rows, np.bool_)
            is_mine[mine] = True
            mask = zlib.compress(np.packbits(is_mine).tobytes(), 1)
        self.pieces.append((first, len(mine), mask))

    def position(self, row: int) -> int:
        """Return where a row stands that is the n-th of those of the server."""
        import numpy as np

        for first, count, mask in self.pieces:
            if row < count:
                if mask is None:
                    return first + row
                return first + int(np.flatnonzero(np.unpackbits(np.frombuffer(zlib.decompress(mask), np.uint8)))[row])
            row -= count
        raise IndexError(f"row {row} is outside the rows of the server {self.server!r}")


class StageResult(BaseModel):
    """A part is staged, and durable."""

    model_config = ConfigDict(frozen=True)

    transaction: str
    part: str
    rows: int
    parts: list[str] = Field(default_factory=list)
    """All parts that hold the rows, in order, for the commit: a client may have cut them into several."""
    part_rows: list[int] = Field(default_factory=list)
    """How many rows each of them has."""
    seconds_to_live: float
    """How long the transaction is kept from now on, unless another part comes or it is committed."""
    servers: list[ServerRows] = Field(default_factory=list, exclude=True)
    """Where several servers took the rows: which of them each has. Known only to who has cut them."""

    @model_validator(mode="before")
    @classmethod
    def _name_parts(cls, given: Any) -> Any:
        if isinstance(given, dict) and not given.get("parts"):
            return {**given, "parts": [given.get("part")], "part_rows": [given.get("rows")]}
        return given

    def as_staged(self, error: StagedRowError) -> StagedRowError:
        """Return an error with the position of its row among all that were staged; the same one if that is unknown."""
        mine = next((each for each in self.servers if each.server == error.server), None)
        if error.server is not None and mine is None:
            return error
        part_rows = self.part_rows if mine is None else mine.part_rows
        row = sum(part_rows[: self.parts.index(error.part)]) + error.row
        position = row if mine is None else mine.position(row)
        return error.model_copy(update={"row": position, "part": self.part, "server": None})


class TransactionCommit(BaseModel):
    """The body of ``commit_transaction``: what becomes visible, at one timestamp."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    transaction: TransactionName
    parts: list[TransactionName] = Field(default_factory=list)
    """In this order; other parts that were staged are dropped."""
    truncate: list[str] = Field(default_factory=list)
    """Tables whose rows are all deleted in the same commit, before the parts are applied."""
    app_id: TransactionName | None = None
    app_version: NonNegativeInt | None = Field(default=None, le=VERSION_MAX)
    """With ``app_id``: the commit is skipped when this application has committed this version or a later one."""


class TransactionAbort(BaseModel):
    """The body of ``abort_transaction``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    transaction: TransactionName


class StagedRowError(RowError):
    """Why one row of a transaction was refused. ``row`` is its position in its part."""

    part: str
    table: str
    server: str | None = None
    """Of several servers: ``row`` counts the rows of the part that this one has."""

    @property
    def place(self) -> str:
        """Where the row stands, in words."""
        which = "" if self.server is None else f" (of the rows that the server {self.server!r} has)"
        return f"row {self.row:,} of part {self.part!r}{which}, for table {self.table!r}"


class TransactionResult(WriteResult):
    """What became of a transaction. With errors nothing of it was applied, and it can still be committed or aborted.

    ``truncated`` counts the rows that lived in the tables named in ``truncate``: all were removed, also those whose
    keys a part brought back in the same commit.
    """

    errors: list[StagedRowError] = Field(default_factory=list)  # pyright: ignore[reportIncompatibleVariableOverride]
    truncated: int = 0
    skipped: bool = False
    """The application had committed this version, or a later one, before: nothing was applied now."""
