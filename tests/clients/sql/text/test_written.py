"""Statements whose trees keep their words."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from nyala.clients.sql.change.many import of_all_rows
from nyala.clients.sql.change.parameters import with_values
from nyala.clients.sql.text.names import of_table
from nyala.clients.sql.text.written import WrittenSql, place_of, reworded

STATEMENTS = [
    "SELECT a  AS x, b||'c' FROM t  WHERE a^2 > 1 and (b IS not  distinct from 'q' OR c in (1,  2))",
    "select distinct on (a) a, to_char(b,'%Y') from t as u(a, b) order by a nulls first, b limit 1 + 1",
    "SELECT a FROM t UNION ALL select b from u EXCEPT (SELECT c FROM v ORDER BY c LIMIT 1) ORDER BY 1 LIMIT 3",
    "(SELECT a FROM t UNION SELECT b FROM u) ORDER BY 1",
    "with w as (select 1 as a), v as (values (1), (2)) select a from w where a in (select x from y order by x)",
    "WITH w AS (SELECT 1 AS a) (SELECT a FROM w)",
    "SELECT sum(x) FILTER (WHERE x > 0) OVER (PARTITION BY a ORDER BY b), lag(x) IGNORE NULLS OVER () FROM t",
    "SELECT CASE a WHEN 1 THEN - b ELSE (SELECT max(c) FROM u WHERE u.a = t.a) END FROM t",
    "SELECT t.a FROM t JOIN (SELECT b FROM u) AS v ON v.b = t.a + 1 LEFT JOIN w USING (a), unnest(t.c) AS z(d)",
    "SELECT string_agg(a, ',' ORDER BY b DESC), array_agg(DISTINCT a), c[1], d.e, f['g'], x::numeric(3, 1) FROM t",
    "SELECT a BETWEEN 1 AND 2 AND b, NOT a IS NULL, a NOT LIKE 'x%' OR b ~ 'y', d -> 'a' ->> 'b' FROM at('t', $p2) s",
    "SELECT /* one */ a /* two */ + 1 FROM t",
    "SELECT EXTRACT(year FROM a), substring(b FROM 2 FOR 1), INTERVAL '1 day', DATE '2024-01-01', E'a\\nb', count(*)",
    "INSERT INTO t (a, b) SELECT a, b ^ 2 FROM u WHERE c ORDER BY a ON CONFLICT (a) DO UPDATE SET b = excluded.b || 1",
    "INSERT INTO t VALUES (1, a - -2, NULL), (DEFAULT, (SELECT 1 UNION SELECT 2), ARRAY[1, 2])",
    "UPDATE t SET a = b IS NULL OR c, (d, e) = (SELECT f, g FROM u) FROM (SELECT h FROM v) x JOIN y ON x.h = y.h",
    "DELETE FROM t USING u, (SELECT 1 AS a) v WHERE NOT array_has(t.a, 'x') AND u.b = v.a",
    "MERGE INTO t USING (SELECT 1 AS a) s ON t.a = s.a WHEN MATCHED AND b ^ 2 > 1 THEN UPDATE SET b = c - 1",
    "CREATE TABLE t (PRIMARY KEY (a)) AS (SELECT a FROM u UNION SELECT b FROM v) ORDER BY a",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_the_words_at_a_place_are_those_of_its_expression(text: str) -> None:
    tree = sqlglot.parse_one(text, dialect=WrittenSql)
    places = [(node, place) for node in tree.walk() if (place := place_of(node)) is not None]
    assert places
    for node, place in places:
        if isinstance(node, exp.Table | exp.Version | exp.Paren | exp.Column):
            continue
        words = text[place.start : place.end]
        assert sqlglot.parse_one(words, dialect=WrittenSql) == node, words


def test_queries_print_as_they_were_written() -> None:
    for text in STATEMENTS[:13]:
        assert sqlglot.parse_one(text, dialect=WrittenSql).sql(dialect=WrittenSql) == text


def printed(tree: exp.Expr) -> str:
    return tree.sql(dialect=WrittenSql)


def test_parts_that_take_a_place_print_within_the_words() -> None:
    tree = sqlglot.parse_one("SELECT a  ^ $p1 , x -$p2 FROM t WHERE b||$p1 = 'c' AND c<>$name", dialect=WrittenSql)
    values = {"p1": pa.scalar("it's"), "p2": pa.scalar(-3), "name": pa.scalar(dt.time(12, 30))}
    expected = "SELECT a  ^ 'it''s' , x -(-3) FROM t WHERE b||'it''s' = 'c' AND c<>TIME '12:30:00'"
    assert printed(with_values(tree, values)) == expected
    condition = sqlglot.parse_one("a  + t.b ^ sum( c ) > (SELECT c FROM u)", dialect=WrittenSql)
    assert printed(of_table(condition, "t")) == "a  + t.b ^ sum( c ) > (SELECT c FROM u)".replace(
        "a ", '"t"."a" '
    ).replace("( c )", '( "t"."c" )')


def test_what_was_changed_prints_anew() -> None:
    tree = sqlglot.parse_one("SELECT a||b FROM t  WHERE (SELECT c  FROM u)", dialect=WrittenSql)
    inner = tree.find(exp.Subquery)
    assert inner is not None
    inner.this.set("limit", exp.Limit(expression=exp.Literal.number(1)))
    reworded(inner.this)
    assert printed(tree) == "SELECT a||b FROM t WHERE (SELECT c FROM u LIMIT 1)"


def test_rows_of_parameters() -> None:
    tree = sqlglot.parse_one("INSERT INTO t VALUES ($p1, x( $p2)^2)", dialect=WrittenSql)
    insert = of_all_rows(tree, pa.table({"a": [1], "b": [2]}))
    assert insert is not None
    rows = "nyala_parameters"
    assert printed(insert[0]) == f"INSERT INTO t SELECT {rows}.p1 AS c0, x( {rows}.p2)^2 AS c1 FROM {rows}"
