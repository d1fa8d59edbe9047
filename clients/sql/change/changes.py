"""Changes: runs the statements that change rows or tables, each as one commit."""

from __future__ import annotations

from sqlglot import exp

from ....schemas.errors import InvalidArgumentError
from ....schemas.protocol.service import StoreService
from ....schemas.rows.transaction import TransactionCommit
from ....schemas.rows.write import WriteResult
from ..text.names import refuse_others, table_name
from . import native
from .alter import alter, comment
from .conflicts import TURNS, Turns, tried
from .create import create, drop
from .insert import insert
from .merge import merge
from .refusals import refuse_statement
from .target import ChangeTarget, Read, Reading
from .update import delete, update
from .writing import Changed, Staging, Work, write

ROWS = (exp.Insert, exp.Update, exp.Delete, exp.Merge)
TABLES = (exp.Create, exp.Drop, exp.Alter, exp.Comment)


class Changes:
    """Runs the SQL statements that change a store. ``read`` runs the queries in them. For many threads."""

    def __init__(self, store: StoreService, read: Read, turns: Turns = TURNS) -> None:
        self._store = store
        self._read = read
        self._turns = turns

    def run(self, tree: exp.Expr) -> Changed:
        """Run one statement, as one commit, and return how many rows it changed.

        Raises:
            InvalidArgumentError: the statement is wrong, or a value does not fit. Nothing was changed, as always here.
            NotFoundError, AlreadyPresentError: a table is absent, or a table or key is there already.
            ConflictError: other writers changed the same rows during each of ten tries.
            StoreError: the store refused it.
        """
        if isinstance(tree, ROWS):
            return self._rows(tree)
        if isinstance(tree, exp.TruncateTable):
            return self._truncate(tree)
        if isinstance(tree, exp.Create):
            return create(tree, self._store, self._read)
        if isinstance(tree, exp.Drop):
            return drop(tree, self._store)
        if isinstance(tree, exp.Alter):
            return alter(tree, self._store)
        if isinstance(tree, exp.Comment):
            return comment(tree, self._store)
        refuse_statement(tree)

    def _rows(self, tree: exp.Expr) -> Changed:
        target = ChangeTarget.of(self._store, changed_table(tree))
        if (statement := native.statement_of(tree, target)) is not None:
            return native.execute(self._store, statement)

        described = [target]

        def attempt() -> Changed:
            current = described.pop() if described else ChangeTarget.of(self._store, changed_table(tree))
            return write(self._store, work_of(tree, current, Reading(self._read, self._store.now()), True))

        return tried(self._turns, target.about, attempt)

    def _truncate(self, tree: exp.TruncateTable) -> Changed:
        taken = {"this", "expressions", "option", *(["identity"] if tree.args.get("identity") == "CONTINUE" else [])}
        refuse_others(tree, taken, "TRUNCATE")
        names = list(dict.fromkeys(table_name(each) for each in tree.expressions))
        bound = {name: self._store.describe_table(name).bound_id for name in names}
        ids = {name: table_id for name, table_id in bound.items() if table_id is not None}
        commit = TransactionCommit(transaction=Staging(self._store).id, truncate=names, table_ids=ids or None)
        result: WriteResult = self._store.commit_transaction(commit)
        return Changed("TRUNCATE TABLE", 0, result.timestamp)


def work_of(tree: exp.Expr, target: ChangeTarget, reading: Reading, is_alone: bool) -> Work:
    """Return what an SQL statement that changes rows has to write. ``is_alone``: it is no part of a transaction.

    Raises:
        InvalidArgumentError: the statement is wrong, or a value does not fit.
    """
    if isinstance(tree, exp.Insert):
        return insert(tree, target, reading, is_alone)
    if isinstance(tree, exp.Update):
        return update(tree, target, reading)
    if isinstance(tree, exp.Delete):
        return delete(tree, target, reading)
    if isinstance(tree, exp.Merge):
        return merge(tree, target, reading)
    raise InvalidArgumentError(f"{tree.key.upper()} changes no rows")


def changed_table(tree: exp.Expr) -> exp.Expr:
    """Return the table whose rows an SQL statement changes."""
    return tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
