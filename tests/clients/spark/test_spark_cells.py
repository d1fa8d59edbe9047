"""Cells of Spark's rows in the batches that Java makes of them: every one as it is, in batches of a limited size."""

from __future__ import annotations

import random
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import nyala
from nyala.clients.api.database import Database
from nyala.engine.transaction.commit import Transactions
from nyala.schemas.rows.transaction import StagedBatch
from tests.clients.spark.cells import STORED_SCHEMA, random_rows
from tests.clients.spark.sessions import held_bytes

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("needs_shim")]

T = "nyala.default.t"
MIB = 1 << 20
BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def exact(rows: pa.Table) -> pa.Table:
    """Return rows whose floats are compared by their bits: NaN equals itself, and zeros differ by their sign."""
    columns = [column.combine_chunks().view(BITS.get(column.type, column.type)) for column in rows.columns]
    return pa.table(columns, rows.column_names)


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> list[pa.RecordBatch]:
    """The batches that the server is given."""
    real, batches = Transactions.stage, list[pa.RecordBatch]()

    def stage(self: Transactions, command: Any, coming: Iterable[StagedBatch]) -> Any:
        def noted() -> Iterable[StagedBatch]:
            for each in coming:
                batches.append(each.batch)
                yield each

        return real(self, command, noted())

    monkeypatch.setattr(Transactions, "stage", stage)
    return batches


def test_every_cell_of_many_batches_comes_as_it_is(
    spark: SparkSession, db: Database, staged: list[pa.RecordBatch]
) -> None:
    """Batches share their memory: none shows cells, or NULLs, of the one before. The last one is a short one."""
    few, times = random_rows(random.Random(7), 3000), 37
    table = db.create_table("t", STORED_SCHEMA, ["id"], [nyala.hash("id", buckets=2)])
    others = [f"`{name}`" for name in few.column_names[1:]]
    frame = (
        spark.createDataFrame(few).coalesce(1).crossJoin(f.broadcast(spark.range(times).withColumnRenamed("id", "n")))
    )
    frame.select(*others, (f.col("n") * few.num_rows + f.col("id")).alias("id")).writeTo(T).append()
    assert len(staged) > 2 and {batch.schema.field("text").type for batch in staged} == {pa.string()}
    places = pa.array(list(range(few.num_rows)) * times)
    expected = few.take(places).set_column(0, "id", pa.array(range(len(places)))).cast(STORED_SCHEMA)
    assert exact(table.scan(ordered=True).to_arrow()).equals(exact(expected))


def test_decimals_of_every_precision(spark: SparkSession, db: Database) -> None:
    kinds = {f"p{precision}": pa.decimal128(precision, precision // 3) for precision in range(1, 39)}
    columns: dict[str, Any] = {"id": pa.array(range(8))}
    for name, kind in kinds.items():
        most = 10**kind.precision - 1
        cells = [most, -most, 0, 1, -1, min(most, 1 << 64), -min(most, 1 << 63)]
        columns[name] = pa.array([*(Decimal(f"{cell}E-{kind.scale}") for cell in cells), None], kind)
    rows = pa.table(columns)
    table = db.create_table("t", rows.schema, ["id"])
    spark.createDataFrame(rows).writeTo(T).append()
    assert table.scan(ordered=True).to_arrow().to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    ("columns", "rows"), [({"text": "repeat('x', 20000)"}, 2000), ({}, 20_000)], ids=["long", "wide"]
)
def test_batches_of_large_rows_have_few_rows(
    spark: SparkSession, db: Database, staged: list[pa.RecordBatch], columns: dict[str, str], rows: int
) -> None:
    cells = columns or {f"c{number}": "id" for number in range(100)}
    table = db.create_table(
        "t", pa.schema({"id": pa.int64()} | {name: pa.string() if columns else pa.int64() for name in cells}), ["id"]
    )
    named = [f"{cell} AS {name}" for name, cell in cells.items()]
    spark.range(0, rows, 1, 1).selectExpr("id", *named).writeTo(T).append()
    assert table.scan().count() == rows == sum(batch.num_rows for batch in staged)
    assert len(staged) > 2 and max(batch.nbytes for batch in staged) < 5 * MIB


def test_the_memory_of_a_task_that_fails_is_given_back(spark: SparkSession, db: Database) -> None:
    table = db.create_table("t", pa.schema({"id": pa.int64(), "text": pa.string()}), ["id"])
    failing = "CASE WHEN id = 150000 THEN raise_error('planted') ELSE 'x' END AS text"
    with pytest.raises(PySparkException, match="planted"):
        spark.range(0, 200_000, 1, 2).selectExpr("id", failing).writeTo(T).append()
    assert table.scan().count() == 0
    assert held_bytes(spark) == 0


def test_tasks_without_rows_and_single_rows(spark: SparkSession, db: Database, staged: list[pa.RecordBatch]) -> None:
    table = db.create_table("t", pa.schema({"id": pa.int64(), "raw": pa.binary(), "ok": pa.bool_()}), ["id"])
    spark.range(0, 3, 1, 8).selectExpr("id % 2 = 0 AS ok", "CAST(NULL AS BINARY) AS raw", "id").writeTo(T).append()
    spark.range(0).selectExpr("id", "X'00' AS raw", "true AS ok").writeTo(T).append()
    assert [batch.num_rows for batch in staged] == [1, 1, 1]
    expected = [{"id": number, "raw": None, "ok": number != 1} for number in range(3)]
    assert table.scan(ordered=True).to_arrow().to_pylist() == expected
