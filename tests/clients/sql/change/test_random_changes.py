"""Random changes beside DuckDB: the same tables, counts and refusals after each."""

from __future__ import annotations

from random import Random
from typing import Any

import duckdb
import pytest

from nyala.schemas.errors import StoreError
from tests.dose import dose

from .random_changes import TABLES, first_rows, statement
from .small_reader import SmallSql

COUNT = dose(60, 500)
SEEDS = dose([1], [1, 2, 3, 4, 5, 6])


class Beside:
    """The same tables in the store and in DuckDB."""

    def __init__(self, sql: SmallSql, random: Random) -> None:
        self.sql = sql
        self.duck = duckdb.connect()
        sql.run(TABLES)
        self.duck.execute(TABLES)
        self.names = []
        for name, rows in first_rows(random).items():
            self.names.append(name)
            self.duck.register("rows", rows)
            self.duck.execute(f"INSERT INTO {name} SELECT * FROM rows")
            self.duck.unregister("rows")
            context = sql.read
            sql.changes = type(sql.changes)(sql.store, lambda query, moment, tables, rows=rows: rows)
            sql.run(f"INSERT INTO {name} SELECT * FROM rows")
            sql.changes = type(sql.changes)(sql.store, context)

    def ours(self, text: str) -> int | str:
        try:
            return self.sql.run(text).count
        except StoreError as error:
            assert "\n" not in error.message and "datafusion" not in error.message.lower(), error.message
            return f"{error.code}: {error.message}"

    def theirs(self, text: str) -> int | str:
        try:
            return self.duck.execute(text).fetchall()[0][0]
        except duckdb.Error as error:
            return f"{type(error).__name__}: {error}"

    def rows(self, name: str) -> tuple[list[str], list[str]]:
        theirs = self.duck.sql(f"SELECT * FROM {name}").to_arrow_table().to_pylist()
        return sorted(map(str, self.sql.rows(name))), sorted(map(str, theirs))


def difference(beside: Beside, text: str) -> dict[str, Any] | None:
    """Run a statement on both sides; return what differs then."""
    ours, theirs = beside.ours(text), beside.theirs(text)
    if (isinstance(ours, str), ours if isinstance(ours, int) else 0) != (
        isinstance(theirs, str),
        theirs if isinstance(theirs, int) else 0,
    ):
        return {"statement": text, "ours": ours, "theirs": theirs}
    for name in beside.names:
        mine, its = beside.rows(name)
        if mine != its:
            only = [row for row in mine if row not in its][:3], [row for row in its if row not in mine][:3]
            return {"statement": text, "table": name, "ours only": only[0], "theirs only": only[1]}
    return None


@pytest.mark.parametrize("seed", SEEDS)
def test_random_changes_beside_duckdb(sql: SmallSql, seed: int) -> None:
    random = Random(seed)
    beside = Beside(sql, random)
    for _ in range(COUNT):
        assert (found := difference(beside, statement(random))) is None, found
