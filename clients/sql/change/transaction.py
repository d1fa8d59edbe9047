"""SqlTransaction: the statements between BEGIN and COMMIT, which become one commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType

import pyarrow as pa
from sqlglot import exp

from ....schemas.errors import InvalidArgumentError, StoreError
from ....schemas.protocol.service import StoreService
from ..text.names import name_of
from .changes import ROWS, TABLES, changed_table, work_of
from .refusals import refuse_statement
from .target import ChangeTarget, Read, Reading
from .writing import Changed, Staging


class SqlTransaction:
    """The transaction that the SQL statement BEGIN begins: all reads are at one snapshot, writes are staged, and
    ``commit`` applies them together.

    No statement sees what the transaction has written: one that would have to is refused. The commit is refused if a
    row that the transaction changes has changed since BEGIN. Not thread safe. As a context manager it rolls back what
    was not committed.
    """

    def __init__(self, store: StoreService, read: Read) -> None:
        self.snapshot = store.now()
        """When the transaction began: what its reads see."""
        self._store = store
        self._read = read
        self._staging = Staging(store)
        self._written: set[str] = set()
        self._failure: str | None = None
        self._is_over = False

    def run(self, tree: exp.Expr, tables: Mapping[str, pa.Table] | None = None) -> Changed:
        """Stage what a statement changes and return how many rows it will have changed. ``tables`` are in memory, and
        it may name them.

        Raises:
            InvalidArgumentError: the statement is wrong, changes tables instead of rows, or reads a table that the
                transaction has written. As after every error, the transaction can only be rolled back then.
            StoreError: the rows could not be read or staged.
        """
        self._check()
        try:
            return self._run(tree, tables or {})
        except BaseException as error:
            self._failure = error.message if isinstance(error, StoreError) else type(error).__name__
            raise

    def check_reads(self, query: exp.Expr) -> None:
        """Check that a query reads no table that the transaction has written: run it at ``snapshot`` then.

        Raises:
            InvalidArgumentError: it does, or a statement of the transaction has failed.
        """
        self._check()
        self._refuse_written(_tables(query))

    def commit(self) -> Changed:
        """Apply all that was staged, as one commit, and return its timestamp.

        Raises:
            ConflictError: a row of the transaction has changed since BEGIN. Nothing is applied, as after every error.
            AlreadyPresentError: a key is there already.
            InvalidArgumentError: a statement of the transaction has failed.
        """
        self._check()
        self._is_over = True
        try:
            if not self._staging.parts:
                return Changed("COMMIT", 0)
            result = self._staging.commit(self.snapshot)
        except BaseException:
            self._staging.abort()
            raise
        return Changed("COMMIT", 0, result.timestamp)

    def rollback(self) -> None:
        """Discard all that was staged. Does nothing after the end."""
        if not self._is_over:
            self._is_over = True
            self._staging.abort()

    def __enter__(self) -> SqlTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.rollback()

    def _run(self, tree: exp.Expr, tables: Mapping[str, pa.Table]) -> Changed:
        if isinstance(tree, exp.TruncateTable):
            raise InvalidArgumentError(
                "TRUNCATE cannot be part of a transaction: use DELETE, or run TRUNCATE outside of the transaction"
            )
        if isinstance(tree, TABLES):
            raise InvalidArgumentError(
                f"a transaction changes rows only: run {tree.key.upper()} before it begins or after it ends"
            )
        if not isinstance(tree, ROWS):
            refuse_statement(tree)
        target = ChangeTarget.of(self._store, changed_table(tree))
        others = _tables(tree, but=changed_table(tree))
        self._refuse_written(others)
        if not isinstance(tree, exp.Insert):
            self._refuse_written([target.name])
        work = work_of(tree, target, Reading(_with(self._read, tables), self.snapshot), False)
        if work.is_read:
            self._refuse_written([target.name])
        self._staging.parts += self._staging.stage(target, work.parts)
        if any(part.rows.num_rows for part in work.parts):
            self._written.add(target.name)
        return Changed(work.kind, work.count)

    def _refuse_written(self, tables: Iterable[str]) -> None:
        if answer := self._written.intersection(tables):
            raise InvalidArgumentError(
                f"the transaction has written table {min(answer)!r}, which this statement reads: commit first"
            )

    def _check(self) -> None:
        if self._is_over:
            raise InvalidArgumentError("the transaction is over: begin another")
        if self._failure is not None:
            raise InvalidArgumentError(f"a statement of the transaction has failed: roll back ({self._failure})")


def _with(read: Read, tables: Mapping[str, pa.Table]) -> Read:
    return (lambda query, moment, more: read(query, moment, {**tables, **more})) if tables else read


def _tables(tree: exp.Expr, but: exp.Expr | None = None) -> set[str]:
    """Return the names of tables that a statement reads; names of its own WITH may be among them."""
    return {
        name_of(each) for each in tree.find_all(exp.Table) if each is not but and isinstance(each.this, exp.Identifier)
    }
