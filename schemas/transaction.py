"""Transactions: rows that are staged part by part, out of sight, and then committed all at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator

from .operation import Operation
from .write import RowError, TransactionName, WriteResult

VERSION_MAX = (1 << 63) - 1


class StagedBatch(NamedTuple):
    """Rows of a part, with the operation that they ask for; None is that of the command."""

    batch: pa.RecordBatch
    op: Operation | None = None


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

    @model_validator(mode="before")
    @classmethod
    def _name_parts(cls, given: Any) -> Any:
        if isinstance(given, dict) and not given.get("parts"):
            return {**given, "parts": [given.get("part")], "part_rows": [given.get("rows")]}
        return given


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

    @property
    def place(self) -> str:
        """Where the row stands, in words."""
        return f"row {self.row:,} of part {self.part!r}, for table {self.table!r}"


class TransactionResult(WriteResult):
    """What became of a transaction. With errors nothing of it was applied, and it can still be committed or aborted.

    ``truncated`` counts the rows that lived in the tables named in ``truncate``: all were removed, also those whose
    keys a part brought back in the same commit.
    """

    errors: list[StagedRowError] = Field(default_factory=list)  # pyright: ignore[reportIncompatibleVariableOverride]
    truncated: int = 0
    skipped: bool = False
    """The application had committed this version, or a later one, before: nothing was applied now."""
