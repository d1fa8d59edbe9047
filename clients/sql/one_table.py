"""OneTable: a query of one table that the store answers alone: columns as they are, or counts, sums, minima, maxima and
means of them. DataFusion sees none of it.

The store's answer must be the one of DataFusion. So floats are neither compared nor grouped, since NaN is less here and
more there. The store does not group lists, structs, maps and intervals. All that is not listed here is left to
DataFusion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

from ...schemas.protocol.service import StoreService
from ...schemas.rows.scan import ScanSpec
from ...schemas.store.description import TableDescription
from .result import Result
from .source.pushed import one_nan
from .text.names import lower

_COMPARISONS = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MEASURES: dict[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
}
_PARTS = {"expressions", "from_", "where", "group", "kind"}
"""The parts of a SELECT that are understood here."""
_FAR = 1 << 63
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Condition:
    """In a query of one table: a comparison of a column with a literal or a parameter."""

    column: str
    op: str
    value: Any
    parameter: str = ""


@dataclass(frozen=True, slots=True)
class OneTable:
    """What an SQL query asks of its only table. Columns and measures are pairs of the name in the answer and what it
    is."""

    table: str
    columns: tuple[tuple[str, str], ...] | None
    """None: all; of an aggregate, those that are grouped by."""
    measures: tuple[tuple[str, tuple[str, str]], ...] = ()
    names: tuple[str, ...] = ()
    """Of an aggregate: the columns of the answer in order."""
    conditions: tuple[Condition, ...] = ()

    def planned(
        self, about: TableDescription, values: Mapping[str, pa.Scalar] | None, as_of: int | None
    ) -> Planned | None:
        """Return the scan that answers it; None: it is for DataFusion. Without ``values`` of its parameters, the scan
        is not to be run."""
        kinds = {column.name: column.field.type for column in about.columns}
        tests = [_test(each, kinds.get(each.column), values) for each in self.conditions]
        if None in tests:
            return None
        where = None if not tests else tests[0] if len(tests) == 1 else {"op": "and", "args": tests}
        if self.measures:
            return self._aggregate(kinds, where, as_of)
        columns = self.columns or tuple((name, name) for name in kinds)
        if not all(source in kinds for _, source in columns):
            return None
        sources = list(dict.fromkeys(source for _, source in columns))
        spec = ScanSpec(table=self.table, columns=sources, where=where, as_of=as_of)
        schema = pa.schema([pa.field(name, kinds[source]) for name, source in columns])
        return Planned(spec, schema, tuple(source for _, source in columns))

    def _aggregate(self, kinds: Mapping[str, pa.DataType], where: Any, as_of: int | None) -> Planned | None:
        groups = dict(self.columns or ())
        fields: dict[str, pa.DataType | None] = {}
        for name, source in groups.items():
            kind = kinds.get(source)
            fields[name] = None if kind is None or not _is_ordered(kind) else kind
        for name, (column, function) in self.measures:
            fields[name] = _measured(function, kinds.get(column) if column != "*" else None, column)
        schema = [pa.field(name, kind) for name in self.names if (kind := fields[name]) is not None]
        if len(schema) < len(self.names):
            return None
        measures = {f"m{place}": measure for place, (_, measure) in enumerate(self.measures)}
        grouped = list(dict.fromkeys(groups.values()))
        spec = ScanSpec(table=self.table, aggregate=measures, group_by=grouped, where=where, as_of=as_of)
        places = {name: f"m{place}" for place, (name, _) in enumerate(self.measures)}
        return Planned(spec, pa.schema(schema), tuple(places.get(name) or groups[name] for name in self.names))


class Planned(NamedTuple):
    """The scan of a query's only table, and how the query shows its columns."""

    spec: ScanSpec
    schema: pa.Schema
    sources: tuple[str, ...] = ()
    """The columns of the scan in the order of the query."""

    def renamed(self, batches: Iterator[pa.RecordBatch], check: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the scan as the query shows them, if it is no aggregate."""
        for batch in batches:
            check()
            if batch.num_rows:
                shown = one_nan(batch)
                yield pa.RecordBatch.from_arrays([shown[name] for name in self.sources], schema=self.schema)

    def run(self, store: StoreService, check: Callable[[], None]) -> Result | None:
        """Return the answer of the store; None: it is for DataFusion after all. ``check`` raises if nobody wants it."""
        stream = store.scan(self.spec.checked())
        if self.spec.aggregate is None:
            return Result(self.schema, self.renamed(stream.batches, check), stream.snapshot, close=stream.close)
        table = stream.to_table()
        try:
            columns = [table[name].cast(field.type) for name, field in zip(self.sources, self.schema, strict=True)]
        except pa.ArrowInvalid:  # a sum beyond the type that DataFusion gives it
            return None
        batches = pa.Table.from_arrays(columns, schema=self.schema).to_batches()
        return Result(self.schema, iter(batches), stream.snapshot)


def _measured(function: str, kind: pa.DataType | None, column: str) -> pa.DataType | None:
    """Return the type of a measure in DataFusion; None: the store's may differ."""
    if function == "count":
        return pa.int64() if column == "*" or kind is not None else None
    if kind is None:
        return None
    if function in ("min", "max"):
        return kind if _is_ordered(kind) and not pa.types.is_boolean(kind) else None
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(38, kind.precision + 10), kind.scale) if function == "sum" else None
    if not pa.types.is_integer(kind) and kind != pa.float64():
        return None
    if (function == "avg" and kind == pa.int64()) or kind == pa.uint64():
        return None  # DataFusion adds doubles up, and a sum beyond the range of bigint is an error
    if function == "avg" or kind == pa.float64():
        return pa.float64()
    return pa.uint64() if pa.types.is_unsigned_integer(kind) else pa.int64()


