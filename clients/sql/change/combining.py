"""ON CONFLICT DO UPDATE by the store's merge, which reads the rows that are there under the locks of its commit.

So no other writer refuses the statement, and nothing is read for it. This is what the statement means, and how a merge
with rules says the same:

* A new row has the values of VALUES or of the query. Columns that it leaves out have their defaults: the store gives
  them to new rows alone, whether they are literals or expressions.
* In a row that is there, a column that SET names gets its expression. All expressions see the row as it was, and the
  row that comes as ``excluded``, with its defaults. Such a column has a rule; without one, a merge takes the new value,
  as ``SET n = excluded.n`` says.
* All other columns keep their values. A column of the data that SET does not name has itself as its rule.
* A NULL follows the rules of SQL in a rule that is an expression, and NOT NULL is checked on the result.
* One value that cannot be computed or does not fit refuses the statement, as the commit is atomic.

The rest stays with a read and a write on condition: WHERE, since a row that it leaves alone is not counted; expressions
that `translate` leaves out, or that are too large in other cases (`overflows`); computations with literals alone, which
a rule computes even if no row is there; DEFAULT; texts that a varchar column would cut: a rule refuses them, and sees
those of the data cut; rows that were read from the table itself, which may have changed since; immutable columns in the
data, which a merge refuses; tables with ``order_by`` or ``ttl``, whose columns a merge keeps by other rules; rows of
several servers or of several batches, as staged parts take no rules.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from ....schemas.rows.statement import SET_TEXT_MAX
from ....schemas.table.column import TRUNCATE, ColumnSchema
from ..text.names import name_of
from .assignments import Assignments
from .literals import NO_LITERAL, is_default, literal
from .overflows import Overflows
from .target import ChangeTarget
from .translate import EXCLUDED, Foreign, Translator, column_text
from .values import column_of

_NODES_MAX = 1_000
"""Expressions with more nodes may be beyond a limit of the store."""


def rules_of(
    changes: Assignments, alias: str, given: Collection[str], new: Collection[str], target: ChangeTarget
) -> tuple[dict[str, str], list[str]] | None:
    """Return the rules of a merge that changes rows as the SET of ON CONFLICT DO UPDATE does, and the columns of the
    new rows that it takes. None: none means the same.

    Args:
        changes: what SET gives.
        alias: the name of the table in the statement.
        given: the columns that the statement gives for new rows.
        new: those that new rows have, with the literal defaults of the others.
        target: the table.

    Raises:
        InvalidArgumentError: a literal does not fit its column.
    """
    if alias == EXCLUDED or EXCLUDED in target.columns or target.about.options.order_by or target.about.options.ttl:
        return None
    if any(target.columns[name].immutable for name in given):
        return None
    if sum(sum(1 for _ in node.walk()) for node in changes.nodes) > _NODES_MAX:
        return None
    translator = Translator(target.columns, alias, frozenset(new))
    rules: dict[str, str] = {}
    taken = {*target.key, *given}
    try:
        for name, node in zip(changes.names, changes.nodes, strict=True):
            if is_new_value(name, node) and name in new:
                taken.add(name)
            else:
                rules[name] = _rule(node, target.columns[name], translator, target)
    except Foreign:
        return None
    if any(_is_cut(target.columns[name]) for name in translator.read_new):
        return None
    taken |= translator.read_new
    rules |= {name: column_text(name) for name in taken if not (name in changes.names or name in target.key)}
    if sum(map(len, rules.values())) > SET_TEXT_MAX // 2:
        return None
    return rules, [name for name in new if name in taken]


def is_new_value(name: str, node: exp.Expr) -> bool:
    """Return whether an expression of SET is the value that the new row has for the column ``name``."""
    return isinstance(node, exp.Column) and node.table.lower() == EXCLUDED and name_of(node) == name


def _rule(node: exp.Expr, column: ColumnSchema, translator: Translator, target: ChangeTarget) -> str:
    """Return the rule that gives a column the value of an expression. Raises Foreign: there is none."""
    if is_default(node) or _is_cut(column):
        raise Foreign
    if (value := literal(node)) is not NO_LITERAL:
        column_of([value], column)  # refused, whether a row is there or not
    elif any(map(_is_of_literals, node.walk())):
        raise Foreign
    text = translator.value(node, column)
    Overflows(target.columns).check(node, column)
    if text == column_text(column.name):  # it keeps its value, but its row is written
        raise Foreign
    return text


def _is_cut(column: ColumnSchema) -> bool:
    """Return whether the store cuts texts that are too long for a column, and a query sees them whole."""
    return column.logical.name == "varchar" and column.too_long == TRUNCATE


def _is_of_literals(node: exp.Expr) -> bool:
    """Return whether a node computes something of literals alone."""
    is_computed = isinstance(node, exp.Binary | exp.Unary | exp.Func) and not isinstance(node, exp.CurrentTimestamp)
    return is_computed and literal(node) is NO_LITERAL and node.find(exp.Column, exp.CurrentTimestamp) is None
