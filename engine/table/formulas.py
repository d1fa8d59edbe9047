"""Formulas: the expressions that compute cells of written rows, bound to the columns of a table.

A default expression sees the row's other columns. A merge rule sees the columns of the live row by their names, and
those of the row that comes as ``excluded.name``, as ON CONFLICT of PostgreSQL has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from ...schemas.cells.timestamp import microseconds_of
from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from ...schemas.rows.batches import no_rows
from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import TableSchema
from ..expression.evaluate import Expression, evaluate
from ..expression.folding import folded, uses_now
from ..expression.names import check_columns
from ..expression.parse import parse_text
from ..expression.rows import Rows
from ..expression.tree import FIELD, Call, ColumnName, Constant, Expr, columns_of, walk
from ..expression.written import column_of

EXCLUDED = "excluded"
_LIMITS = Limits()
_WORDS = {
    "sum": "coalesce({own} + {new}, {own}, {new})",
    "min": "least({own}, {new})",
    "max": "greatest({own}, {new})",
    "append": "coalesce({own} || {new}, {own}, {new})",
}
_SHORT = {"sum": "{own} + {new}", "append": "{own} || {new}"}
_PLAIN = ("{own} + {new}", "{new} + {own}", "least({new}, {own})", "greatest({new}, {own})", "{own} || {new}")
"""Merges that may be combined in any grouping of the rows, beside those of the words."""


@dataclass(frozen=True, slots=True, eq=False)
class Formula:
    """An expression that computes cells of one column."""

    column: ColumnSchema
    what: str
    """How errors name it."""
    expression: Expression
    now: int | None
    """The moment of NOW() that is in the expression; None: it has none."""
    own: frozenset[str]
    """The columns of the row, or of the live row, that it reads."""
    new: frozenset[str]
    """The columns of the row that comes, which a merge reads."""
    is_associative: bool = False
    """Whether rows may be merged in any grouping."""
    keeps: bool = False
    """Whether the live row keeps its value: a merge rule is its own column, and nothing else."""
    without_null: Expression | None = None
    """A shorter expression for rows without NULL in what it reads, which are one column of each row."""

    def at(self, now: int) -> Formula:
        """Return it with the moment ``now``, a timestamp of the store, as NOW()."""
        if self.now is None:
            return self
        moment = microseconds_of(now)
        tree = folded(self.expression.tree, moment)
        return replace(self, expression=Expression(self.expression.text, tree, self.expression.columns), now=moment)

    def cells(self, rows: Rows) -> pa.Array:
        """Return the cells for some rows, not yet checked against the column.

        Raises:
            InvalidArgumentError: it cannot be computed for all of them.
        """
        expression = self.expression
        if self.without_null and not _have_null(rows, self.column.name):
            expression = self.without_null
        try:
            return evaluate(expression, rows, self.column.logical)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{self.what}: {error.message}") from None


def _have_null(rows: Rows, name: str) -> bool:
    return bool(rows.column(name).null_count or rows.column(EXCLUDED).field(name).null_count)


MergeRules = Mapping[int, Formula]
"""The rules of a merge by the id of their column."""


def default_formulas(schema: TableSchema) -> dict[int, Formula]:
    """Return the default expressions of a table by the id of their column.

    Raises:
        InvalidArgumentError: one is invalid, does not fit its column, or names a column that has one, too.
    """
    formulas: dict[int, Formula] = {}
    for column in schema.values:
        if (text := column.default_expression) is None:
            continue
        what = f"the default_expression of column {column.name!r}"
        formula = _formula(column, what, text, schema, text)
        if formula.new:
            raise InvalidArgumentError(f"{what} cannot use {EXCLUDED!r}, which only merges have")
        for name in sorted(formula.own):
            if name == column.name or schema.by_name[name].default_expression is not None:
                raise InvalidArgumentError(f"{what} names {name!r}, which is also computed: name other columns")
        formulas[column.id] = formula
    return formulas


def table_rules(schema: TableSchema) -> MergeRules:
    """Return the merge rules of a table's columns, as formulas for the rows that are written. Raises as
    ``merge_rules``."""
    return merge_rules({column.name: column.merge for column in schema.values if column.merge}, schema)


def merge_rules(texts: Mapping[str, str], schema: TableSchema) -> MergeRules:
    """Return merge rules that are given as words or expressions as formulas for the rows that are written, by the name
    of their column.

    Raises:
        InvalidArgumentError: a column cannot have one; or a rule is invalid, or does not fit its column.
    """
    rules: dict[int, Formula] = {}
    for name, text in texts.items():
        column = schema.column(name)
        what = f"the merge of column {name!r}"
        if column in schema.key or column.immutable:
            why = "is part of the primary key" if column in schema.key else "is immutable"
            raise InvalidArgumentError(f"column {name!r} {why}: a merge cannot change it")
        if column is schema.ordering:
            raise InvalidArgumentError(f"column {name!r} orders the changes of each row: leave out its merge rule")
        if EXCLUDED in schema.by_name:
            raise InvalidArgumentError(
                f"{what} needs the name {EXCLUDED!r} for new rows: rename the column {EXCLUDED!r}"
            )
        rules[column.id] = _rule(column, what, text, schema)
    return rules


def check_formulas(schema: TableSchema) -> None:
    """Check the default expressions and merge rules of a new or altered table.

    Raises:
        InvalidArgumentError: one is invalid, or names a column that there is not (any more).
    """
    default_formulas(schema)
    table_rules(schema)


def columns_read(texts: Mapping[str, str]) -> set[str]:
    """Return the columns of live rows that the merge rules of a caller read, for which it needs grants."""
    names: set[str] = set()
    for name, text in texts.items():
        tree = None if text in _WORDS else parse_text(text, _LIMITS).tree
        names |= {name} if tree is None else set() if tree == ColumnName(name) else columns_of(tree)
    return names - {EXCLUDED}


def columns_kept(texts: Mapping[str, str]) -> set[str]:
    """Return the columns that keep their values in live rows, by the merge rules of a caller."""
    trees = {name: parse_text(text, _LIMITS).tree for name, text in texts.items() if text not in _WORDS}
    return {name for name, tree in trees.items() if tree == ColumnName(name)}


def _rule(column: ColumnSchema, what: str, text: str, schema: TableSchema) -> Formula:
    own = column_of(column.name)
    names = {"own": own, "new": f"{EXCLUDED}.{own}"}
    formula = _formula(column, what, text, schema, _WORDS[text].format(**names) if text in _WORDS else text)
    alike = [parse_text(each.format(**names), _LIMITS).tree for each in (*_WORDS.values(), *_PLAIN)]
    is_associative = formula.expression.tree in alike or not (formula.own or formula.new)
    short = _SHORT.get(text)
    without_null = None if short is None else _formula(column, what, text, schema, short.format(**names)).expression
    keeps = formula.expression.tree == ColumnName(column.name)
    return replace(formula, is_associative=is_associative, keeps=keeps, without_null=without_null)


def _formula(column: ColumnSchema, what: str, text: str, schema: TableSchema, meaning: str) -> Formula:
    """Return the expression ``meaning``, which may read ``excluded``, checked; errors show it as ``text``."""
    try:
        tree = parse_text(meaning, _LIMITS).tree
        new = _new(tree)
        own = columns_of(tree) - {EXCLUDED}
        for name in own:
            check_columns(ColumnName(name), schema)
        for name in new:
            schema.column(name)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{what}: {error.message}") from None
    has_now = uses_now(tree)
    expression = Expression(text, tree if has_now else folded(tree, 0), columns_of(tree))
    formula = Formula(column, what, expression, 0 if has_now else None, own, new)
    formula.at(0).cells(_no_rows(schema))  # the types alone
    return formula


def _no_rows(schema: TableSchema) -> Rows:
    rows = no_rows(schema.arrow)
    return Rows(0, lambda name: pa.array([], pa.struct(list(schema.arrow))) if name == EXCLUDED else rows.column(name))


def _new(tree: Expr) -> frozenset[str]:
    """Return the columns of the row that comes."""
    fields: list[str] = []
    named = 0
    for node in walk(tree):
        match node:
            case Call(name=function, args=(ColumnName(name="excluded"), Constant(value=str(field)))) if (
                function == FIELD
            ):
                fields.append(field)
            case ColumnName(name="excluded"):
                named += 1
            case _:
                continue
    if named != len(fields):
        raise InvalidArgumentError(f"name a column of the new row, as in {EXCLUDED}.views")
    return frozenset(fields)
