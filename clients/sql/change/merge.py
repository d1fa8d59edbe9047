"""MERGE: one read of target and source joined, in which the first WHEN that holds decides over each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
from sqlglot import exp

from ....schemas import compute as pc
from ....schemas.errors import InvalidArgumentError
from ....schemas.rows.operation import Operation
from ..text.names import alias_of, column, identifier, name_of, of_table, refuse_others
from .assignments import Assignments, assignments_of
from .literals import is_default
from .target import ChangeTarget, Reading
from .update import cells_of, refuse_several
from .writing import Part, Work

KIND = "MERGE"
_HERE, _THERE = "nyala_here", "nyala_there"
"""Columns that are true in rows of the target and of the source, and NULL where a join has none."""
_TAKEN = {"this", "using", "on", "whens", "with_"}


@dataclass(frozen=True)
class _Clause:
    """One WHEN: which rows it is for, and what becomes of them."""

    rows: Literal["both", "source", "target"]
    condition: exp.Expr | None
    op: Operation | None
    """None: nothing is done."""
    cells: Assignments


def merge(tree: exp.Merge, target: ChangeTarget, reading: Reading) -> Work:
    """Return what a MERGE has to write.

    Raises:
        InvalidArgumentError: the statement is wrong, a value does not fit, or a row matches several of the source.
    """
    refuse_others(tree, _TAKEN, KIND)
    alias = alias_of(tree.this)
    sides = {"source": _source_alias(tree), "target": alias}
    clauses = [_of_its_side(_clause(each, target, alias), sides) for each in tree.args["whens"].expressions]
    answer = reading.rows(_query(tree, clauses, target, alias))
    keys = cells_of(answer, target.key, target)
    act = answer.column(len(target.key))
    changing = [at for at, clause in enumerate(clauses) if clause.op in (Operation.UPDATE, Operation.DELETE)]
    refuse_several(keys.filter(pc.is_in(act, value_set=pa.array(changing, act.type))), target, "the source")
    parts: list[Part] = []
    first = len(target.key) + 1
    for at, clause in enumerate(clauses):
        mine = pc.fill_null(pc.equal(act, at), False)
        if clause.op is not None:
            cells = clause.cells.columns(answer.filter(mine), first, target)
            of_key = {} if clause.op is Operation.INSERT else _named(keys.filter(mine))
            parts.append(Part(clause.op, pa.table({**of_key, **cells})))
        first += len(clause.cells.names)
    order = [Operation.DELETE, Operation.UPDATE, Operation.INSERT]
    parts.sort(key=lambda part: order.index(part.op))
    return Work(target, KIND, parts, sum(part.rows.num_rows for part in parts), reading.moment)


def _named(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(rows.column_names, rows.columns, strict=True))


def _clause(when: exp.When, target: ChangeTarget, alias: str) -> _Clause:
    rows = "both" if when.args.get("matched") else "target" if when.args.get("source") else "source"
    condition, then = when.args.get("condition"), when.args["then"]
    nothing = Assignments([], [])
    if isinstance(then, exp.Var) and then.name.upper() == "DO NOTHING":
        return _Clause(rows, condition, None, nothing)
    if isinstance(then, exp.Var) and then.name.upper() == "DELETE" and rows != "source":
        return _Clause(rows, condition, Operation.DELETE, nothing)
    if isinstance(then, exp.Update) and rows != "source":
        refuse_others(then, {"expressions"}, "UPDATE in a MERGE")
        return _Clause(rows, condition, Operation.UPDATE, assignments_of(then.expressions, target, alias))
    if isinstance(then, exp.Insert) and rows == "source":
        refuse_others(then, {"this", "expression"}, "INSERT in a MERGE")
        return _Clause(rows, condition, Operation.INSERT, _new_cells(then, target))
    raise InvalidArgumentError(
        "WHEN MATCHED and WHEN NOT MATCHED BY SOURCE take UPDATE SET, DELETE or DO NOTHING; WHEN NOT MATCHED takes "
        "INSERT or DO NOTHING"
    )


def _of_its_side(clause: _Clause, sides: Mapping[str, str]) -> _Clause:
    """Return a clause in which columns without a table are those of its rows: they have only one of both sides."""
    side = sides.get(clause.rows)
    if side is None:
        return clause
    condition = None if clause.condition is None else of_table(clause.condition, side)
    return replace(clause, condition=condition, cells=clause.cells.mapped(lambda node: of_table(node, side)))


def _new_cells(then: exp.Insert, target: ChangeTarget) -> Assignments:
    """Return the cells of the rows that a clause inserts, those with defaults among them; the store computes some."""
    listed = then.this.expressions if isinstance(then.this, exp.Tuple | exp.Schema) else None
    values = then.expression
    if values is None and listed is not None and [is_default(each) for each in listed] == [True]:
        listed, cells = None, []  # DEFAULT VALUES
    elif isinstance(values, exp.Tuple):
        cells = values.expressions
    else:
        raise InvalidArgumentError("INSERT in a MERGE takes one list of VALUES, or DEFAULT VALUES")
    names = target.given if listed is None else target.for_new_rows([name_of(each) for each in listed])
    if len(cells) > len(names) or (listed is not None and len(cells) < len(names)):
        raise InvalidArgumentError(f"INSERT in a MERGE has {len(cells)} values for {len(names)} columns")
    given = dict(zip(names, cells, strict=False))
    default = exp.Var(this="DEFAULT")
    nodes = {name: given.get(name, default) for name in target.given}
    computed = {name for name in nodes if target.columns[name].default_expression and is_default(nodes[name])}
    named = [name for name in nodes if name not in computed]
    return Assignments(named, [nodes[name] for name in named])


def _query(tree: exp.Merge, clauses: list[_Clause], target: ChangeTarget, alias: str) -> exp.Select:
    """Return the query of all rows that a clause may be for: key, number of the clause, and the cells of each."""
    here, there = column(_HERE, alias), column(_THERE, _source_alias(tree))
    conditions = [_condition(clause, here, there) for clause in clauses]
    act = exp.Case(ifs=[exp.If(this=each, true=exp.Literal.number(at)) for at, each in enumerate(conditions)])
    selected: list[exp.Expr] = [
        *(exp.alias_(column(name, alias), f"k{at}") for at, name in enumerate(target.key)),
        exp.alias_(exp.cast(act, "BIGINT"), "act"),
    ]
    for at, clause in enumerate(clauses):
        is_mine = exp.EQ(this=exp.paren(act.copy()), expression=exp.Literal.number(at))
        selected += clause.cells.selected(is_mine, f"c{at}_")
    rows = {clause.rows for clause in clauses if clause.op is not None}
    side = "FULL" if {"source", "target"} <= rows else "LEFT" if "source" in rows else "RIGHT"
    kind = {"side": side} if rows - {"both"} else {"kind": "INNER"}
    source = tree.args["using"]
    query = exp.select(*selected).from_(_marked(source, _THERE, _source_alias(tree)))
    table = exp.Table(this=identifier(target.name), alias=exp.TableAlias(this=identifier(alias)))
    query.append("joins", exp.Join(this=_marked(table, _HERE, alias), on=tree.args["on"].copy(), **kind))
    if (shared := tree.args.get("with_")) is not None:
        query.set("with_", shared.copy())
    return query


def _condition(clause: _Clause, here: exp.Expr, there: exp.Expr) -> exp.Expr:
    sides = [part.copy().is_(exp.null()) for part in (here, there)]
    sides_there = {"both": (True, True), "source": (False, True), "target": (True, False)}[clause.rows]
    tests: list[exp.Expr] = [
        exp.not_(side) if is_there else side for side, is_there in zip(sides, sides_there, strict=True)
    ]
    if clause.condition is not None:
        tests.append(exp.paren(clause.condition.copy()))
    return exp.and_(*tests)


def _source_alias(tree: exp.Merge) -> str:
    source = tree.args["using"]
    alias = source.args.get("alias")
    if alias is not None and alias.this is not None:
        return name_of(alias.this)
    if isinstance(source, exp.Table):
        return name_of(source)
    raise InvalidArgumentError("the source of MERGE needs a name: USING (SELECT ...) AS s")


def _marked(table: exp.Expr, mark: str, alias: str) -> exp.Expr:
    """Return a table or subquery with one more column, which is true."""
    marked = exp.select("*", exp.alias_(exp.true(), mark, quoted=True)).from_(table.copy())
    return marked.subquery(identifier(alias))