def _is_ordered(kind: pa.DataType) -> bool:
    """Whether the store compares and groups values of a type as DataFusion does."""
    return not (pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_interval(kind))


def _test(
    condition: Condition, kind: pa.DataType | None, values: Mapping[str, pa.Scalar] | None
) -> dict[str, Any] | None:
    """Return a condition as a filter of the store; None: it may mean another thing there."""
    value = condition.value
    if condition.parameter:
        if values is None:
            return {"op": "is_null", "column": condition.column} if kind is not None else None
        scalar = values[condition.parameter]
        if pa.types.is_temporal(scalar.type):  # Python does not have all moments
            return None
        value = scalar.as_py()
    is_number = isinstance(value, int) and not isinstance(value, bool)
    fits = (kind is not None and pa.types.is_integer(kind) and is_number and -_FAR <= value < _FAR) or (
        kind == pa.string() and isinstance(value, str)
    )
    return {"op": condition.op, "column": condition.column, "value": value} if fits else None


def one_table(tree: exp.Expr) -> OneTable | None:
    """Return what a query asks of one table; None if it is for DataFusion."""
    if not isinstance(tree, exp.Select) or {name for name, value in tree.args.items() if value} - _PARTS:
        return None
    source = tree.args.get("from_")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        return None
    if {name for name, value in table.args.items() if value} - {"this", "alias", "db", "catalog"}:
        return None  # what else there is in front of it is checked before
    reader = _QueryReader(_name(table.this), _name(table.args["alias"].this) if table.alias else "")
    try:
        return reader.read(tree)
    except _ForDataFusionError:
        return None


class _ForDataFusionError(Exception):
    pass


