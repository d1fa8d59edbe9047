"""Transaction: writes to any tables that become visible together, or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from pydantic import ValidationError

from ...schemas.errors import InvalidArgumentError, RowErrors, StoreError, UnavailableError
from ...schemas.protocol.command import explain
from ...schemas.protocol.service import StoreService
from ...schemas.rows.operation import Operation
from ...schemas.rows.transaction import StagedBatch, StagedRowError, StageResult, TransactionCommit, TransactionResult
from ...schemas.rows.write import Stage, WriteCommand
from ...schemas.store.description import TableDescription
from ..convert.data import WriteData
from .table import Table


class Transaction:
    """The transaction that a user begins with ``Database.transaction``: writes that are staged in the store; ``commit``
    applies them at one timestamp. Not thread safe.

    Used as a context manager, it commits at the end and aborts if the body raises or the commit is refused; after
    ``UnavailableError`` it can be committed again. Nobody sees any of it before the
    commit: the writes of a transaction do not see each other, but are applied in order.
    """

    def __init__(
        self,
        store: StoreService,
        name: str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        if_timestamp: int | str | None = None,
    ) -> None:
        self.id = uuid.uuid4().hex if name is None else name
        """The store's name for it."""
        self.result: TransactionResult | None = None
        """The answer to the commit, None before it."""
        self._store = store
        self._commit = _checked(
            lambda: TransactionCommit(
                transaction=self.id, app_id=app_id, app_version=app_version, if_timestamp=if_timestamp
            )
        )
        self._part_count = 0
        self._staged: dict[str, StageResult] = {}
        """The staged parts, with the write that each belongs to."""
        self._truncated: list[str] = []
        self._descriptions: dict[str, TableDescription] = {}

    def write(self, table: str | Table, data: Any, op: Operation | str = Operation.UPSERT) -> StageResult:
        """Stage ``data``, in any form that ``Table.write`` takes, for the operation ``op``.

        Raises:
            InvalidArgumentError: the data does not fit the table.
            ConflictError: another table has had the name since the first write to it.
            StoreError: the rows could not be staged.
        """
        name = table.name if isinstance(table, Table) else table
        if op not in set(Operation):
            raise InvalidArgumentError(f"unknown operation {op!r}; known: {', '.join(Operation)}")
        about = self._descriptions.get(name) or self._store.describe_table(name)
        self._descriptions[name] = about
        self._part_count += 1
        part = Stage(transaction=self.id, part=str(self._part_count), table_id=about.bound_id)
        command = WriteCommand(table=name, op=Operation(op), stage=part)
        staged = self._store.stage(command, map(StagedBatch, WriteData(data, about.columns)))
        self._staged |= dict.fromkeys(staged.parts, staged)
        return staged

    def insert(self, table: str | Table, data: Any) -> StageResult:
        """Stage rows to insert. See ``write`` and ``Table.insert``."""
        return self.write(table, data, Operation.INSERT)

    def insert_ignore(self, table: str | Table, data: Any) -> StageResult:
        """Stage rows to insert, unless their keys exist. See ``write`` and ``Table.insert_ignore``."""
        return self.write(table, data, Operation.INSERT_IGNORE)

    def upsert(self, table: str | Table, data: Any) -> StageResult:
        """Stage rows to insert or update. See ``write`` and ``Table.upsert``."""
        return self.write(table, data, Operation.UPSERT)

    def upsert_ignore(self, table: str | Table, data: Any) -> StageResult:
        """Stage rows to insert or update; the commit ignores those it would reject. See ``Table.upsert_ignore``."""
        return self.write(table, data, Operation.UPSERT_IGNORE)

    def merge(self, table: str | Table, data: Any) -> StageResult:
        """Stage rows to add, or to combine with those that exist by the rules of the table's columns. See
        ``Table.merge``."""
        return self.write(table, data, Operation.MERGE)

    def update(self, table: str | Table, data: Any) -> StageResult:
        """Stage changes of rows. See ``write`` and ``Table.update``."""
        return self.write(table, data, Operation.UPDATE)

    def update_ignore(self, table: str | Table, data: Any) -> StageResult:
        """Stage changes of those rows that exist. See ``write`` and ``Table.update_ignore``."""
        return self.write(table, data, Operation.UPDATE_IGNORE)

    def delete(self, table: str | Table, data: Any) -> StageResult:
        """Stage keys of rows to delete. See ``write`` and ``Table.delete``."""
        return self.write(table, data, Operation.DELETE)

    def delete_ignore(self, table: str | Table, data: Any) -> StageResult:
        """Stage keys of rows to delete, if they exist. See ``write`` and ``Table.delete_ignore``."""
        return self.write(table, data, Operation.DELETE_IGNORE)

    def truncate(self, table: str | Table) -> None:
        """Delete all rows that a table has at the commit, before the transaction's writes are applied.

        Earlier snapshots keep showing them.
        """
        name = table.name if isinstance(table, Table) else table
        if name not in self._truncated:
            self._truncated.append(name)

    def commit(self) -> TransactionResult:
        """Apply everything at one timestamp, or nothing, and return when it is durable.

        Raises:
            RowErrors: some rows were rejected, so nothing was applied; ``result.errors`` gives table and row.
            ConflictError: concurrent writers or alterations kept conflicting, or a table to truncate has its name no
                more.
            SnapshotTooOldError: history does not reach back to ``if_timestamp``.
            StoreError: nothing was applied. After ``UnavailableError`` over Flight the outcome is unknown: commit
                again.
        """
        bound = {name: about.bound_id for name, about in self._descriptions.items() if name in self._truncated}
        ids = {name: table_id for name, table_id in bound.items() if table_id is not None}
        update = {"parts": list(self._staged), "truncate": self._truncated, "table_ids": ids or None}
        result = self._store.commit_transaction(self._commit.model_copy(update=update))
        if result.error_count:
            raise RowErrors(result.model_copy(update={"errors": list(map(self._as_written, result.errors))}))
        self.result = result
        return result

    def _as_written(self, error: StagedRowError) -> StagedRowError:
        """Return the error with the position of its row in the data given to ``write``."""
        staged = self._staged.get(error.part)
        return error if staged is None else staged.as_staged(error)

    def abort(self) -> None:
        """Discard everything staged."""
        self._store.abort_transaction(self.id)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.result is not None:
            return
        if error is not None:
            self._discard()
            return
        try:
            self.commit()
        except UnavailableError:
            raise  # it may be applied, and can be committed again
        except StoreError:
            self._discard()
            raise

    def _discard(self) -> None:
        with suppress(StoreError):  # the store discards it after its time to live
            self.abort()

    def __repr__(self) -> str:
        return f"Transaction({self.id!r})"


def _checked(make: Callable[[], TransactionCommit]) -> TransactionCommit:
    try:
        return make()
    except ValidationError as error:
        raise InvalidArgumentError(explain(error, "the transaction")) from None
