"""What is measured: a table with its key, the questions asked of it, and the changes made to it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from bench import data, lineitem

Filter = list[tuple[str, str, Any]]
"""Comparisons that must all hold: (column, operator, value), as ``pyarrow.parquet`` takes them."""


def literal(value: Any) -> str:
    """Return a value as SQL has it."""
    if isinstance(value, date):
        return f"DATE '{value}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def sql(where: Filter, written: Callable[[Any], str] = literal) -> str:
    """Return a filter as SQL, its values as ``written`` by a dialect."""
    return " AND ".join(f"{column} {operator} {written(value)}" for column, operator, value in where)


@dataclass(frozen=True)
class Aggregate:
    """Measures as Nyala takes them: name -> (column, function), a column of ``*`` with ``count``."""

    case: str
    measures: dict[str, tuple[str, str]]
    groups: list[str] = field(default_factory=list)
    where: Filter = field(default_factory=list)

    def query(self, table: str, write: Callable[[Filter], str] = sql) -> str:
        """Return the same question in SQL."""
        columns = [*self.groups, *(f"{call}({column}) AS {name}" for name, (column, call) in self.measures.items())]
        where = f" WHERE {write(self.where)}" if self.where else ""
        groups = f" GROUP BY {', '.join(self.groups)}" if self.groups else ""
        return f"SELECT {', '.join(columns)} FROM {table}{where}{groups}"


@dataclass(frozen=True)
class Workload:
    """One table. All stores understand its columns and conditions alike."""

    name: str
    table: pa.Table
    key: tuple[str, ...]
    two_columns: list[str]
    hundredth: Filter
    """A filter by columns that are no key: it holds for about 1 % of the rows."""
    aggregates: list[Aggregate]
    change: Callable[[pa.Table, float, int], pa.Table]
    """(table, share, seed) -> whole rows for a random share of the keys."""
    compared: tuple[str, str]
    """An integer column and one with two decimals, whose sums all stores must agree on after the upserts."""

    def keys(self, count: int, seed: int) -> list[tuple[int, ...]]:
        """Return random keys that exist."""
        rows = pa.array(np.random.default_rng(seed).integers(0, self.table.num_rows, count))
        picked = self.table.select(list(self.key)).take(rows)
        return list(zip(*(column.to_pylist() for column in picked.columns), strict=True))


def orders(rows: int) -> Workload:
    """Return the orders of ``bench.data``, loaded in random order."""
    few: Filter = [("quantity", "<", 100), ("status", "=", "paid")]
    total = {"total": ("price", "sum"), "n": ("*", "count")}
    return Workload(
        name="orders",
        table=data.orders(rows),
        key=(data.KEY,),
        two_columns=["status", "price"],
        hundredth=[("price", ">", 330)],
        aggregates=[
            Aggregate("count by a filter", {"n": ("*", "count")}, where=few),
            Aggregate("sum and count, 8 groups", total, ["status"]),
            Aggregate("sum and count, 1,000 groups", total, ["city"]),
        ],
        change=data.changed,
        compared=("key", "price"),
    )


def lineitems(rows: int) -> Workload:
    """Return about ``rows`` rows of TPC-H's lineitem, loaded in the order of their key, as its files have them."""
    measures = {
        "quantity": ("l_quantity", "sum"),
        "price": ("l_extendedprice", "sum"),
        "discount": ("l_discount", "sum"),
        "n": ("*", "count"),
    }
    year: Filter = [("l_shipdate", ">=", date(1994, 1, 1)), ("l_shipdate", "<", date(1995, 1, 1))]
    discount: Filter = [("l_discount", ">=", Decimal("0.05")), ("l_discount", "<=", Decimal("0.07"))]
    return Workload(
        name="lineitem",
        table=lineitem.lineitems(rows),
        key=lineitem.KEY,
        two_columns=["l_returnflag", "l_extendedprice"],
        hundredth=[("l_shipmode", "=", "AIR"), ("l_quantity", "<", Decimal("5.00"))],
        aggregates=[
            Aggregate(
                "pricing summary (Q1, its plain columns)",
                measures,
                ["l_returnflag", "l_linestatus"],
                [("l_shipdate", "<=", date(1998, 9, 2))],
            ),
            Aggregate(
                "forecast (Q6, its plain columns)",
                {"price": ("l_extendedprice", "sum")},
                where=[*year, *discount, ("l_quantity", "<", Decimal("24.00"))],
            ),
        ],
        change=lineitem.changed,
        compared=("l_orderkey", "l_extendedprice"),
    )
