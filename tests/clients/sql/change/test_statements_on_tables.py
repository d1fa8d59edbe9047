"""CREATE, ALTER, DROP and COMMENT: what becomes of tables, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import AlreadyPresentError, InvalidArgumentError, NotFoundError, StoreError

from .small_reader import SmallSql, parse


def column(sql: SmallSql, name: str, table: str = "t") -> dict[str, Any]:
    about = sql.store.describe_table(table)
    return next(each for each in about.columns if each.name == name).model_dump()


def test_create_table_with_all_it_takes(sql: SmallSql) -> None:
    text = (
        "CREATE TABLE t (id bigint NOT NULL WITH (encoding = 'plain'), day date, name varchar(5) DEFAULT 'x' "
        "COMMENT 'who', \"Big\" text NOT NULL DEFAULT 'it''s', price numeric(10,2) DEFAULT 1.5 WITH "
        "(compression = 'lz4', block_rows = 1024, immutable = true), at timestamptz DEFAULT '2026-01-01', "
        "CONSTRAINT k PRIMARY KEY (id, day)) WITH (history_max_age_seconds = 60, comment = 'all') "
        "PARTITION BY HASH (id) INTO 4 SEED 7, RANGE (day) (FROM (MINVALUE) TO ('2026-01-01'), "
        "FROM ('2026-01-01') TO ('2027-01-01') HASH (id) INTO 2, SPLIT AT ('2026-07-01'))"
    )
    assert sql.run(text).kind == "CREATE TABLE"
    about = sql.store.describe_table("t")
    assert about.primary_key == ["id", "day"] and about.options.comment == "all"
    assert about.options.history_max_age_seconds == 60
    assert [each.type for each in about.columns] == [
        "int64", "date", "varchar(5)", "string", "decimal(10,2)", "timestamp[us]",
    ]  # fmt: skip
    assert column(sql, "id")["encoding"] == "plain" and not column(sql, "day")["nullable"]
    assert (column(sql, "name")["write_default"], column(sql, "name")["comment"]) == ("x", "who")
    assert column(sql, "Big")["write_default"] == "it's"
    assert (column(sql, "price")["write_default"], column(sql, "price")["compression"]) == ("1.50", "lz4")
    assert column(sql, "price")["immutable"] and column(sql, "price")["block_rows"] == 1024
    assert len(sql.store.tablets("t").tablets) > 4
    sql.run("INSERT INTO t (id, day) VALUES (1, '2026-03-01')")
    with pytest.raises(StoreError, match="name"):
        sql.run("INSERT INTO t (id, day, name) VALUES (2, '2026-03-01', 'too long')")
    with pytest.raises(AlreadyPresentError):
        sql.run("CREATE TABLE t (id int PRIMARY KEY)")
    sql.run("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY)")


def test_rows_that_expire(sql: SmallSql) -> None:
    sql.run("CREATE TABLE t (id int PRIMARY KEY, at timestamp) WITH (ttl = 'at+2h')")
    assert sql.store.describe_table("t").options.ttl == "at + 2h"
    sql.run("INSERT INTO t VALUES (1, '2020-01-01'), (2, NULL)")
    assert [row["id"] for row in sql.rows("t")] == [2]
    sql.run("ALTER TABLE t RESET (ttl)")
    assert len(sql.rows("t")) == 2
    sql.run("CREATE TABLE u (id int PRIMARY KEY, n int) WITH (ttl = '2h')")
    sql.run("INSERT INTO u (id) VALUES (1), (2)")
    assert all(row["written_at"] for row in sql.rows("u"))


ALTERATIONS = [
    ("ADD COLUMN x int NOT NULL DEFAULT 3", lambda sql: sql.rows("t")[0]["x"] == 3),
    ("ADD x text, ADD COLUMN y numeric(4,1) DEFAULT 2.5", lambda sql: sql.rows("t")[0]["y"] == 2.5),
    ("ADD COLUMN IF NOT EXISTS n int, DROP COLUMN IF EXISTS z", lambda sql: len(sql.rows("t")[0]) == 3),
    ("DROP COLUMN n", lambda sql: "n" not in sql.rows("t")[0]),
    ("RENAME COLUMN n TO m", lambda sql: "m" in sql.rows("t")[0]),
    ("RENAME n TO m, ALTER COLUMN m SET DEFAULT 8", lambda sql: column(sql, "m")["write_default"] == 8),
    ("ALTER COLUMN n DROP DEFAULT", lambda sql: column(sql, "n")["write_default"] is None),
    ("ALTER COLUMN n TYPE bigint", lambda sql: column(sql, "n")["type"] == "int64"),
    ("ALTER COLUMN s SET DATA TYPE text", lambda sql: column(sql, "s")["type"] == "string"),
    ("ALTER COLUMN n DROP NOT NULL", lambda sql: column(sql, "n")["nullable"]),
    ("ALTER n SET (encoding = 'plain', block_rows = 2048)", lambda sql: column(sql, "n")["encoding"] == "plain"),
    ("ALTER COLUMN s SET (compression = 'lz4')", lambda sql: column(sql, "s")["compression"] == "lz4"),
    ("ALTER COLUMN s SET (too_long = 'truncate')", lambda sql: "too_long" not in column(sql, "s")),
    ("ALTER COLUMN n RESET (encoding, compression)", lambda sql: column(sql, "n")["encoding"] == "auto"),
    ("ALTER COLUMN n COMMENT 'hi'", lambda sql: column(sql, "n")["comment"] == "hi"),
    ("SET (max_rows = 5, comment = 'c')", lambda sql: sql.store.describe_table("t").options.max_rows == 5),
    ("RESET (max_rows)", lambda sql: sql.store.describe_table("t").options.max_rows is None),
    ("RENAME TO u", lambda sql: sql.store.tables() == ["u"]),
    ("ADD PARTITION FROM (100) TO (200)", lambda sql: len(sql.store.tablets("t").tablets) == 2),
    ("ADD PARTITION FROM (100) EXCLUSIVE TO (MAXVALUE)", lambda sql: len(sql.store.tablets("t").tablets) == 2),
    ("DROP RANGE PARTITION FROM (0) TO (100)", lambda sql: sql.rows("t") == []),
    ("SPLIT PARTITION AT (50)", lambda sql: len(sql.store.tablets("t").tablets) == 2),
]


@pytest.mark.parametrize(("steps", "check"), ALTERATIONS, ids=[steps for steps, _ in ALTERATIONS])
def test_alter_table(sql: SmallSql, steps: str, check: Any) -> None:
    sql.run(
        "CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL DEFAULT 7, s varchar(9)) "
        "PARTITION BY RANGE (id) (FROM (0) TO (100)); INSERT INTO t (id) VALUES (1)"
    )
    assert sql.run(f"ALTER TABLE t {steps}").kind == "ALTER TABLE"
    assert check(sql)


def test_comments(sql: SmallSql) -> None:
    sql.run("CREATE TABLE t (id int PRIMARY KEY); COMMENT ON TABLE t IS 'one'; COMMENT ON COLUMN t.id IS 'two'")
    assert (sql.store.describe_table("t").options.comment, column(sql, "id")["comment"]) == ("one", "two")
    sql.run("COMMENT ON TABLE t IS NULL; COMMENT ON COLUMN t.id IS NULL")
    assert (sql.store.describe_table("t").options.comment, column(sql, "id")["comment"]) == ("", "")


def test_create_table_as(homes: SmallSql) -> None:
    done = homes.run("CREATE TABLE a (PRIMARY KEY (k)) AS SELECT n + 1 AS m, id AS k, now() AS at FROM offers")
    assert (done.kind, done.count) == ("CREATE TABLE AS", 4)
    assert [(row["k"], row["m"]) for row in homes.rows("a")] == [(1, 11), (2, 21), (3, 22), (4, 91)]
    assert list(homes.rows("a")[0]) == ["k", "m", "at"]
    assert homes.run("CREATE TABLE IF NOT EXISTS a (PRIMARY KEY (k)) AS SELECT 1 AS k").count == 0
    assert homes.run("CREATE TABLE b WITH (primary_key = 'k') AS SELECT 1 AS k WITH NO DATA").count == 0
    assert homes.run("CREATE TABLE c WITH (primary_key = 'n', unique_key = false) AS SELECT n FROM offers").count == 4
    with pytest.raises(AlreadyPresentError, match="already exists"):
        homes.run("CREATE TABLE a (PRIMARY KEY (k)) AS SELECT 1 AS k")
    with pytest.raises(StoreError, match="home=2"):
        homes.run("CREATE TABLE d (PRIMARY KEY (home)) AS SELECT home FROM offers")
    assert homes.store.tables() == ["a", "b", "c", "homes", "offers"]


def test_create_or_replace_table(homes: SmallSql) -> None:
    before = homes.store.describe_table("homes").table_id
    done = homes.run("CREATE OR REPLACE TABLE homes (PRIMARY KEY (city, id)) AS SELECT id, city FROM homes WHERE n < 3")
    assert (done.kind, done.count) == ("CREATE TABLE AS", 2)
    assert homes.rows("homes") == [{"city": "Oslo", "id": 1}, {"city": "Oslo", "id": 2}]
    assert homes.store.describe_table("homes").table_id != before
    homes.run("CREATE OR REPLACE TABLE homes (id int PRIMARY KEY)")
    assert homes.rows("homes") == []
    homes.run("CREATE OR REPLACE TABLE a (PRIMARY KEY (k)) AS SELECT 1 AS k")
    homes.run("CREATE OR REPLACE TABLE b (k int PRIMARY KEY)")
    assert homes.store.tables() == ["a", "b", "homes", "offers"]


@pytest.mark.parametrize("query", ["SELECT home FROM offers", "SELECT 'x' AS home, 1 / 0 AS n"])
def test_a_replacement_that_fails_leaves_the_table(homes: SmallSql, query: str) -> None:
    before = homes.store.describe_table("homes").table_id
    with pytest.raises(StoreError):
        homes.run(f"CREATE OR REPLACE TABLE homes (PRIMARY KEY (home)) AS {query}")
    assert homes.store.describe_table("homes").table_id == before and homes.store.tables() == ["homes", "offers"]


def test_names_with_catalog_and_schema(homes: SmallSql) -> None:
    """Tools write all three parts of a name, in quotes."""
    homes.run('CREATE TABLE "nyala"."public"."a" (PRIMARY KEY (k)) AS SELECT id AS k, n FROM nyala.public.homes')
    homes.run("INSERT INTO nyala.public.a (k, n) VALUES (1, 8), (9, 9) ON CONFLICT (k) DO UPDATE SET n = excluded.n")
    homes.run('UPDATE nyala.public.a AS t SET n = t.n + 1 WHERE k = 9; DELETE FROM "nyala"."public"."a" WHERE k = 2')
    homes.run(
        'MERGE INTO "nyala"."public"."a" AS d USING "nyala"."public"."offers" AS s ON s.id = d.k '
        "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (k) VALUES (s.id)"
    )
    assert [(row["k"], row["n"]) for row in homes.rows("a")] == [(1, 10), (2, None), (3, 21), (4, None), (9, 10)]
    homes.run('ALTER TABLE nyala.public.a RENAME TO nyala.public.b; TRUNCATE TABLE "nyala"."public"."b"')
    homes.run("COMMENT ON TABLE nyala.public.b IS 'x'; DROP TABLE nyala.public.b")
    assert homes.store.tables() == ["homes", "offers"]


def test_drop_table(homes: SmallSql) -> None:
    with pytest.raises(NotFoundError, match="'nope'"):
        homes.run("DROP TABLE homes, nope")
    assert homes.run("DROP TABLE IF EXISTS homes, nope CASCADE").kind == "DROP TABLE"
    assert homes.store.tables() == ["offers"]
    assert homes.run("ALTER TABLE IF EXISTS nope ADD COLUMN x int").count == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CREATE VIEW v AS SELECT 1", "no views: keep the query in a table"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "no views"),
        ("DROP VIEW v", "no views"),
        ("CREATE INDEX i ON homes (n)", "no indexes"),
        ("CREATE FUNCTION f() RETURNS int AS $$ SELECT 1 $$ LANGUAGE sql", "no user-defined functions"),
        ("CREATE SCHEMA s", "one schema"),
        ("CREATE SEQUENCE s", "no sequences"),
        ("CREATE USER u", "no users"),
        ("CREATE TEMP TABLE x (id int PRIMARY KEY)", "no temporary tables"),
        ("CREATE OR REPLACE TABLE IF NOT EXISTS homes (id int PRIMARY KEY)", "OR REPLACE or IF NOT EXISTS, not both"),
        ("CREATE TABLE other.public.x (id int PRIMARY KEY)", "no catalog 'other'"),
        ("CREATE TABLE x (id int)", "needs a PRIMARY KEY"),
        ("CREATE TABLE x (a int, id int PRIMARY KEY)", "leading columns"),
        ("CREATE TABLE x (id int PRIMARY KEY, PRIMARY KEY (id))", "one primary key"),
        ("CREATE TABLE x (id int PRIMARY KEY, u uuid)", "'u' cannot have the type UUID: use"),
        ("CREATE TABLE x (id int PRIMARY KEY, u serial)", "'u' cannot have the type"),
        ("CREATE TABLE x (id int PRIMARY KEY, u int UNIQUE)", "'u' cannot have UNIQUE"),
        ("CREATE TABLE x (id int PRIMARY KEY, u int REFERENCES homes (id))", "'u' cannot have REFERENCES"),
        ("CREATE TABLE x (id int PRIMARY KEY, CHECK (id > 1))", "no other constraints"),
        ("CREATE TABLE x (LIKE homes)", "does not take"),
        ("CREATE TABLE x (id int PRIMARY KEY, d int DEFAULT now())", "a timestamp cannot be stored as int32"),
        ("CREATE TABLE x (id int PRIMARY KEY, d int DEFAULT 'x')", "'d' is int32: the value 'x'"),
        ("CREATE TABLE x (id int PRIMARY KEY, d timestamp(3))", "microseconds"),
        ("CREATE TABLE x (id int PRIMARY KEY, d int WITH (colour = 'red'))", "no option 'colour'; known: encoding"),
        ("CREATE TABLE x (id int PRIMARY KEY, d int WITH (encoding = 'red'))", "'d'.*'red'"),
        ("CREATE TABLE x (id int PRIMARY KEY) WITH (colour = 'red')", "no table option 'colour'"),
        ("CREATE TABLE x (id int PRIMARY KEY) WITH (max_rows = 'many')", "max_rows"),
        ("CREATE TABLE x (id int PRIMARY KEY) PARTITION BY HASH (id) INTO 1", "buckets"),
        ("CREATE TABLE x (id int PRIMARY KEY) PARTITION BY RANGE (id) (FROM (1) TO (1 + 1))", "must be a literal"),
        ("CREATE TABLE x AS SELECT 1 AS a", "needs a PRIMARY KEY"),
        ("CREATE TABLE x (PRIMARY KEY (b)) AS SELECT 1 AS a", "names 'b'"),
        ("CREATE TABLE x (PRIMARY KEY (a)) AS SELECT 1 AS a, NULL AS b", "'b' of the query is null: cast it"),
        ("ALTER TABLE nope ADD COLUMN x int", "'nope'"),
        ("ALTER TABLE homes ALTER COLUMN city SET NOT NULL", "'city' cannot become NOT NULL"),
        ("ALTER TABLE homes ALTER COLUMN n TYPE smallint", "'n'"),
        ("ALTER TABLE homes ALTER COLUMN n TYPE bigint USING n + 1", "USING"),
        ("ALTER TABLE homes ALTER COLUMN x DROP DEFAULT", "no column 'x'"),
        ("ALTER TABLE homes ADD PRIMARY KEY (n)", "does not take"),
        ("ALTER TABLE homes ADD COLUMN k int PRIMARY KEY", "never changes"),
        ("ALTER TABLE homes DROP CONSTRAINT k", "no constraints to drop"),
        ("ALTER TABLE homes OWNER TO me", "not possible in this form"),
        ("ALTER TABLE homes SET (colour = 'red')", "colour"),
        ("ALTER TABLE homes ALTER COLUMN n SET (immutable = true)", "cannot be changed"),
        ("ALTER VIEW homes RENAME TO x", "no views"),
        ("COMMENT ON VIEW v IS 'x'", "no views"),
        ("GRANT SELECT ON homes TO me", "use grant"),
    ],
)  # fmt: skip
def test_a_refused_statement_says_what_to_do(homes: SmallSql, text: str, why: str) -> None:
    before = homes.store.describe_table("homes")
    with pytest.raises(StoreError, match=why) as caught:
        homes.run(text)
    assert "\n" not in caught.value.message
    assert homes.store.tables() == ["homes", "offers"]
    assert homes.store.describe_table("homes") == before


def test_what_is_no_sql_is_refused_where_reading_ended(sql: SmallSql) -> None:
    with pytest.raises(InvalidArgumentError, match="at line 1, column 23, near 'WHER'"):
        sql.engine.query("UPDATE t SET n = 1 WHER id = 1")


def test_changes_survive_a_restart(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", StoreOptions())
    sql = SmallSql(store)
    sql.run(
        "CREATE TABLE t (a int, b text, n int DEFAULT 5, PRIMARY KEY (a)) PARTITION BY HASH (a) INTO 2;"
        "INSERT INTO t (a, b) VALUES (1, 'x'), (2, 'y'), (3, 'z'); UPDATE t SET n = n + 1 WHERE a < 3;"
        "UPDATE t SET a = a + 10 WHERE a = 1; DELETE FROM t WHERE b IN (SELECT 'z');"
        "CREATE TABLE u (PRIMARY KEY (a)) AS SELECT a, n FROM t; ALTER TABLE u ADD COLUMN c int DEFAULT 4;"
        "MERGE INTO u USING t ON u.a = t.a + 1 WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED THEN INSERT VALUES (t.a + 1, 0)"
    )
    with sql.begin() as transaction:
        transaction.run(_tree("INSERT INTO t VALUES (50, 'in', 1)"))
        transaction.commit()
    before = sql.rows("t"), sql.rows("u")
    store.close()
    again = Store.open(tmp_path / "store", StoreOptions())
    assert (SmallSql(again).rows("t"), SmallSql(again).rows("u")) == before
    assert before[0] == [{"a": 2, "b": "y", "n": 6}, {"a": 11, "b": "x", "n": 6}, {"a": 50, "b": "in", "n": 1}]
    again.close()


def _tree(text: str) -> Any:
    return parse(text)[0]
