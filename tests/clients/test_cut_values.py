"""Values of Python and Arrow that do not fit their column whole: refused, never cut."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.schemas.errors import InvalidArgumentError, RowErrors

NOON = dt.datetime(2020, 1, 1, 12)
FINE = pd.Timestamp("2020-01-01T00:00:00.123456789")
ZONED = dt.time(1, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=2)))
FLOAT, MOMENT, TIME, DAY = pa.float32(), pa.timestamp("us"), pa.time64("us"), pa.date32()
NOT_WHOLE = pa.array([43_200_000], pa.int64()).view(pa.date64())


def table_of(db: Database, kind: pa.DataType) -> Table:
    return db.create_table("t", pa.schema([("id", pa.int64()), ("c", kind)]), ["id"])


CUT: dict[str, tuple[pa.DataType, Any]] = {
    "a float": (FLOAT, [1e39]),
    "a half": (pa.float16(), [1e6]),
    "floats in a list": (pa.list_(FLOAT), [[1.0, -1e39]]),
    "floats in a map": (pa.map_(pa.string(), FLOAT), [{"k": 1e39}]),
    "floats in a struct": (pa.struct([("f", FLOAT)]), [{"f": 1e39}]),
    "floats beside moments as text": (
        pa.struct([("f", FLOAT), ("at", MOMENT)]),
        pa.array([{"f": 1e39, "at": "2020-01-01"}]),
    ),
    "nanoseconds": (MOMENT, [FINE]),
    "nanoseconds in a series": (MOMENT, pd.Series([FINE], dtype=object)),
    "nanoseconds in a list": (pa.list_(MOMENT), [[NOON, FINE]]),
    "nanoseconds in a struct": (pa.struct([("at", MOMENT)]), [{"at": FINE}]),
    "nanoseconds in a map": (pa.map_(pa.string(), MOMENT), [{"k": FINE}]),
    "nanoseconds in pairs": (pa.map_(pa.string(), MOMENT), [[("k", FINE)]]),
    "nanoseconds in an array": (pa.list_(MOMENT), [np.array([FINE], object)]),
    "nanoseconds in lists of a series": (pa.list_(MOMENT), pd.Series([[FINE]])),
    "a time with a zone": (TIME, [ZONED]),
    "times with a zone in a list": (pa.list_(TIME), [[ZONED]]),
    "a day with a time": (DAY, pa.array([43_200_000], pa.int64()).view(pa.date64())),
    "a moment with a time": (DAY, pa.array([NOON], MOMENT)),
    "a day before 1970 with a time": (DAY, pa.array([-1], pa.int64()).view(pa.date64())),
    "days with a time in a list": (pa.list_(DAY), pa.ListArray.from_arrays([0, 1], NOT_WHOLE)),
    "days with a time in a view": (pa.list_(DAY), pa.ListViewArray.from_arrays([0], [1], NOT_WHOLE)),
}


FORMS = [("columns", case) for case in CUT]
FORMS += [(form, case) for form in ("rows", "frame") for case, (_, cells) in CUT.items() if isinstance(cells, list)]


@pytest.mark.parametrize(("form", "case"), [*FORMS, ("polars", "floats in a list")])
def test_values_that_do_not_fit_are_refused(db: Database, form: str, case: str) -> None:
    kind, cells = CUT[case]
    data: Any = {"id": [1], "c": cells}
    if form == "rows":
        data = [{"id": 1, "c": cells[0]}]
    elif form == "frame":
        data = pd.DataFrame({"id": [1], "c": pd.Series(cells, dtype=object)})
    elif form == "polars":
        data = pl.DataFrame(data)
    table = table_of(db, kind)
    with pytest.raises((InvalidArgumentError, RowErrors)):
        table.upsert(data)
    assert table.scan().count() == 0


def test_values_that_fit_come_whole(db: Database) -> None:
    whole = pd.Timestamp("2020-01-01T00:00:00.123456")
    cases: list[tuple[pa.DataType, Any]] = [
        (pa.list_(MOMENT), [whole, None]),
        (pa.map_(pa.string(), FLOAT), [("k", float("inf")), ("n", 1.5)]),
        (pa.list_(pa.float16()), [1.5, float("-inf")]),
        (pa.list_(DAY), [dt.date(2020, 1, 1)]),
        (pa.list_(TIME), [dt.time(1, 2, 3)]),
    ]
    for number, (kind, cell) in enumerate(cases):
        table = db.create_table(f"t{number}", pa.schema([("id", pa.int64()), ("c", kind)]), ["id"])
        table.upsert({"id": [1], "c": [cell]})
        assert table.scan().to_arrow()["c"].to_pylist() == [cell]


def test_a_new_table_takes_no_times_with_a_zone(db: Database) -> None:
    with pytest.raises(InvalidArgumentError, match="column 'at' has times with a zone"):
        db.create_table("t", data={"id": [1], "at": [ZONED]}, primary_key="id")


def test_keys_and_filters_of_pandas_are_not_cut(db: Database) -> None:
    table = db.create_table("t", pa.schema([("at", MOMENT), ("n", pa.int64())]), ["at"])
    table.insert({"at": [FINE.floor("us")], "n": [1]})
    with pytest.raises(InvalidArgumentError):
        table.get((FINE,))
