"""Translates expressions of SQL to those of the store, where both mean the same.

What differs is left out: comparisons with NULL, of floats among each other and of a float with a number that it does
not hold; quotients of decimals; values that the column would have to be cast to. NaN is greater than all numbers in
PostgreSQL and none of them in the store, so that ``x > 5`` becomes ``x > 5 OR x <> x``.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

from sqlglot import exp

from ....schemas.table.column import ColumnSchema
from ..text.names import name_of
from .literals import NO_LITERAL, literal

EXCLUDED = "excluded"
"""The name of the row that comes, in SQL and in merge rules."""
Kind = Literal["int", "decimal", "double", "float", "text", "date", "timestamp", "bool", "binary", "null"]
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "int"),
    "decimal": "decimal",
    "double": "double",
    "float": "float",
    "string": "text",
    "varchar": "text",
    "json": "text",
    "date": "date",
    "timestamp[us]": "timestamp",
    "bool": "bool",
    "binary": "binary",
}
_COMPARISONS: dict[type, str] = {exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}
_MIRRORED = {"=": "=", "<>": "<>", ">": "<", ">=": "<=", "<": ">", "<=": ">="}
_ARITHMETIC: dict[type, str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
ARITHMETIC = tuple(_ARITHMETIC)
"""Operations with numbers."""
_INTEGERS = {exp.DType.SMALLINT: "SMALLINT", exp.DType.INT: "INT", exp.DType.BIGINT: "BIGINT"}
_EXACT: tuple[Kind, ...] = ("int", "decimal")
_MOMENTS: tuple[Kind, ...] = ("date", "timestamp")
_ORDERED: tuple[Kind, ...] = ("int", "decimal", "double", "float", "text", "date", "timestamp")
_DEPTH_MAX = 50
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_ISO_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?)?")
_DIGITS_MAX = 30
"""Numbers with more digits are left out."""


class Foreign(Exception):
    """The store has nothing that means the same as an expression of SQL."""


class Term(NamedTuple):
    """An expression of SQL, translated to one of the store."""

    text: str
    kind: Kind
    value: Any = NO_LITERAL
    """The value of a literal."""

    @property
    def is_literal(self) -> bool:
        return self.value is not NO_LITERAL


class Translator:
    """Translates the SQL expressions of one statement on the columns of one table."""

    def __init__(self, columns: Mapping[str, ColumnSchema], alias: str, new: Collection[str] = ()) -> None:
        """``new`` are the columns of the row that comes, as ``excluded``."""
        self._columns = columns
        self._alias = alias
        self._new = new
        self._depth = 0
        self.read_new: set[str] = set()
        """Those of ``new`` that were translated."""

    def condition(self, node: exp.Expr) -> str:
        """Return a condition as a filter of the store. Raises Foreign."""
        answer = self.term(node)
        if answer.kind != "bool":
            raise Foreign
        return answer.text

    def value(self, node: exp.Expr, column: ColumnSchema) -> str:
        """Return the new value of a column. Raises Foreign: also where it would be cast by other rules."""
        answer, kind = self.term(node), _kind_of(column)
        if answer.kind == "null" or answer.kind == kind:
            return answer.text
        if kind in ("decimal", "double") and answer.kind in _EXACT:
            return answer.text
        if kind == "float" and answer.is_literal and answer.kind in _EXACT and _fits_float(answer.value):
            return answer.text
        if kind in _MOMENTS and _is_moment_text(answer, kind):
            return answer.text
        raise Foreign

    def term(self, node: exp.Expr) -> Term:
        """Return an expression of the store. Raises Foreign."""
        self._depth += 1
        try:
            if self._depth > _DEPTH_MAX:
                raise Foreign
            if (value := literal(node)) is not NO_LITERAL:
                return _literal_term(value)
            taken, read = _READERS.get(type(node), (frozenset(), None))
            if read is None or any(part not in taken for part, value in node.args.items() if value):
                raise Foreign
            return read(self, node)
        finally:
            self._depth -= 1

    def _column(self, node: exp.Column) -> Term:
        if not isinstance(node.this, exp.Identifier) or (column := self._columns.get(name_of(node))) is None:
            raise Foreign
        table = node.args.get("table")
        if table is None or name_of(table) == self._alias:
            return Term(column_text(column.name), _kind_of(column))
        if name_of(table) != EXCLUDED or column.name not in self._new:
            raise Foreign
        self.read_new.add(column.name)
        return Term(f"{EXCLUDED}.{column_text(column.name)}", _kind_of(column))

    def _paren(self, node: exp.Paren) -> Term:
        return self.term(node.this)

    def _junction(self, node: exp.And | exp.Or) -> Term:
        word = " AND " if isinstance(node, exp.And) else " OR "
        return Term(f"({word.join(self.condition(each) for each in node.flatten())})", "bool")

    def _not(self, node: exp.Not) -> Term:
        return Term(f"(NOT {self.condition(node.this)})", "bool")

    def _is(self, node: exp.Is) -> Term:
        this = self.term(node.this)
        if this.is_literal:
            raise Foreign
        if isinstance(node.expression, exp.Null):
            return _negated(node, f"({this.text} IS NULL)")
        if isinstance(node.expression, exp.Boolean) and this.kind == "bool":
            return _negated(node, f"({this.text} IS {'TRUE' if node.expression.this else 'FALSE'})")
        raise Foreign

    def _comparison(self, node: exp.Binary) -> Term:
        return _compared(self.term(node.this), _COMPARISONS[type(node)], self.term(node.expression))

    def _between(self, node: exp.Between) -> Term:
        this = self.term(node.this)
        low, high = self.term(node.args["low"]), self.term(node.args["high"])
        return _negated(node, f"({_compared(this, '>=', low).text} AND {_compared(this, '<=', high).text})")

    def _in(self, node: exp.In) -> Term:
        if not node.expressions:
            raise Foreign
        this, values = self.term(node.this), [self.term(each) for each in node.expressions]
        if this.is_literal or not all(each.is_literal for each in values):
            raise Foreign
        for each in values:
            _compared(this, "=", each)
        return _negated(node, f"({this.text} IN ({', '.join(each.text for each in values)}))")

    def _like(self, node: exp.Like) -> Term:
        this, pattern = self.term(node.this), node.expression
        is_plain = isinstance(pattern, exp.Literal) and pattern.is_string and not pattern.this.endswith("\\")
        if this.kind != "text" or this.is_literal or not is_plain:
            raise Foreign
        return _negated(node, f"({this.text} LIKE {_quoted(pattern.this)})")

    def _arithmetic(self, node: exp.Binary) -> Term:
        one, op, other = self.term(node.this), _ARITHMETIC[type(node)], self.term(node.expression)
        kind = _sum_kind(one, other)
        if (op == "/" and kind == "decimal") or (op == "%" and kind != "int"):
            raise Foreign
        return Term(f"({one.text} {op} {other.text})", kind)

    def _negative(self, node: exp.Neg) -> Term:
        this = self.term(node.this)
        if this.kind not in (*_EXACT, "double"):
            raise Foreign
        return Term(f"(- {this.text})", this.kind)

    def _joined(self, node: exp.DPipe) -> Term:
        terms = [self.term(node.this), self.term(node.expression)]
        if any(each.kind != "text" for each in terms):
            raise Foreign
        return Term(f"({terms[0].text} || {terms[1].text})", "text")

    def _coalesce(self, node: exp.Coalesce) -> Term:
        terms = [self.term(each) for each in (node.this, *node.expressions)]
        return Term(f"COALESCE({', '.join(each.text for each in terms)})", _common_kind(terms))

    def _extreme(self, node: exp.Greatest | exp.Least) -> Term:
        """NULLs are skipped, and NaN is the greatest number; a zero may have either sign."""
        terms = [self.term(each) for each in (node.this, *node.expressions)]
        (kind, *others) = {each.kind for each in terms}
        if others or kind not in _ORDERED:
            raise Foreign
        word = "GREATEST" if isinstance(node, exp.Greatest) else "LEAST"
        return Term(f"{word}({', '.join(each.text for each in terms)})", kind)

    def _nullif(self, node: exp.Nullif) -> Term:
        one, other = self.term(node.this), self.term(node.expression)
        _compared(one, "=", other)
        if one.kind not in _EXACT and one.kind != "text":
            raise Foreign
        return Term(f"NULLIF({one.text}, {other.text})", one.kind)

    def _absolute(self, node: exp.Abs) -> Term:
        this = self.term(node.this)
        if this.kind not in (*_EXACT, "double"):
            raise Foreign
        return Term(f"ABS({this.text})", this.kind)

    def _case(self, node: exp.Case) -> Term:
        parts, terms = [], []
        for each in node.args["ifs"]:
            terms.append(self.term(each.args["true"]))
            parts.append(f"WHEN {self.condition(each.this)} THEN {terms[-1].text}")
        if (other := node.args.get("default")) is not None:
            terms.append(self.term(other))
            parts.append(f"ELSE {terms[-1].text}")
        return Term(f"(CASE {' '.join(parts)} END)", _common_kind(terms))

    def _cast(self, node: exp.Cast) -> Term:
        this, to = self.term(node.this), node.to.this
        if to in _INTEGERS and this.kind == "int":
            return Term(f"CAST({this.text} AS {_INTEGERS[to]})", "int")
        if to == exp.DType.DOUBLE and this.kind in (*_EXACT, "double"):
            return Term(f"CAST({this.text} AS DOUBLE)", "double")
        raise Foreign

    def _json(self, node: exp.JSONExtract | exp.JSONExtractScalar) -> Term:
        this, path = self.term(node.this), node.expression
        steps = path.expressions[1:] if isinstance(path, exp.JSONPath) else []
        if this.kind != "text" or len(steps) != 1:
            raise Foreign
        word = "->>" if isinstance(node, exp.JSONExtractScalar) else "->"
        place = steps[0].this
        return Term(f"({this.text} {word} {place if isinstance(place, int) else _quoted(place)})", "text")

    def _now(self, node: exp.Expr) -> Term:
        return Term("NOW()", "timestamp")


_THIS = frozenset({"this"})
_TWO = frozenset({"this", "expression"})
_READERS: dict[type, tuple[frozenset[str], Any]] = {
    exp.Column: (_THIS | {"table"}, Translator._column),
    exp.Paren: (_THIS, Translator._paren),
    exp.And: (_TWO, Translator._junction),
    exp.Or: (_TWO, Translator._junction),
    exp.Not: (_THIS, Translator._not),
    exp.Is: (_TWO | {"negate"}, Translator._is),
    **dict.fromkeys(_COMPARISONS, (_TWO, Translator._comparison)),
    exp.Between: (_THIS | {"low", "high", "negate"}, Translator._between),
    exp.In: (_THIS | {"expressions", "negate"}, Translator._in),
    exp.Like: (_TWO | {"negate"}, Translator._like),
    **dict.fromkeys(_ARITHMETIC, (_TWO | {"typed"}, Translator._arithmetic)),
    exp.Neg: (_THIS, Translator._negative),
    exp.DPipe: (_TWO | {"safe"}, Translator._joined),
    exp.Coalesce: (_THIS | {"expressions"}, Translator._coalesce),
    **dict.fromkeys((exp.Greatest, exp.Least), (_THIS | {"expressions", "ignore_nulls"}, Translator._extreme)),
    exp.Nullif: (_TWO, Translator._nullif),
    exp.Abs: (_THIS, Translator._absolute),
    exp.Case: (frozenset({"ifs", "default"}), Translator._case),
    **dict.fromkeys((exp.JSONExtract, exp.JSONExtractScalar), (_TWO | {"only_json_types"}, Translator._json)),
    exp.CurrentTimestamp: (frozenset(), Translator._now),
    exp.Cast: (_THIS | {"to"}, Translator._cast),
}
"""What reads a kind of node, and the parts of the node that it understands: one with others is left out."""


def column_text(name: str) -> str:
    """Return a column of an SQL statement in an expression of the store."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _negated(node: exp.Expr, text: str) -> Term:
    """Return a test, or the opposite where its node says NOT."""
    return Term(f"(NOT {text})" if node.args.get("negate") else text, "bool")


