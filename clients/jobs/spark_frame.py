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
    from ..spark.server import keywords_of

    if link.location is None:
        raise InvalidArgumentError("a Spark DataFrame can be written only to a server: give its URL")
    seen = Observation()
    counted, shown = frame.observe(seen, count(lit(1)).alias("rows")), keywords_of(link.credentials)
    write_table(counted, table, link.location, operation=str(op), **shown)
    return seen.get["rows"]
