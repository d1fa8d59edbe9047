"""Short forms in Python: ages, one name instead of a list, SQL's names of types, a location without a scheme."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.api.connect import connect
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.schemas.errors import InvalidArgumentError, SnapshotTooOldError
from nyala.schemas.table.table import TableDefinition

DATA = {"id": [1, 2, 3], "city": ["Oslo", "Oslo", "Hamar"], "n": [1, 2, 3]}


@pytest.fixture
def table(db: Database) -> Table:
    return db.create_table("t", data=DATA, primary_key="id")


def test_one_name_is_a_list_of_one(db: Database, table: Table) -> None:
    assert table.primary_key == ["id"]
    assert table.scan("city").to_arrow().schema.names == ["city"]
    assert table.scan(columns="city", where="n > 1").to_arrow().to_pydict() == {"city": ["Oslo", "Hamar"]}
    since = db.now()
    table.update({"id": [1], "n": [7]})
    assert table.changes(since, columns="n").to_arrow()["n"].to_pylist() == [7]
    groups = table.scan().aggregate({"n": ("*", "count")}, group_by="city")
    assert sorted(groups.to_pylist(), key=str) == [{"city": "Hamar", "n": 1}, {"city": "Oslo", "n": 2}]
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    assert db.create_table("u", schema, "id", column_options={"v": {"type": "text"}}).primary_key == ["id"]
    assert TableDefinition.from_arrow("w", schema, "id").primary_key == ["id"]
    with pytest.raises(InvalidArgumentError, match="no column 'cit', perhaps 'city'"):
        table.scan("cit").to_arrow()


MOMENTS: dict[str, Callable[[Database, Table, Any], Any]] = {
    "scan": lambda db, table, age: table.scan(as_of=age).to_arrow(),
    "changes": lambda db, table, age: table.changes(age).to_arrow(),
    "restore": lambda db, table, age: table.restore(age),
    "commits": lambda db, table, age: db.commits("t", age),
}


@pytest.mark.parametrize("read", MOMENTS.values(), ids=MOMENTS)
def test_moments_may_be_ages(db: Database, table: Table, read: Callable[..., Any]) -> None:
    for age in ("0s", dt.timedelta()):
        read(db, table, age)
    for age in ("30d", dt.timedelta(days=30)):
        with pytest.raises(SnapshotTooOldError):
            read(db, table, age)
    with pytest.raises(InvalidArgumentError, match="an age such as 2h is also allowed"):
        read(db, table, "2 fortnights")


def test_a_condition_on_the_time_of_a_row_may_be_an_age(db: Database, table: Table) -> None:
    assert table.update({"id": [1], "n": [8]}, if_timestamp="1h", on_error="return").error_count == 1
    with pytest.raises(nyala.RowErrors, match="CONFLICT"), db.transaction(if_timestamp="1h") as changing:
        changing.update("t", {"id": [1], "n": [9]})


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("text", "string"),
        ("INT", "int32"),
        ("bigint", "int64"),
        ("SmallInt", "int16"),
        ("tinyint", "int8"),
        ("boolean", "bool"),
        ("real", "float"),
        ("double precision", "double"),
        ("numeric(9, 2)", "decimal(9,2)"),
        ("decimal(9)", "decimal(9,0)"),
        ("numeric", "decimal(18,3)"),
        ("varchar", "string"),
        ("VARCHAR(40)", "varchar(40)"),
        ("blob", "binary"),
        ("Timestamp", "timestamp[us]"),
    ],
)
def test_types_have_the_names_of_sql(embedded: Database, word: str, name: str) -> None:
    made = embedded.create_table("t", data={"id": [1]}, primary_key="id")
    made.alter().add_column("c", word).apply()
    assert made.describe()["columns"][1]["type"] == name


def test_a_location_needs_no_scheme(url: str) -> None:
    with connect(url.removeprefix("grpc://")) as db:
        assert db.tables() == []
    with connect([url.removeprefix("grpc://"), "127.0.0.1:1"]) as db:
        assert db.health().status == "ok"


def test_exports_take_ages_and_one_column(embedded: Database, tmp_path: Path) -> None:
    embedded.create_table("t", data=DATA, primary_key="id")
    nyala.jobs.export(embedded, "t", tmp_path / "out", columns="city", as_of="0s", show="off")
    (part,) = (tmp_path / "out").rglob("*.parquet")
    assert pq.read_schema(part).names == ["city"]
