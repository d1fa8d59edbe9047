"""One transaction of the store that a runner fills: rows are staged from several threads, and committed together."""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress

import pyarrow as pa

from ...schemas.errors import RowErrors, StoreError, UnavailableError
from ...schemas.protocol.service import StoreService
from ...schemas.rows.operation import Operation
from ...schemas.rows.transaction import StagedBatch, StageResult, TransactionCommit, TransactionResult
from ...schemas.rows.write import Stage, WriteCommand
from ...schemas.store.description import TableDescription
from ..convert.data import WriteData


class StagedCommit:
    """The changes of a source as a transaction in the making. Unlike ``api.Transaction``, it may be filled by several
    threads, and its tables may get columns meanwhile."""

    def __init__(self, service: StoreService) -> None:
        self._service = service
        self._id = uuid.uuid4().hex
        self._parts: dict[str, list[str]] = {}
        self._truncated: dict[str, int | None] = {}
        self._count = 0
        self._lock = threading.Lock()
        self.rows = 0
        """The rows staged so far."""

    def write(self, about: TableDescription, data: pa.Table | pa.RecordBatch, op: Operation) -> StageResult | None:
        """Stage rows for a table; return how they are staged, None if there are none.

        Raises:
            InvalidArgumentError: they do not fit the table.
            ConflictError: the table was dropped, and another one has its name.
        """
        if not data.num_rows:
            return None
        with self._lock:
            self._count += 1
            part = Stage(transaction=self._id, part=str(self._count), table_id=about.bound_id)
        command = WriteCommand(table=about.name, op=op, stage=part)
        staged = self._service.stage(command, map(StagedBatch, WriteData(data, about.columns)))
        with self._lock:
            self._parts.setdefault(about.name, []).extend(staged.parts)
            self.rows += data.num_rows
        return staged

    def truncate(self, about: TableDescription) -> None:
        """Delete all rows of a table, those staged so far included."""
        self._parts.pop(about.name, None)
        self._truncated[about.name] = about.bound_id

    @property
    def is_empty(self) -> bool:
        """Whether nothing is staged."""
        return not self._parts and not self._truncated

    def has(self, table: str) -> bool:
        """Whether something is staged for a table."""
        return table in self._parts or table in self._truncated

    def commit(self) -> TransactionResult:
        """Commit everything at one timestamp, durably.

        Raises:
            RowErrors: a row was refused, and so nothing was applied.
            UnavailableError: the outcome may be unknown.
            StoreError: nothing was applied. After this error, and after RowErrors, everything is discarded.
        """
        parts = [part for each in self._parts.values() for part in each]
        ids = {name: table_id for name, table_id in self._truncated.items() if table_id is not None}
        body = TransactionCommit(
            transaction=self._id, parts=parts, truncate=list(self._truncated), table_ids=ids or None
        )
        try:
            result = self._service.commit_transaction(body)
        except UnavailableError:
            raise  # it may be applied, or committed again
        except StoreError:
            self.abort()
            raise
        if result.error_count:
            self.abort()
            raise RowErrors(result)
        return result

    def abort(self) -> None:
        """Discard everything; if that fails, the store does so after a while."""
        with suppress(StoreError):
            self._service.abort_transaction(self._id)
