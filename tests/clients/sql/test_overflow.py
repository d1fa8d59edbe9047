"""Sums and products of integers fail beyond their range, as in PostgreSQL and in filters of tables."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.sql.overflow import checked
from nyala.schemas.errors import InvalidArgumentError

MOST = 2**63 - 1
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("big", pa.int64()),
        ("small", pa.int32()),
        ("tiny", pa.int8()),
        ("cents", pa.decimal128(10, 2)),
        ("price", pa.float64()),
        ("name", pa.string()),
    ]
)
ROWS = [
    {"id": 1, "big": 2**62, "small": 2**31 - 1, "tiny": 127, "cents": Decimal("1.50"), "price": 0.5, "name": "a"},
    {"id": 2, "big": 2**62, "small": 2, "tiny": -128, "cents": Decimal("2.25"), "price": 2.0, "name": "b"},
    {"id": 3, "big": None, "small": None, "tiny": None, "cents": None, "price": None, "name": None},
    {"id": 4, "big": -(2**63), "small": -(2**31), "tiny": 1, "cents": Decimal(0), "price": -1.0, "name": ""},
]


@pytest.fixture
def table(db: Database) -> nyala.Table:
    table = db.create_table("t", SCHEMA, "id")
    table.insert(pa.Table.from_pylist(ROWS, SCHEMA))
    return table


BEYOND = [
    "SELECT big + big FROM t WHERE id < 3",
    "SELECT big * 2 FROM t",
    "SELECT big - 1 FROM t",
    "SELECT 1 - big FROM t WHERE id = 4",
    "SELECT sum(big) FROM t WHERE id < 3",
    "SELECT name IS NULL, sum(big) FROM t WHERE id < 4 GROUP BY name IS NULL",
    "SELECT sum(big) OVER (ORDER BY id) FROM t WHERE id < 3",
    "SELECT sum(big) FILTER (WHERE id < 3) FROM t",
    "SELECT sum(DISTINCT big + id) FROM t WHERE id < 3",
    "SELECT sum(big * id) FROM t WHERE id < 3",
    "SELECT id FROM t WHERE (big + big) / 2 > 0",
    "SELECT id FROM t ORDER BY big * 3",
    "SELECT count(*) FROM t GROUP BY big + big",
    "SELECT t.id FROM t JOIN t u ON (t.big * u.big) % 7 = 1",
    "SELECT x * 3 FROM (SELECT max(big) AS x FROM t) AS m",
    "WITH m AS (SELECT big AS x FROM t UNION ALL SELECT id FROM t) SELECT x + x FROM m",
    "WITH m(x) AS (SELECT big FROM t) SELECT x * x FROM m",
    "SELECT (SELECT max(big) FROM t) * 4",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n * 1000 FROM r WHERE n > 0) SELECT max(n) FROM r",
    "SELECT price + (big + big) FROM t",
    "SELECT CASE WHEN id > 0 THEN big * 2 END FROM t",
    "SELECT coalesce(big, 0) * 2 FROM t",
    "SELECT abs(big + 1) - big * 3 FROM t",
    "SELECT count(*) * 9223372036854775807 FROM t",
    "SELECT small + small FROM t",
    "SELECT tiny * tiny FROM t",
    "SELECT 9223372036854775807 + 1",
    "SELECT 5000000000 * (3000000000 - -7) FROM t",
    "SELECT x + 1 FROM (VALUES (9223372036854775807)) AS v(x)",
]


BEYOND_IN_PARTS = [
    "SELECT tags[1] + 1 FROM n",
    "SELECT tags[1] * 2 FROM n",
    "SELECT st.a + 1 FROM n",
    "SELECT n.st.a + 1 FROM n",
    "SELECT st['a'] + 1 FROM n",
    "SELECT get_field(st, 'a') + 1 FROM n",
    "SELECT array_max(tags) + 1 FROM n",
    "SELECT array_sort(tags)[2] + 1 FROM n",
    "SELECT unnest(tags) + 1 FROM n",
    "SELECT u + 1 FROM (SELECT unnest(tags) AS u FROM n) AS s",
    "SELECT u + 1 FROM unnest(ARRAY[9223372036854775807]) AS s(u)",
    "SELECT sum(tags[1]) FROM n, t",
    "SELECT sum(st.a) FROM n, t",
    "SELECT (array_agg(st.a))[1] + 1 FROM n",
    "SELECT map(['k'], [st.a])['k'] + 1 FROM n",
    "SELECT factorial(20) * factorial(20)",
    "SELECT arrow_cast(big, 'Int64') - 1 FROM t",
    "SELECT row_number() OVER () + 9223372036854775807 FROM t",
    "SELECT -big AS k FROM t",
    "SELECT -small AS k FROM t",
    "SELECT -(-tiny - 128 + 128) AS k, -tiny AS m FROM t",
    "SELECT id FROM t WHERE -big > id",
    "SELECT -sum(big) FROM t WHERE id = 4",
    "SELECT sum(-big) FROM t WHERE id = 4",
]


@pytest.mark.parametrize("text", BEYOND_IN_PARTS)
def test_a_value_beyond_the_range_in_a_part_is_refused(db: Database, table: nyala.Table, text: str) -> None:
    db.sql("CREATE TABLE n (id bigint PRIMARY KEY, tags bigint[], st struct<a bigint>)")
    db.sql("INSERT INTO n VALUES (1, ARRAY[9223372036854775807, 1], named_struct('a', 9223372036854775807))")
    with pytest.raises(InvalidArgumentError, match="out of the range of"):
        db.sql(text).to_arrow()


def test_a_minus_has_room(db: Database, table: nyala.Table) -> None:
    text = "SELECT coalesce(-small, 0) - 0 AS n, - -big AS m, row_number() OVER () + 1 AS k FROM t WHERE id = 4"
    assert db.sql(text).to_pylist() == [{"n": 2**31, "m": -(2**63), "k": 2}]
    assert db.sql("SELECT -9223372036854775808 AS n").to_pylist() == [{"n": -(2**63)}]
    with pytest.raises(InvalidArgumentError, match="out of the range of bigint"):
        db.sql("SELECT - -9223372036854775808").to_arrow()


@pytest.mark.parametrize("text", BEYOND)
def test_a_value_beyond_the_range_is_refused(db: Database, table: nyala.Table, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="out of the range of"):
        db.sql(text).to_arrow()


def test_a_parameter_counts(db: Database, table: nyala.Table) -> None:
    assert db.sql("SELECT id + ? AS n FROM t WHERE id = 1", [MOST - 1]).to_pylist() == [{"n": MOST}]
    for text, value in (
        ("SELECT id + ? FROM t", MOST),
        ("SELECT ? * 2", MOST),
        ("SELECT id FROM t WHERE id = ? + 1", MOST),
    ):
        with pytest.raises(InvalidArgumentError, match="out of the range of bigint"):
            db.sql(text, [value]).to_arrow()
    assert db.sql("SELECT price + ? AS x FROM t WHERE id = 1", [0.25]).to_pylist() == [{"x": 0.75}]


def test_a_change_is_refused(db: Database, table: nyala.Table) -> None:
    before = table.scan(ordered=True).to_arrow()
    for text in (
        "INSERT INTO t (id, big) SELECT id + 10, big + big FROM t",
        "UPDATE t SET big = u.big * 2 FROM t u WHERE u.id = t.id",
        "UPDATE t SET big = big + big",
        "MERGE INTO t USING (SELECT 1 AS k) s ON t.id = s.k WHEN MATCHED THEN UPDATE SET big = t.big + t.big",
    ):
        with pytest.raises(InvalidArgumentError, match=r"out of the range of bigint|overflow"):
            db.sql(text)
    assert table.scan(ordered=True).to_arrow() == before


WITHIN = [
    "SELECT id * 2 + small - tiny AS n, cents * 2 AS c, price + id AS p FROM t ORDER BY id",
    "SELECT (big - 1) / 2 + 1 AS n FROM t WHERE id < 3 ORDER BY id",
    "SELECT - id - -(id * 3) AS n FROM t ORDER BY id",
    "SELECT sum(id) AS n, sum(small) AS m, sum(cents) AS c, sum(id * 3) AS k FROM t",
    "SELECT id % 2 AS k, sum(id * small) - 1 AS n FROM t GROUP BY id % 2 ORDER BY k",
    "SELECT sum(id) FILTER (WHERE id > 1) OVER (PARTITION BY id % 2 ORDER BY id) + 1 AS n FROM t ORDER BY id",
    "SELECT sum(CASE WHEN small > 0 THEN 1 ELSE 0 END) * 100 / count(*) AS n FROM t",
    "SELECT id * 7 % 5 * 2 AS n FROM t ORDER BY id",
    "SELECT z.id + 1 AS n FROM (SELECT * FROM t) AS z ORDER BY n",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT sum(n) AS n FROM r",
    "SELECT length(name) + 1 AS n FROM t ORDER BY id",
    "SELECT id FROM t WHERE id + 1 IN (SELECT id * 2 FROM t) AND id BETWEEN id - 1 AND id + 1 ORDER BY id",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM t AS u WHERE u.id + 1 = t.id) ORDER BY id",
    "SELECT sum(id)::double precision / 2.5 AS n, (sum(small) + 1)::text AS m, count(*)::int AS k FROM t",
    "SELECT sum(id) FILTER (WHERE id > 1)::smallint AS n, max(small)::text AS m FROM t",
    "SELECT (sum(id) OVER (ORDER BY id))::int + sum(id) OVER (ORDER BY id)::int AS n FROM t ORDER BY id",
    "SELECT CASE WHEN id > 1 THEN id + small ELSE id * 2 END::text AS n FROM t ORDER BY id",
    "SELECT id /* one */ + -- two\n 1 AS n FROM t ORDER BY id",
]


@pytest.mark.parametrize("text", WITHIN)
def test_values_within_the_range_are_as_in_duckdb(db: Database, table: nyala.Table, text: str) -> None:
    t = table.scan().to_arrow()
    with duckdb.connect() as peer:
        peer.register("t", t)
        others = peer.execute(text.replace("/ 2", "// 2").replace("/ count", "// count")).fetchall()
    own = [tuple(row.values()) for row in db.sql(text).to_pylist()]
    assert [_plain(row) for row in own] == [_plain(row) for row in others]


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(float(cell) if isinstance(cell, Decimal) else cell for cell in row)


def test_names_and_types_are_those_of_the_query(db: Database, table: nyala.Table) -> None:
    result = db.sql("SELECT small + small, id + 1, sum(small) OVER () FROM t WHERE id = 2")
    assert result.schema.names[:2] == ["t.small + t.small", "t.id + Int64(1)"]
    assert result.schema.types == [pa.int32(), pa.int64(), pa.int64()]
    assert list(result.to_pylist()[0].values()) == [4, 3, 2]


def test_a_column_of_integers_hides_a_name_of_the_answer_in_an_expression(db: Database, table: nyala.Table) -> None:
    text = "SELECT price AS id FROM t WHERE price IS NOT NULL ORDER BY id * 1 DESC"
    assert db.sql(text).to_arrow()["id"].to_pylist() == [-1.0, 2.0, 0.5]
    tables = (("t", (("id", 63), ("price", 0))),)
    for text in (
        "SELECT price AS id FROM t ORDER BY id + 1",
        "SELECT price AS id, count(*) FROM t GROUP BY price HAVING id * 2 > 1",
    ):
        assert checked(text, tables, frozenset()) == text
    assert checked("SELECT id * 2 AS id FROM t ORDER BY t.id + 1", tables, frozenset()) == (
        "SELECT CAST(CAST(id AS DECIMAL(20, 0)) * 2 AS BIGINT) AS id FROM t ORDER BY "
        "CAST(CAST(t.id AS DECIMAL(20, 0)) + 1 AS BIGINT)"
    )


def test_a_query_that_cannot_go_beyond_runs_as_it_is_written() -> None:
    tables = (("t", (("big", 63), ("small", 31), ("tiny", 7), ("price", 0))),)
    for text in (
        "SELECT price + 1, price * big FROM t",
        "SELECT sum(tiny), sum(1), count(*) * 8 FROM t",
        "SELECT 1 + 2",
    ):
        assert checked(text, tables, frozenset()) == text
    assert checked("SELECT small + tiny FROM t", tables, frozenset()) == (
        "SELECT CAST(small AS BIGINT) + CAST(tiny AS BIGINT) FROM t"
    )
    assert checked("SELECT sum(big*2) FROM t", tables, frozenset()) == (
        "SELECT CAST(sum(CAST(big AS DECIMAL(20, 0))*2) AS BIGINT) FROM t"
    )
