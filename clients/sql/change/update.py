"""UPDATE and DELETE by a read of the rows, and a write by their keys."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from ....schemas.errors import InvalidArgumentError
from ....schemas.rows.operation import Operation
from ..text.names import alias_of, column, identifier, refuse_others
from .assignments import Assignments, assignments_of
from .exact_values import with_exact_numbers
from .target import ChangeTarget, Reading
from .values import assigned
from .writing import Part, Work

UPDATE, DELETE = "UPDATE", "DELETE"
TAKEN = {
    UPDATE: {"this", "expressions", "from_", "where", "with_"},
    DELETE: {"this", "using", "where", "with_", "tables"},
}


def update(tree: exp.Update, target: ChangeTarget, reading: Reading) -> Work:
    """Return what an UPDATE has to write.

    Raises:
        InvalidArgumentError: the statement is wrong, a value does not fit, or a row matches several others of FROM.
    """
    refuse_others(tree, TAKEN[UPDATE], UPDATE)
    alias = alias_of(tree.this)
    changes = assignments_of(tree.expressions, target, alias, takes_key=True)
    changes = changes.mapped(lambda node: with_exact_numbers(node, target.columns, alias))
    others = tree.args.get("from_")
    moves = any(name in target.key for name in changes.names)
    kept = list(target.columns) if moves else target.key
    query = _query(tree, kept, alias, target, changes)
    answer = reading.rows(_joined(query, [others.this] if others is not None else []))
    keys = cells_of(answer, kept, target)
    if others is not None:
        refuse_several(keys.select(target.key), target, "FROM")
    cells = changes.columns(answer, len(kept), target)
    rows = pa.table({**dict(zip(kept, keys.columns, strict=True)), **cells})
    if not moves:
        return Work(target, UPDATE, [Part(Operation.UPDATE, rows)], rows.num_rows, reading.moment)
    parts = [Part(Operation.DELETE, keys.select(target.key)), Part(Operation.INSERT, rows)]
    return Work(target, UPDATE, parts, rows.num_rows, reading.moment)


def delete(tree: exp.Delete, target: ChangeTarget, reading: Reading) -> Work:
    """Return what a DELETE has to write. Raises InvalidArgumentError: the statement is wrong."""
    refuse_others(tree, TAKEN[DELETE], DELETE)
    query = _query(tree, target.key, alias_of(tree.this), target)
    answer = reading.rows(_joined(query, tree.args.get("using") or []))
    keys = cells_of(answer, target.key, target).group_by(target.key).aggregate([])
    return Work(target, DELETE, [Part(Operation.DELETE, keys)], keys.num_rows, reading.moment)


def _query(
    tree: exp.Expr, kept: list[str], alias: str, target: ChangeTarget, changes: Assignments | None = None
) -> exp.Select:
    """Return the query of the rows of the target that the statement selects, with the new values."""
    table = exp.Table(this=identifier(target.name), alias=exp.TableAlias(this=identifier(alias)))
    selected = [exp.alias_(column(name, alias), f"k{at}") for at, name in enumerate(kept)]
    query = exp.select(*selected, *([] if changes is None else changes.selected())).from_(table)
    for part in ("where", "with_"):
        if (clause := tree.args.get(part)) is not None:
            query.set(part, clause.copy())
    return query


def _joined(query: exp.Select, others: list[exp.Expr]) -> exp.Select:
    """Return a query joined with the other tables of the statement, as by commas in FROM."""
    for other in others:
        query.append("joins", exp.Join(this=other.copy()))
    return query


def cells_of(answer: pa.Table, names: list[str], target: ChangeTarget) -> pa.Table:
    """Return the first columns of what an UPDATE or MERGE has read as cells of the target's columns ``names``."""
    return pa.table([assigned(answer.column(at), target.columns[name]) for at, name in enumerate(names)], names)


def refuse_several(keys: pa.Table, target: ChangeTarget, what: str) -> None:
    """Refuse the rows of an SQL statement whose keys occur several times.

    Raises:
        InvalidArgumentError: a row of the target matches several rows of ``what``; the message names its key.
    """
    counted = keys.group_by(keys.column_names).aggregate([([], "count_all")])
    if counted.num_rows == keys.num_rows:
        return
    first = next(row for row, count in enumerate(counted.column("count_all").to_pylist()) if count > 1)
    cells = ", ".join(f"{name}={counted.column(name)[first]}" for name in keys.column_names)
    raise InvalidArgumentError(
        f"the row of table {target.name!r} with the key ({cells}) matches several rows of {what}: make these unique "
        "first; nothing was changed"
    )
