"""A table of all types in every state that a row can be in, and the same rows in DuckDB, now and in the past.

Six rowsets on disk, each of few different cells, so that zone maps tell them apart; deltas in files and in memory with
any cell; rows deleted, and inserted again; rows in memory. Some columns are narrow at first, each with any encoding of
its type, and are widened at some time. Rows with a NaN have ids from ``NAN_IDS`` on: DuckDB, where NaN is the greatest
float and equal to itself, is not shown them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.cells.encoding import encodings_for
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.rows.predicate import Predicate
from nyala.schemas.table.table import TableDefinition
from tests.engine.filter.duck import duckdb_literal
from tests.engine.filter.model import CELLS, KINDS, NAMES, SCHEMA, to_sql, truth

NAN_IDS = 100_000
Row = dict[str, Any]
NARROW = {
    "int16": "int8",
    "int32": "int16",
    "int64": "int32",
    "double": "float",
    "decimal(7,2)": "decimal(4,2)",
    "decimal(15,3)": "decimal(6,3)",
    "decimal(30,6)": "decimal(15,6)",
    "varchar(80)": "varchar(2)",
    "string": "varchar(3)",
}
"""Types that columns begin with, by the type that they have in the end."""


def fits(cell: Any, word: str) -> bool:
    """Whether a narrow type holds a cell."""
    kind = LogicalType.parse(word)
    if kind.is_integer:
        return -(1 << (kind.arrow.bit_width - 1)) <= cell < 1 << (kind.arrow.bit_width - 1)
    if kind.name == "decimal":
        return abs(cell) < 10 ** (kind.precision - kind.scale)
    if kind.name == "varchar":
        return len(cell) <= kind.length
    with np.errstate(over="ignore"):
        return not math.isfinite(cell) or float(np.float32(cell)) == cell


TARGETS = {
    "int64": "CAST({} AS BIGINT)",
    "decimal(38,6)": "CAST({} AS DECIMAL(38,6))",
    "double": "CAST({} AS DOUBLE)",
    "string": "{}",
    "date": "({} - DATE '1970-01-01')",
    "timestamp[us]": "epoch_us({})",
    "bool": "{}",
}
"""Types of columns to set, and how DuckDB returns their cells: moments as numbers, as Python lacks some."""
NUMBERED = {"date32[day]": pa.int32(), "timestamp[us]": pa.int64()}


def _target(kind: str) -> str:
    return f"new_{LogicalType.parse(kind).name.partition('[')[0]}"


class MixedTable:
    """``state`` is what the table holds; ``states`` what it held at the moments kept."""

    def __init__(self, seed: int, rows: int = 1200) -> None:
        self._random = Random(seed)
        self.store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", scan_batch_bytes=1))
        chosen = [kind for kind in NARROW if self._random.random() < 0.7]
        self._narrow = {NAMES[kind]: NARROW[kind] for kind in chosen}
        """The columns that are still narrow, with their types."""
        columns = [self._column(c.name, self._narrow.get(c.name, c.type), c.nullable) for c in SCHEMA.columns]
        definition = TableDefinition.model_validate({"name": "t", "columns": columns, "primary_key": ["id"]})
        self.table: Table = Database(self.store).create_table_as(definition)
        self.state: dict[int, Row] = {}
        self.states: list[tuple[int, dict[int, Row]]] = []
        self._updates = 0
        self._nan_ids = iter(range(NAN_IDS, NAN_IDS * 2))
        self._build(rows)
        self.duck = duckdb.connect()
        self.duck.execute("SET TimeZone = 'UTC'")
        self.duck.execute("PRAGMA disable_optimizer")  # it computes less than the text says, and so fails less often
        for number, (_, state) in enumerate(self.states):
            shown = [row for row in state.values() if row["id"] < NAN_IDS]
            self.duck.register(f"given{number}", _arrow(shown))
            self.duck.execute(f"CREATE TABLE state{number} AS SELECT * FROM given{number}")

    def close(self) -> None:
        self.duck.close()
        self.store.close()

    def ids(self, predicate: Predicate | str, moment: int) -> set[int]:
        """What the store selects."""
        where = predicate if isinstance(predicate, str) else predicate.model_dump(mode="json")
        found = self.table.scan(["id"], where=where, as_of=self.states[moment][0]).to_arrow()["id"].to_pylist()
        assert len(set(found)) == len(found), "a row came twice"
        return set(found)

    def expected_ids(self, predicate: Predicate, moment: int) -> set[int]:
        """What DuckDB selects of the rows that it is shown, and the row-wise evaluator of the others."""
        text = to_sql(predicate, duckdb_literal, " ESCAPE '\\'")
        found = self.duck.execute(f"SELECT id FROM state{moment} WHERE {text}").fetchall()
        others = [row for row in self.states[moment][1].values() if row["id"] >= NAN_IDS]
        return {row[0] for row in found} | {row["id"] for row in others if truth(predicate, row) is True}

    @cached_property
    def values(self) -> Table:
        """The rows of the last state that DuckDB is shown, with a column to set of each type."""
        columns = [{"name": c.name, "type": c.type, "nullable": c.nullable} for c in SCHEMA.columns]
        columns += [{"name": _target(kind), "type": kind} for kind in TARGETS]
        definition = TableDefinition.model_validate({"name": "values", "columns": columns, "primary_key": ["id"]})
        table = Database(self.store).create_table_as(definition)
        table.insert(_arrow(row for row in self.state.values() if row["id"] < NAN_IDS))
        table.maintain("flush")
        return table

    def set_values(self, texts: dict[str, str], where: str) -> list[tuple[Any, ...]]:
        """Set a column of each type to an expression, and return the key and the values of these rows."""
        table = self.values
        table.update_where({_target(kind): text for kind, text in texts.items()}, where)
        rows = table.scan(["id", *map(_target, texts)], where=where, ordered=True).to_arrow()
        columns = [column.cast(NUMBERED.get(str(column.type), column.type)) for column in rows.columns]
        self._updates += 1
        if self._updates % 50 == 0:
            table.maintain("flush_deltas")
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def duck_values(self, texts: dict[str, str], where: str) -> list[tuple[Any, ...]]:
        """Return the same as DuckDB computes it."""
        last = len(self.states) - 1
        columns = [TARGETS[kind].format(text) for kind, text in texts.items()]
        return self.duck.execute(
            f"SELECT id, {', '.join(columns)} FROM state{last} WHERE {where} ORDER BY id"
        ).fetchall()

    def _column(self, name: str, word: str, nullable: bool) -> dict[str, Any]:
        """Return the definition of a column with some encoding; that of ``id`` stays as it is by default."""
        encodings = [None, *encodings_for(LogicalType.parse(word))] if nullable else [None]
        return {"name": name, "type": word, "nullable": nullable, "encoding": self._random.choice(encodings)}

    def _pools(self) -> dict[str, list[Any]]:
        """Return the cells that each column may have now, by the type that it has in the end."""
        pools = {}
        for kind, name in NAMES.items():
            narrow = self._narrow.get(name)
            pools[kind] = [cell for cell in CELLS[kind] if narrow is None or fits(cell, narrow)]
        return pools

    def _widen(self, share: float = 0.2) -> None:
        """Widen some columns that are still narrow."""
        chosen = [name for name in self._narrow if self._random.random() < share]
        change = self.table.alter()
        for name in chosen:
            change.widen_column(name, KINDS[name])
            del self._narrow[name]
        if chosen:
            change.apply()

    def _build(self, rows: int) -> None:
        table, random = self.table, self._random
        for number in range(6):
            self._widen()
            pools = {kind: random.sample(cells, min(len(cells), 3)) for kind, cells in self._pools().items()}
            count = rows // 6 + number * 97
            self._write("insert", [self._row(number * 10_000 + place, pools) for place in range(count)])
            table.maintain("flush")
        self._keep()
        self._change(0.05, range(0, 30_000))
        self._widen()
        table.maintain("flush_deltas")
        self._keep()
        self._widen()
        self._change(0.02, range(20_000, 50_000))
        table.maintain("major_compact")
        self._change(0.02, range(0, 10_000))
        table.maintain("flush_deltas")
        self._widen()
        self._change(0.03, range(9_000, 45_000))
        self._write("insert", [self._row(70_000 + place, self._pools()) for place in range(rows // 10)])
        self._widen(1)
        self._write("insert", [self._row(80_000 + place, self._pools()) for place in range(rows // 20)])
        self._keep()

    def _change(self, share: float, among: range) -> None:
        """Update some rows wholly and some in one column, delete some, and bring some back."""
        random, pools = self._random, self._pools()
        known = sorted(key for key in self.state if key in among)
        chosen = random.sample(known, int(len(known) * share))
        third = len(chosen) // 3
        self._write("update", [self._row(key, pools) for key in chosen[:third]])
        name = random.choice(list(NAMES.values()))
        self._write("update", [{"id": key, name: self._row(key, pools)[name]} for key in chosen[third : 2 * third]])
        gone = chosen[2 * third :]
        self.table.delete({"id": pa.array(gone, pa.int32())})
        for key in gone:
            del self.state[key]
        self._write("insert", [self._row(key, pools) for key in gone[::3]])

    def _row(self, key: int, pools: dict[str, list[Any]]) -> Row:
        random = self._random
        row: Row = {"id": key}
        for kind, name in NAMES.items():
            cell = None if random.random() < 0.15 else random.choice(pools[kind])
            row[name] = 0.0 if isinstance(cell, float) and math.isnan(cell) and key < NAN_IDS else cell
        return row

    def _write(self, op: str, rows: list[Row]) -> None:
        if op == "insert":
            nan = [{**self._row(key, self._pools()), "double_c": math.nan} for key in [next(self._nan_ids)]]
            rows = rows + nan
        for row in rows:
            self.state[row["id"]] = {**self.state.get(row["id"], {}), **row}
        self.table.write(_arrow(rows), op)

    def _keep(self) -> None:
        self.states.append((self.store.now(), dict(self.state)))


def _arrow(rows: Iterable[Row]) -> pa.Table:
    rows = list(rows)
    names = list(rows[0])
    fields = {column.name: column.field for column in SCHEMA.columns}
    arrays = [pa.array([row[name] for row in rows], fields[name].type) for name in names]
    return pa.table(arrays, schema=pa.schema([fields[name] for name in names]))
