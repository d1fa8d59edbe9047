"""A Spark DataFrame as the input of a load."""

from __future__ import annotations

from typing import Any

from ...schemas.errors import InvalidArgumentError
from ...schemas.operation import Operation
from .link import StoreLink


def write_spark_frame(link: StoreLink, table: str, frame: Any, op: Operation) -> int:
    """Write a DataFrame with the connector, as one commit; return its number of rows.

    Raises:
        InvalidArgumentError: the store has no URL for Spark to reach it.
    """
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    from ..spark.api import write_table  # pyright: ignore[reportAttributeAccessIssue]

    if link.location is None:
        raise InvalidArgumentError("a Spark DataFrame can be written only to a server: give its URL")
    seen = Observation()
    write_table(frame.observe(seen, count(lit(1)).alias("rows")), table, link.location, operation=str(op))
    return seen.get["rows"]