def _kind_of(column: ColumnSchema) -> Kind:
    if (kind := _KINDS.get(column.logical.name)) is None:
        raise Foreign
    return kind


def _literal_term(value: Any) -> Term:
    if value is None:
        return Term("NULL", "null", None)
    if isinstance(value, bool):
        return Term("TRUE" if value else "FALSE", "bool", value)
    if isinstance(value, str):
        return Term(_quoted(value), "text", value)
    if isinstance(value, bytes):
        return Term(f"X'{value.hex()}'", "binary", value)
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            raise Foreign
        return Term(f"TIMESTAMP '{value.isoformat(sep=' ')}'", "timestamp", value)
    if isinstance(value, dt.date):
        return Term(f"DATE '{value.isoformat()}'", "date", value)
    if isinstance(value, float):
        raise Foreign
    text = str(value) if isinstance(value, int) else f"{value:f}"
    if len(text) > _DIGITS_MAX:
        raise Foreign
    return Term(text, "int" if isinstance(value, int) else "decimal", value)


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _compared(one: Term, op: str, other: Term) -> Term:
    if one.is_literal:
        one, op, other = other, _MIRRORED[op], one
    if one.is_literal or "null" in (one.kind, other.kind) or not _are_comparable(one, other):
        raise Foreign
    if one.kind == "bool" and op not in ("=", "<>"):
        raise Foreign
    text = f"{one.text} {op} {other.text}"
    if one.kind in ("double", "float") and op in (">", ">="):
        text = f"{text} OR {one.text} <> {one.text}"
    return Term(f"({text})", "bool")


