"""SqlSession: statements of one caller, between which a transaction may be open."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...schemas.cells.timestamp import Moment
from ...schemas.errors import InvalidArgumentError
from .change.many import of_all_rows
from .change.parameters import with_values
from .change.transaction import SqlTransaction
from .change.writing import Changed
from .control import IS_OPEN, Control, control, none_is_open
from .engine import SqlEngine
from .result import Result, changed
from .statement import Kind, statement


class SqlSession:
    """Runs SQL statements, among them BEGIN, COMMIT and ROLLBACK. Between these all reads are at the snapshot of BEGIN,
    and all changes become one commit.

    No statement sees what its transaction has written: one that would have to is refused. Close it, or use it as a
    context manager: that rolls back a transaction that is open. Thread safe; its statements run one after another.
    """

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine
        self._transaction: SqlTransaction | None = None
        self._lock = threading.Lock()

    def sql(
        self,
        text: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        as_of: Moment | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run one statement: see ``Database.sql``.

        Raises:
            ConflictError: COMMIT: a row that the transaction changes has changed since BEGIN. Nothing was applied.
            InvalidArgumentError: also: the statement reads a table that the transaction has written, or changes a table
                instead of rows; or a transaction is open already, or none is.
        """
        query = statement(text)
        with self._lock:
            if query.kind is Kind.TRANSACTION:
                return changed(self._control(query.tree))
            if self._transaction is None:
                return self._engine.query(text, params, as_of, timeout)
            if as_of is not None:
                raise InvalidArgumentError(
                    "a transaction reads at the moment of BEGIN: leave as_of out, or end the transaction"
                )
            return self._within(self._transaction, text, params, timeout)

    def insert_all(self, text: str, parameters: pa.Table) -> Result | None:
        """See ``SqlEngine.insert_all``. Raises as ``sql``."""
        with self._lock:
            if self._transaction is None:
                return self._engine.insert_all(text, parameters)
            insert = of_all_rows(statement(text).tree, parameters)
            return None if insert is None else changed(self._transaction.run(*insert))

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._transaction is not None

    def close(self) -> None:
        """Roll back the transaction, if one is open."""
        with self._lock:
            if self._transaction is not None:
                transaction, self._transaction = self._transaction, None
                transaction.rollback()

    def __enter__(self) -> SqlSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _within(self, transaction: SqlTransaction, text: str, params: Any, timeout: float | None) -> Result:
        query = statement(text)
        if query.kind is Kind.CHANGE:
            return changed(transaction.run(with_values(query.tree, query.bound(params))))
        if query.kind is Kind.QUERY:
            transaction.check_reads(query.tree)
        return self._engine.query(text, params, transaction.snapshot, timeout)

    def _control(self, tree: exp.Expr) -> Changed:
        which = control(tree)
        if which is Control.BEGIN:
            if self._transaction is not None:
                raise InvalidArgumentError(IS_OPEN)
            self._transaction = SqlTransaction(self._engine.store, self._engine.read)
            return Changed("BEGIN", 0)
        if self._transaction is None:
            raise InvalidArgumentError(none_is_open(which))
        transaction, self._transaction = self._transaction, None
        if which is Control.COMMIT:
            return transaction.commit()
        transaction.rollback()
        return Changed("ROLLBACK", 0)
