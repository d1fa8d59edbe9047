"""A table as a lazily scanned source of polars."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ....schemas.errors import InvalidArgumentError
from .dataset import NyalaDataset
from .parts import AND, NOT, OR, UNKNOWN, PushedColumn, PushedPart, PushedValue, call, plain_scalar
from .pushed import PushedFilter, pushed_of

if TYPE_CHECKING:
    import polars as pl

_DYNAMIC = "dynamic_pred"
"""In the text of a predicate that changes while a query runs. It only spares work, and polars before 1.43 fails to
evaluate it."""


def lazy_frame(dataset: NyalaDataset) -> pl.LazyFrame:
    """Return polars' LazyFrame over the dataset of a table. The store chooses the columns, and evaluates what it can of
    predicates; polars evaluates them again on the rows that are left."""
    import polars as pl
    from polars.io.plugins import register_io_source

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, row_count: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        names = dataset.schema.names if columns is None else columns
        conditions = [] if predicate is None else _conjuncts(predicate)
        where = PushedFilter(pushed_of([_part(each) for each in conditions], dataset.schema).where)
        needed = dict.fromkeys(name for each in conditions for name in each.meta.root_names())
        read = list(dict.fromkeys([*names, *needed])) or dataset.schema.names[:1]
        left = row_count
        for batch in dataset.batches(read, where, None if conditions else row_count):
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            chosen = frame.filter(*conditions) if conditions else frame
            chosen = chosen if left is None else chosen.head(left)
            if chosen.height:
                yield chosen.select(names)
            left = None if left is None else left - chosen.height
            if left == 0:
                return

    _check_types(dataset.schema)
    empty = pl.from_arrow(dataset.schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return register_io_source(read, schema=empty.schema)


def _check_types(schema: pa.Schema) -> None:
    """Raise InvalidArgumentError if polars, which panics, has no type for a column."""
    for field in schema:
        if pa.types.is_interval(field.type):
            raise InvalidArgumentError(f"polars has no type for column {field.name!r}, which is {field.type}")


def _conjuncts(predicate: pl.Expr) -> list[pl.Expr]:
    """Return the conditions that must all be true, without those that change while a query runs."""
    waiting, conditions = [predicate], []
    while waiting:
        each = waiting.pop()
        inputs = each.meta.pop()
        if len(inputs) == 2 and any((a & b).meta.eq(each) for a, b in (inputs, inputs[::-1])):
            waiting.extend(inputs)
        elif _DYNAMIC not in str(each):
            conditions.append(each)
    return conditions


# Predicates as parts


def _part(predicate: pl.Expr) -> PushedPart:
    try:
        return _read(json.loads(predicate.meta.serialize(format="json")))
    except Exception:  # the form is not documented: what differs is not pushed
        return UNKNOWN


def _read(node: Any) -> PushedPart:
    (kind, body), *more = node.items()
    reader = _READERS.get(kind)
    return UNKNOWN if more or reader is None else reader(body)


_OPERATORS = {
    "Eq": "equal",
    "NotEq": "not_equal",
    "Lt": "less",
    "LtEq": "less_equal",
    "Gt": "greater",
    "GtEq": "greater_equal",
    "And": AND,
    "LogicalAnd": AND,
    "Or": OR,
    "LogicalOr": OR,
}


def _operation(body: Any) -> PushedPart:
    name = _OPERATORS.get(body["op"])
    return UNKNOWN if name is None else call(name, [_read(body["left"]), _read(body["right"])])


def _function(body: Any) -> PushedPart:
    kind = body["function"]
    inputs = body["input"]
    ((family, name),) = kind.items()
    if family == "StringExpr":
        return _match(name, inputs)
    if family != "Boolean":
        return UNKNOWN
    options: Any = None
    if isinstance(name, dict):
        ((name, options),) = name.items()
    test = _BOOLEANS.get(name)
    return UNKNOWN if test is None else test(inputs, options)


def _not(inputs: Any, _: Any) -> PushedPart:
    return call(NOT, [_read(inputs[0])])


def _test(name: str, is_negated: bool = False) -> Callable[[Any, Any], PushedPart]:
    def read(inputs: Any, _: Any) -> PushedPart:
        options = {"nan_is_null": pa.scalar(False)} if name == "is_null" else {}
        condition = call(name, [_read(inputs[0])], options)
        return call(NOT, [condition]) if is_negated else condition

    return read


def _between(inputs: Any, options: Any) -> PushedPart:
    cells, lower, upper = (_read(each) for each in inputs)
    closed = options["closed"]
    above = "greater_equal" if closed in ("Both", "Left") else "greater"
    below = "less_equal" if closed in ("Both", "Right") else "less"
    return call(AND, [call(above, [cells, lower]), call(below, [cells, upper])])


def _is_in(inputs: Any, options: Any) -> PushedPart:
    if options.get("nulls_equal"):
        return UNKNOWN
    listed = _value(inputs[1]["Literal"]).scalar
    return call("is_in", [_read(inputs[0])], {"value_set": listed})


def _match(name: Any, inputs: Any) -> PushedPart:
    function = {"StartsWith": "starts_with", "EndsWith": "ends_with"}.get(name if isinstance(name, str) else "")
    if function is None:
        return UNKNOWN
    pattern = _value(inputs[1]["Literal"]).scalar
    return call(function, [_read(inputs[0])], {"pattern": pattern, "ignore_case": pa.scalar(False)})


def _value(literal: Any) -> PushedValue:
    """Return a literal; polars reads what polars wrote."""
    import polars as pl

    scalar = literal.get("Scalar")
    kind = next(iter(scalar)) if isinstance(scalar, dict) else ""
    if kind in ("Float32", "Float64") and scalar[kind] is None:
        raise ValueError("JSON has neither NaN nor infinity")
    written = io.StringIO(json.dumps({"Literal": literal}))
    values = pl.select(pl.Expr.deserialize(written, format="json")).to_series().to_arrow()
    return PushedValue(plain_scalar(values[0]))


_BOOLEANS: dict[str, Callable[[Any, Any], PushedPart]] = {
    "Not": _not,
    "IsNull": _test("is_null"),
    "IsNotNull": _test("is_valid"),
    "IsNan": _test("is_nan"),
    "IsNotNan": _test("is_nan", is_negated=True),
    "IsBetween": _between,
    "IsIn": _is_in,
}
_READERS: dict[str, Callable[[Any], PushedPart]] = {
    "Column": PushedColumn,
    "Literal": _value,
    "BinaryExpr": _operation,
    "Function": _function,
}
