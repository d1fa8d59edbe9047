"""Decimals of up to 38 digits: each is exact, whatever the thread's decimal context rounds to."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import nyala
from nyala.clients.api.database import Database

NINES = Decimal("9" * 36 + ".99")
LEAST = NINES.copy_negate()  # a minus sign would round it
CENT = Decimal("0.01")
BELOW = Decimal("9" * 36 + ".98")
SCHEMA = pa.schema([("p", pa.decimal128(38, 2)), ("v", pa.decimal128(38, 10))])
SMALL = Decimal("0." + "0" * 9 + "1")
LONG = Decimal("1234567890123456789012345678.0123456789")


@pytest.fixture(params=["28 digits", "3 digits", "no traps"], autouse=True)
def _context(request: pytest.FixtureRequest) -> Iterator[None]:
    """The contexts that the code of a user may have set."""
    contexts = {
        "28 digits": decimal.Context(prec=28),
        "3 digits": decimal.Context(prec=3, Emax=9, Emin=-9),
        "no traps": decimal.Context(prec=5, traps=[]),
    }
    with decimal.localcontext(contexts[request.param]):
        yield


@pytest.mark.parametrize("cell", [BELOW, LEAST, Decimal("12345678901234567890123456789.01"), Decimal("0.00")], ids=str)
@pytest.mark.parametrize("end", ["lower", "upper"])
def test_a_bound_is_the_next_cell_after_one_that_is_left_out(db: Database, cell: Decimal, end: str) -> None:
    """``upper_inclusive``, and a lower end that is not, name the cell beyond."""
    bound = {"lower": [None], "upper": [None]} | {end: [cell], f"{end}_inclusive": end == "upper"}
    bound = {name: value for name, value in bound.items() if value != [None]}
    table = db.create_table("t", SCHEMA, ["p"], partition_by=[{"range": ["p"], "bounds": [bound]}])
    (range_,) = table.describe()["partitions"][0]["bounds"]
    after = decimal.Context(prec=60).add(cell, CENT)
    assert range_ == {"lower": None, "upper": None} | {end: [str(after)]}
    inside, outside = (cell, after) if end == "upper" else (after, cell)
    assert table.insert([{"p": inside}]).applied == 1
    with pytest.raises(nyala.RowErrors, match="NO_PARTITION"):
        table.insert([{"p": outside}])
    assert table.get(inside) is not None and table.count([("p", "=", inside)]) == 1


def test_the_greatest_cell_has_none_after_it(db: Database) -> None:
    bound = {"lower": ["0"], "upper": [str(NINES)], "upper_inclusive": True}
    table = db.create_table("t", SCHEMA, ["p"], partition_by=[{"range": ["p"], "bounds": [bound]}])
    assert table.insert([{"p": NINES}]).applied == 1
    assert table.describe()["partitions"][0]["bounds"] == [{"lower": ["0.00"], "upper": None}]


def test_cells_defaults_and_filters_keep_all_digits(db: Database) -> None:
    options = {"v": nyala.ColumnOptions(write_default=LONG)}
    table = db.create_table("t", SCHEMA, ["p"], column_options=options)
    table.insert([{"p": NINES}])
    table.insert([{"p": LEAST, "v": SMALL}, {"p": BELOW, "v": LONG.copy_negate()}])
    table.insert(pa.table({"p": pa.array([CENT], SCHEMA.field("p").type)}))
    expected: dict[Decimal, Decimal] = {LEAST: SMALL, CENT: LONG, BELOW: LONG.copy_negate(), NINES: LONG}
    for op in (None, "flush"):
        if op:
            table.maintain(op)
        assert {key: row["v"] for key in expected if (row := table.get(key))} == expected
        for where in (f"p > {BELOW}", [("p", ">", BELOW)], pc.field("p") > pa.scalar(BELOW), f"v = {LONG} and p > 1"):
            found: Any = table.scan(where=where).to_arrow()
            assert found["p"].to_pylist() == [NINES]
    said = table.alter().add_column("w", "decimal(38,2)", read_default=BELOW).set_default("v", SMALL).apply()
    assert [column["read_default"] for column in said["columns"]][2] == str(BELOW)
    assert table.count([("w", "=", BELOW)]) == 4
