"""Columns of JSON: checked when they are written, with paths in filters, statements and SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import LocalFileSystem
from nyala.engine.recovery.verify import verify_store
from nyala.jobs import backup, load, restore, verify
from nyala.schemas.errors import InvalidArgumentError, RowErrors

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), pa.field("doc", pa.json_())])
DOCS = {
    1: '{"user": {"name": "Ada", "ids": [7, 8]}, "n": 5, "on": true}',
    2: '[1, {"x": null}, "\\u00e9"]',
    3: None,
    4: ' {"n": 1.50, "n": 12} ',
    5: '"text"',
}
WRONG = ["{oops", "", "{'a': 1}", "[1,]", "NaN", '{"a": 1} x']


def make(db: Database, name: str = "t") -> Table:
    table = db.create_table(name, SCHEMA, "k")
    table.insert({"k": list(DOCS), "doc": list(DOCS.values())})
    return table


def docs_of(table: Table, **scan: Any) -> dict[int, str | None]:
    return {row["k"]: row["doc"] for row in table.scan(ordered=True, **scan).to_arrow().to_pylist()}


@pytest.mark.parametrize("steps", [(), ("flush",), ("flush", "compact")], ids=["memory", "flushed", "merged"])
def test_text_comes_back_as_it_was(db: Database, steps: tuple[str, ...]) -> None:
    table = make(db)
    for step in steps:
        table.maintain(step)
    field = table.schema.field("doc")
    assert (field.type, field.metadata) == (pa.string(), {b"nyala.type": b"json"})
    assert docs_of(table) == DOCS
    assert table.get(2) == {"k": 2, "doc": DOCS[2]}
    table.update({"k": [1], "doc": ["{}"]})
    table.upsert([{"k": 6, "doc": "[]"}])
    assert docs_of(table, where="k IN (1, 6)") == {1: "{}", 6: "[]"}


@pytest.mark.parametrize("is_single", [True, False])
@pytest.mark.parametrize("text", WRONG)
def test_text_that_is_no_json_is_refused(db: Database, text: str, is_single: bool) -> None:
    table = make(db)
    rows = [{"k": 8, "doc": text}] if is_single else [{"k": 7, "doc": "1"}, {"k": 8, "doc": text}]
    with pytest.raises(RowErrors, match="column 'doc' is json, and the text is not"):
        table.insert(rows)
    assert table.get(8) is None
    assert table.scan().count() == len(DOCS) + (not is_single)
    with pytest.raises(RowErrors, match="json"):
        table.insert(pa.record_batch({"k": pa.array([9]), "doc": pa.array([text])}))
    with pytest.raises(RowErrors, match="json"):
        table.update_where(set={"doc": f"'{text.replace(chr(39), chr(39) * 2)}'"}, where="k = 1")
    with pytest.raises(InvalidArgumentError, match="not a valid json"):
        table.alter().add_column("more", "json", read_default=text).apply()
    assert docs_of(table, where="k = 1") == {1: DOCS[1]}


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("doc ->> '$.user.name' = 'Ada'", [1]),
        ("doc -> 'user' ->> 'name' = 'Ada'", [1]),
        ("doc ->> '$.user.ids[-1]' = '8'", [1]),
        ("doc -> 'user' -> 'ids' ->> 0 = '7'", [1]),
        ("doc ->> -1 = '\u00e9'", [2]),
        ("doc -> -1 = '\"\\u00e9\"'", [2]),
        ("doc -> 1 ->> 'x' IS NULL", [1, 2, 3, 4, 5]),
        ("doc -> 1 -> 'x' = 'null'", [2]),
        ("CAST(doc ->> 'n' AS INT) > 5", [4]),
        ("(doc ->> 'n')::int + 1 = 6", [1]),
        ("doc ->> '$' = 'text'", [5]),
        ("doc = '\"text\"'", [5]),
        ("doc ->> 'on' = 'true' AND k < 3", [1]),
        ("doc IS NULL", [3]),
        ("length(doc ->> 'n' || '!') = 2", [1]),
        ("doc LIKE '%user%'", [1]),
        ("""doc ->> '$."user"."name"' ILIKE 'ada'""", [1]),
    ],
)
@pytest.mark.parametrize("is_flushed", [False, True], ids=["memory", "flushed"])
def test_paths_in_filters(db: Database, where: str, keys: list[int], is_flushed: bool) -> None:
    table = make(db)
    if is_flushed:
        table.maintain("flush")
    assert list(docs_of(table, where=where)) == keys
    assert table.scan(where=where).count() == len(keys)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("doc ->> '$[x]' = 'a'", "the JSON path '$[x]' cannot be read from its character 2 on"),
        ("doc ->> '$.a[*]' = 'a'", "wildcards are not supported"),
        ("doc ->> k = 'a'", "a JSON path must be a text in quotes"),
        ("doc ->> 1.5 = 'a'", "a JSON path must be a text in quotes"),
        ("k ->> 'a' = 'a'", "->> takes text, not an integer"),
        ("doc ->> 'n' > 5", "text cannot be compared with 5"),
        ("doc ->>", "a JSON path must be a text"),
        ("'oops' ->> 'a' = 'b'", "'oops' is not JSON"),
    ],
)
def test_wrong_paths_are_named(db: Database, where: str, message: str) -> None:
    table = make(db)
    with pytest.raises(InvalidArgumentError) as caught:
        docs_of(table, where=where)
    assert message in caught.value.message


def test_paths_in_text_and_in_statements(db: Database) -> None:
    """A path works in any text that is JSON; a text that is none is an error."""
    table = db.create_table("notes", data=[{"k": 1, "note": '{"a": 1}'}, {"k": 2, "note": "plain"}], primary_key="k")
    assert table.scan(where="k = 1 AND note ->> 'a' = '1'").count() == 1
    with pytest.raises(InvalidArgumentError, match="'plain' is not JSON"):
        table.scan(where="note ->> 'a' = '1'").count()
    documents = make(db)
    documents.update_where(set={"doc": "doc -> 'user'"}, where="k = 1")
    assert docs_of(documents)[1] == '{"name": "Ada", "ids": [7, 8]}'
    documents.delete_where("doc ->> 'name' = 'Ada'")
    assert 1 not in docs_of(documents)


def test_python_values_become_json(db: Database) -> None:
    table = db.create_table("t", SCHEMA, "k")
    table.insert([{"k": 1, "doc": {"a": [1, None, {"\u00e9": 2.5}]}}, {"k": 2, "doc": [True]}, {"k": 3, "doc": None}])
    table.insert(pd.DataFrame({"k": [4, 5], "doc": [{"x": 1}, float("nan")]}))
    table.insert(pl.DataFrame({"k": [6], "doc": ['{"p": 1}']}))
    table.insert(pa.table({"k": [7], "doc": pa.array(['{"q": 1}']).cast(pa.json_())}))
    found = {key: None if text is None else json.loads(text) for key, text in docs_of(table).items()}
    assert found == {
        1: {"a": [1, None, {"\u00e9": 2.5}]},
        2: [True],
        3: None,
        4: {"x": 1},
        5: None,
        6: {"p": 1},
        7: {"q": 1},
    }
    with pytest.raises(InvalidArgumentError, match="column 'doc', row 1: the value cannot be written as JSON"):
        table.insert([{"k": 8, "doc": {}}, {"k": 9, "doc": {"a": object()}}])
    with pytest.raises(RowErrors, match="json"):
        table.insert([{"k": 8, "doc": {"a": float("nan")}}])
    with pytest.raises(InvalidArgumentError, match="cannot be cast to json"):
        table.insert(pa.table({"k": [8], "doc": [{"a": 1}]}))


def test_columns_of_json_are_made_of_data_and_changed(db: Database) -> None:
    data = pa.table({"k": [1], "doc": pa.array(['{"q": 1}']).cast(pa.json_())})
    table = db.create_table("made", data=data, primary_key="k")
    assert table.schema.field("doc").metadata == {b"nyala.type": b"json"}
    table.alter().add_column("more", pa.json_(), read_default="{}").apply()
    assert table.scan().to_arrow()["more"].to_pylist() == ["{}"]
    table.alter().widen_column("doc", "string").apply()
    table.upsert([{"k": 1, "doc": "no JSON", "more": "1"}])
    with pytest.raises(InvalidArgumentError, match="cannot become json"):
        table.alter().widen_column("doc", "json").apply()
    with pytest.raises(InvalidArgumentError, match="json"):
        db.create_table("keyed", pa.schema([pa.field("doc", pa.json_(), False), ("n", pa.int8())]), "doc")
    with pytest.raises(InvalidArgumentError, match="json"):
        db.create_table("nested", pa.schema([("k", pa.int64()), ("list", pa.list_(pa.json_()))]), "k")


def test_files_load(db: Database, tmp_path: Path) -> None:
    table = db.create_table("t", SCHEMA, "k")
    lines = [
        '{"k": 1, "doc": {"a": [1, null]}}',
        '{"k": 2, "doc": "{\\"s\\": 1}"}',
        '{"k": 3, "doc": 7}',
        '{"k": 4, "doc": "oops"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "b.csv").write_text('k,doc\n5,"{""a"": 1}"\n6,[2]\n7,{\n')
    pq.write_table(pa.table({"k": [8, 9], "doc": ['{"p": 1}', "p"]}), tmp_path / "c.parquet")
    results = [load(db, "t", [str(tmp_path / name)]) for name in ("a.jsonl", "b.csv", "c.parquet")]
    assert [(each.applied, each.error_count) for each in results] == [(3, 1), (2, 1), (1, 1)]
    assert docs_of(table) == {1: '{"a": [1, null]}', 2: '{"s": 1}', 3: "7", 5: '{"a": 1}', 6: "[2]", 8: '{"p": 1}'}


def test_json_survives_a_restart_a_check_and_a_backup(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as db:
        make(db).maintain("flush")
        db.table("t").upsert({"k": [6], "doc": ["[6]"]})
    with nyala.open(tmp_path / "store") as db:
        assert docs_of(db.table("t")) == {**DOCS, 6: "[6]"}
        backup(db, "t", str(tmp_path / "backup"))
        with nyala.open(tmp_path / "other") as other:
            restore(other, str(tmp_path / "backup"), "t")
            assert verify(db, other, "t").equal
            assert other.table("t").schema == db.table("t").schema
    assert verify_store(LocalFileSystem(tmp_path / "store")).is_sound


SQL: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("SELECT doc ->> '$.user.name' AS n FROM t WHERE k = 1", [("Ada",)]),
    ("SELECT t.doc -> 'user' -> 'ids' ->> 1, (doc -> 'user') ->> 'name' FROM t WHERE k = 1", [("8", "Ada")]),
    ("SELECT k FROM t WHERE doc::jsonb ->> 'n' IN ('5', '12') ORDER BY k", [(1,), (4,)]),
    ("SELECT sum((doc ->> 'n')::int), count(*) FROM t", [(17, 5)]),
    (
        "SELECT doc ->> 'on' AS g, count(*) FROM t WHERE k <> 3 GROUP BY 1 ORDER BY 1 NULLS LAST",
        [("true", 1), (None, 3)],
    ),
    ("SELECT upper(doc ->> -1) || '!' FROM t WHERE k = 2", [("\u00c9!",)]),
    ("SELECT '{\"a\": [1, 2]}' -> 'a' ->> 1", [("2",)]),
    ("SELECT CASE WHEN doc ->> 'n' = '5' THEN doc ->> 'n' ELSE 'no' END FROM t WHERE k = 1", [("5",)]),
    ("WITH d AS (SELECT doc -> 'user' AS u FROM t) SELECT u ->> 'name' FROM d WHERE u IS NOT NULL", [("Ada",)]),
    ("SELECT a.k FROM t a JOIN t b ON a.doc ->> 'n' = b.doc ->> 'n' ORDER BY 1", [(1,), (4,)]),
    ("SELECT json_get_text(doc, '$.n') FROM t WHERE k = 4", [("12",)]),
    ("SELECT count(*) FROM t WHERE doc ->> 'n' = $1", [(1,)]),
]


@pytest.mark.parametrize(("text", "rows"), SQL)
def test_paths_in_queries(db: Database, text: str, rows: list[tuple[Any, ...]]) -> None:
    make(db).maintain("flush")
    found = db.sql(text, params=["5"] if "$1" in text else None).to_arrow().to_pylist()
    assert [tuple(row.values()) for row in found] == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT doc ->> k FROM t", "after -> or ->>, write a JSON path in quotes"),
        ("SELECT doc ->> '$[' FROM t", "the JSON path '$[' cannot be read"),
        ("SELECT 'o\"o''ps' ->> 'a'", "is not JSON, but -> and ->> need JSON"),
        ("SELECT json_get(doc, doc) FROM t", "must be the same for all rows"),
        ("INSERT INTO t VALUES (9, 'oops')", "column 'doc' is json, and the text is not"),
        ("UPDATE t SET doc = doc ->> '$.user.name' WHERE k = 1", "column 'doc' is json, and the text is not"),
        ("CREATE TABLE u (k bigint PRIMARY KEY, j json DEFAULT '{')", "is not a valid json"),
    ],
)
def test_wrong_json_in_sql_is_named(db: Database, text: str, message: str) -> None:
    make(db)
    with pytest.raises((InvalidArgumentError, RowErrors)) as caught:
        db.sql(text).to_arrow()
    assert message in str(caught.value)


def test_sql_changes_json(db: Database) -> None:
    db.sql("CREATE TABLE u (k bigint PRIMARY KEY, j jsonb NOT NULL DEFAULT '{}')")
    db.sql("INSERT INTO u (k) VALUES (1)")
    db.sql('INSERT INTO u VALUES (2, \'{"a": {"b": 2}}\')')
    db.sql("UPDATE u SET j = j -> 'a' WHERE j -> 'a' ->> 'b' = '2'")
    assert db.sql("SELECT k, j FROM u ORDER BY k").to_pylist() == [{"k": 1, "j": "{}"}, {"k": 2, "j": '{"b": 2}'}]
    db.sql("DELETE FROM u WHERE j ->> '$.b' = '2'")
    assert db.sql("SELECT count(*) AS n FROM u").to_pylist() == [{"n": 1}]
    about = db.sql("SELECT data_type FROM information_schema.columns WHERE column_name = 'j'").to_pylist()
    assert about == [{"data_type": "json"}]
