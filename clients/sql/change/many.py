"""An INSERT that runs for many rows of parameters: they become the rows of one statement."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from ..text.written import in_place_of
from .literals import is_default

_NAME = "nyala_parameters"


def of_all_rows(tree: exp.Expr, parameters: pa.Table) -> tuple[exp.Expr, dict[str, pa.Table]] | None:
    """Return an INSERT of one row of VALUES as an INSERT of a query, which reads all rows of its parameters, and the
    table that the query names. None: the statement is another one, and runs once for each row."""
    source = tree.args.get("expression")
    if not isinstance(tree, exp.Insert) or not isinstance(source, exp.Values) or len(source.expressions) != 1:
        return None
    (row,) = source.expressions
    cells: Sequence[exp.Expr] = row.expressions if isinstance(row, exp.Tuple) else [row]
    if any(is_default(cell) or list(cell.find_all(exp.Query)) for cell in cells):
        return None
    columns = [exp.alias_(cell.copy().transform(_column), f"c{place}") for place, cell in enumerate(cells)]
    changed = tree.copy()
    changed.set("expression", exp.Select(expressions=columns).from_(_NAME))
    names = [f"p{place + 1}" for place in range(parameters.num_columns)]
    return changed, {_NAME: parameters.rename_columns(names)}


def _column(node: exp.Expr) -> exp.Expr:
    if not isinstance(node, exp.Parameter):
        return node
    return in_place_of(node, exp.column(f"p{node.name}" if node.name.isdecimal() else node.name, _NAME))
