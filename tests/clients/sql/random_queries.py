"""Random queries over three tables, in the SQL that DuckDB and DataFusion share."""

from __future__ import annotations

import random
from decimal import Decimal

import duckdb
import pyarrow as pa

import nyala
from nyala.clients.api.database import Database

FIELDS = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("x", pa.int32()),
    pa.field("s", pa.string()),
    pa.field("f", pa.float64()),
    pa.field("ok", pa.bool_()),
    pa.field("d", pa.decimal128(9, 2)),
]
SCHEMA = pa.schema(FIELDS)
_WORDS = ["", "a", "b", "ab", "B", "z'z", "zebra", "\u00e4"]
_FLOATS = [float("nan"), -1.5, 0.0, 2.5, 7.25, 100.0]
_EXACT = ["0.1", "-2.5", "9999999.99", "7.0", "3.33", "9999999.985"]
"""The last one is no decimal of the column."""


def rows(seed: int, count: int) -> pa.Table:
    """Return rows with few distinct values, and a fifth of NULLs."""
    draw = random.Random(seed)

    def maybe(cell: object) -> object:
        return None if draw.random() < 0.2 else cell

    return pa.Table.from_pylist(
        [
            {
                "id": number,
                "x": maybe(draw.randrange(-3, 12)),
                "s": maybe(draw.choice(_WORDS)),
                "f": maybe(draw.choice(_FLOATS)),
                "ok": maybe(draw.random() < 0.5),
                "d": maybe(Decimal(draw.choice(_EXACT[:-1])).quantize(Decimal("0.01"))),
            }
            for number in draw.sample(range(3 * count), count)
        ],
        SCHEMA,
    )


def fill(database: Database, oracle: duckdb.DuckDBPyConnection, seed: int, counts: dict[str, int]) -> None:
    """Make tables of so many random rows in a database and in DuckDB; those of ``a`` are in several tablets."""
    for number, (name, count) in enumerate(counts.items()):
        given = rows(seed + number, count)
        parts = [nyala.hash("id", buckets=3)] if name == "a" else ()
        database.create_table(name, SCHEMA, ["id"], parts).insert(given)
        oracle.register("given", given)
        oracle.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")


def ordered(table: pa.Table) -> list[tuple[str, ...]]:
    """Return rows in an order of their own, whatever their types."""
    columns = [column.to_pylist() for column in table.columns]
    return sorted(tuple(str(cell) for cell in row) for row in zip(*columns, strict=True))


