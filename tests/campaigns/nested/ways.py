"""Ways of rows out of a table, and into another one: each must leave every cell as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.cli.output import write_scan
from nyala.jobs import LocalExecutor, backup, checksum, copy_table, export, load, restore

ONE = LocalExecutor(1)


@dataclass(frozen=True)
class Journey:
    """A table of a store, which is also behind a server, and a place for others."""

    embedded: Database
    remote: Database
    folder: Path
    numbers: count[int]

    def empty(self, like: pa.Schema, is_remote: bool = False) -> Table:
        """Return a new table with the columns of another."""
        database = self.remote if is_remote else self.embedded
        return database.create_table(f"n{next(self.numbers)}", like, "k")

    def path(self, suffix: str = "") -> Path:
        """Return the path of a new file or folder."""
        return self.folder / f"f{next(self.numbers)}{suffix}"


def rows_of(table: Table, **scan: Any) -> pa.Table:
    """Return all rows, in the order of their keys."""
    return table.scan(ordered=True, **scan).to_arrow()


Way = Callable[[Journey, Table], pa.Table]
"""Takes the rows of a table by a way; returns those that arrive."""


def through_flight(journey: Journey, table: Table) -> pa.Table:
    there = journey.empty(table.schema, is_remote=True)
    there.upsert(journey.remote.table(table.name).scan().to_reader())
    return rows_of(there)


def through_memory(journey: Journey, table: Table) -> pa.Table:
    """An update of no more than the cells, into rows that are in memory."""
    there = journey.empty(table.schema)
    there.insert(table.scan(columns=["k"]).to_arrow())
    there.update(table.scan().to_arrow())
    return rows_of(there)


def through_pandas(journey: Journey, table: Table) -> pa.Table:
    there = journey.empty(table.schema)
    there.upsert(table.scan().to_pandas(types_mapper=pd.ArrowDtype))
    return rows_of(there)


def through_polars(journey: Journey, table: Table) -> pa.Table:
    """Without what polars has no type for."""
    names = [field.name for field in table.schema if not any(map(_is_not_of_polars, leaves(field.type)))]
    there = journey.empty(table.schema)
    there.upsert(table.scan(columns=names).to_polars())
    lost = set(table.schema.names) - set(names)
    there.update(table.scan(columns=["k", *lost]).to_arrow()) if lost else None
    return rows_of(there)


def through_python(journey: Journey, table: Table) -> pa.Table:
    there = journey.empty(table.schema)
    there.upsert(table.scan().to_arrow().to_pylist())
    return rows_of(there)


def through_gets(journey: Journey, table: Table) -> pa.Table:
    keys = table.scan(columns=["k"], ordered=True).to_arrow()["k"].to_pylist()
    over_flight = journey.remote.table(table.name).get_many(keys).sort_by("k")
    assert table.get_many(keys).sort_by("k").equals(over_flight)
    return over_flight


def through_direct_reads(journey: Journey, table: Table) -> pa.Table:
    with table.direct_scan(directory=journey.folder) as scan:
        return scan.to_arrow().sort_by("k").cast(rows_of(table).schema)


def through_bulk_import(journey: Journey, table: Table) -> pa.Table:
    there = journey.empty(table.schema)
    there.bulk_import(rows_of(table), directory=journey.folder)
    return rows_of(there)


def through_a_copy(journey: Journey, table: Table) -> pa.Table:
    name = f"n{next(journey.numbers)}"
    copy_table(journey.embedded, journey.remote, table.name, name=name, executor=ONE, show="off")
    there = journey.embedded.table(name)
    assert checksum(journey.embedded, name).is_same(checksum(journey.embedded, table.name))
    return rows_of(there)


def through_a_backup(journey: Journey, table: Table) -> pa.Table:
    folder, name = journey.folder / "backups", f"n{next(journey.numbers)}"
    backup(journey.embedded, table.name, folder, executor=ONE, show="off")
    restore(journey.remote, folder, table.name, name=name, executor=ONE, show="off")
    return rows_of(journey.embedded.table(name))


def through_an_export(journey: Journey, table: Table) -> pa.Table:
    folder, there = journey.path(), journey.empty(table.schema)
    export(journey.embedded, table.name, folder, executor=ONE, show="off")
    load(journey.embedded, there.name, str(folder), executor=ONE, show="off")
    return rows_of(there)


def _through_files(suffix: str) -> Way:
    def way(journey: Journey, table: Table) -> pa.Table:
        path, there = journey.path(suffix), journey.empty(table.schema)
        write_scan(table.scan(), path)
        load(journey.embedded, there.name, str(path), executor=ONE, show="off")
        return rows_of(there)

    way.__name__ = f"through_{suffix[1:]}"
    return way


def _is_not_of_polars(kind: pa.DataType) -> bool:
    return pa.types.is_interval(kind) or pa.types.is_time32(kind) or pa.types.is_map(kind)


def leaves(kind: pa.DataType) -> list[pa.DataType]:
    """Return the type, and all types inside of it."""
    if pa.types.is_map(kind):
        parts = [kind.key_type, kind.item_type]
    elif pa.types.is_struct(kind):
        parts = [field.type for field in kind]
    else:
        parts = [kind.value_type] if pa.types.is_nested(kind) else []
    return [kind, *(inner for part in parts for inner in leaves(part))]


WAYS: dict[str, Way] = {
    each.__name__.removeprefix("through_"): each
    for each in (
        through_flight,
        through_memory,
        through_pandas,
        through_polars,
        through_python,
        through_gets,
        through_direct_reads,
        through_bulk_import,
        through_a_copy,
        through_a_backup,
        through_an_export,
        *map(_through_files, (".parquet", ".jsonl", ".csv", ".arrow")),
    )
}
