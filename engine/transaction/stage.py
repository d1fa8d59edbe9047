"""Stage rows: check what can be checked before the commit, and write them to the staging area."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from ...schemas.rows.operation import Operation
from ...schemas.rows.transaction import StagedBatch, StageResult
from ...schemas.rows.write import CommitMode, WriteCommand
from ...schemas.table.table import TableSchema
from ..table.checked_batch import check_batch, check_size, spelled_out
from ..table.table import Table
from .staging.area import StagingArea


def stage(
    area: StagingArea, table: Table, command: WriteCommand, batches: Iterable[StagedBatch], limits: Limits
) -> StageResult:
    """Stage rows of a transaction: see ``StoreService.stage``.

    Raises:
        InvalidArgumentError: the command is not allowed in a transaction, or a batch does not fit the table.
        StorageFullError, UnavailableError: the rows could not be written.
    """
    if command.stage is None:
        raise InvalidArgumentError('the command needs "stage": rows can be staged only as a part of a transaction')
    if command.table_id is not None:
        raise InvalidArgumentError("put table_id into stage: the rows are staged")
    if command.writer or command.atomic or command.if_timestamp is not None or command.commit is not CommitMode.BATCH:
        raise InvalidArgumentError("writer, atomic, commit and if_timestamp cannot be combined with stage")
    part = area.write(command.stage, table.table_id, _checked(table.schema, command.op, batches, limits))
    return StageResult(
        transaction=part.info.transaction, part=part.info.part, rows=part.rows, seconds_to_live=area.seconds_to_live
    )


@dataclass(frozen=True, slots=True)
class ExpiryOp:
    """The removal of expired staged rows."""

    area: StagingArea
    name: str = "remove staged rows that are too old"

    def score(self) -> float:
        """Return the score of work that is due: it frees space."""
        return 1.0 if self.area.is_due() else 0.0

    def perform(self) -> object:
        """Remove them."""
        return self.area.expire()


def _checked(
    schema: TableSchema, op: Operation, batches: Iterable[StagedBatch], limits: Limits
) -> Iterator[tuple[Operation, pa.RecordBatch]]:
    """Yield the batches with their operations, as plain cells without dictionaries. Deletes keep only the columns that
    they need."""
    for batch, own in batches:
        operation = own or op
        if operation.base is Operation.DELETE:
            needed = {column.name for column in (*schema.key, schema.ordering) if column is not None}
            batch = batch.select([name for name in batch.schema.names if name in needed])
        check_size(batch.nbytes, batch.num_rows, limits)
        check_batch(batch.slice(0, 0), schema, operation, limits)
        yield operation, spelled_out(batch, schema, limits)
