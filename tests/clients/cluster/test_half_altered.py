"""An alteration that has reached one of two servers: who connects then writes, and reads when it has reached both."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.cluster.store import PlacedStore
from nyala.schemas.errors import ConflictError
from nyala.schemas.table.alter import Alteration
from tests.clients.cluster.pair import Pair

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("n", pa.int32()), ("s", pa.string()), ("gone", pa.string())]
)
SHARED = {"id": list(range(60)), "n": [7] * 60}

STEPS: dict[str, list[dict[str, Any]]] = {
    "add a column": [{"op": "add_column", "name": "note", "type": "string"}],
    "drop a column": [{"op": "drop_column", "name": "gone"}],
    "rename a column": [{"op": "rename_column", "name": "s", "to": "t"}],
    "drop one, and use its name": [
        {"op": "drop_column", "name": "gone"},
        {"op": "add_column", "name": "gone", "type": "int64"},
    ],
    "widen a column": [{"op": "widen_column", "name": "n", "type": "int64"}],
    "add a range": [{"op": "add_range_partition", "lower": [60], "upper": [90]}],
    "split a range": [{"op": "split_partition", "at": [30]}],
    "change a default": [{"op": "set_default", "name": "s", "write_default": "x"}],
}


def new_connection(pair: Pair) -> Database:
    return Database(PlacedStore(pair.members))  # pyright: ignore[reportArgumentType] - a StoreService


@pytest.mark.parametrize("reached", ["a", "b"])
@pytest.mark.parametrize("what", STEPS)
def test_new_connections_write_what_both_versions_have(pair: Pair, what: str, reached: str) -> None:
    by = [nyala.hash("id", buckets=2), nyala.range("id", bounds=[(0, 60)])]
    pair.db.create_table("t", SCHEMA, ["id"], partition_by=by)
    change = Alteration.model_validate({"table": "t", "steps": STEPS[what]})
    pair.gateways[reached].alter_table(change)
    table = new_connection(pair).table("t")
    assert {"id", "n"}.issubset(table.schema.names) and "note" not in table.schema.names
    assert table.upsert(SHARED).applied == 60
    with pytest.raises(ConflictError, match="repeat it to apply it on the other"):
        table.scan().to_arrow()
    new_connection(pair)._store.alter_table(change)
    table = new_connection(pair).table("t")
    found = table.scan(["id", "n"], ordered=True).to_arrow()
    assert found.to_pydict() == SHARED
    if what == "add a range":
        table.upsert({"id": [60, 89], "n": [1, 2]})
        assert table.scan().count() == 62


def test_rows_of_two_versions_are_not_mixed(pair: Pair) -> None:
    table = pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    table.upsert(SHARED)
    pair.gateways["a"].alter_table(Alteration.model_validate({"table": "t", "steps": STEPS["add a column"]}))
    new = new_connection(pair)._store
    with pytest.raises(ConflictError, match="has different columns on the servers"):
        new.get("t", pa.record_batch({"id": pa.array(range(60))}))


def test_a_key_column_that_is_renamed_on_one_server_is_named(pair: Pair) -> None:
    pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    rename = {"op": "rename_column", "name": "id", "to": "number"}
    pair.gateways["b"].alter_table(Alteration.model_validate({"table": "t", "steps": [rename]}))
    with pytest.raises(ConflictError, match=r"different schema versions on the servers \(a: 1, b: 2\)"):
        new_connection(pair).table("t")
