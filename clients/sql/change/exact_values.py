"""Numbers with a point that SET computes with, in statements that run as a query.

The store and PostgreSQL take such a number for a decimal, DataFusion for a double. A statement must give the same
values whether the store runs it or a query does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal

from sqlglot import exp

from ....schemas.table.column import ColumnSchema
from ..text.written import in_place_of
from .literals import literal
from .translate import ARITHMETIC, Foreign, Translator


def with_exact_numbers(
    node: exp.Expr, columns: Mapping[str, ColumnSchema], alias: str, new: Collection[str] = ()
) -> exp.Expr:
    """Return an expression of SET with decimals where the store computes decimals. The parts that the store cannot
    compute stay as they are.

    Args:
        node: the expression, which is not changed.
        columns: those of the table.
        alias: the name of the table in the statement.
        new: the columns of the row that comes, as ``excluded``.
    """
    answer = node.copy()
    numbers = [each for each in answer.find_all(exp.Literal) if not each.is_string and not each.is_int]
    translator = Translator(columns, alias, new)
    exact = [each for each in numbers if _is_exact(each, translator)]
    for each in exact:
        each.replace(in_place_of(each, _decimal(literal(each))))
    return answer


def _is_exact(number: exp.Literal, translator: Translator) -> bool:
    """Return whether the store computes a decimal with a number."""
    if number.find_ancestor(exp.Query) is not None:  # names mean other columns there
        return False
    computed = number.parent
    while isinstance(computed, exp.Paren | exp.Neg):
        computed = computed.parent
    if computed is None or not isinstance(computed, ARITHMETIC):
        return False
    try:
        return translator.term(computed).kind == "decimal"
    except Foreign:
        return False


def _decimal(number: Decimal) -> exp.Cast:
    text = f"{number:f}"
    whole, _, rest = text.partition(".")
    digits = len(whole.lstrip("0")) + len(rest) or 1
    sizes = [exp.DataTypeParam(this=exp.Literal.number(size)) for size in (digits, len(rest))]
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType(this=exp.DType.DECIMAL, expressions=sizes))
