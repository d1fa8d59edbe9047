"""The tablet of a row as a Spark expression, so that Spark can group rows by tablet without a Python function.

Tablets are numbered here from 0, by ascending range and then by hash level; the store's numbers may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as f

from ...schemas.cells.literal import from_json
from ...schemas.cells.moment import microseconds_of
from ...schemas.store.description import TableDescription
from ...schemas.table.column import ColumnSchema
from .types import spark_type


def tablet_of(table: TableDescription) -> tuple[int, Column]:
    """Return the number of a table's tablets, and a Spark expression for a row's tablet: INT, from 0.

    A row in a gap between ranges has no tablet, and gets the number of one beside the gap.
    """
    columns = {column.name: column for column in table.columns}
    levels = [level for level in table.partitions if "hash" in level]
    ranges = next((level for level in table.partitions if "range" in level), None)
    if ranges is None:
        return _count(levels), _bucket(levels, columns).cast("int")
    first, cases = 0, []
    for bound in ranges["bounds"]:
        own = levels if bound.get("hash") is None else bound["hash"]
        cases.append((bound.get("upper"), f.lit(first) + _bucket(own, columns)))
        first += _count(own)
    keys = [columns[name] for name in ranges["range"]]
    return first, _by_range(cases, keys).cast("int")


def _count(levels: Sequence[dict[str, Any]]) -> int:
    return prod(level["buckets"] for level in levels)


def _bucket(levels: Sequence[dict[str, Any]], columns: dict[str, ColumnSchema]) -> Column:
    """Combine all hash levels into one number."""
    number = f.lit(0)
    for level in levels:
        cells = [_cell(columns[name]) for name in level["hash"]]
        seed = [f.lit(level["seed"]).cast("int")] if level.get("seed") else []
        bucket = f.pmod(f.xxhash64(*seed, *cells), f.lit(level["buckets"]))
        number = number * f.lit(level["buckets"]) + bucket
    return number


def _cell(column: ColumnSchema) -> Column:
    """Cast a cell to the table's type: its hash depends on the type."""
    return f.col(f"`{column.name}`").cast(spark_type(column.logical))


def _by_range(cases: list[tuple[list[Any] | None, Column]], keys: Sequence[ColumnSchema]) -> Column:
    """Return the number of the first range whose upper bound is above the row; ranges ascend and do not overlap."""
    if not cases:
        return f.lit(0)
    last = cases[-1][1]
    return reduce(lambda above, case: f.when(_below(case[0], keys), case[1]).otherwise(above), cases[-2::-1], last)


def _below(upper: list[Any] | None, keys: Sequence[ColumnSchema]) -> Column:
    """Compare the leading cells of a row with a bound, column by column."""
    cells = list(zip(keys, upper or [], strict=False))
    below = f.lit(False)
    for column, value in reversed(cells):
        cell, bound = _cell(column), _literal(value, column)
        below = (cell < bound) | ((cell == bound) & below)
    return below


def _literal(value: Any, column: ColumnSchema) -> Column:
    """Return a bound as a Spark literal: timestamps as microseconds, which no session time zone shifts."""
    cell = from_json(value, column.logical)
    if column.logical.name == "timestamp[us]":
        return f.timestamp_micros(f.lit(microseconds_of(cell)))
    return f.lit(cell).cast(spark_type(column.logical))
