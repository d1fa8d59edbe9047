"""Tickets that were made before a table was altered: the stream has the schema that was told, or there is none."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.database import Database
from nyala.clients.flight_errors import as_store_errors
from nyala.clients.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("s", pa.string())])
TOUCHED: list[tuple[str, dict[str, Any], Any]] = [
    ("a new column", {}, lambda table: table.alter().add_column("n", "int8")),
    ("a column that is gone", {}, lambda table: table.alter().drop_column("s")),
    ("a named column that is gone", {"columns": ["s"]}, lambda table: table.alter().drop_column("s")),
    ("a filter of a column that is gone", {"where": "s = 'x'"}, lambda table: table.alter().drop_column("s")),
    ("a wider column", {"columns": ["v"]}, lambda table: table.alter().widen_column("v", "int64")),
    ("another column", {"columns": ["s"]}, lambda table: table.alter().drop_column("s").add_column("s", "string")),
    (
        "a filter of a wider column",
        {"columns": ["id"], "where": "v < 5"},
        lambda table: table.alter().widen_column("v", "int64"),
    ),
    (
        "a measure of a wider column",
        {"aggregate": {"n": ("v", "sum")}},
        lambda table: table.alter().widen_column("v", "int64"),
    ),
    ("names exchanged", {}, lambda table: table.alter().rename_column("v", "w")),
]
UNTOUCHED: list[tuple[str, dict[str, Any], Any]] = [
    ("a new column beside", {"columns": ["id", "v"]}, lambda table: table.alter().add_column("n", "int8")),
    ("a column beside that is gone", {"columns": ["v"]}, lambda table: table.alter().drop_column("s")),
    ("a comment", {}, lambda table: table.alter().set_comment("v", "a number").set_encoding("v", "plain")),
    ("rows without cells", {"columns": []}, lambda table: table.alter().drop_column("s")),
]


@pytest.fixture
def table(remote: Database) -> Table:
    made = remote.create_table("t", SCHEMA, ["id"])
    made.insert({"id": range(10), "v": range(10), "s": ["x"] * 10})
    return made


def info(client: fl.FlightClient, spec: dict[str, Any]) -> fl.FlightInfo:
    return client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps({"table": "t", **spec}).encode()))


def read(client: fl.FlightClient, told: fl.FlightInfo) -> pa.Table:
    with as_store_errors():
        (part,) = told.endpoints
        return client.do_get(part.ticket).read_all()


@pytest.mark.parametrize("case", TOUCHED, ids=[case[0] for case in TOUCHED])
def test_a_ticket_for_other_columns_is_refused(url: str, table: Table, case: tuple[str, dict[str, Any], Any]) -> None:
    name, spec, alter = case
    with fl.connect(url) as client:
        told = info(client, spec)
        assert read(client, told).schema == told.schema
        alter(table).apply()
        with pytest.raises(nyala.ConflictError, match="version is 2 now"):
            read(client, told)
        if "is gone" not in name or not spec:
            told = info(client, spec)
            assert read(client, told).schema == told.schema


@pytest.mark.parametrize("case", UNTOUCHED, ids=[case[0] for case in UNTOUCHED])
def test_a_ticket_for_columns_as_they_were_is_read(
    url: str, table: Table, case: tuple[str, dict[str, Any], Any]
) -> None:
    _, spec, alter = case
    with fl.connect(url) as client:
        told = info(client, spec)
        before = read(client, told)
        alter(table).apply()
        table.upsert({"id": [3], "v": [77]})
        assert read(client, told).equals(before) and before.schema == told.schema


def test_a_ticket_does_not_fit_a_new_table_of_the_same_name(url: str, remote: Database, table: Table) -> None:
    with fl.connect(url) as client:
        told = info(client, {})
        remote.drop_table("t")
        remote.create_table("t", SCHEMA, ["id"])
        with pytest.raises((nyala.ConflictError, nyala.NotFoundError)):
            read(client, told)
