"""Random statements that change rows, some of which must be refused."""

from __future__ import annotations

from random import Random

import pyarrow as pa

TABLES = """
CREATE TABLE t (id bigint PRIMARY KEY, n bigint, city text, price double precision, cents numeric(6,2), day date,
    m int NOT NULL DEFAULT 7);
CREATE TABLE other (id bigint PRIMARY KEY, n bigint, city text);
CREATE TABLE pairs (a bigint, b text, n bigint, PRIMARY KEY (a, b))
"""
"""What both sides understand."""

_CONDITIONS = [
    "t.n < 20",
    "t.city = 'a'",
    "t.city IS NULL",
    "t.city IS NOT NULL AND t.n IS NULL",
    "t.n % 3 = 1",
    "t.price > 5",
    "NOT t.price > 5",
    "t.price <= 6.5",
    "t.price <> 2",
    "t.price BETWEEN 1 AND 6.5",
    "NOT t.price BETWEEN 2 AND 6.5",
    "t.price >= 1 OR t.city = 'b'",
    "t.price IN (1, 6.5)",
    "t.price NOT IN (1, 2, 3, 4, 5)",
    "t.price = 'NaN'",
    "t.cents > 2.5",
    "t.cents * 2 <= 7.3",
    "t.day >= '2026-03-01'",
    "t.day < DATE '2026-06-01'",
    "t.id IN (SELECT id FROM other)",
    "t.n BETWEEN 5 AND 30 AND t.city <> 'b'",
    "EXISTS (SELECT 1 FROM other WHERE other.id = t.id AND other.n > 10)",
    "t.city LIKE 'a%'",
    "t.city NOT LIKE '%b'",
    "t.n = 3 OR t.n = 4 OR t.m > 8",
    "coalesce(t.n, 0) + t.m > 15",
    "CASE WHEN t.n > 10 THEN t.city = 'a' ELSE t.price > 1 END",
    "t.n NOT IN (1, 2, 3)",
    "TRUE",
    "FALSE",
    "NULL",
    "t.n = NULL",
    "(t.n > 5) IS NOT TRUE",
    "t.n > 2.5",
    "-t.n < -10",
    "abs(t.n - 20) < 5",
]
_ALONE = ["t.n NOT IN (SELECT n FROM other WHERE n IS NOT NULL)", "t.n NOT IN (SELECT n FROM other)"]
"""Conditions that DataFusion gets wrong under OR, where a value is NULL."""
_SETS = [
    "n = n + {k}",
    "n = n * 2, city = 'd'",
    "city = NULL",
    "city = city || 'x'",
    "price = coalesce(price, 0) + 1",
    "price = n",
    "price = price * 1.5",
    "cents = cents + 1.25",
    "cents = cents * 1.1",
    "cents = n",
    "cents = 1.005",
    "day = '2026-02-{d:02}'",
    "day = NULL",
    "m = m + 1",
    "m = NULL",
    "m = n",
    "m = DEFAULT",
    "m = m * 3000000000",
    "n = CASE WHEN price > 3 THEN 1 WHEN city = 'a' THEN n END",
    "n = (SELECT max(n) FROM other)",
    "n = (SELECT max(o.n) FROM other o WHERE o.id = t.id)",
    "n = nullif(n, 3)",
    "n = greatest(n, 20)",
    "price = greatest(price, price * 2), city = least(city, 'b')",
    "city = upper(city)",
    "n = n, city = city",
    "n = m, m = 5",
    "nothing = 1",
    "n = 1, n = 2",
    "n = length(city)",
    "n = price",
    "n = 2.5",
    "m = 3.5",
    "price = 0.1",
    "n = '12'",
]
_NEVER_FIT = ["m = 3000000000", "cents = 99999", "n = 'x'", "day = 'soon'"]
"""The store refuses these whether they meet a row or not."""
_KEY_SETS = ["id = id + 100000", "id = NULL", "id = 5", "id = id"]


