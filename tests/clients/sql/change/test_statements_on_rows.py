"""INSERT, UPDATE, DELETE, MERGE and TRUNCATE: rows, counts and refusals, each beside the rule that it follows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from nyala.schemas.errors import InvalidArgumentError, StoreError

from .small_reader import SmallSql


def cities(sql: SmallSql) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: (row["city"], row["n"]) for row in sql.rows("homes")}


FIRST = {1: ("Oslo", 1), 2: ("Oslo", 2), 3: ("Hamar", 3)}
CHANGES: list[tuple[str, int, dict[int, tuple[Any, ...] | None]]] = [
    ("INSERT INTO homes (id) VALUES (4)", 1, {4: (None, 7)}),
    ("INSERT INTO homes (id, n, city) VALUES (4, DEFAULT, 'x'), (5, 2 + 3, lower('Y'))", 2, {4: ("x", 7), 5: ("y", 5)}),
    ("INSERT INTO homes VALUES (4, 'x')", 1, {4: ("x", 7)}),
    ("INSERT INTO homes (id, n) SELECT id + 3, n FROM offers WHERE n > 20", 2, {6: (None, 21), 7: (None, 90)}),
    ("INSERT INTO homes (id, n) (SELECT 4, 4 UNION ALL SELECT 5, 5)", 2, {4: (None, 4), 5: (None, 5)}),
    ("WITH q AS (SELECT 4 AS id) INSERT INTO homes (id) SELECT id FROM q", 1, {4: (None, 7)}),
    ("WITH q AS (SELECT 4 AS id) INSERT INTO homes (id) VALUES ((SELECT id FROM q))", 1, {4: (None, 7)}),
    ("INSERT INTO public.homes (id, n) SELECT n, n FROM offers WHERE home = 9", 1, {90: (None, 90)}),
    ("INSERT INTO homes (id) VALUES (1), (4), (4) ON CONFLICT DO NOTHING", 1, {4: (None, 7)}),
    ("INSERT INTO homes (id) VALUES (1) ON CONFLICT (id) DO NOTHING", 0, {}),
    ("INSERT INTO homes (id, n) VALUES (1, 50), (4, 4) ON CONFLICT (id) DO UPDATE SET n = excluded.n", 2,
     {1: ("Oslo", 50), 4: (None, 4)}),
    ("INSERT INTO homes (id, n) VALUES (1, 50), (4, 4) ON CONFLICT (id) DO UPDATE SET n = homes.n + excluded.n", 2,
     {1: ("Oslo", 51), 4: (None, 4)}),
    ("INSERT INTO homes AS h (id) VALUES (1), (2) ON CONFLICT (id) DO UPDATE SET n = n + 10 WHERE h.n > 1", 1,
     {2: ("Oslo", 12)}),
    ("INSERT INTO homes (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET n = excluded.n, city = DEFAULT", 1,
     {1: (None, 7)}),
    ("UPDATE homes SET n = n", 3, {}),
    ("UPDATE homes SET n = n + 1 WHERE city = 'Oslo'", 2, {1: ("Oslo", 2), 2: ("Oslo", 3)}),
    ("UPDATE homes AS h SET n = h.n + 1, city = NULL WHERE h.id = 1", 1, {1: (None, 2)}),
    ("UPDATE homes SET (n, city) = (9, 'z') WHERE id = 1", 1, {1: ("z", 9)}),
    ("UPDATE homes SET (n, city) = (SELECT max(n), 'z' FROM offers) WHERE id = 1", 1, {1: ("z", 90)}),
    ("UPDATE homes SET n = DEFAULT WHERE id = 1", 1, {1: ("Oslo", 7)}),
    ("UPDATE homes SET n = 2.5 WHERE id = 1", 1, {1: ("Oslo", 3)}),
    ("UPDATE homes SET n = '12' WHERE id = 1", 1, {1: ("Oslo", 12)}),
    ("UPDATE homes SET n = o.n FROM offers AS o WHERE o.home = homes.id AND o.n < 21", 2,
     {1: ("Oslo", 10), 2: ("Oslo", 20)}),
    ("WITH q AS (SELECT 1 AS i) UPDATE homes SET n = 0 FROM q WHERE q.i = homes.id", 1, {1: ("Oslo", 0)}),
    ("UPDATE homes SET n = 5 WHERE price > 100", 1, {3: ("Hamar", 5)}),  # NaN is greater than any number
    ("UPDATE homes SET n = 5 WHERE NOT city IS NOT NULL OR NOT id NOT IN (1, 2)", 2, {1: ("Oslo", 5), 2: ("Oslo", 5)}),
    ("UPDATE homes SET id = id + 1", 3, {1: None, 2: ("Oslo", 1), 3: ("Oslo", 2), 4: ("Hamar", 3)}),
    ("UPDATE homes SET id = 3 - id, n = 0 WHERE id < 3", 2, {1: ("Oslo", 0), 2: ("Oslo", 0)}),
    ("DELETE FROM homes WHERE city = 'Oslo'", 2, {1: None, 2: None}),
    ("DELETE FROM homes", 3, {1: None, 2: None, 3: None}),
    ("DELETE FROM homes AS h WHERE h.id = 1 AND h.price >= 10", 1, {1: None}),
    ("DELETE FROM homes USING offers AS o WHERE o.home = homes.id", 2, {1: None, 2: None}),
    ("DELETE FROM homes WHERE id IN (SELECT home FROM offers WHERE n > 15)", 1, {2: None}),
    ("MERGE INTO homes AS h USING (SELECT home, max(n) AS n FROM offers GROUP BY home) AS o ON h.id = o.home "
     "WHEN MATCHED AND o.n > 15 THEN UPDATE SET n = h.n + o.n WHEN MATCHED THEN DELETE "
     "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (o.home, DEFAULT) "
     "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET city = 'none'", 4,
     {1: None, 2: ("Oslo", 23), 3: ("none", 3), 9: (None, 7)}),
    ("MERGE INTO homes USING offers AS o ON homes.id = o.id WHEN MATCHED AND o.id = 1 THEN DO NOTHING "
     "WHEN MATCHED THEN UPDATE SET n = 0", 2, {2: ("Oslo", 0), 3: ("Hamar", 0)}),
    ("MERGE INTO homes USING offers ON homes.id = offers.home WHEN MATCHED THEN DO NOTHING "
     "WHEN NOT MATCHED THEN DO NOTHING", 0, {}),
    ("MERGE INTO homes USING (SELECT 9 AS id, 5 AS n) AS s ON homes.id = s.id WHEN NOT MATCHED AND n = 5 THEN "
     "INSERT (id, n) VALUES (id, n + 1) WHEN NOT MATCHED BY SOURCE AND n = 2 THEN UPDATE SET n = n + 10", 2,
     {2: ("Oslo", 12), 9: (None, 6)}),
    ("WITH q AS (SELECT 1 AS id) MERGE INTO homes USING q ON homes.id = q.id WHEN NOT MATCHED BY SOURCE THEN DELETE",
     2, {2: None, 3: None}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "count", "after"), CHANGES, ids=[text[:60] for text, _, _ in CHANGES])
def test_a_statement_changes_rows_and_counts_them(
    homes: SmallSql, text: str, count: int, after: dict[int, tuple[Any, ...] | None]
) -> None:
    before = homes.store.now()
    done = homes.run(text)
    assert done.count == count
    assert cities(homes) == {key: row for key, row in {**FIRST, **after}.items() if row is not None}
    changed = homes.store.commits("homes", before)
    assert changed.num_rows <= 1, "a statement is one commit"
    assert not changed.num_rows or changed["timestamp"][0].as_py() == done.timestamp


REFUSALS = [
    ("INSERT INTO homes (id) VALUES (1)", "(id=1)"),
    ("INSERT INTO homes (id) VALUES (4), (4)", "(id=4)"),
    ("INSERT INTO homes (id) VALUES (4), (NULL)", "'id'.* NOT NULL"),
    ("INSERT INTO homes (city) VALUES ('x')", "'id'.* NOT NULL"),
    ("INSERT INTO homes DEFAULT VALUES", "'id'.* NOT NULL"),
    ("INSERT INTO homes (id, n) VALUES (4, NULL)", "'n'.* NOT NULL"),
    ("INSERT INTO homes (id, n) VALUES (4, 3000000000)", "'n' is int32.*'3000000000'"),
    ("INSERT INTO homes (id, n) SELECT 4, 3000000000", "'n' is int32.*'3000000000'"),
    ("INSERT INTO homes (id, day) VALUES (4, '2026-02-30')", "'day' is date.*'2026-02-30'"),
    ("INSERT INTO homes (id, cents) VALUES (4, 12345.678)", "'cents' is decimal.*'12345.678'"),
    ("INSERT INTO homes (id, ok) VALUES (4, 3)", "'ok' is bool and takes no int64: convert"),
    ("INSERT INTO homes (id, nothing) VALUES (4, 3)", "no column 'nothing'"),
    ("INSERT INTO homes (id, id) VALUES (4, 3)", "names the column 'id' twice"),
    ("INSERT INTO homes (id) VALUES (4, 3)", "2 values for 1 columns"),
    ("INSERT INTO homes (id, n) VALUES (4)", "1 values for 2 columns"),
    ("INSERT INTO homes (id, n) VALUES (4, 1), (5)", "same number"),
    ("INSERT INTO homes (id) VALUES (4) RETURNING id", "RETURNING: read the rows"),
    ("INSERT INTO homes (id) VALUES (4) ON CONFLICT (n) DO NOTHING", r"primary key \(id\), not \(n\)"),
    ("INSERT INTO homes (id) VALUES (4), (4) ON CONFLICT (id) DO UPDATE SET n = 0", "(id=4)"),
    ("INSERT INTO homes (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET id = 5", "part of the primary key"),
    ("INSERT INTO homes (id) VALUES (4) ON CONFLICT ON CONSTRAINT x DO NOTHING", "ON CONSTRAINT"),
    ("INSERT INTO nowhere (id) VALUES (4)", "'nowhere'"),
    ("INSERT INTO x.homes (id) VALUES (4)", "no schema 'x'"),
    ("UPDATE homes SET n = o.n FROM offers AS o WHERE o.home = homes.id", r"\(id=2\) matches several rows of FROM"),
    ("UPDATE homes SET id = 2 WHERE id = 1", "(id=2)"),
    ("UPDATE homes SET id = NULL WHERE id = 1", "'id'.* NOT NULL"),
    ("UPDATE homes SET n = NULL WHERE id = 1", "'n' is NOT NULL.*id=1"),
    ("UPDATE homes SET n = (SELECT CAST(NULL AS int))", "'n'.* NOT NULL"),
    ("UPDATE homes SET n = n * 3000000000", "'n'"),
    ("UPDATE homes SET n = n / 0", "column 'n': .*division by zero"),
    ("UPDATE homes SET nothing = 1", "no column 'nothing'"),
    ("UPDATE homes SET n = 1, n = 2", "names the column 'n' twice"),
    ("UPDATE homes SET offers.n = 1", "'homes' only"),
    ("UPDATE homes SET (n, city) = (1, 2, 3)", "2 columns"),
    ("UPDATE homes SET n = 1 WHERE id = 1 RETURNING n", "RETURNING"),
    ("DELETE FROM homes WHERE id = 1 RETURNING id", "RETURNING"),
    ("MERGE INTO homes USING offers ON homes.id = offers.home WHEN MATCHED THEN DELETE", r"\(id=2\) matches several"),
    ("MERGE INTO homes USING offers ON homes.id = offers.home WHEN NOT MATCHED THEN INSERT (id) VALUES (1)", "id=1"),
    ("MERGE INTO homes USING offers ON FALSE WHEN NOT MATCHED THEN INSERT (id) VALUES (offers.home)", "id="),
    ("MERGE INTO homes USING (SELECT 1 AS i) ON TRUE WHEN MATCHED THEN DELETE", "needs a name"),
    ("MERGE INTO homes USING offers ON homes.id = offers.id WHEN MATCHED THEN UPDATE SET id = 1", "primary key"),
    ("TRUNCATE homes RESTART IDENTITY", "RESTART IDENTITY"),
    ("SELECT 1", "not a statement that changes"),
    ("BEGIN", "of a connection"),
    ("VACUUM homes", "needs no VACUUM"),
    ("COPY homes FROM 'x'", "use the jobs load and export"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), REFUSALS, ids=[text[:60] for text, _ in REFUSALS])
def test_a_refused_statement_says_why_and_changes_nothing(homes: SmallSql, text: str, why: str) -> None:
    with pytest.raises(StoreError, match=why) as caught:
        homes.run(text)
    assert "\n" not in caught.value.message
    assert cities(homes) == FIRST


def test_values_are_assigned_as_in_postgresql(homes: SmallSql) -> None:
    homes.run(
        "INSERT INTO homes VALUES (4, 17, 3, 2.5, 1.005, '2026-01-02', DATE '2026-01-03', 'yes', '\\x00ff'), "
        "('5', 1.50, '2.5', '-3', '7', TIMESTAMP '2026-01-02 23:00:00', '2026-01-02 03:04:05.123456', TRUE, 'ab'), "
        "(6, DATE '2026-01-02', 9007199254740993, -2.5, 2, NULL, now() - now() + TIMESTAMP '2026-01-01', false, NULL)"
    )
    rows = [list(row.values())[1:] for row in homes.rows("homes")[3:]]
    assert rows == [
        ["17", 3.0, 3, Decimal("1.01"), dt.date(2026, 1, 2), dt.datetime(2026, 1, 3), True, b"\x00\xff"],
        ["1.50", 2.5, -3, Decimal("7.00"), dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3, 4, 5, 123456), True, b"ab"],
        ["2026-01-02", 9007199254740992.0, -3, Decimal("2.00"), None, dt.datetime(2026, 1, 1), False, None],
    ]


@pytest.mark.parametrize(
    ("text", "is_native"),
    [
        ("UPDATE homes SET n = n + 1 WHERE price > 5 AND city NOT LIKE 'H%'", True),
        (
            "UPDATE homes AS h SET n = CASE WHEN h.n > 1 THEN 2 ELSE n END, price = h.n * 1.5 WHERE id BETWEEN 1 AND 2",
            True,
        ),
        ("UPDATE homes SET city = coalesce(city, 'x') || 'y', at = now(), day = '2026-01-01' WHERE id IN (1, 2)", True),
        ("DELETE FROM homes WHERE NOT (n = 1 OR cents > 2.5)", True),
        ("UPDATE homes SET n = 1 WHERE price = n", False),
        ("UPDATE homes SET n = 1 WHERE price = 'NaN'", False),
        ("UPDATE homes SET n = 1 WHERE city = NULL", False),
        ("UPDATE homes SET n = price WHERE id = 1", False),
        ("UPDATE homes SET cents = cents / 3", False),
        ("UPDATE homes SET city = concat(city, 'x')", False),
        ("DELETE FROM homes WHERE id IN (SELECT id FROM offers)", False),
        ("DELETE FROM homes WHERE day = '2026-1-1'", False),
    ],
)
def test_only_what_means_the_same_goes_to_the_store_at_once(homes: SmallSql, text: str, is_native: bool) -> None:
    before = homes.reads
    try:
        homes.run(text)
    except Exception:  # of a read that was tried
        assert not is_native
    assert (homes.reads == before) is is_native


def test_truncate_deletes_all_rows_of_several_tables_in_one_commit(homes: SmallSql) -> None:
    done = homes.run("TRUNCATE TABLE homes, offers CONTINUE IDENTITY")
    assert (done.kind, done.count) == ("TRUNCATE TABLE", 0)
    assert homes.rows("homes") == homes.rows("offers") == []
    assert homes.store.last_change("homes") == homes.store.last_change("offers") == done.timestamp


def test_immutable_columns_keep_their_values(sql: SmallSql) -> None:
    sql.run("CREATE TABLE t (id int PRIMARY KEY, born int WITH (immutable = true)); INSERT INTO t VALUES (1, 2)")
    for text in ("UPDATE t SET born = 3", "INSERT INTO t VALUES (1, 3) ON CONFLICT (id) DO UPDATE SET born = 3"):
        with pytest.raises(InvalidArgumentError, match=r"'born' .* immutable"):
            sql.run(text)


def test_a_table_in_several_tablets(sql: SmallSql) -> None:
    sql.run(
        "CREATE TABLE t (a int, b text, n int, PRIMARY KEY (a, b)) PARTITION BY HASH (b) INTO 3, "
        "RANGE (a) (FROM (0) TO (50), FROM (50) TO (MAXVALUE));"
        "CREATE TABLE s (id int PRIMARY KEY); INSERT INTO s VALUES " + ", ".join(f"({at})" for at in range(100))
    )
    assert sql.run("INSERT INTO t SELECT id, CAST(id % 7 AS text), id FROM s").count == 100
    with pytest.raises(StoreError, match="a=60"):
        sql.run("INSERT INTO t VALUES (10, 'new', 1), (60, '4', 1)")
    assert sql.run("UPDATE t SET n = s.id + 1 FROM s WHERE s.id = t.a AND s.id % 2 = 0").count == 50
    assert sql.run("UPDATE t SET a = 99 - a").count == 100
    assert sql.run("DELETE FROM t WHERE n < 10").count == 10
    assert sql.run("MERGE INTO t USING s ON s.id = t.a WHEN NOT MATCHED THEN INSERT VALUES (s.id, '0', 0)").count == 10
    assert sum(row["n"] for row in sql.rows("t")) == sum(at + (at % 2 == 0) for at in range(10, 100))
    with pytest.raises(StoreError):
        sql.run("INSERT INTO t VALUES (-1, 'x', 1)")
    assert len(sql.rows("t")) == 100


def test_a_table_that_numbers_its_rows(sql: SmallSql) -> None:
    sql.run("CREATE TABLE t (sensor text, v int DEFAULT 5, PRIMARY KEY (sensor)) WITH (unique_key = false)")
    assert sql.run("INSERT INTO t VALUES ('a', 1), ('a', 2), ('b', DEFAULT)").count == 3
    assert sql.run("INSERT INTO t (sensor) SELECT sensor FROM t ON CONFLICT DO NOTHING").count == 3
    assert sql.run("UPDATE t SET v = v + (SELECT max(v) FROM t) WHERE sensor = 'a'").count == 4
    assert sql.run("DELETE FROM t WHERE auto_incrementing_id IN (SELECT min(auto_incrementing_id) FROM t)").count == 1
    assert sql.run("MERGE INTO t USING (SELECT 'c' AS s) AS s ON t.sensor = s.s WHEN NOT MATCHED THEN INSERT VALUES "
                   "(s.s, 9)").count == 1  # fmt: skip
    assert [(row["sensor"], row["auto_incrementing_id"], row["v"]) for row in sql.rows("t")] == [
        ("a", 2, 7), ("a", 4, 10), ("a", 5, 10), ("b", 3, 5), ("b", 6, 5), ("c", 7, 9),
    ]  # fmt: skip
    for text, why in [
        ("INSERT INTO t (sensor, auto_incrementing_id) VALUES ('a', 1)", "gives numbers to new rows"),
        ("INSERT INTO t (sensor) VALUES ('a') ON CONFLICT (sensor) DO NOTHING", "leave out ON CONFLICT"),
        ("UPDATE t SET sensor = 'z'", "part of the primary key"),
    ]:
        with pytest.raises(InvalidArgumentError, match=why):
            sql.run(text)
