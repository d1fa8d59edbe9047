"""Shorter ways to read and write tables from a Spark session, classic or through Spark Connect."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any, Literal, Unpack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ...schemas.changes import BEFORE
from ...schemas.errors import InvalidArgumentError
from ...schemas.operation import Operation
from ..api.per_process import server_at
from .options import ReadKeywords, WriteKeywords
from .placement import tablet_of
from .types import same_name

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
    **options: Unpack[ReadKeywords],
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


def write_table(
    frame: DataFrame,
    table: str,
    uri: str,
    operation: str | Operation | None = None,
    mode: Literal["append", "overwrite"] = "append",
    repartition: bool = False,
    **options: Unpack[WriteKeywords],
) -> None:
    """Write all rows of a frame to a table as one commit.

    ``operation`` is one of the eight, ``upsert`` if it is left out. ``overwrite`` deletes in the same commit what was
    there before. With ``repartition`` rows are put together by tablet first: it costs a shuffle, and each task then
    writes to one tablet. ``options`` are those of ``format("nyala")``, as ``txnAppId`` and ``txnVersion``.

    Raises:
        PySparkException: the columns do not fit the table, or rows were refused; then nothing was applied.
    """
    given = {"uri": uri, "table": table, "operation": operation, "statement": "write"} | options
    placed = by_tablet(frame, table, uri) if repartition else frame
    placed.write.format("nyala").options(**_texts(given)).mode(mode).save()


def by_tablet(frame: DataFrame, table: str, uri: str) -> DataFrame:
    """Return a frame with a partition for each tablet of a table, of the rows that belong to it.

    Raises:
        StoreError: there is no such table, or nobody answers.
    """
    tablets, tablet = tablet_of(server_at(uri, patient=False).describe_table(table))
    return frame.repartitionById(tablets, tablet) if tablets > 1 else frame


def merge_changes(
    changes: DataFrame,
    table: str,
    uri: str,
    operation_column: str = "_op",
    order_by: str | None = "_timestamp",
    **options: Unpack[WriteKeywords],
) -> None:
    """Apply changes of rows, such as a change feed, to a table as one commit: of each key the last one.

    ``operation_column`` says ``insert``, ``update`` or ``delete``: the first two are written as upserts, and a delete
    of a row that is not there is ignored, so that changes may be applied again. Of the changes of one key the one with
    the greatest value in ``order_by`` counts; None says that no key comes twice. Columns whose names begin with ``_``
    are not written.

    Raises:
        PySparkException: the columns do not fit the table, or rows were refused; then nothing was applied.
        StoreError: there is no such table, or nobody answers.
    """
    key = server_at(uri, patient=False).describe_table(table).primary_key
    operation_column = _column(changes, operation_column)
    for name in (*key, order_by):
        _column(changes, name or operation_column)
    last = changes
    if order_by is not None:
        newest = f.max_by(f.struct("*"), f.col(order_by)).alias("last")
        last = changes.groupBy(*(f.col(f"`{name}`") for name in key)).agg(newest).select("last.*")
    what = f.lower(f.col(operation_column))
    word = f.when(what == "delete", Operation.DELETE_IGNORE).when(what.isin("insert", "update"), Operation.UPSERT)
    is_own = [name for name in changes.columns if name.startswith(BEFORE[0]) and name != operation_column]
    last = last.withColumn(operation_column, word).drop(*is_own)
    write_table(last, table, uri, **options | {"operationColumn": operation_column})


def _column(changes: DataFrame, name: str) -> str:
    """Return what changes call a column that they need."""
    try:
        return same_name(name, changes.columns)
    except InvalidArgumentError:
        there = ", ".join(changes.columns)
        raise InvalidArgumentError(f"the changes have no column {name!r}; they have {there}") from None


def _texts(options: dict[str, Any]) -> dict[str, str]:
    """Return the options that are given, as text."""
    return {name: _text(value) for name, value in options.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)