def first_rows(random: Random) -> dict[str, pa.Table]:
    """Return rows for the tables to begin with."""
    cities = ["a", "b", "ab", None]
    prices = [None, 1.0, 6.5, 2.0, float("nan"), -0.5]
    days = [None, "2026-01-01", "2026-03-01", "2026-12-31"]
    count = 50
    return {
        "t": pa.table(
            {
                "id": list(range(count)),
                "n": [random.choice([None, *range(40)]) for _ in range(count)],
                "city": [random.choice(cities) for _ in range(count)],
                "price": pa.array([random.choice(prices) for _ in range(count)], pa.float64(), from_pandas=False),
                "cents": pa.array([random.choice([None, 1, 2, 3]) for _ in range(count)], pa.decimal128(6, 2)),
                "day": pa.array([random.choice(days) for _ in range(count)], pa.string()).cast(pa.date32()),
                "m": pa.array([random.randrange(12) for _ in range(count)], pa.int32()),
            }
        ),
        "other": pa.table(
            {
                "id": list(range(0, 80, 4)),
                "n": [random.choice([None, *range(40)]) for _ in range(20)],
                "city": [random.choice(cities) for _ in range(20)],
            }
        ),
        "pairs": pa.table({"a": [1, 1, 2], "b": ["x", "y", "x"], "n": [1, 2, None]}),
    }


def statement(random: Random) -> str:
    """Return a statement that both sides understand."""
    makers = [_insert, _insert_select, _on_conflict, _on_conflict, _update, _update, _update, _update_from, _delete]
    makers += [_delete_using, _merge, _merge, _pairs, _keys]
    return random.choice(makers)(random)


def _condition(random: Random) -> str:
    if random.random() < 0.05:
        return random.choice(_ALONE)
    one = random.choice(_CONDITIONS)
    kind = random.randrange(6)
    if kind == 0:
        return f"({one}) AND ({random.choice(_CONDITIONS)})"
    if kind == 1:
        return f"NOT ({one})"
    return f"({one}) OR {random.choice(_CONDITIONS)}" if kind == 2 else one


def _set(random: Random) -> str:
    return random.choice(_SETS).format(k=random.randrange(-3, 9), d=random.randrange(1, 31))


def _cell(random: Random) -> str:
    return random.choice(["1", "2 + 3", "NULL", "DEFAULT", str(random.randrange(40))])


def _row(random: Random, key: int) -> str:
    shown = random.choice([str(key)] * 12 + ["NULL", f"{key} + 0"])
    return f"({shown}, {_cell(random)}, {random.choice(['NULL', chr(39) + 'c' + chr(39)])}, {_cell(random)})"


def _values(random: Random, are_distinct: bool = False) -> str:
    count = random.choice([1, 1, 2, 3])
    keys = random.sample(range(70), count) if are_distinct else [random.randrange(70) for _ in range(count)]
    return ", ".join(_row(random, key) for key in keys)


def _insert(random: Random) -> str:
    if random.random() < 0.1:
        return f"INSERT INTO t (id, n) VALUES ({random.randrange(99)})"
    if random.random() < 0.15:
        return f"INSERT INTO t VALUES ({random.randrange(200, 900)}, 1, 'q', 1.5, 2, '2026-05-05', 3)"
    columns = random.choice(["id, n, city, price", "id, n, city, m", "id, m, city, cents"])
    return f"INSERT INTO t ({columns}) VALUES {_values(random)}"


def _insert_select(random: Random) -> str:
    base = random.randrange(1_000, 1_000_000) * 1_000
    shift = random.choice([base, base, 0, 30])
    return (
        f"INSERT INTO t (id, n, city, price) SELECT t.id + {shift}, t.n, t.city, t.price FROM t "
        f"WHERE ({_condition(random)}) AND t.id < {random.randrange(60)}"
    )


