"""Expressions mean the same in queries, in queries of another time, and in statements that change rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

from nyala.clients.api.database import Database
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import StoreError

EXPRESSIONS = """
x / 2; x % 3; x ^ 2; x & 3; x | 3; x << 2; x >> 1; - x; -x::bigint; -x % 3; x - (y - 1); x / (y * 2); mod(x, 3)
mod(x + 1, 2) * 2; power(x, 2); round(d, 1); trunc(f); ln(abs(f)); log(100); log(2.0, 8.0); signum(f); isnan(f)
nanvl(f, 0); to_hex(x); try_cast(s AS int); arrow_typeof(x / 2); arrow_cast(x, 'Int8'); x::text; s::varchar(3)
to_char(ts, '%Y-%m'); to_char(ts, '%d.%m.%Y'); to_timestamp('2024-01-05', '%Y-%m-%d'); to_date('05.01.2024', '%d.%m.%Y')
date_format(ts, '%d'); date_trunc('month', ts); date_bin(INTERVAL '15 minutes', ts); date_part('dow', ts)
extract(epoch FROM ts); day + INTERVAL '1 month'; day - 1; day - DATE '2024-01-01'; ts - INTERVAL '1 day 2 hours'
ts::date::text; ts AT TIME ZONE 'Europe/Oslo'; from_unixtime(y * y); make_date(2024, 1, 2); ts > DATE '2024-01-01'
t64 > TIME '12:00'; t64 IN (TIME '12:30'); t64 BETWEEN TIME '12:00' AND TIME '13:00'; t64 > '12:00'
regexp_like('a' || chr(10) || 'b', 'a.b', 's'); regexp_replace(s, '[a-c]', '_', 'g'); regexp_match(s, '(a)(B)')[1]
s ~ '^a'; s ~* '^AB'; s !~ '^a'; s LIKE 'a%'; s NOT ILIKE 'AB%'; s SIMILAR TO 'a%'; s || NULL; concat(s, NULL, 'y')
substring(s FROM 2 FOR 2); trim(both 'a' FROM s); overlay(s PLACING 'ZZ' FROM 2 FOR 1); position('B' IN s); left(s, -1)
encode(sha256(s), 'hex'); E'a\\nb'; 'a\\b'; 'it''s'; s IS DISTINCT FROM 'x'; x BETWEEN 1 AND 7 AND ok; NOT ok OR x > 0
array_has(tags, 'x'); array_has_all(tags, ARRAY['x']); NOT array_has(tags, 'x'); array_position(tags, 'y')
tags[1]; tags[-1]; tags[1:2]; array_to_string(tags, ','); array_sort(ns, 'DESC'); array_has_any(ns, ARRAY[1])
ns @> ARRAY[1]; ns || ns; ARRAY[x, y][1]; ARRAY[ARRAY[1, 2], ARRAY[3, 4]][1][2]; 7 = ANY(ARRAY[x, y]); cardinality(tags)
named_struct('a', x)['a']; map(ARRAY['k'], ARRAY[x])['k']; doc ->> 'n'; doc -> 'a' -> 'b' ->> 0; (doc ->> 'n')::int + 1
doc ->> 'n' = '5'; CASE x WHEN 7 THEN 'a' WHEN -8 THEN 'b' END; coalesce(d, 0.125); nullif(x, 7); nvl(x, 0)
nvl2(x, 1, 2); greatest(x, y); uuid() IS NOT NULL; now() > ts; current_date > day; (SELECT max(z.x) FROM t z)
x = (SELECT max(z.x) FROM t z); sum(x) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
median(x) OVER (); rank() OVER (ORDER BY x); lag(x) IGNORE NULLS OVER (ORDER BY id)
last_value(x) IGNORE NULLS OVER (ORDER BY id); variance(x) OVER ()
"""


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    database = Database(Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")))
    database.sql(
        "CREATE TABLE t (id bigint PRIMARY KEY, x int, y bigint, f double precision, d numeric(9, 2), s text, "
        "ok boolean, day date, ts timestamp, t64 time, tags text[], ns bigint[], doc text)"
    )
    first = (
        "1, 7, -7, 2.5, 3.14, 'aBc d', TRUE, '2024-02-29', '2024-02-29 12:34:56', '12:30', ARRAY['x', 'y'], ARRAY[3, 1]"
    )
    third = "3, -8, 3, -2.5, -0.05, '', FALSE, '1969-12-31', '1969-12-31 23:59:59', '00:00', ARRAY['y'], ARRAY[2]"
    database.sql(f"""INSERT INTO t VALUES ({first}, '{{"a":{{"b":[1,2]}},"n":5}}'), ({third}, '[1,"x"]')""")
    database.sql("INSERT INTO t (id) VALUES (2)")
    database.sql("CREATE TABLE o (id bigint PRIMARY KEY, v text)")
    yield database
    database.close()


def column(db: Database, text: str, parameters: Any = None) -> Any:
    """The last column of an answer in the order of the first; an error as such."""
    try:
        rows = db.sql(text, parameters).to_arrow().sort_by("id")
    except StoreError as error:
        return type(error)
    return [repr(cell) for cell in rows.column(rows.num_columns - 1).to_pylist()]


@pytest.mark.parametrize(
    "expression", [text.strip() for line in EXPRESSIONS.strip().splitlines() for text in line.split("; ")]
)
def test_an_expression_means_the_same_everywhere(db: Database, expression: str) -> None:
    expected = column(db, f"SELECT id, {expression} AS v FROM t")
    assert isinstance(expected, list), expected
    assert column(db, f"SELECT id, {expression} AS v FROM at('t', ?)", [db.now()]) == expected
    expected = column(db, f"SELECT id, ({expression})::text AS v FROM t")
    db.sql("DELETE FROM o")
    db.sql(f"INSERT INTO o SELECT id, ({expression})::text FROM t")
    assert column(db, "SELECT id, v FROM o") == expected
    if " OVER " not in expression:
        source = "(SELECT id AS key, * FROM t) AS t"
        db.sql(f"UPDATE o SET v = ({expression})::text FROM {source} WHERE key = o.id")
        assert column(db, "SELECT id, v FROM o") == expected


def test_a_delete_keeps_the_rows_for_which_its_condition_is_null(db: Database) -> None:
    db.sql("CREATE TABLE keep (id bigint PRIMARY KEY, tags text[], at time)")
    db.sql("INSERT INTO keep VALUES (1, ARRAY['x'], '12:00'), (2, NULL, '13:00'), (3, ARRAY['y'], '14:00')")
    assert db.sql("DELETE FROM keep WHERE NOT array_has(tags, 'x')").changed == 1
    assert column(db, "SELECT id FROM keep") == ["1", "2"]
    assert db.sql("UPDATE keep SET tags = tags WHERE at = ? OR at > TIME '12:30'", [dt.time(12)]).changed == 2
    assert db.sql("DELETE FROM keep WHERE at IN (?, TIME '11:00')", [dt.time(12)]).changed == 1


def test_statements_with_parameters_and_several_tables(db: Database) -> None:
    db.sql("CREATE TABLE p (id bigint PRIMARY KEY, x bigint)")
    db.sql("INSERT INTO p VALUES (1, 3 ^ ?), (2, ?)", [1, 5])
    db.sql("INSERT INTO p SELECT id + ?, x ^ ? FROM p UNION SELECT id + 20, x -? FROM p ORDER BY 1", [10, 1, -2])
    assert column(db, "SELECT id, x FROM p") == ["3", "5", "3", "5", "5", "7"]
    db.sql(
        "MERGE INTO p USING (SELECT 1 AS w UNION ALL SELECT 3) s ON p.id = s.w WHEN MATCHED AND x ^ ? > 0 "
        "THEN UPDATE SET x = x ^ (s.w + 1) WHEN NOT MATCHED THEN INSERT (id, x) VALUES (w, w ^ 1)",
        [1],
    )
    db.sql("INSERT INTO p VALUES (2, 2) ON CONFLICT (id) DO UPDATE SET x = x ^ excluded.x WHERE p.x ^ ? = 5", [1])
    assert column(db, "SELECT id, x FROM p") == ["9", "25", "3", "3", "5", "5", "7"]
    texts = (
        "SELECT id, x ^ ? AS x FROM p FOR SYSTEM_TIME AS OF ? WHERE p.id < ?",
        "SELECT id, x ^ $1 AS x FROM at('p', $2) WHERE p.id < $3",
    )
    joined = "SELECT a.id, a.x FROM (at('p', ?) AS a JOIN p ON p.id = a.id) WHERE a.x ^ 1 < ?"
    assert column(db, joined, [db.now(), 4]) == ["3", "3"]
    for text in texts:
        assert column(db, text, [2, db.now(), 3]) == ["81.0", "625.0"]
