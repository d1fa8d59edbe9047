"""Writes: each task stages its rows under a name of its own, invisibly; the driver commits those of the tasks that
Spark accepted, at one timestamp. Rows staged by failed, killed or duplicate tasks are discarded."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ...schemas.errors import InvalidArgumentError, RowErrors
from ...schemas.phrases import counted
from ...schemas.rows.operation import Operation
from ...schemas.rows.transaction import StagedBatch, TransactionCommit
from ...schemas.rows.write import Stage, WriteCommand
from ...schemas.store.description import TableDescription
from ..convert.batching import in_batches, in_slices
from .alignment import Alignment
from .grouping import grouped
from .options import StreamWriteOptions, WriteOptions
from .plain_errors import plain_errors
from .statement import advised, as_meant

_log = logging.getLogger(__name__)


@dataclass
class StagedParts(WriterCommitMessage):
    """The message of a Spark task that has staged rows: everything that the driver needs for the commit."""

    transaction: str
    parts: list[str]
    """In the order of application."""
    rows: int


class Stager:
    """Stages the rows of Spark tasks and commits them. It is sent to tasks, so it holds plain data only."""

    def __init__(
        self, schema: StructType, options: WriteOptions | StreamWriteOptions, table: TableDescription, is_once: bool
    ) -> None:
        """Check the columns against the table. ``is_once``: the rows are for this table only, and for no other one that
        gets its name meanwhile; a stream follows the name.

        Raises:
            StoreError: they cannot be written to it.
        """
        self.options = options
        self.table_id = table.table_id
        self._bound_id = table.bound_id if is_once else None
        self._alignment = Alignment.of(schema, table, options)

    def stage(self, transaction: str, batches: Iterable[pa.RecordBatch]) -> StagedParts:
        """Stage all rows of a task.

        Each set of columns is a part of its own, so with ``ignoreNull`` there may be several.

        Raises:
            StoreError: rows do not fit the table, or the server cannot take them.
        """
        attempt = _attempt()
        staged = StagedParts(transaction, [], 0)
        for _, run in groupby(self._rows(batches), key=lambda each: each.batch.schema):
            name = f"{attempt}-{len(staged.parts)}"
            command = WriteCommand(
                table=self.options.table,
                op=self._alignment.operation,
                stage=Stage(transaction=transaction, part=name, table_id=self._bound_id),
            )
            result = self.options.all_servers().stage(command, run)
            staged.rows += result.rows
            staged.parts += result.parts
        return staged

    def commit(
        self,
        transaction: str,
        messages: Sequence[WriterCommitMessage | None],
        truncate: bool,
        app: str | None,
        version: int | None,
    ) -> None:
        """Commit the parts that the tasks' messages name; with ``truncate``, they replace all rows.

        The store counts the versions of an ``app`` for each table separately.

        Raises:
            RowErrors: rows were refused; nothing was applied, and the staged rows are discarded.
        """
        parts = [part for message in messages if isinstance(message, StagedParts) for part in message.parts]
        store = self.options.all_servers()
        commit = TransactionCommit(
            transaction=transaction,
            parts=parts,
            truncate=[self.options.table] if truncate else [],
            table_ids={self.options.table: self._bound_id} if truncate and self._bound_id is not None else None,
            app_id=None if app is None else f"{app}@{self.table_id}",
            app_version=version,
        )
        result = store.commit_transaction(commit)
        if result.error_count:
            store.abort_transaction(transaction)
            raise RowErrors(result)
        if result.cells_truncated:
            cells = counted(result.cells_truncated, "cell")
            _log.warning(
                "table %s: %s cut to the length of the column, see its option too_long", self.options.table, cells
            )

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[StagedBatch]:
        """Yield batches to stage: of a good size, each with one operation and one set of columns."""
        alignment = self._alignment
        for batch in in_batches(in_slices(batches)):
            rows, words = alignment.rows(batch)
            for operation, part in grouped(rows, alignment.key, words, alignment.ignore_null):
                yield StagedBatch(self._sent(part, operation or alignment.operation), operation)

    def _sent(self, rows: pa.RecordBatch, operation: Operation) -> pa.RecordBatch:
        """Keep only what a delete sends; if operations alternate, one schema for all is cheaper."""
        if self._alignment.operation_column is None and operation.base is Operation.DELETE:
            return rows.select([name for name in rows.schema.names if name in self._alignment.delete_columns])
        return rows


class BatchWriter(DataSourceArrowWriter):
    """``df.write``: created once, in the planner's process, and sent to all tasks, to ``commit`` and to ``abort``."""

    def __init__(self, schema: StructType, overwrite: bool, options: WriteOptions) -> None:
        """Check the columns against the table.

        Raises:
            StoreError: they cannot be written to it.
        """
        if overwrite and (options.operation_column or options.operation.base in (Operation.UPDATE, Operation.DELETE)):
            raise InvalidArgumentError(
                "overwrite empties the table: set operation to insert or upsert, without operationColumn"
            )
        table = options.server(patient=False).describe_table(options.table)
        self._options, self._advice = as_meant(options, schema, table, overwrite)
        self._overwrite = overwrite
        self._stager = Stager(schema, self._options, table, is_once=True)
        self._transaction = uuid.uuid4().hex

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedParts:
        """Stage the rows of a task."""
        return self._stager.stage(self._transaction, iterator)

    @plain_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible at one timestamp; with ``overwrite``, they replace the existing rows.

        Raises:
            RowErrors: rows were refused, so nothing was applied.
        """
        app, version = self._options.txn_app_id, self._options.txn_version
        try:
            self._stager.commit(self._transaction, messages, self._overwrite, app, version)
        except RowErrors as error:
            raise advised(error, self._advice) if self._advice else error from None

    @plain_errors
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard all staged rows, also those of tasks that left no message."""
        self._options.all_servers().abort_transaction(self._transaction)


def _attempt() -> str:
    """Return a name unique to this attempt of this task."""
    context = TaskContext.get()
    if context is None:
        return uuid.uuid4().hex
    return f"{context.stageId()}-{context.partitionId()}-{context.taskAttemptId()}"
