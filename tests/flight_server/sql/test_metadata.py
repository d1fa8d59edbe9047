"""Metadata over Flight SQL: by ADBC, and against the specification."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.flight_server.server import FlightServer
from nyala.flight_server.sql import messages
from tests.flight_server.sql.served_sql import SqlServer


def _answer(served: SqlServer, name: str, **fields: Any) -> pa.Table:
    """What a command answers; its schema is the one that GetFlightInfo tells."""
    info = served.client.get_flight_info(fl.FlightDescriptor.for_command(messages.wrapped(name, **fields)))
    table = served.client.do_get(info.endpoints[0].ticket).read_all()
    assert table.schema == info.schema
    return table


def test_tables_by_adbc(served: SqlServer, homes: nyala.Table) -> None:
    with served.connected() as connection:
        found = connection.adbc_get_objects(depth="columns").read_all().to_pylist()
        (catalog,) = found
        assert catalog["catalog_name"] == "nyala"
        (schema,) = catalog["catalog_db_schemas"]
        (table,) = schema["db_schema_tables"]
        assert (schema["db_schema_name"], table["table_name"]) == ("public", "homes")
        assert [column["column_name"] for column in table["table_columns"]] == ["id", "city", "price"]
        assert connection.adbc_get_table_schema("homes").names == ["id", "city", "price"]
        assert connection.adbc_get_table_types() == ["TABLE"]
        info = connection.adbc_get_info()
        assert info["vendor_name"] == "nyala" and info["vendor_version"] == nyala.__version__


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["Odd name", "homes", "hotels"]),
        ({"table_name_filter_pattern": "ho%"}, ["homes", "hotels"]),
        ({"table_name_filter_pattern": "ho_es"}, ["homes"]),
        ({"table_name_filter_pattern": "ho\\_es"}, []),
        ({"table_name_filter_pattern": ""}, []),
        ({"table_name_filter_pattern": "%" + "o%" * 40 + "z"}, []),
        ({"catalog": "nyala"}, ["Odd name", "homes", "hotels"]),
        ({"catalog": ""}, []),
        ({"catalog": "other"}, []),
        ({"db_schema_filter_pattern": "pub%"}, ["Odd name", "homes", "hotels"]),
        ({"db_schema_filter_pattern": ""}, []),
        ({"table_types": ["TABLE", "VIEW"]}, ["Odd name", "homes", "hotels"]),
        ({"table_types": ["VIEW"]}, []),
    ],
)
def test_filters_of_tables(served: SqlServer, homes: nyala.Table, fields: dict[str, Any], names: list[str]) -> None:
    for name in ("Odd name", "hotels"):
        served.db.create_table(name, primary_key="id", data={"id": [1]})
    assert _answer(served, "CommandGetTables", **fields)["table_name"].to_pylist() == names


def test_schemas_of_tables(served: SqlServer, homes: nyala.Table) -> None:
    (row,) = _answer(served, "CommandGetTables", include_schema=True).to_pylist()
    schema = pa.ipc.read_schema(pa.py_buffer(row["table_schema"]))
    assert schema.equals(homes.schema)
    assert schema.field("city").metadata[b"ARROW:FLIGHT:SQL:TYPE_NAME"] == b"text"


def test_keys(served: SqlServer, homes: nyala.Table) -> None:
    served.db.create_table("two", primary_key=["b", "a"], data={"b": [1], "a": ["x"]})
    keys = _answer(served, "CommandGetPrimaryKeys", table="two").to_pylist()
    assert [(key["column_name"], key["key_sequence"]) for key in keys] == [("b", 1), ("a", 2)]
    with pytest.raises(fl.FlightServerError, match="NOT_FOUND"):
        _answer(served, "CommandGetPrimaryKeys", table="three")
    for name in ("CommandGetExportedKeys", "CommandGetImportedKeys"):
        assert _answer(served, name, table="two").num_rows == 0
    assert _answer(served, "CommandGetCrossReference", pk_table="two", fk_table="homes").num_rows == 0


def test_catalogs_and_types(served: SqlServer, homes: nyala.Table) -> None:
    assert _answer(served, "CommandGetCatalogs").to_pylist() == [{"catalog_name": "nyala"}]
    schemas = _answer(served, "CommandGetDbSchemas").to_pylist()
    assert schemas == [{"catalog_name": "nyala", "db_schema_name": "public"}]
    types = _answer(served, "CommandGetXdbcTypeInfo").to_pylist()
    assert types == sorted(types, key=lambda row: (row["data_type"], row["type_name"])) and len(types) == 15
    (date,) = _answer(served, "CommandGetXdbcTypeInfo", data_type=91).to_pylist()
    assert date["type_name"] == "date" and date["literal_prefix"] == "DATE '"


def test_every_id_of_sql_info(served: SqlServer, homes: nyala.Table) -> None:
    rows = _answer(served, "CommandGetSqlInfo").to_pylist()
    ids = {row["info_name"] for row in rows}
    assert ids == {*range(12), 100, 101, *range(500, 577)}
    some = _answer(served, "CommandGetSqlInfo", info=[504, 0, 99_999]).to_pylist()
    assert some == [{"info_name": 504, "value": '"'}, {"info_name": 0, "value": "nyala"}]
    assert _answer(served, "CommandGetSqlInfo", info=[99_999]).num_rows == 0


@pytest.mark.parametrize(
    "body",
    [
        messages.wrapped("CommandGetCatalogs")[:-3] + b"xyz",
        messages.wrapped("CommandStatementQuery", query="SELECT 1")[:-4],
        messages.wrapped("TicketStatementQuery", statement_handle=b"{}"),
        messages.wrapped("TicketStatementQuery", statement_handle=b'{"q": "SELECT 1", "t": "zz"}'),
        messages.wrapped("CommandPreparedStatementQuery", prepared_statement_handle=b"none"),
        messages.wrapped("CommandStatementSubstraitPlan", plan=b"x"),
        messages.wrapped("CommandStatementIngest", table="homes"),
    ],
)
def test_bad_bodies_are_refused(served: SqlServer, homes: nyala.Table, body: bytes) -> None:
    for ask in (
        lambda: served.client.do_get(fl.Ticket(body)).read_all(),
        lambda: served.client.get_flight_info(fl.FlightDescriptor.for_command(body)),
    ):
        with pytest.raises(fl.FlightServerError, match="INVALID_ARGUMENT"):
            ask()


def test_a_server_without_sql_says_so(homes: nyala.Table) -> None:
    server = FlightServer(homes._store, "grpc://127.0.0.1:0")
    with (
        closing(fl.connect(f"grpc://127.0.0.1:{server.port}")) as client,
        pytest.raises(fl.FlightServerError, match="start it with --sql"),
    ):
        client.do_get(fl.Ticket(messages.wrapped("CommandGetCatalogs")))
    server.shutdown()
