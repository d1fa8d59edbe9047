"""INSERT, with the rows of a query, of VALUES or of defaults, and ON CONFLICT."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from ....schemas.errors import InvalidArgumentError
from ....schemas.rows.operation import Operation
from ....schemas.table.column import ColumnSchema
from ..text.names import alias_of, column, identifier, name_of, of_table, refuse_others
from ..text.written import reworded
from .assignments import Assignments, assignments_of
from .combining import is_new_value, rules_of
from .exact_values import with_exact_numbers
from .literals import NO_LITERAL, is_default, literal
from .target import ChangeTarget, Reading
from .translate import EXCLUDED
from .values import assigned, column_of, default_of, refuse_long, refuse_null
from .writing import Part, Work, is_one_write

KIND = "INSERT"
_NEW = "nyala_new_rows"
"""The name under which a query finds the new rows."""
_ROW = "nyala_row"
_RUN_AT_ONCE = 200
"""How many expressions of VALUES one query computes."""


def insert(tree: exp.Insert, target: ChangeTarget, reading: Reading, is_alone: bool) -> Work:
    """Return what an INSERT has to write. ``is_alone``: it is no part of a transaction.

    Raises:
        InvalidArgumentError: the statement is wrong, or a value does not fit.
    """
    refuse_others(tree, {"this", "expression", "conflict", "default", "with_"}, KIND)
    table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    listed = [name_of(each) for each in tree.this.expressions] if isinstance(tree.this, exp.Schema) else None
    names = target.given if listed is None else target.for_new_rows(listed)
    given = _rows(tree, names, listed is not None, target, reading)
    rows = _complete(given, target)
    conflict = tree.args.get("conflict")
    if conflict is None or target.is_numbered:
        _refuse_numbered(conflict, target)
        return Work(target, KIND, [Part(Operation.INSERT, rows)], rows.num_rows, None, is_read=False)
    _check_conflict(conflict, target)
    if not conflict.expressions:
        return _unless_there(rows, target, reading, is_alone)
    may_merge = is_alone and not _reads(tree, table, target)
    return _or_update(conflict, alias_of(table), rows, given.column_names, target, reading, may_merge)


def _rows(tree: exp.Insert, names: list[str], is_listed: bool, target: ChangeTarget, reading: Reading) -> pa.Table:
    """Return the new rows, with the columns that the statement gives."""
    source = tree.expression
    if tree.args.get("default"):
        first = next((name for name in names if target.columns[name].default_expression is None), None)
        if first is None:
            raise InvalidArgumentError(
                f"all columns of table {target.name!r} have computed defaults: give at least one value"
            )
        return pa.table({first: default_of(target.columns[first])})
    while isinstance(source, exp.Subquery) and not source.args.get("alias"):
        source = source.this
    if isinstance(source, exp.Values):
        return _values(source, tree.args.get("with_"), names, is_listed, target, reading)
    if not isinstance(source, exp.Query):
        raise InvalidArgumentError("INSERT needs VALUES, a SELECT or DEFAULT VALUES")
    query = _with_names(source.copy())
    if (shared := tree.args.get("with_")) is not None:
        query = _with(query, shared)
    answer = reading.rows(query)
    used = _fitting(names, answer.num_columns, is_listed)
    return pa.table([assigned(answer.column(at), target.columns[name]) for at, name in enumerate(used)], used)


def _with_names(query: exp.Query) -> exp.Query:
    """Return a query whose columns have different names, as an engine may ask for."""
    first: exp.Expr = query
    while isinstance(first, exp.SetOperation | exp.Subquery):
        first = first.this
    seen: set[str] = set()
    selected: list[exp.Expr] = []
    for at, each in enumerate(first.expressions if isinstance(first, exp.Select) else []):
        name = each.alias_or_name.lower()
        is_again = name in seen or not name
        selected.append(exp.alias_(each.unalias(), f"nyala_{at}") if is_again and not each.is_star else each)
        seen.add(name)
    if selected:
        first.set("expressions", selected)
        reworded(first)
    return query


def _with(query: exp.Query, shared: exp.With) -> exp.Query:
    """Return a query that also sees the common expressions of its statement."""
    own = query.args.get("with_")
    merged = shared.copy()
    if own is not None:
        merged.set("expressions", [*merged.expressions, *own.expressions])
    query.set("with_", merged)
    reworded(query)
    return query


def _fitting(names: list[str], count: int, is_listed: bool) -> list[str]:
    """Return the columns that get values; a statement without a list may leave out the last ones."""
    if count > len(names) or (is_listed and count < len(names)):
        raise InvalidArgumentError(f"INSERT has {count} values for {len(names)} columns: {', '.join(names[:20])}")
    return names[:count]


def _values(
    values: exp.Values,
    shared: exp.With | None,
    names: list[str],
    is_listed: bool,
    target: ChangeTarget,
    reading: Reading,
) -> pa.Table:
    refuse_others(values, {"expressions"}, "VALUES in an INSERT")
    rows = [each.expressions if isinstance(each, exp.Tuple) else [each] for each in values.expressions]
    if len({len(row) for row in rows}) != 1:
        raise InvalidArgumentError("all rows of VALUES must have the same number of values")
    used = _fitting(names, len(rows[0]), is_listed)
    run = [cell for row in rows for cell in row if literal(cell) is NO_LITERAL and not is_default(cell)]
    answer = _run(run, shared, reading)
    kept = [at for at, name in enumerate(used) if not _is_left_out([row[at] for row in rows], target.columns[name])]
    columns = [_column([row[at] for row in rows], used[at], target, answer) for at in kept]
    return pa.table(columns, [used[at] for at in kept])


def _is_left_out(cells: list[exp.Expr], about: ColumnSchema) -> bool:
    """Return whether the store computes a column for all rows of VALUES. Raises InvalidArgumentError: for some."""
    if about.default_expression is None or not any(map(is_default, cells)):
        return False
    if all(map(is_default, cells)):
        return True
    raise InvalidArgumentError(
        f"column {about.name!r} has DEFAULT in some rows of VALUES: its default is computed, so insert these rows with "
        "a separate INSERT"
    )


def _column(cells: list[exp.Expr], name: str, target: ChangeTarget, answer: dict[int, pa.Array]) -> pa.Array:
    about = target.columns[name]
    values = [literal(cell) for cell in cells]
    if all(value is not NO_LITERAL for value in values):
        return column_of(values, about)
    pieces = [
        default_of(about)
        if is_default(cell)
        else assigned(answer[id(cell)], about)
        if value is NO_LITERAL
        else column_of([value], about)
        for cell, value in zip(cells, values, strict=True)
    ]
    return pa.concat_arrays(pieces)


def _run(cells: list[exp.Expr], shared: exp.With | None, reading: Reading) -> dict[int, pa.Array]:
    """Return the values of expressions, each in a query's column of its own, so that none changes another's type."""
    answer: dict[int, pa.Array] = {}
    for first in range(0, len(cells), _RUN_AT_ONCE):
        some = cells[first : first + _RUN_AT_ONCE]
        query = exp.select(*(exp.alias_(cell.copy(), f"c{at}") for at, cell in enumerate(some)))
        row = reading.rows(_with(query, shared) if shared is not None else query)
        answer |= {id(cell): row.column(at).combine_chunks() for at, cell in enumerate(some)}
    return answer


def _complete(rows: pa.Table, target: ChangeTarget) -> pa.Table:
    """Return new rows with all columns but those that the store computes: others that the statement leaves out have
    their defaults."""
    columns: dict[str, pa.Array] = {}
    for name in target.given:
        about = target.columns[name]
        if name in rows.column_names:
            cells = rows.column(name).combine_chunks()
            columns[name] = pa.concat_arrays(cells.chunks) if isinstance(cells, pa.ChunkedArray) else cells
        elif about.default_expression is not None:
            continue  # the store computes it
        elif about.write_default is None:
            columns[name] = pa.nulls(rows.num_rows, about.logical.arrow)
        else:
            columns[name] = default_of(about).take(pa.array([0] * rows.num_rows, pa.int64()))
        refuse_null(columns[name], about, target.name)
    return pa.table(columns)


def _refuse_numbered(conflict: exp.OnConflict | None, target: ChangeTarget) -> None:
    if conflict is not None and (conflict.expressions or conflict.args.get("conflict_keys")):
        raise InvalidArgumentError(
            f"the store gives new numbers to the rows of table {target.name!r}, so there is no conflict: leave out ON "
            "CONFLICT"
        )


def _check_conflict(conflict: exp.OnConflict, target: ChangeTarget) -> None:
    refuse_others(conflict, {"expressions", "action", "conflict_keys", "where"}, "ON CONFLICT")
    named = [name_of(each.this if isinstance(each, exp.Ordered) else each) for each in _keys(conflict)]
    if named and sorted(named) != sorted(target.key):
        raise InvalidArgumentError(
            f"ON CONFLICT of table {target.name!r} must name its primary key ({', '.join(target.key)}), "
            f"not ({', '.join(named)})"
        )


def _keys(conflict: exp.OnConflict) -> list[exp.Expr]:
    return conflict.args.get("conflict_keys") or []


def _reads(tree: exp.Insert, table: exp.Expr, target: ChangeTarget) -> bool:
    """Return whether a query of the statement may read the table that it changes."""
    return any(each is not table and each.name.lower() == target.name.lower() for each in tree.find_all(exp.Table))


def _unless_there(rows: pa.Table, target: ChangeTarget, reading: Reading, is_alone: bool) -> Work:
    """DO NOTHING. The store counts the rows that it ignores."""
    if is_alone:
        part = Part(Operation.INSERT_IGNORE, rows)
        return Work(target, KIND, [part], 0, None, counts_applied=True, is_read=False)
    there = _there(rows, target.name, target, reading, [])
    seen = set(there.column(0).to_pylist())
    fresh = [row for row in _first_of_each(rows.select(target.key)) if row not in seen]
    part = Part(Operation.INSERT, _picked(rows, fresh))
    return Work(target, KIND, [part], len(fresh), reading.moment)


def _or_update(
    conflict: exp.OnConflict,
    alias: str,
    rows: pa.Table,
    given: list[str],
    target: ChangeTarget,
    reading: Reading,
    may_merge: bool,
) -> Work:
    """DO UPDATE. The store can do it at once where the columns that the statement gives are those that it sets, or
    where a merge means the same."""
    changes = assignments_of(conflict.expressions, target, alias)
    _refuse_twice(rows, target)
    where = conflict.args.get("where")
    if where is None and {*changes.names, *target.key} == {*given} and _are_new_values(changes):
        part = Part(Operation.UPSERT, rows.select(given))
        return Work(target, KIND, [part], rows.num_rows, None, is_read=False)
    may_merge = may_merge and where is None and is_one_write(target, rows)
    if may_merge and (merge := rules_of(changes, alias, given, rows.column_names, target)) is not None:
        rules, names = merge
        return Work(target, KIND, [Part(Operation.MERGE, rows.select(names), rules)], rows.num_rows, None)
    refuse_long(rows, target.columns)
    changes = changes.mapped(lambda node: with_exact_numbers(node, target.columns, alias, rows.column_names))
    changes = changes.mapped(lambda node: of_table(node, alias, target.columns))
    condition = exp.true() if where is None else of_table(where.this, alias, target.columns)
    there = _there(rows, alias, target, reading, changes.selected(condition), condition)
    places = there.column(0).combine_chunks()
    goes = there.column(1).combine_chunks().fill_null(False)
    chosen = there.filter(goes)
    answer = _picked(rows, chosen.column(0).to_pylist()).select(target.key)
    updated = changes.columns(chosen, 2, target)
    present = set(places.to_pylist())
    fresh = _picked(rows, [row for row in range(rows.num_rows) if row not in present])
    parts = [
        Part(Operation.UPDATE, pa.table({**dict(zip(target.key, answer.columns, strict=True)), **updated})),
        Part(Operation.INSERT, fresh),
    ]
    return Work(target, KIND, parts, answer.num_rows + fresh.num_rows, reading.moment)


def _are_new_values(changes: Assignments) -> bool:
    """Return whether each column is set to the value that the new row has for it."""
    return all(map(is_new_value, changes.names, changes.nodes))


def _there(
    rows: pa.Table,
    alias: str,
    target: ChangeTarget,
    reading: Reading,
    selected: Sequence[exp.Expr],
    condition: exp.Expr | None = None,
) -> pa.Table:
    """Return which new rows meet a row that is there: their places, whether ``condition`` holds, and ``selected``."""
    numbered = rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    excluded = exp.Table(this=identifier(_NEW), alias=exp.TableAlias(this=identifier(EXCLUDED)))
    table = exp.Table(this=identifier(target.name), alias=exp.TableAlias(this=identifier(alias)))
    same = exp.and_(*(column(key, alias).eq(column(key, EXCLUDED)) for key in target.key))
    holds = exp.alias_(exp.paren(condition.copy()) if condition is not None else exp.true(), "nyala_holds")
    query = exp.select(exp.alias_(column(_ROW, EXCLUDED), _ROW), holds, *selected)
    return reading.rows(query.from_(excluded).join(table, on=same), {_NEW: numbered})


def _picked(rows: pa.Table, places: list[int]) -> pa.Table:
    return rows.take(pa.array(places, pa.int64()))


def _first_of_each(keys: pa.Table) -> list[int]:
    """Return the places of the first row with each key."""
    if keys.num_rows == 1:
        return [0]
    first = keys.append_column(_ROW, pa.array(range(keys.num_rows), pa.int64()))
    return sorted(first.group_by(keys.column_names).aggregate([(_ROW, "min")]).column(f"{_ROW}_min").to_pylist())


def _refuse_twice(rows: pa.Table, target: ChangeTarget) -> None:
    first = _first_of_each(rows.select(target.key))
    if len(first) == rows.num_rows:
        return
    row = min(set(range(rows.num_rows)) - set(first))
    cells = ", ".join(f"{name}={rows.column(name)[row]}" for name in target.key)
    raise InvalidArgumentError(
        f"two rows have the key ({cells}): ON CONFLICT DO UPDATE of table {target.name!r} accepts each key only once"
    )
