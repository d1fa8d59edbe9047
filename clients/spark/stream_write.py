"""The sink of a stream: every micro-batch is one commit that carries the batch's number.

A restarted query may send its last batch again. The store keeps the number of each application's newest batch in the
same log record as its rows, and skips the repeated batch.

Spark creates one writer for the tasks and another for ``commit``, so the tasks' messages carry what the commit needs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ...schemas.errors import InvalidArgumentError
from ...schemas.rows.operation import Operation
from .batch_write import StagedParts, Stager
from .merged_columns import merge_columns
from .options import StreamWriteOptions
from .plain_errors import plain_errors
from .statement import numbering

_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


@dataclass
class StagedPartsOfBatch(StagedParts):
    """The message of a Spark task of a micro-batch: what it has staged."""

    query: str
    """The query's id, which its checkpoint keeps."""


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``. In output mode ``complete`` each batch replaces all earlier rows."""

    def __init__(self, schema: StructType, overwrite: bool, options: StreamWriteOptions) -> None:
        """Check the columns against the table.

        Raises:
            StoreError: they cannot be written to it.
        """
        if overwrite and (options.operation_column or options.operation.base in (Operation.UPDATE, Operation.DELETE)):
            raise InvalidArgumentError(
                "output mode complete empties the table: set operation to insert or upsert, without operationColumn"
            )
        self._options = options
        self._overwrite = overwrite
        if options.merge_schema:
            table = merge_columns(options.all_servers(), options.table, schema, options.operation_column)
        else:
            table = options.server().describe_table(options.table)
        self._stager = Stager(schema, numbering(options, schema, table), table, is_once=False)
        self._made = uuid.uuid4().hex

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPartsOfBatch:
        """Stage the rows of a task."""
        query, batch = _property(_QUERY_ID), _property(_BATCH_ID)
        staged = self._stager.stage(f"{self._made}-{batch}", iterator)
        return StagedPartsOfBatch(staged.transaction, staged.parts, staged.rows, query)

    @plain_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make a micro-batch visible, once.

        Raises:
            RowErrors: rows were refused, so nothing of the batch was applied.
        """
        first = next((message for message in messages if isinstance(message, StagedPartsOfBatch)), None)
        if first is None and not self._overwrite:
            return
        app = self._options.txn_app_id or (first.query if first else "")
        if not app:
            raise InvalidArgumentError("Spark does not identify the streaming query: set the option txnAppId")
        transaction = first.transaction if first else f"{self._made}-{batchId}"
        self._stager.commit(transaction, messages, self._overwrite, app, batchId)

    @plain_errors
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Discard what the tasks have staged; if no task of the batch left a message, it expires."""
        for transaction in {message.transaction for message in messages if isinstance(message, StagedPartsOfBatch)}:
            self._options.all_servers().abort_transaction(transaction)


def _property(name: str) -> str:
    """Return a property that Spark sets for this task's micro-batch."""
    context = TaskContext.get()
    return (context and context.getLocalProperty(name)) or ""