def _are_comparable(one: Term, other: Term) -> bool:
    if one.kind in _EXACT:
        return other.kind in _EXACT
    if one.kind == "double":
        return other.is_literal and other.kind in _EXACT
    if one.kind == "float":
        return other.is_literal and other.kind in _EXACT and _fits_float(other.value)
    if one.kind in _MOMENTS:
        return other.kind in _MOMENTS or _is_moment_text(other, one.kind)
    return one.kind == other.kind


def _is_moment_text(term: Term, kind: Kind) -> bool:
    """Return whether a literal is text that means the same moment in SQL and in the store."""
    if not isinstance(term.value, str):
        return False
    pattern = _ISO_DATE if kind == "date" else _ISO_TIMESTAMP
    if not pattern.fullmatch(term.value):
        return False
    try:
        dt.datetime.fromisoformat(term.value)
    except ValueError:
        return False
    return True


def _fits_float(value: Any) -> bool:
    try:
        return struct.unpack("<f", struct.pack("<f", float(value)))[0] == value
    except (OverflowError, struct.error):
        return False


def _sum_kind(one: Term, other: Term) -> Kind:
    kinds = {one.kind, other.kind}
    if not kinds <= {"int", "decimal", "double"}:
        raise Foreign
    return "double" if "double" in kinds else "decimal" if "decimal" in kinds else "int"


def _common_kind(terms: list[Term]) -> Kind:
    kinds: set[Kind] = {each.kind for each in terms if each.kind != "null"}
    if kinds == {"int", "decimal"}:
        return "decimal"
    if len(kinds) != 1:
        raise Foreign
    return kinds.pop()
