"""Statements of SQL that write: what they leave out stays as it is, and what is there is not written over."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import load
from nyala.spark import configure, write_table
from tests.dose import by_night

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("city", pa.string()),
        ("price", pa.float64()),
        ("rooms", pa.int32()),
        ("at", pa.timestamp("us")),
        ("note", pa.string()),
    ]
)
DEFAULTS = {"rooms": 7, "at": "2026-03-08T02:30:00", "note": "it's \\ \u00e9"}
AT = dt.datetime(2026, 3, 8, 2, 30)
OSLO = ("Oslo", 5.0, 1, None, "n")
NEW = (7, AT, DEFAULTS["note"])
"""What a row gets in the columns that a statement leaves out."""
WAYS = by_night(["plain", "shim", "catalog"], day=["catalog"])


@pytest.fixture
def homes(db: Database) -> Table:
    options = {name: nyala.ColumnOptions(write_default=default) for name, default in DEFAULTS.items()}
    table = db.create_table("homes", SCHEMA, ["id"], [nyala.hash("id", buckets=2)], column_options=options)
    table.insert({"id": [1], "city": ["Oslo"], "price": [5.0], "rooms": [1], "at": [None], "note": ["n"]})
    return table


def state(table: Table) -> dict[int, tuple]:
    rows = table.scan().to_arrow().to_pylist()
    return {row["id"]: tuple(row[name] for name in SCHEMA.names[1:]) for row in rows}


@pytest.fixture
def view(spark: SparkSession, uri: str, plain: Callable[..., DataFrame]) -> Callable[..., str]:
    """Make a view of the table, with or without the shim, and return its name."""

    def make(way: str, **options: str) -> str:
        given = ", ".join(f"{name} '{value}'" for name, value in {"uri": uri, "table": "homes", **options}.items())
        form = {"plain": "nyala_plain", "shim": "nyala"}[way]
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING {form} OPTIONS ({given})")
        return "v"

    return make


@pytest.mark.parametrize("way", WAYS)
def test_the_store_numbers_the_rows_of_a_table_without_a_unique_key(
    spark: SparkSession, db: Database, view: Callable[..., str], shim: Path | None, way: str
) -> None:
    if way != "plain" and shim is None:
        pytest.skip("there is no shim")
    schema = pa.schema([pa.field("id", pa.int64(), False), ("city", pa.string())])
    table = db.create_table("homes", schema, ["id"], unique_key=False)
    name = "nyala.default.homes" if way == "catalog" else view(way)
    spark.sql(f"INSERT INTO {name} (id, city) VALUES (1, 'a'), (1, 'b')")
    spark.sql(f"INSERT INTO {name} (city, id) SELECT 'c', id FROM range(1, 3)")
    expected = [(1, "a"), (1, "b"), (1, "c"), (2, "c")]
    if way == "catalog":
        spark.createDataFrame([(4, "e")], "id long, city string").writeTo(name).append()
        expected += [(4, "e")]
        with pytest.raises(Py4JJavaError, match="the store assigns 'auto_incrementing_id'"):
            spark.sql(f"MERGE INTO {name} USING (SELECT 5L s) ON id = s WHEN NOT MATCHED THEN INSERT (id) VALUES (s)")
    rows = table.scan(ordered=True).to_arrow().to_pylist()
    assert sorted((row["id"], row["city"]) for row in rows) == expected
    assert sorted(row["auto_incrementing_id"] for row in rows) == list(range(1, len(rows) + 1))


@pytest.mark.parametrize("way", ["plain", "shim", "catalog"])
def test_insert_adds_rows(
    spark: SparkSession, homes: Table, view: Callable[..., str], shim: Path | None, way: str
) -> None:
    """Those that are there are left as they are, and named; columns that are left out get their defaults."""
    if way != "plain" and shim is None:
        pytest.skip("there is no shim")
    name = "nyala.default.homes" if way == "catalog" else view(way)
    exact = spark.table(name).withColumn("city", f.lit("gone"))  # what needs no cast and no name of Spark
    frame = spark.createDataFrame([(1, 9.0)], "id long, price double")
    refused: dict[str, list[Callable[[], Any]]] = {
        "plain": [
            lambda: spark.sql(f"INSERT INTO {name} (id, price) VALUES (1, 9.0)"),
            lambda: exact.write.insertInto(view("plain", operation="insert")),
        ],
        "shim": [lambda: exact.write.insertInto(name)],
        "catalog": [
            lambda: spark.sql(f"INSERT INTO {name} (price, id) VALUES (1, 2), (2, 2)"),
            lambda: frame.writeTo(name).append(),
        ],
    }
    for statement in refused[way]:
        with pytest.raises(PySparkException, match="ALREADY_PRESENT") as caught:
            statement()
        assert "Traceback" not in str(caught.value)
        assert state(homes) == {1: OSLO}
    spark.sql(f"INSERT INTO {name} (price, id) SELECT 2, id FROM range(2, 4)")
    assert state(homes) == {1: OSLO, 2: (None, 2.0, *NEW), 3: (None, 2.0, *NEW)}
    spark.sql(f"INSERT INTO {name} VALUES (4, NULL, 1.5, DEFAULT, DEFAULT, NULL)")
    assert state(homes)[4] == (None, 1.5, 7, AT, None)
    spark.sql(f"INSERT OVERWRITE {name} (id, city) VALUES (1, 'Bern')")
    assert state(homes) == {1: ("Bern", None, *NEW)}


@pytest.mark.parametrize("way", WAYS)
def test_insert_overwrite_drops_no_row_of_a_repeated_key(
    spark: SparkSession, homes: Table, view: Callable[..., str], shim: Path | None, way: str
) -> None:
    """It names the key and leaves all as it is; an upsert that was asked for keeps one row of each key."""
    if way != "plain" and shim is None:
        pytest.skip("there is no shim")
    name = "nyala.default.homes" if way == "catalog" else view(way)
    with pytest.raises(PySparkException, match=r"\(id=7\).*INSERT OVERWRITE takes each key once") as caught:
        spark.sql(f"INSERT OVERWRITE {name} (id, city) VALUES (6, 'a'), (7, 'b'), (7, 'c')")
    assert "ALREADY_PRESENT" in str(caught.value) and "Traceback" not in str(caught.value)
    assert state(homes) == {1: OSLO}
    spark.sql(f"INSERT OVERWRITE {name} (id, city) VALUES (6, 'a'), (7, 'b')")
    assert sorted(state(homes)) == [6, 7]
    if way == "catalog":
        spark.sql(f"INSERT OVERWRITE {name} WITH (operation = 'upsert') (id, city) VALUES (7, 'b'), (7, 'c')")
        assert list(state(homes)) == [7]


@pytest.mark.parametrize("way", WAYS)
def test_insert_overwrite_leaves_the_number_of_the_rows_to_the_store(
    spark: SparkSession, db: Database, view: Callable[..., str], shim: Path | None, way: str
) -> None:
    if way != "plain" and shim is None:
        pytest.skip("there is no shim")
    schema = pa.schema([pa.field("id", pa.int64(), False), ("city", pa.string())])
    table = db.create_table("homes", schema, ["id"], unique_key=False)
    table.insert({"id": [1], "city": ["gone"]})
    name = "nyala.default.homes" if way == "catalog" else view(way)
    spark.sql(f"INSERT OVERWRITE {name} (id, city) VALUES (7, 'a'), (7, 'b')")
    assert sorted(row["city"] for row in table.scan().to_arrow().to_pylist()) == ["a", "b"]
    form = {"plain": "nyala_plain", "shim": "nyala", "catalog": "nyala"}[way]
    writer = spark.sql("SELECT 7L AS id, 'c' AS city").write.format(form).options(**options_of(spark))
    writer.mode("append").save("homes")
    assert sorted(row["city"] for row in table.scan().to_arrow().to_pylist()) == ["a", "b", "c"]
    writer.mode("overwrite").save("homes")
    assert [row["city"] for row in table.scan().to_arrow().to_pylist()] == ["c"]


def test_dynamic_overwrites_replace_all_rows_unless_the_table_has_partitions(
    needs_shim: None, spark: SparkSession, db: Database, homes: Table, view: Callable[..., str], uri: str
) -> None:
    """Others keep the partitions that get no row, and the store does not: it says what to do instead."""
    alone = db.create_table("alone", pa.schema([pa.field("id", pa.int64(), False)]), ["id"])
    frame = spark.range(3)
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW w USING nyala OPTIONS (uri '{uri}', table 'alone')")
        for number, name in enumerate(["nyala.default.alone", "w"]):
            spark.sql(f"INSERT OVERWRITE {name} VALUES ({number})")
            assert alone.scan().to_arrow().to_pylist() == [{"id": number}]
        frame.writeTo("nyala.default.alone").overwritePartitions()
        assert alone.scan().count() == 3
        for name in ("nyala.default.homes", view("shim")):
            with pytest.raises(PySparkException, match="has partitions, and the store cannot replace only"):
                spark.sql(f"INSERT OVERWRITE {name} (id) VALUES (3)")
        assert state(homes) == {1: OSLO}
        for form in ("nyala", "nyala_plain"):  # not by partitions, in any format
            frame.write.format(form).option("uri", uri).mode("overwrite").save("homes")
            assert sorted(state(homes)) == [0, 1, 2]
    finally:
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "static")


@pytest.mark.parametrize("default", by_night([None, "ab"], day=["ab"]))
@pytest.mark.parametrize("way", WAYS)
def test_statements_refuse_text_that_is_longer_than_its_column(
    spark: SparkSession, db: Database, view: Callable[..., str], shim: Path | None, way: str, default: str | None
) -> None:
    """Spark itself does, as for the tables of other catalogs; `df.write` lets the store cut it, and it is counted."""
    if way != "plain" and shim is None:
        pytest.skip("there is no shim")
    schema = pa.schema([pa.field("id", pa.int64(), False), ("short", pa.string())])
    option = nyala.ColumnOptions(type="varchar(5)", write_default=default)
    table = db.create_table("homes", schema, ["id"], column_options={"short": option})
    name = "nyala.default.homes" if way == "catalog" else view(way)
    statements = ["INSERT INTO {} VALUES (2, 'abcdef')", "INSERT OVERWRITE {} VALUES (2, 'abcdef')"]
    if way == "catalog":
        statements += ["UPDATE {} SET short = 'abcdef' WHERE id = 1"]
        assert [row[1] for row in spark.sql(f"DESCRIBE {name}").collect()] == ["bigint", "varchar(5)"]
    spark.sql(f"INSERT INTO {name} VALUES (1, 'abcde ')")
    for statement in statements:
        with pytest.raises(PySparkException, match="EXCEED_LIMIT_LENGTH"):
            spark.sql(statement.format(name))
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "short": "abcde"}]
    long = spark.sql("SELECT id, concat('abcdef', id) AS short FROM range(7, 9)")
    form = "nyala_plain" if way == "plain" else "nyala"
    long.write.format(form).options(**options_of(spark)).mode("append").save("homes")
    assert table.count("short = 'abcde'") == 3
    made = load(options_of(spark)["uri"], "homes", long)
    assert (made.applied, made.truncated) == (2, 2)


def test_a_cached_table_is_renewed_by_every_write_of_the_session(
    needs_shim: None, spark: SparkSession, homes: Table, view: Callable[..., str], uri: str
) -> None:
    spark.sql("CACHE TABLE nyala.default.homes")
    try:
        frame = spark.createDataFrame([(2,)], "id long")
        frame.write.format("nyala").option("uri", uri).mode("append").save("homes")
        assert spark.table("nyala.default.homes").count() == 2
        write_table(frame.selectExpr("id + 1 AS id"), "homes", uri)
        assert spark.table("nyala.default.homes").count() == 3
        spark.sql(f"INSERT INTO {view('shim')} (id) VALUES (4)")
        assert spark.table("nyala.default.homes").count() == 4
        spark.sql("INSERT INTO nyala.default.homes (id) VALUES (5)")
        assert len(spark.table("nyala.default.homes").collect()) == 5
        homes.delete({"id": [5]})
        assert spark.table("nyala.default.homes").count() == 5, "it is cached"
    finally:
        spark.sql("UNCACHE TABLE nyala.default.homes")


def test_a_cached_table_is_renewed_where_another_catalog_has_the_same_store(
    needs_shim: None, spark: SparkSession, homes: Table, uri: str
) -> None:
    spark.conf.set("spark.sql.catalog.again", "io.nyala.spark.NyalaCatalog")
    spark.conf.set("spark.sql.catalog.again.uri", uri)
    assert spark.table("again.default.homes").count() == 1
    spark.sql("CACHE TABLE nyala.default.homes")
    try:
        frame = spark.createDataFrame([(2,)], "id long")
        frame.write.format("nyala").option("uri", uri).mode("append").save("homes")
        assert spark.table("nyala.default.homes").count() == 2
    finally:
        spark.sql("UNCACHE TABLE nyala.default.homes")


def test_extensions_may_stand_between_blanks(needs_shim: None, spark: SparkSession, homes: Table, uri: str) -> None:
    """As Spark takes them: else what a statement leaves out would be unknown."""
    builder = SparkSession.Builder()
    builder.config("spark.sql.extensions", "org.Other , io.nyala.spark.NyalaExtensions")
    configured: Any = configure(builder, uri, spark.conf.get("spark.jars"))
    assert configured._options["spark.sql.extensions"] == "org.Other,io.nyala.spark.NyalaExtensions"
    jvm: Any = spark._jsparkSession
    settings = jvm.sessionState().conf()
    given = str(spark.conf.get("spark.sql.extensions"))
    settings.setConfString("spark.sql.extensions", f"org.Other, {given} ")
    try:
        for name, value in {"": "io.nyala.spark.NyalaCatalog", ".uri": uri, ".operation": "upsert"}.items():
            spark.conf.set(f"spark.sql.catalog.blank{name}", value)
        spark.sql("INSERT INTO blank.default.homes (id, price) VALUES (1, 9.0)")
    finally:
        settings.setConfString("spark.sql.extensions", given)
    assert state(homes) == {1: ("Oslo", 9.0, *OSLO[2:])}


def test_upserts_of_statements_leave_the_columns_that_they_do_not_name(
    needs_shim: None, spark: SparkSession, homes: Table, view: Callable[..., str]
) -> None:
    """The shim tells which they are, also where what is written is NULL."""
    name = "nyala.default.homes"
    spark.sql(f"INSERT INTO {name} WITH (operation = 'upsert') (id, price) VALUES (1, 9.0), (2, 1)")
    assert state(homes) == {1: ("Oslo", 9.0, *OSLO[2:]), 2: (None, 1.0, *NEW)}
    spark.sql(f"INSERT INTO {name} WITH (operation = 'upsert') BY NAME SELECT 1 AS id, NULL AS price")
    assert state(homes)[1] == ("Oslo", None, *OSLO[2:])
    spark.sql(f"INSERT INTO {view('shim', operation='update')} (id, city) VALUES (1, 'Bern')")
    assert state(homes)[1] == ("Bern", None, *OSLO[2:])
    frame = spark.range(1, 2).select("id", f.lit(None).cast("string").alias("note"))
    frame.writeTo(name).option("operation", "upsert").append()
    assert state(homes)[1] == ("Bern", None, 1, None, None)
    nulls = [f.lit(None).cast(field.dataType).alias(field.name) for field in spark.table(name).schema.fields[1:]]
    spark.range(1, 2).select("id", *nulls).writeTo(name).option("operation", "upsert").append()
    assert state(homes)[1] == (None,) * 5
    spark.table(name).where("id = 2").write.format("nyala").options(**options_of(spark)).mode("append").save("homes")
    spark.sql(f"INSERT INTO {name} WITH (operation = 'delete') (id) VALUES (2)")
    assert list(state(homes)) == [1]


def options_of(spark: SparkSession) -> dict[str, str]:
    uri = spark.conf.get("spark.sql.catalog.nyala.uri")
    assert uri
    return {"uri": uri}


def test_without_the_shim_an_upsert_that_leaves_columns_out_is_refused(
    spark: SparkSession, homes: Table, uri: str, view: Callable[..., str], plain: Callable[..., DataFrame]
) -> None:
    name = view("plain", operation="upsert")
    for statement in (
        "(id, price) VALUES (1, 9.0)",
        "VALUES (1, 'x', 9.0, DEFAULT, NULL, NULL)",
        "BY NAME SELECT 1 id",
    ):
        with pytest.raises(PySparkException, match="which columns a statement leaves out: name all columns"):
            spark.sql(f"INSERT INTO {name} {statement}")
    own = plain().write.format("nyala_plain").option("uri", uri).option("operation", "upsert").mode("append")
    with pytest.raises(PySparkException, match="may erase cells of columns that the statement leaves out"):
        own.save("homes")  # it looks like a statement
    assert state(homes) == {1: OSLO}
    spark.sql(f"INSERT INTO {name} VALUES (1, 'x', 9.0, 3, NULL, NULL)")
    assert state(homes) == {1: ("x", 9.0, 3, None, None)}
    spark.sql(
        f"INSERT INTO {view('plain', operation='upsert', ignoreNull='true')} (id, city) VALUES (1, 'y'), (2, 'z')"
    )
    assert state(homes) == {1: ("y", 9.0, 3, None, None), 2: ("z", None, *NEW)}
    write_table(plain(), "homes", uri)
    spark.createDataFrame([(1, "w")], "id long, city string").write.format("nyala_plain").option("uri", uri).mode(
        "append"
    ).save("homes")
    assert state(homes)[1] == ("w", 9.0, 3, None, None)


def test_without_the_extension_statements_are_refused(needs_shim: None, spark: SparkSession, homes: Table) -> None:
    """Where others start Spark, they may forget it: nothing tells then which columns are left out."""
    assert spark.conf.get("spark.sql.extensions") == "io.nyala.spark.NyalaExtensions"
    jvm: Any = spark._jvm  # pyright: ignore[reportAttributeAccessIssue]
    catalog = jvm.io.nyala.spark.NyalaCatalog()
    options = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options_of(spark))
    catalog.initialize("nyala", options)
    gateway: Any = spark.sparkContext._gateway
    namespace = gateway.new_array(jvm.java.lang.String, 1)
    namespace[0] = "default"
    table = catalog.loadTable(jvm.org.apache.spark.sql.connector.catalog.Identifier.of(namespace, "homes"))
    none = jvm.java.util.Optional.empty()
    writing = jvm.org.apache.spark.sql.connector.write.LogicalWriteInfoImpl("q", table.schema(), options, none, none)
    write = table.newWriteBuilder(writing).build()
    with pytest.raises(Exception, match=r"spark\.sql\.extensions=io\.nyala\.spark\.NyalaExtensions"):
        write.toBatch()
    assert write.toStreaming() is not None
    upsert = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options_of(spark) | {"operation": "upsert"})
    writing = jvm.org.apache.spark.sql.connector.write.LogicalWriteInfoImpl("q", table.schema(), upsert, none, none)
    predicate = jvm.org.apache.spark.sql.connector.expressions.filter.Predicate
    with pytest.raises(Exception, match=r"spark\.sql\.extensions=io\.nyala\.spark\.NyalaExtensions"):
        table.newWriteBuilder(writing).overwrite(gateway.new_array(predicate, 0))


def test_errors_begin_with_the_message(spark: SparkSession, homes: Table, uri: str, plain: Any) -> None:
    wrong: list[Callable[[], Any]] = [
        lambda: plain("barns"),
        lambda: plain(where="pricee > 1").collect(),
        lambda: write_table(spark.createDataFrame([(None,)], "id long"), "homes", uri),
    ]
    for call in wrong:
        with pytest.raises(PySparkException) as caught:
            call()
        text = str(caught.value)
        assert re.search(r"nyala\.schemas\.errors\.\w+: .*(barns|pricee|'id' is NULL)", text), text
        assert "Traceback" not in text and ".py" not in text
