"""A write command and its answer."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from ..message import Message, new_list
from .operation import Operation

ROW_ERRORS_MAX = 1_000
"""How many row errors an answer lists; ``error_count`` counts all."""


WRITER_LENGTH_MAX = 128
SEQ_MAX = (1 << 63) - 1
TRANSACTION_LENGTH_MAX = 128
"""Characters in the names of transactions, parts and applications."""

TransactionName = Annotated[str, StringConstraints(min_length=1, max_length=TRANSACTION_LENGTH_MAX)]


class Durability(StrEnum):
    """In the request to write rows: what the acknowledgement means: the log is fsynced, or handed to the operating
    system."""

    FSYNC = "fsync"
    OS = "os"


class CommitMode(StrEnum):
    """In the request to write rows: what one commit contains: one batch of a stream, or the whole stream."""

    BATCH = "batch"
    STREAM = "stream"


class Stage(Message, frozen=True, extra="forbid"):
    """Where to stage rows of a write that belongs to a transaction; the client chooses both names."""

    transaction: TransactionName
    part: TransactionName
    """A name for rows of one table, unique to each attempt to write them; the commit lists the parts that count."""
    table_id: int | None = None
    """The table that is meant: refuse with CONFLICT if another one has its name by now. None: whichever has it."""


class WriteCommand(Message, frozen=True, extra="forbid"):
    """The request to write rows: ``op`` on ``table``, for every batch of a DoPut stream, whose command it is. Clients
    leave out what has its default: a server of an earlier version refuses parts that it does not know."""

    table: str
    op: Operation = Operation.UPSERT
    atomic: bool = False
    """Any failing row rejects its whole batch."""
    durability: Durability | None = None
    """None means the store's default."""
    writer: str | None = Field(default=None, min_length=1, max_length=WRITER_LENGTH_MAX)
    """Names the numbering of writes: a write with a number that this writer has used gets its first answer again."""
    commit: CommitMode = CommitMode.BATCH
    if_timestamp: int | str | None = None
    """A row that changed after this moment is not touched, and refused with CONFLICT."""
    stage: Stage | None = None
    """Stage the rows, as a part of a transaction, instead of applying them."""
    count_replaced: bool = False
    """Count in the answer how many rows of an upsert replaced another; few rows take longer then."""
    rules: dict[str, str] | None = None
    """How a merge combines values with those of live rows, by column, as ``ColumnOptions.merge``; None: by the rules of
    the table's columns."""
    table_id: int | None = None
    """The table that is meant: refuse with CONFLICT if another one has its name by now. None: whichever has it."""

    @model_validator(mode="after")
    def _fitting(self) -> "WriteCommand":
        if self.rules is not None and self.op is not Operation.MERGE:
            raise ValueError(f"rules are for a merge, not for {self.op}")
        if self.rules is not None and self.stage is not None:
            raise ValueError("rules cannot be given in a transaction: set merge rules on the table's columns")
        return self


class RowError(Message, frozen=True):
    """Why a row of a write was rejected. ``row`` is its position in the data."""

    row: int
    code: str
    message: str

    @property
    def place(self) -> str:
        """Where the row is, as text."""
        return f"row {self.row:,}"


class WriteResult(Message, frozen=True):
    """The answer to a write of rows: its outcome.

    ``timestamp`` is that of the last commit, even if no row was applied; a scan ``as_of`` it sees the whole write.
    ``errors`` lists the first thousand; ``error_count`` counts all. ``truncated`` counts the cells of applied rows that
    were cut to the length of their varchar column: see ``ColumnOptions.too_long``. ``replaced`` counts the applied rows
    of an upsert that met a row with their key, there or before them in the data, if ``count_replaced`` asks for it.
    ``stale`` counts the rows that were ignored because the table's ``order_by`` column has a higher value already.
    """

    timestamp: int
    rows: int
    applied: int
    ignored: int = 0
    error_count: int = 0
    errors: list[RowError] = Field(default_factory=new_list)
    durability: Durability = Durability.FSYNC
    truncated: int = 0
    replaced: int = 0
    stale: int = 0

    def shifted(self, rows: int) -> "WriteResult":
        """Return this result with error positions counted from ``rows``."""
        if not rows or not self.errors:
            return self
        moved = [error.model_copy(update={"row": error.row + rows}) for error in self.errors]
        return self.model_copy(update={"errors": moved})


def combine(results: list[WriteResult]) -> WriteResult:
    """Combine the answers to writes of consecutive batches; their error positions must already be shifted."""
    return WriteResult(
        timestamp=max(result.timestamp for result in results),
        rows=sum(result.rows for result in results),
        applied=sum(result.applied for result in results),
        ignored=sum(result.ignored for result in results),
        error_count=sum(result.error_count for result in results),
        errors=[error for result in results for error in result.errors][:ROW_ERRORS_MAX],
        durability=results[-1].durability,
        truncated=sum(result.truncated for result in results),
        replaced=sum(result.replaced for result in results),
        stale=sum(result.stale for result in results),
    )