class Queries:
    """Draws queries over the tables ``a``, ``b`` and ``c``."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def query(self) -> str:
        """Return the next one."""
        form = self._draw.choice(
            [
                self._plain,
                self._joined,
                self._grouped,
                self._window,
                self._set,
                self._subquery,
                self._with,
                self._scalar,
                self._three,
                self._list,
            ]
        )
        return form()

    def _plain(self) -> str:
        return f"SELECT {self._cells('a')} FROM a WHERE {self._condition('a', 2)}"

    def _joined(self) -> str:
        kind = self._draw.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        same = ["p.id = q.id", "p.x = q.x", "p.s = q.s", "p.x = q.x AND p.s = q.s"]
        on = self._draw.choice([*same, "p.d = q.d", "p.x = q.d", "p.f = q.d"])
        sides = self._draw.choice(["", "p", "p", "q", "pq", "pq"])
        more = " WHERE " + " AND ".join(f"({self._condition(side, 1)})" for side in sides) if sides else ""
        first, second = self._two()
        return f"SELECT p.id, q.id, p.s, q.x FROM {first} AS p {kind} {second} AS q ON {on}{more}"

    def _grouped(self) -> str:
        keys = self._draw.choice(["x", "s", "ok", "x, ok", "s, x", "f", "d"])
        measures = "count(*), count(x), sum(x), min(s), max(id), min(x), sum(d), max(d)"
        few = self._draw.choice([f"count(*) > {self._draw.randrange(4)}", f"sum(d) > {self._exact()}"])
        having = f" HAVING {few}" if self._draw.random() < 0.4 else ""
        return f"SELECT {keys}, {measures} FROM {self._table()} WHERE {self._condition('', 1)} GROUP BY {keys}{having}"

    def _window(self) -> str:
        over = self._draw.choice(["row_number()", "sum(x)", "count(s)", "min(id)", "lag(id)", "rank()"])
        by = self._draw.choice(["x", "s", "ok"])
        table = self._table()
        return f"SELECT id, {over} OVER (PARTITION BY {by} ORDER BY id) FROM {table} WHERE {self._condition('', 1)}"

    def _set(self) -> str:
        kind = self._draw.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
        column = self._draw.choice(["x", "s", "ok", "d"])
        first, second = self._two()
        one, other = self._condition("", 1), self._condition("", 1)
        return f"SELECT {column} FROM {first} WHERE {one} {kind} SELECT {column} FROM {second} WHERE {other}"

    def _subquery(self) -> str:
        first, second = self._two()
        column = self._draw.choice(["x", "s", "d"])
        inner = f"SELECT q.{column} FROM {second} AS q WHERE {self._condition('q', 1)}"
        form = self._draw.choice(
            [
                f"p.{column} IN ({inner})",
                f"p.{column} NOT IN ({inner})",
                f"(p.{column} NOT IN ({inner}) OR p.ok)",
                f"NOT (p.{column} IN ({inner} AND q.ok = p.ok) AND p.id > 9)",
                f"EXISTS ({inner} AND q.id = p.id)",
                f"NOT EXISTS ({inner} AND q.x = p.x)",
            ]
        )
        return f"SELECT p.id FROM {first} AS p WHERE {form} AND ({self._condition('p', 1)})"

    def _with(self) -> str:
        first, second = self._two()
        return (
            f"WITH t AS (SELECT id, x, s FROM {first} WHERE {self._condition('', 1)}) "
            f"SELECT t.s, count(*) FROM t JOIN {second} AS q ON t.x = q.x GROUP BY t.s"
        )

    def _scalar(self) -> str:
        first, second = self._two()
        form = self._draw.choice(["min", "max"])
        return f"SELECT id FROM {first} WHERE x = (SELECT {form}(x) FROM {second} WHERE {self._condition('', 1)})"

    def _three(self) -> str:
        kind, other = (self._draw.choice(["JOIN", "LEFT JOIN"]) for _ in range(2))
        first, second = self._two()
        sums = f"(SELECT x, count(*) AS n FROM {self._table()} GROUP BY x)"
        more = self._draw.choice([self._table(), sums])
        again = self._draw.choice("pq")
        return (
            f"SELECT p.id, q.s, r.x FROM {first} AS p {kind} {second} AS q ON p.id = q.id "
            f"{other} {more} AS r ON {again}.x = r.x WHERE {self._condition('p', 1)}"
        )

    def _list(self) -> str:
        first, second = self._two()
        cell, by = self._draw.choice([("x", "x"), ("max(x) AS m", "s"), ("min(x) AS m", "ok"), ("s", "s")])
        column, no = "s" if cell == "s" else "x", self._draw.choice(["", "NOT "])
        both = self._draw.choice(["AND", "OR"])
        having = f"HAVING count(*) > {self._draw.randrange(3)}"
        inner = f"SELECT {cell} FROM {second} AS q WHERE {self._condition('q', 1)} GROUP BY {by} {having}"
        more = self._draw.choice(["", f" JOIN {second} AS r ON p.id = r.id"])
        return f"SELECT p.id FROM {first} AS p{more} WHERE p.{column} {no}IN ({inner}) {both} {self._condition('p', 1)}"

    def _two(self) -> tuple[str, str]:
        return self._table(), self._table()

    def _table(self) -> str:
        return self._draw.choice("abc")

    def _cells(self, table: str) -> str:
        return self._draw.choice(
            [
                "*",
                f"{table}.id, {table}.s",
                f"{table}.x + 1, {table}.id",
                f"coalesce({table}.s, '-'), {table}.f",
                f"{table}.d, coalesce({table}.d, {self._exact()}) = {self._exact()}",
            ]
        )

    def _condition(self, table: str, depth: int) -> str:
        if depth and self._draw.random() < 0.5:
            one, other = self._condition(table, depth - 1), self._condition(table, depth - 1)
            both = self._draw.choice(
                [f"({one}) AND ({other})", f"({one}) OR ({other})", f"NOT (({one}) AND ({other}))"]
            )
            return both
        at = f"{table}." if table else ""
        x, s, f, ok = (f"{at}{name}" for name in ("x", "s", "f", "ok"))
        number, other = self._draw.randrange(-3, 12), self._draw.randrange(0, 9)
        words = ", ".join(_text(word) for word in self._draw.sample(_WORDS, 5))
        numbers = ", ".join(map(str, self._draw.sample(range(-3, 12), self._draw.choice([2, 4, 6]))))
        word = _text(self._draw.choice(_WORDS))
        return self._draw.choice(
            [
                f"{x} {self._operator()} {number}",
                f"{s} {self._operator()} {word}",
                f"{f} {self._operator()} {self._draw.choice([-1.5, 0.0, 2.5, 7.0])}",
                f"{x} NOT IN ({numbers})",
                f"{x} IN ({numbers}, NULL)" if self._draw.random() < 0.3 else f"{x} IN ({numbers})",
                f"{s} NOT IN ({words})",
                f"{s} LIKE {self._draw.choice(['%a%', 'z%', '%b', '_'])!r}".replace('"', "'"),
                f"{x} IS NULL",
                f"{f} IS NOT NULL",
                f"{x} BETWEEN {other - 2} AND {other}",
                f"{ok}",
                f"NOT {ok}",
                f"{x} < {at}id",
                f"{ok} IS NOT TRUE",
                f"length({s}) > 1",
                f"{x} + 1 > {other}",
                f"CASE WHEN {x} > 3 THEN {s} ELSE 'a' END = 'a'",
                *self._exact_conditions(f"{at}d", x, f),
            ]
        )

    def _exact_conditions(self, d: str, x: str, f: str) -> list[str]:
        """Return conditions on a decimal."""
        exact, low, other = (self._exact() for _ in range(3))
        return [
            f"{d} {self._operator()} {exact}",
            f"{d} {self._draw.choice(['', 'NOT '])}IN ({exact}, {other}, 7)",
            f"{d} BETWEEN {low} AND {exact}",
            f"{self._draw.choice([x, f])} {self._operator()} {d}",
            f"coalesce({d}, {low}) {self._operator()} {exact}",
            f"CASE {d} WHEN {exact} THEN 1 WHEN 7 THEN 2 ELSE 0 END > 0",
            f"nullif({d}, {exact}) IS NULL",
            f"{d} + 1 > {low}",
            f"greatest({d}, {low}) = {exact}",
        ]

    def _exact(self) -> str:
        return self._draw.choice(_EXACT)

    def _operator(self) -> str:
        return self._draw.choice(["=", "<>", "<", "<=", ">", ">="])


def _text(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"
