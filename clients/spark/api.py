"""Shorter ways to read and write tables from a Spark session, classic or through Spark Connect."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

Moment = int | str | dt.datetime


def read_table(
    spark: SparkSession,
    table: str,
    uri: str,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    as_of: Moment | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    **options: Any,
) -> DataFrame:
    """Return a table as it is now, or ``as_of`` a moment, or what changed after ``since``, up to ``until``.

    ``columns`` and ``where``, SQL text, are worked out in the store: Spark itself prunes no columns of a data source in
    Python, and pushes no filters to this one. A DataFrame is a snapshot: it shows the same rows however often it is
    used, and new ones are seen by another call. ``options`` are those of ``format("nyala")``.

    Raises:
        AnalysisException: there is no such table or column; the text says so.
    """
    given = {
        "uri": uri,
        "table": table,
        "columns": None if columns is None else json.dumps(list(columns)),
        "filter": where,
        "snapshotTimestamp": as_of,
        "startTimestamp": since,
        "endTimestamp": until,
    } | options
    return spark.read.format("nyala").options(**_texts(given)).load()


def _texts(options: dict[str, Any]) -> dict[str, str]:
    """Return the options that are given, as text."""
    return {name: _text(value) for name, value in options.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)
