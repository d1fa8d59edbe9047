"""docs/lakehouse.md tells the truth: its examples run in Spark, and what it calls missing is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from nyala.clients.api.database import Database
from tests.clients.spark.sessions import Sql

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("needs_shim")]

PAGE = (Path(__file__).parents[3] / "docs/lakehouse.md").read_text()
EXAMPLE = re.compile(r"<!-- spark -->\n+```(sql|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
VIEWS = """
CREATE TEMPORARY VIEW old_homes AS SELECT id, concat('c', id) AS city, double(id) AS price, DATE'2026-01-31' AS day
  FROM range(10);
CREATE TEMPORARY VIEW offers AS SELECT id, if(id = 3, NULL, double(100 + id)) AS price FROM range(3, 12);
CREATE TEMPORARY VIEW corrected AS SELECT 50L AS id, 'Oslo' AS city, 7.0D AS price, DATE'2026-01-31' AS day
"""


@pytest.fixture
def views(spark: SparkSession, sql: Sql) -> Any:
    for statement in VIEWS.split(";"):
        sql(statement)
    yield
    for view in ("old_homes", "offers", "corrected"):
        spark.catalog.dropTempView(view)


@pytest.mark.night
def test_the_examples_run(sql: Sql, views: None, spark: SparkSession, db: Database, uri: str, tmp_path: Path) -> None:
    """One after the other, on the same tables: so each finds what those before it have left."""
    names: dict[str, Any] = {"spark": spark, "uri": uri, "checkpoints": str(tmp_path)}
    for language, text in EXAMPLE.findall(PAGE):
        if "copy_of_homes" in text:
            sql("CREATE TABLE copy_of_homes LIKE homes")
        if language == "python":
            exec(compile(text, "docs/lakehouse.md", "exec"), names)
        else:
            for statement in filter(str.strip, text.split(";")):
                sql(statement)
    homes = db.table("homes").scan(ordered=True).to_arrow().select(["id", "town", "price", "rooms"]).to_pylist()
    assert [row["id"] for row in homes] == list(range(12)), "the last REPLACE WHERE was undone"
    assert homes[2] == {"id": 2, "town": "c2", "price": 2.0, "rooms": 1}, "no offer"
    assert homes[3] == {"id": 3, "town": None, "price": None, "rooms": 1}, "MERGE deleted it, then it was upserted"
    assert homes[4] == {"id": 4, "town": "c4", "price": 104.0, "rooms": 1}, "an upsert keeps what it does not name"
    assert db.table("homes").describe()["options"]["history_max_age_seconds"] == 2592000
    assert sorted(db.tables()) == ["copy_of_homes", "homes", "homes_again", "visits"]


MISSING = {
    "INSERT OVERWRITE homes PARTITION (day = DATE'2026-01-31') SELECT 1, 'x', 2.0": "day",
    "MERGE WITH SCHEMA EVOLUTION INTO homes t USING wider s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *": "zip",
    "CREATE TABLE bad (id BIGINT PRIMARY KEY, city STRING) PARTITIONED BY (city)": "city",
    "CREATE TABLE bad (id BIGINT, at TIMESTAMP, PRIMARY KEY (id, at)) PARTITIONED BY (days(at))": "days",
    "CREATE TABLE bad (id BIGINT PRIMARY KEY, n INT, CONSTRAINT c CHECK (n > 0))": "no other constraint",
    "CREATE TABLE bad (id BIGINT PRIMARY KEY, n INT GENERATED ALWAYS AS (id + 1))": "GENERATED",
    "CREATE TABLE bad (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY)": "identity",
    "CREATE TABLE bad (id BIGINT PRIMARY KEY, any VARIANT)": "which a table cannot hold",
    "CREATE TABLE bad (id BIGINT PRIMARY KEY, at STRUCT<x: VARIANT>)": "which a table cannot hold",
    "ALTER TABLE homes ADD COLUMN n INT FIRST": "FIRST",
    "ALTER TABLE homes CLUSTER BY (city)": "the partitioning of a table cannot change",
    "ALTER TABLE homes ADD CONSTRAINT c CHECK (id >= 0)": "no constraints but NOT NULL and its key",
    "OPTIMIZE homes ZORDER BY (city)": "PARSE_SYNTAX_ERROR",
    "VACUUM homes": "PARSE_SYNTAX_ERROR",
}


def test_what_the_page_calls_missing_is_refused(sql: Sql, views: None, spark: SparkSession, db: Database) -> None:
    sql("CREATE TABLE homes TBLPROPERTIES ('primary_key' = 'id') AS SELECT id, city, price, day FROM old_homes")
    spark.range(2).selectExpr("id", "'x' AS zip").createOrReplaceTempView("wider")
    before = db.table("homes").describe(), db.table("homes").last_change()
    for statement, why in MISSING.items():
        with pytest.raises(PySparkException) as caught:
            sql(statement)
        assert why in str(caught.value), statement
        assert "INTERNAL_ERROR" not in str(caught.value), statement
    assert (db.table("homes").describe(), db.table("homes").last_change()) == before and db.tables() == ["homes"]
