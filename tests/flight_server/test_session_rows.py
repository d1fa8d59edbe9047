"""Rows in sessions as JSON: written without a batch, and cells of every type both ways."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.protocol.session import RowCells, cells_from_json, cells_to_json
from nyala.schemas.table.table import TableDefinition
from tests.flight_server.raw_session import Session, error_code, row_line
from tests.flight_server.served import Served

pytestmark = pytest.mark.usefixtures("ended")


def test_a_row_is_written_without_a_batch(served: Served, session: Session) -> None:
    said = session.ask(row_line(op="insert"), {"row": [1, "Oslo", 2.5]})
    assert (said["rows"], said["applied"]) == (1, 1) and said["timestamp"] > 0
    again = session.ask(row_line(op="insert"), {"row": [1, "Rome", 2.5]})
    assert (again["applied"], again["errors"][0]["code"]) == (0, "ALREADY_PRESENT")
    assert session.ask(row_line(["price", "id"], op="update"), {"row": [None, 1]})["applied"] == 1
    assert session.ask({"get": "homes"}, {"key": [1]})["row"] == {"id": 1, "city": "Oslo", "price": None}
    assert session.ask(row_line(["id"], op="delete"), {"row": [1]})["applied"] == 1
    assert session.ask(row_line(["id"], op="delete_ignore"), {"row": [1]})["ignored"] == 1
    assert served.ids() == []


@pytest.mark.parametrize("store", ["engine"], indirect=True)
def test_a_row_and_a_batch_share_the_numbers_of_a_writer(served: Served, session: Session) -> None:
    first = session.ask(row_line(op="insert", writer="w"), {"seq": 7, "row": [0, "city 0", 0.0]})
    assert first["applied"] == 1
    assert Session(served.client).ask(row_line(op="insert", writer="w"), {"seq": 7, "row": [0, "x", 0.0]}) == first
    session.write(served.rows(1), 7, writer="w", op="insert")
    assert session.answer()[0] == first
    session.write(served.rows(2, 5), 8, writer="w")
    assert session.answer()[0]["applied"] == 2
    said = session.ask(row_line(writer="w"), {"seq": 8, "row": [0, "city 0", 0.0]})
    assert error_code(said) == "INVALID_ARGUMENT"
    assert "a batch of 2 rows, and this batch has 1" in said["error"]["message"]


def test_a_row_that_needs_judgement_must_come_as_a_batch(served: Served, session: Session) -> None:
    for row in ([1, "Oslo", 3], [1, {"base64": "AP8K"}, 2.5], [{"decimal": "1"}, None, None]):
        assert session.ask(row_line(), {"row": row}) == {"as_batch": True}
    assert session.ask(row_line(["id", "x"]), {"row": [1, 1]}) == {"as_batch": True}
    assert served.ids() == []


def test_rows_in_flight_take_effect_in_order(served: Served, session: Session) -> None:
    for number in range(40):
        session.send(row_line(op="insert", writer="w"), {"seq": number, "row": [number, "x", 0.5], "more": True})
        session.send({"get": "homes"}, {"key": [number]})
        session.send(row_line(writer="v"), {"seq": number, "row": [number, "x", 1], "more": True})
    for number in range(40):
        assert session.answer()[0]["applied"] == 1
        assert session.answer()[0]["row"]["id"] == number
        assert session.answer()[0] == {"as_batch": True}


# Cells

TYPES = pa.schema(
    [
        pa.field("id", pa.timestamp("us"), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
        pa.field("cost", pa.decimal128(20, 3), nullable=False),
        pa.field("raw", pa.binary(), nullable=False),
        ("flag", pa.bool_()),
        ("small", pa.int8()),
        ("real", pa.float32()),
        ("number", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("date", pa.date32()),
        ("time", pa.timestamp("us")),
        ("decimal", pa.decimal128(38, 10)),
    ]
)
ROW = {
    "id": dt.datetime(2014, 1, 1, 5, 6, 7, 8),
    "day": dt.date(1, 1, 1),
    "cost": decimal.Decimal("-12345678901234567.125"),
    "raw": b"\x00\xff\n",
    "flag": True,
    "small": -128,
    "real": 0.10000000149011612,
    "number": float("-inf"),
    "text": 'a "line"\n\u2028 \U0001f98c',
    "bytes": b"\xff\n\xfe",
    "date": dt.date(9999, 12, 31),
    "time": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    "decimal": decimal.Decimal("1234567890123456789012345678.0123456789"),
}


def test_cells_of_every_type_come_as_they_are(serve: Callable[..., Served]) -> None:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        store.create_table(TableDefinition.from_arrow("homes", TYPES, ["id", "day", "cost", "raw"]))
        served = serve(store)
        nothing = dict.fromkeys(list(ROW)[4:])
        empty = {**ROW, **nothing, "day": dt.date(2, 2, 2)}
        served.put("homes", pa.RecordBatch.from_pylist([ROW, empty], TYPES))
        session = Session(served.client)
        cells = RowCells(store.describe_table("homes").columns)
        key = ["2014-01-01T05:06:07.000008", "0001-01-01", "-12345678901234567.125", {"base64": "AP8K"}]
        assert cells.to_python(session.ask({"get": "homes"}, {"key": key})["row"]) == ROW
        key[1] = "0002-02-02"
        assert cells.to_python(session.ask({"get": "homes"}, {"key": key})["row"]) == empty
        for row, day in ((ROW, "0003-03-03"), (empty, "0004-04-04")):
            written = {**row, "day": dt.date.fromisoformat(day), "number": row["number"] and float("inf")}
            said = session.ask(row_line([*ROW]), {"row": cells_to_json(written.values())})
            assert said["applied"] == 1
            key[1] = day
            assert cells.to_python(session.ask({"get": "homes"}, {"key": key})["row"]) == written


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_at_the_ends_of_their_types(serve: Callable[..., Served], unit: str) -> None:
    kind, longest = pa.duration(unit), {"s": 86_399_999_999_999, "ms": 86_399_999_999_999_999}.get(unit, 2**63 - 1)
    numbers = [-(2**63), 1 - 2**63, -longest - 1, -1, 0, 1, 999, longest, longest + 1, 2**53 * 10, 2**63 - 1, None]
    numbers = [each for each in numbers if each is None or -(2**63) <= each < 2**63]
    schema = pa.schema([pa.field("k", pa.int64(), False), ("v", kind), ("many", pa.list_(kind))])
    cells = pa.array(numbers, pa.int64()).cast(kind)
    many = pa.ListArray.from_arrays(pa.array(range(len(numbers) + 1), pa.int32()), cells)
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        embedded = Database(store).create_table("spans", schema, primary_key=["k"])
        embedded.insert(pa.table([pa.array(range(len(numbers)), pa.int64()), cells, many], schema=schema))
        with nyala.connect(serve(store).url) as db:
            for key, number in enumerate(numbers):
                row = db.table("spans").get(key)
                assert repr(row) == repr(embedded.get(key)), number


@given(
    st.lists(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.binary()
        | st.dates()
        | st.datetimes()
        | st.decimals(allow_nan=False, allow_infinity=False)
    )
)
def test_cells_to_write_come_as_they_are(cells: list[Any]) -> None:
    found = cells_from_json(json.loads(json.dumps(cells_to_json(cells))))
    exact = [(type(cell), str(cell) if cell != cell else cell) for cell in cells]
    assert [(type(cell), str(cell) if cell != cell else cell) for cell in found] == exact


def test_cells_of_other_types_are_not_written_so() -> None:
    for cell in (dt.datetime.now(dt.UTC), dt.time(), {}, [], bytearray(b"x"), pa.scalar(1), 1j):
        assert cells_to_json([cell]) is None
