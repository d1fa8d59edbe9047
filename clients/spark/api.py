"""Shorter ways to read and write tables from a Spark session, classic or through Spark Connect."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any, Literal, Unpack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ...schemas.cells.timestamp import Moment, is_age, read_moment
from ...schemas.errors import InvalidArgumentError
from ...schemas.rows.changes import GONE
from ...schemas.rows.operation import Operation
from .options import ReadKeywords, WriteKeywords
from .placement import tablet_of
from .server import ServerKeywords, ServerOptions, server_of
from .types import same_name


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
    """Return a table as a Spark DataFrame: as it is now, or ``as_of`` a time, or its changes after ``since``, up to
    ``until``.

    The store evaluates ``columns`` and ``where`` (SQL text): Spark prunes no columns of a Python data source and pushes
    no filters to this one. A DataFrame is a snapshot: it shows the same rows however often it is used; call again to
    see new rows. A moment may be an age, such as "5m", which counts back from this call. ``options`` are those of
    ``format("nyala")``.

    Raises:
        AnalysisException: the table or a column does not exist; the message says which.
    """
    given = {
        "uri": uri,
        "table": table,
        "columns": None if columns is None else json.dumps(list(columns)),
        "filter": where,
        "snapshotTimestamp": _fixed(as_of, "as_of"),
        "startTimestamp": _fixed(since, "since"),
        "endTimestamp": _fixed(until, "until"),
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
    """Write all rows of a Spark DataFrame to a table as one commit.

    ``operation`` is one of the eight, by default ``upsert``. ``overwrite`` deletes all existing rows in the same
    commit. ``repartition`` first groups rows by tablet: it costs a shuffle, and each task then writes to one tablet.
    ``options`` are those of ``format("nyala")``, such as ``txnAppId`` and ``txnVersion``.

    Raises:
        PySparkException: the columns do not fit the table, or rows were rejected; then nothing was applied.
    """
    given = {"uri": uri, "table": table, "operation": operation, "statement": "write"} | options
    placed = _by_tablet(frame, table, server_of(uri, options)) if repartition else frame
    placed.write.format("nyala").options(**_texts(given)).mode(mode).save()


def by_tablet(frame: DataFrame, table: str, uri: str, **credentials: Unpack[ServerKeywords]) -> DataFrame:
    """Return a Spark DataFrame with one partition for each tablet of a table, with the rows that belong to it.
    ``credentials`` are the options of ``format("nyala")`` of these names.

    Raises:
        StoreError: the table does not exist, or no server answers.
    """
    return _by_tablet(frame, table, server_of(uri, credentials))


def _by_tablet(frame: DataFrame, table: str, server: ServerOptions) -> DataFrame:
    tablets, tablet = tablet_of(server.server(patient=False).describe_table(table))
    return frame.repartitionById(tablets, tablet) if tablets > 1 else frame


def merge_changes(
    changes: DataFrame,
    table: str,
    uri: str,
    operation_column: str = "_op",
    order_by: str | None = "_timestamp",
    **options: Unpack[WriteKeywords],
) -> None:
    """Apply changes of rows in a Spark DataFrame, such as a change feed, to a table as one commit; of each key the last
    change counts.

    ``operation_column`` is ``insert``, ``update`` or ``delete``: the first two are written as upserts, and deletes of
    absent rows are ignored, so changes may be applied again. Of several changes of a key, the one with the greatest
    ``order_by`` value counts; None means that no key occurs twice. Columns of the change feed itself, and others whose
    names start with ``_`` and that the table lacks, are not written.

    Raises:
        PySparkException: the columns do not fit the table, or rows were rejected; then nothing was applied.
        StoreError: the table does not exist, or no server answers.
    """
    about = server_of(uri, options).server(patient=False).describe_table(table)
    key, names = about.primary_key, {column.name.lower() for column in about.columns}
    operation_column = _column(changes, operation_column)
    for name in (*key, order_by):
        _column(changes, name or operation_column)
    last = changes
    if order_by is not None:
        newest = f.max_by(f.struct("*"), f.col(order_by)).alias("last")
        last = changes.groupBy(*(f.col(f"`{name}`") for name in key)).agg(newest).select("last.*")
    what = f.lower(f.col(operation_column))
    word = f.when(what.isin(*GONE), Operation.DELETE_IGNORE).when(what.isin("insert", "update"), Operation.UPSERT)
    others = [name for name in changes.columns if name.startswith("_") and name.lower() not in names]
    last = last.withColumn(operation_column, word).drop(*(name for name in others if name != operation_column))
    write_table(last, table, uri, **options | {"operationColumn": operation_column})


def _column(changes: DataFrame, name: str) -> str:
    """Return the name in the changes of a column that they must have."""
    try:
        return same_name(name, changes.columns)
    except InvalidArgumentError:
        there = ", ".join(changes.columns)
        raise InvalidArgumentError(f"the changes have no column {name!r}; they have {there}") from None


def _fixed(moment: Moment | None, what: str) -> Moment | None:
    """Return a moment that does not move: an age as the timestamp that it means now."""
    return read_moment(moment, what) if moment is not None and is_age(moment) else moment


def _texts(options: dict[str, Any]) -> dict[str, str]:
    """Return the given options as text."""
    return {name: _text(value) for name, value in options.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)