class _QueryReader:
    def __init__(self, table: str, alias: str) -> None:
        self._table = table
        self._alias = alias or table
        self._marks = 0

    def read(self, tree: exp.Select) -> OneTable:
        where = tree.args.get("where")
        conditions = tuple(self._conditions(where.this)) if where is not None else ()
        chosen = tree.expressions
        if len(chosen) == 1 and isinstance(chosen[0], exp.Star) and not chosen[0].args.get("except_"):
            if tree.args.get("group"):
                raise _ForDataFusionError
            return OneTable(self._table, None, conditions=conditions)
        columns: dict[str, str] = {}
        measures: dict[str, tuple[str, str]] = {}
        order: list[str] = []
        for each in chosen:
            inner = each.this if isinstance(each, exp.Alias) else each
            if isinstance(inner, exp.Column):
                source = self._column(inner)
                name = _name(each.args["alias"]) if isinstance(each, exp.Alias) else source
                columns.setdefault(name, source)
            elif type(inner) in _MEASURES:
                column, function = measure = self._measure(inner)
                name = _name(each.args["alias"]) if isinstance(each, exp.Alias) else self._called(column, function)
                measures.setdefault(name, measure)
                order.append(name)
                continue
            else:
                raise _ForDataFusionError
            order.append(name)
        if len({*columns, *measures}) != len(chosen) or len(columns) + len(measures) != len(chosen):
            raise _ForDataFusionError
        group = tree.args.get("group")
        if not measures:
            if group is not None:
                raise _ForDataFusionError
            return OneTable(self._table, tuple(columns.items()), conditions=conditions)
        grouped = [self._column(each) for each in (group.expressions if group is not None else ())]
        if group is not None and {name for name, value in group.args.items() if value} - {"expressions"}:
            raise _ForDataFusionError
        if set(grouped) != set(columns.values()):
            raise _ForDataFusionError
        return OneTable(self._table, tuple(columns.items()), tuple(measures.items()), tuple(order), conditions)

    def _called(self, column: str, function: str) -> str:
        """Return the name that DataFusion gives a measure without one."""
        if column == "*":
            return "count(*)"
        if not (_PLAIN.fullmatch(column) and _PLAIN.fullmatch(self._alias)):
            raise _ForDataFusionError
        return f"{function}({self._alias}.{column})"

    def _measure(self, node: exp.Expr) -> tuple[str, str]:
        if {name for name, value in node.args.items() if value} - {"this", "big_int"}:
            raise _ForDataFusionError
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
            return "*", "count"
        return self._column(node.this), _MEASURES[type(node)]

    def _conditions(self, node: exp.Expr) -> Sequence[Condition]:
        if isinstance(node, exp.And):
            return [*self._conditions(node.this), *self._conditions(node.expression)]
        op = _COMPARISONS.get(type(node))
        if op is None:
            raise _ForDataFusionError
        left, right = node.this, node.expression
        if not isinstance(left, exp.Column):
            left, right, op = right, left, _MIRRORED[op]
        return [Condition(self._column(left), op, *self._literal(right))]

    def _literal(self, node: Any) -> tuple[Any, str]:
        """Return a value, or the name of a parameter."""
        sign = 1
        if isinstance(node, exp.Neg):
            node, sign = node.this, -1
        if isinstance(node, exp.Literal):
            if node.is_string and sign > 0:
                return node.this, ""
            if node.is_int:
                return sign * int(node.this), ""
        if isinstance(node, exp.Placeholder) and sign > 0 and not node.this:
            self._marks += 1
            return None, f"p{self._marks}"
        if isinstance(node, exp.Parameter) and sign > 0:
            return None, f"p{node.name}" if node.name.isdecimal() else node.name
        raise _ForDataFusionError

    def _column(self, node: Any) -> str:
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            raise _ForDataFusionError
        if {name for name, value in node.args.items() if value} - {"this", "table"}:
            raise _ForDataFusionError
        if node.args.get("table") is not None and _name(node.args["table"]) != self._alias:
            raise _ForDataFusionError
        return _name(node.this)


def _name(identifier: Any) -> str:
    return identifier.name if identifier.args.get("quoted") else lower(identifier.name)
