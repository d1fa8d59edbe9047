"""Ingest: rows that a driver sends at once become one commit, or nothing."""

from __future__ import annotations

from typing import Any

import adbc_driver_manager as manager
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import nyala
from tests.flight_server.sql.served_sql import SqlServer

ROWS = pa.table({"id": [3, 1, 2], "city": ["Oslo", None, "Bergen"]})


def _ingest(
    served: SqlServer, name: str, rows: Any, mode: Any, autocommit: bool = True, headers: dict[str, str] | None = None
) -> int:
    with served.connected(autocommit) as connection, connection.cursor() as cursor:
        prefix = "adbc.flight.sql.rpc.call_header.x-nyala-"
        cursor.adbc_statement.set_options(**{f"{prefix}{name}": value for name, value in (headers or {}).items()})
        return cursor.adbc_ingest(name, rows, mode=mode)


@pytest.mark.parametrize("autocommit", [True, False])
def test_the_modes(served: SqlServer, homes: nyala.Table, autocommit: bool) -> None:
    assert _ingest(served, "new", ROWS, "create", autocommit) == 3
    assert _ingest(served, "new", ROWS, "append", autocommit) == 3
    assert served.db.table("new").scan(["id", "city"]).to_arrow().num_rows == 6
    assert _ingest(served, "new", ROWS.rename_columns(["id", "town"]), "replace", autocommit) == 3
    assert served.db.table("new").scan(["id", "town"]).to_arrow().num_rows == 3
    assert _ingest(served, "new", ROWS.rename_columns(["id", "town"]), "create_append", autocommit) == 3
    with pytest.raises(manager.Error, match="table 'new' already exists"):
        _ingest(served, "new", ROWS, "create", autocommit)
    with pytest.raises(manager.Error, match="there is no table 'other'"):
        _ingest(served, "other", ROWS, "append", autocommit)


def test_a_key_makes_rows_unique(served: SqlServer, homes: nyala.Table) -> None:
    _ingest(served, "keyed", ROWS, "create", headers={"primary-key": "id"})
    assert served.db.table("keyed").primary_key == ["id"]
    with pytest.raises(manager.Error, match="ALREADY_PRESENT"):
        _ingest(served, "keyed", ROWS, "append")
    changed = pa.table({"id": [1, 9], "city": ["Bodo", "Alta"]})
    with pytest.raises(manager.Error, match="ALREADY_PRESENT"):
        _ingest(served, "keyed", pa.table({"id": [9, 1], "city": ["Bodo", "Alta"]}), "append")
    assert served.db.table("keyed").get(9) is None, "all rows or none"
    _ingest(served, "keyed", changed, "append", headers={"op": "upsert"})
    assert served.db.table("keyed").get(1) == {"id": 1, "city": "Bodo"}
    with pytest.raises(manager.Error, match="x-nyala-op"):
        _ingest(served, "keyed", changed, "append", headers={"op": "delete"})


def test_rows_that_do_not_fit_leave_no_table(served: SqlServer, homes: nyala.Table) -> None:
    with pytest.raises(manager.Error):
        _ingest(served, "keyed", pa.table({"id": [1, 1]}), "create", headers={"primary-key": "id"})
    with pytest.raises(manager.Error, match="nope"):
        _ingest(served, "keyed", ROWS, "create", headers={"primary-key": "nope"})
    assert served.db.list_tables() == ["homes"]
    with pytest.raises(manager.Error):
        _ingest(served, "homes", pa.table({"id": [7], "city": [5.5]}), "append")
    assert served.db.table("homes").get(7) is None


def test_streams_of_many_batches(served: SqlServer, homes: nyala.Table) -> None:
    batches = (pa.record_batch({"id": range(start, start + 1000)}) for start in range(0, 100_000, 1000))
    reader = pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64()}), batches)
    assert _ingest(served, "stream", reader, "create", headers={"primary-key": "id"}) == 100_000
    assert served.db.table("stream").scan().count() == 100_000


def test_frames(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected() as connection:
        frame = pl.DataFrame({"id": [1, 2], "name": ["a", "b"]})
        assert frame.write_database("from_polars", connection, engine="adbc") == 2
        pd.DataFrame({"id": [1, 2], "name": ["a", "b"]}).to_sql("from_pandas", connection, index=False)
    for name in ("from_polars", "from_pandas"):
        assert served.db.table(name).scan(["id", "name"]).to_arrow().to_pydict() == {"id": [1, 2], "name": ["a", "b"]}