def _on_conflict(random: Random) -> str:
    action = random.choice(
        [
            "DO NOTHING",
            "(id) DO NOTHING",
            "(id) DO UPDATE SET n = t.n + excluded.n",
            "(id) DO UPDATE SET n = excluded.n, city = excluded.city, price = excluded.price",
            "(id) DO UPDATE SET n = excluded.n WHERE t.n > 10",
            "(id) DO UPDATE SET city = excluded.city || coalesce(t.city, ''), m = t.m + 1",
            "(id) DO UPDATE SET m = NULL",
            "(id) DO UPDATE SET price = excluded.price + 0.5, n = 3 WHERE excluded.n IS NOT NULL",
            "(n) DO NOTHING",
        ]
    )
    source = f"VALUES {_values(random, are_distinct='UPDATE' in action)}"  # DuckDB takes a key twice
    if random.random() < 0.3:
        source = f"SELECT id + {random.choice([0, 2])}, n, city, n FROM other WHERE n > {random.randrange(40)}"
    return f"INSERT INTO t (id, n, city, price) {source} ON CONFLICT {action}"


def _update(random: Random) -> str:
    if random.random() < 0.05:
        return f"UPDATE t SET {random.choice(_NEVER_FIT)} WHERE t.id IS NOT NULL"
    return f"UPDATE t SET {_set(random)} WHERE {_condition(random)}"


def _update_from(random: Random) -> str:
    value = random.choice(["n = o.n", "n = t.n + o.n, city = o.city", "m = o.n", "price = o.n * 1.5", "city = 'u'"])
    return f"UPDATE t SET {value} FROM other AS o WHERE o.id = t.id AND (o.n > {random.randrange(30)})"


def _delete(random: Random) -> str:
    return f"DELETE FROM t WHERE ({_condition(random)}) AND t.id % 7 = {random.randrange(7)}"


def _delete_using(random: Random) -> str:
    on = random.choice(["o.id = t.id", "o.n = t.n", "o.id = t.n AND o.city = t.city"])
    return f"DELETE FROM t USING other AS o WHERE {on} AND o.n > {random.randrange(20, 40)}"


def _merge(random: Random) -> str:
    whens = random.sample(
        [
            "WHEN MATCHED AND o.n > 15 THEN UPDATE SET n = o.n",
            "WHEN MATCHED AND o.n < 3 THEN DELETE",
            "WHEN MATCHED AND t.n > 30 THEN DO NOTHING",
            "WHEN MATCHED THEN UPDATE SET city = o.city, m = t.m + 1",
            "WHEN NOT MATCHED AND o.n > 5 THEN INSERT (id, n, city) VALUES (o.id, o.n, 'm')",
            "WHEN NOT MATCHED THEN INSERT (id, n, m) VALUES (o.id, o.n, DEFAULT)",
            "WHEN NOT MATCHED BY SOURCE AND t.id % 11 = 3 THEN DELETE",
            "WHEN NOT MATCHED BY SOURCE AND t.n = 9 THEN UPDATE SET price = 3, n = 4",
        ],
        random.randrange(1, 4),
    )
    whens.sort(key=lambda when: when.startswith("WHEN MATCHED THEN") or when.startswith("WHEN NOT MATCHED THEN"))
    source = random.choice(
        ["other AS o", "(SELECT id + 2 AS id, n, city FROM other) AS o", "(SELECT * FROM other WHERE n > 7) AS o"]
    )
    return f"MERGE INTO t USING {source} ON t.id = o.id {' '.join(whens)}"


def _pairs(random: Random) -> str:
    a, b = random.randrange(4), random.choice("xyz")
    return random.choice(
        [
            f"INSERT INTO pairs VALUES ({a}, '{b}', 1)",
            f"INSERT INTO pairs VALUES ({a}, '{b}', 1) ON CONFLICT (a, b) DO UPDATE SET n = pairs.n + excluded.n",
            f"INSERT INTO pairs VALUES ({a}, '{b}', 1) ON CONFLICT DO NOTHING",
            f"UPDATE pairs SET n = pairs.n + 1 WHERE b = '{b}'",
            f"DELETE FROM pairs WHERE a = {a} AND b = '{b}'",
            f"INSERT INTO pairs SELECT id, city, n FROM other WHERE id < {random.randrange(30)} ON CONFLICT DO NOTHING",
        ]
    )


def _keys(random: Random) -> str:
    return f"UPDATE t SET {random.choice(_KEY_SETS)} WHERE t.id = {random.randrange(60)}"
