"""A Spark DataFrame as the input of a load."""

from __future__ import annotations

from typing import Any

from ....schemas.errors import InvalidArgumentError
from ....schemas.rows.operation import Operation
from ....schemas.store.description import TableDescription
from ..link import StoreLink


def write_spark_frame(link: StoreLink, about: TableDescription, frame: Any, op: Operation) -> tuple[int, int]:
    """Load a Spark DataFrame, in place of files, with the connector, as one commit; return its number of rows, and how
    many of its cells are longer than their column, which cuts them.

    Raises:
        InvalidArgumentError: the store has no URL for Spark to reach it.
    """
    from pyspark.sql import Observation
    from pyspark.sql.functions import col, count, length, lit
    from pyspark.sql.functions import sum as sum_of

    from ...spark.api import write_table  # pyright: ignore[reportAttributeAccessIssue]
    from ...spark.server import keywords_of

    if link.location is None:
        raise InvalidArgumentError("a Spark DataFrame can be written only to a server: give its URL")
    seen = Observation()
    most = {column.name.lower(): column.logical.length for column in about.columns if column.logical.length}
    names = [name for name, kind in frame.dtypes if kind == "string" and name.lower() in most]
    cut = sum(((length(col(f"`{name}`")) > most[name.lower()]).cast("int") for name in names), lit(0))
    counts = count(lit(1)).alias("rows"), sum_of(cut).alias("truncated")
    write_table(
        frame.observe(seen, *counts), about.name, link.location, operation=str(op), **keywords_of(link.credentials)
    )
    return seen.get["rows"], seen.get["truncated"] or 0
