"""Filters and aggregates worked out in the store, beside DuckDB on the same rows in the same run, in turns.

``orders`` has the key ``key``; ``by_city`` has (city, key, price) with the key (city, key), for the prefix of a key.
The first round of a case is kept apart: it meets pages that nobody has read since the load.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from rich.console import Console

import nyala
from bench import data
from bench.measure import take_turns
from bench.report import Result, Suite

NYALA, DUCKDB = "Nyala in process", "DuckDB in process"
KEYS_ASKED = 10_000
REHEARSAL_ROWS = 20_000
LOADED_AT_ONCE = 2_000_000
CITY = "city-0100"
BY_CITY = pa.schema([pa.field("city", pa.string(), False), pa.field("key", pa.int64(), False), ("price", pa.float64())])


class Pushdown:
    """Both stores with the same two tables under ``work``."""

    def __init__(self, rows: int, rounds: int, work: Path, console: Console) -> None:
        self.rounds, self.work, self.console = rounds, work, console
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        console.print(f"making and loading {rows:,} orders")
        self.data = data.orders(rows)
        self.results: list[Result] = []
        self.database = nyala.open(str(work / "nyala"), maintenance="off")
        self.duck = duckdb.connect(str(work / "orders.duckdb"))
        self._load()

    def run(self) -> list[Result]:
        try:
            self._measure_all()
            return self.results
        finally:
            self.database.close()
            self.duck.close()
            shutil.rmtree(self.work, ignore_errors=True)

    def _measure_all(self) -> None:
        keys = np.sort(self.data["key"].to_numpy())
        low, high = (int(keys[int(len(keys) * share)]) for share in (0.42, 0.43))
        asked = np.random.default_rng(3).choice(keys, min(KEYS_ASKED, len(keys)), replace=False).tolist()
        listed = ", ".join(map(str, asked))
        total = {"total": ("price", "sum"), "n": ("*", "count")}
        self._scan("1 % by a column that is no key", "price > 330")
        self._scan("1 % of the key's range", f"key >= {low} AND key < {high}")
        self._scan("IN of 10,000 keys", f"key IN ({listed})")
        self._scan("the prefix of a key", f"city = '{CITY}'", "by_city")
        self._count("count of all")
        self._count("count by a filter", "quantity < 100 AND status = 'paid'")
        self._aggregate("sum and count, 8 groups", total, ["status"])
        self._aggregate("sum and count, 1,000 groups", total, ["city"])
        self._aggregate("min and max of a column", {"low": ("placed_at", "min"), "high": ("placed_at", "max")}, [])

    def _load(self) -> None:
        named = {"orders": (self.data, ["key"]), "by_city": (self._by_city(), ["city", "key"])}
        for name, (rows, key) in named.items():
            table = self.database.create_table(name, rows.schema, primary_key=key)
            for start in range(0, rows.num_rows, LOADED_AT_ONCE):
                table.insert(rows.slice(start, LOADED_AT_ONCE))
                table.maintain("flush")
            self.duck.register("given", rows)
            self.duck.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            self.duck.unregister("given")
        self.duck.execute("CHECKPOINT")

    def _by_city(self) -> pa.Table:
        return self.data.select(BY_CITY.names).cast(BY_CITY)

    def _scan(self, case: str, where: str, name: str = "orders") -> None:
        table = self.database.table(name)
        self._turns(
            case,
            lambda: table.scan(where=where).to_arrow().num_rows,
            lambda: self.duck.sql(f"SELECT * FROM {name} WHERE {where}").to_arrow_table().num_rows,
        )

    def _count(self, case: str, where: str | None = None) -> None:
        table = self.database.table("orders")
        condition = f" WHERE {where}" if where else ""
        query = f"SELECT count(*) FROM orders{condition}"
        self._turns(case, lambda: table.scan(where=where).count(), lambda: self.duck.sql(query).fetchall()[0][0])

    def _aggregate(self, case: str, measures: dict[str, tuple[str, str]], group_by: list[str]) -> None:
        table = self.database.table("orders")
        columns = group_by + [f"{function}({column}) AS {name}" for name, (column, function) in measures.items()]
        query = f"SELECT {', '.join(columns)} FROM orders" + (f" GROUP BY {', '.join(group_by)}" if group_by else "")
        self._turns(
            case,
            lambda: table.scan().aggregate(measures, group_by).num_rows,
            lambda: self.duck.sql(query).to_arrow_table().num_rows,
        )

    def _turns(self, case: str, ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
        """Measure both; what they return must be equal."""
        found: dict[str, Any] = {}

        def remember(name: str, action: Callable[[], Any]) -> Callable[[int], None]:
            return lambda _: found.__setitem__(name, action())

        actions = {NYALA: remember(NYALA, ours), DUCKDB: remember(DUCKDB, theirs)}
        first = take_turns(actions, 1)
        samples = take_turns(actions, self.rounds)
        assert found[NYALA] == found[DUCKDB], f"{case}: {found}"
        for suffix, times in ((", first time", first), ("", samples)):
            self.results += [Result(case + suffix, name, "s", times[name]) for name in actions]
        mine, other = (result.median * 1e3 for result in self.results[-2:])
        before, other_before = (times[0] * 1e3 for times in (first[NYALA], first[DUCKDB]))
        self.console.print(
            f"  {case}: {mine:,.2f} ms, DuckDB {other:,.2f}; the first time {before:,.2f}, {other_before:,.2f}"
        )


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Compare on ``rows`` orders, after a short rehearsal that compiles what has to be compiled."""
    Pushdown(REHEARSAL_ROWS, 1, work, Console(quiet=True)).run()
    return Suite("pushdown", {"rows": rows, "rounds": rounds}, Pushdown(rows, rounds, work, console).run())
