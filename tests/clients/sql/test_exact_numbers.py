"""Numbers with a point that a query compares with decimals, which DataFusion takes for doubles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.sql.exact_numbers import exact_numbers

LARGE = "-1234567890123456789012345678.9012345678"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nyala.Database]:
    folder: Path = tmp_path_factory.mktemp("numbers")
    with nyala.open(folder / "store") as db:
        db.sql("CREATE TABLE t (id bigint PRIMARY KEY, d numeric(9,2), large numeric(38,10), x double precision)")
        first, second = f"(1, 9999999.99, {LARGE}, 9999999.99)", "(2, -9999999.99, 0.1, 1e30)"
        db.sql(f"INSERT INTO t VALUES {first}, {second}, (3, 7, -({LARGE}), 'nan')")
        db.sql("CREATE TABLE u (id bigint PRIMARY KEY, d text, tags numeric(9,2)[], st struct<d numeric(9,2)>)")
        db.sql("INSERT INTO u (id, d) VALUES (1, 'q')")
        cells = {"id": [1], "d": ["q"], "tags": [[Decimal("9999999.99")]], "st": [{"d": Decimal("9999999.99")}]}
        db.table("u").upsert(pa.table(cells, db.table("u").schema))
        yield db


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("d = 9999999.99", [1]),
        ("9999999.99 <> d", [2, 3]),
        ("d = -9999999.99", [2]),
        ("t.d IN (7, (9999999.99))", [1, 3]),
        ("d BETWEEN 9999999.985 AND 9999999.99", [1]),
        ("d * 2 + 1 >= 20000000.98", [1]),
        ("d > 9999999.98 AND x > 0.5", [1]),
        ("x = 9999999.99", [1]),
        ("x > 0.5", [1, 2, 3]),
        (f"large = {LARGE}", [1]),
        (f"large = {LARGE} OR large = {LARGE[1:]}", [1, 3]),
        ("large > 1234567890123456789012345678", [3]),
        ("CASE d WHEN 9999999.99 THEN 1 ELSE 0 END = 1", [1]),
        ("CASE WHEN id < 3 THEN d ELSE 9999999.99 END = 9999999.99", [1, 3]),
        ("coalesce(NULLIF(d, 7.0), 0.25) IN (0.25, -9999999.99)", [2, 3]),
        ("nullif(d, 9999999.99) IS NULL", [1]),
        ("greatest(d, 9999999.985) = 9999999.99", [1]),
        ("x >= d", [1, 2, 3]),
        ("t.d = x", [1]),
        ("coalesce(x, d) > -0.5", [1, 2, 3]),
        ("x IN (d, 1e30)", [1, 2]),
        ("d = ANY (ARRAY[9999999.99, 0.5])", [1]),
        ("d <> ALL (ARRAY[9999999.99])", [2, 3]),
        ("d = ANY (ARRAY[7])", [3]),
        ("d IN (9999999.99)", [1]),
    ],
)
def test_decimals_are_compared_as_they_are_written(db: nyala.Database, condition: str, ids: list[int]) -> None:
    assert [row["id"] for row in db.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id").to_pylist()] == ids
    case = db.sql(f"SELECT id, CASE WHEN {condition} THEN 1 ELSE 0 END AS n FROM t ORDER BY id")
    assert [row["id"] for row in case.to_pylist() if row["n"]] == ids


def test_names_and_sums(db: nyala.Database) -> None:
    assert db.sql("SELECT d = 9999999.99 FROM t WHERE id = 1").to_arrow().column(0).to_pylist() == [True]
    assert db.sql("SELECT count(*) AS n FROM t HAVING sum(d) = 7.00").to_pylist() == [{"n": 3}]
    assert db.sql("SELECT id FROM (SELECT id, sqrt(abs(d)) AS d FROM t) AS s WHERE d > 3000.5").to_arrow().num_rows == 2


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("SELECT sum(d) AS d FROM t WHERE d = 9999999.99", [9999999.99]),
        ("SELECT t.id FROM t JOIN u ON t.id = u.id WHERE t.d = 9999999.99", [1]),
        ("SELECT count(*) AS n FROM (SELECT max(d) AS m FROM t) AS z WHERE m = 9999999.99", [1]),
        ("WITH z(m) AS (SELECT d FROM t UNION ALL SELECT d FROM t) SELECT m FROM z WHERE m = -9999999.99", [-1e7] * 2),
        ("SELECT id FROM t WHERE d::numeric(20,2) = 9999999.99", [1]),
        ("SELECT id FROM t WHERE round(d, 2) = 9999999.99", [1]),
        ("SELECT id FROM t WHERE d = round(d, 1) OR d = round(d)", [3]),
        ("SELECT id FROM t WHERE d / 1 = 9999999.99", [1]),
        ("SELECT max(d) OVER () = 9999999.99 AS k FROM t", [True] * 3),
        ("SELECT id FROM t WHERE d = (SELECT 9999999.99)", [1]),
        ("SELECT id FROM t WHERE large::numeric(38,2) < -1.5e3", [1]),
        ("SELECT s.id FROM u AS s WHERE s.st.d = 9999999.99 AND tags[1] = 9999999.99 AND st.d = s.tags[1]", [1]),
        ("SELECT max(x) AS x FROM t WHERE d < x AND id = 2", [1e30]),
        ("WITH z AS (SELECT x AS d FROM t) SELECT d FROM t WHERE d = 9999999.99", [9999999.99]),
        ("SELECT d FROM t WHERE id = 1 INTERSECT SELECT x FROM t", [9999999.99]),
        ("SELECT x FROM t WHERE id = 1 EXCEPT SELECT d FROM t", []),
        ("SELECT d FROM t WHERE id = 1 UNION SELECT x FROM t WHERE id = 1", [9999999.99]),
        ("SELECT max(d) FROM (SELECT d FROM t UNION ALL SELECT x FROM t WHERE id < 3) AS q", [1e30]),
        ("SELECT d FROM t WHERE id = 1 UNION SELECT 9999999.99", [9999999.99]),
        ("SELECT count(*) FROM (SELECT d AS k FROM t UNION ALL (SELECT x FROM t UNION ALL SELECT 1)) AS q", [7]),
    ],
)
def test_types_are_those_of_their_scope(db: nyala.Database, text: str, values: list[object]) -> None:
    cells = db.sql(text).to_arrow().column(0).to_pylist()
    assert [cell if isinstance(cell, bool) else round(float(cell), 2) for cell in cells] == pytest.approx(values)


@pytest.mark.parametrize(
    "condition",
    [
        "d < sqrt(x)",
        "d < (SELECT max(x) FROM t)",
        "d * 1 < x",
        "d < 'NaN'::double precision",
        "CASE WHEN d IS NULL THEN d ELSE x END > d",
        "d NOT IN (SELECT x FROM t WHERE id = 3)",
        "x NOT IN (SELECT d FROM t)",
        "x > ALL (SELECT d FROM t WHERE id = 3)",
        "id IN (SELECT id FROM t GROUP BY id HAVING sum(d) < max(x))",
    ],
)
def test_nan_is_greater_than_all_decimals(db: nyala.Database, condition: str) -> None:
    assert db.sql(f"SELECT max(id) AS x, max(x) AS d FROM t WHERE id = 3 AND {condition}").to_pylist()[0]["x"] == 3


def test_parameters_beside_decimals(db: nyala.Database) -> None:
    for condition, value, ids in (
        ("d = ?", 9999999.99, [1]),
        ("d IN (?, 1)", -9999999.99, [2]),
        ("large = ?", Decimal(LARGE), [1]),
        ("d < ?", math.nan, [1, 2, 3]),
        ("d < ?", math.inf, [1, 2, 3]),
        ("d > ?", 1e300, []),
        ("d + 0 > ?", 5, [1, 3]),
        ("x > ?", 1.5, [1, 2, 3]),
        ("d = ?", None, []),
        ("d = ANY (?)", [9999999.99, 0.5], [1]),
        ("d <> ANY (?)", [7.0], [1, 2]),
    ):
        rows = db.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id", [value]).to_pylist()
        assert [row["id"] for row in rows] == ids
    plan = db.sql("EXPLAIN SELECT id FROM t WHERE d < ?", [5.5]).to_arrow()["plan"].to_pylist()
    assert '  filter in the store: {"op": "<", "column": "d", "value": {"decimal": "5.50"}}' in plan


def test_parts_with_all_columns(db: nyala.Database) -> None:
    db.sql("CREATE TABLE v (PRIMARY KEY (id)) AS SELECT id, d FROM t")
    db.sql("CREATE TABLE w (PRIMARY KEY (id)) AS SELECT id, x AS d FROM t")
    assert db.sql("SELECT * FROM v WHERE id = 1 INTERSECT SELECT * FROM w").to_pylist() == [{"id": 1, "d": 9999999.99}]
    both = db.sql("SELECT * FROM v UNION ALL SELECT w.* FROM w ORDER BY d").to_arrow()
    assert both["d"].to_pylist()[-2:] == pytest.approx([1e30, math.nan], nan_ok=True)


def test_a_choice_beside_a_parameter(db: nyala.Database) -> None:
    for text in (
        "SELECT CASE WHEN id = 1 THEN 1 ELSE ? END AS n FROM t ORDER BY id",
        "SELECT coalesce(?, id) AS n FROM t",
    ):
        assert db.sql(text, [1.5]).to_pylist()[1] == {"n": 1.5}
    assert db.sql("SELECT CASE WHEN false THEN 1 ELSE ? END AS n", [1.5]).to_pylist() == [{"n": 1.5}]


def test_a_choice_of_decimals_and_doubles_is_a_double(db: nyala.Database) -> None:
    table = db.sql("SELECT greatest(d, x) AS g FROM t WHERE id > 1 ORDER BY id").to_arrow()
    assert str(table.schema.field("g").type) == "double"
    assert table["g"].to_pylist() == pytest.approx([1e30, math.nan], nan_ok=True)


def test_a_minus_keeps_all_digits(db: nyala.Database) -> None:
    assert str(db.sql("SELECT large FROM t WHERE id = 1").to_pylist()[0]["large"]) == LARGE
    assert str(db.sql("SELECT large FROM t WHERE id = 3").to_pylist()[0]["large"]) == LARGE[1:]


def test_a_double_is_written_with_any_power_of_ten(db: nyala.Database) -> None:
    db.sql("CREATE TABLE far (id bigint PRIMARY KEY, x double precision)")
    db.sql("INSERT INTO far VALUES (1, 1e300), (2, -1e-300), (3, 0)")
    db.sql("UPDATE far SET x = -1.5e200 WHERE id = 3")
    assert [row["x"] for row in db.sql("SELECT x FROM far ORDER BY id").to_pylist()] == [1e300, -1e-300, -1.5e200]
    for least in ("5e-324", "-1e-310"):
        db.sql(f"UPDATE far SET x = {least} WHERE x = 1e300 OR id = 1")
        assert db.sql("SELECT x FROM far WHERE id = 1").to_pylist() == [{"x": float(least)}]
    with pytest.raises(nyala.InvalidArgumentError, match="'d' is decimal"):
        db.sql("UPDATE t SET d = 1e300 WHERE id = 3")


def test_other_texts_stay(db: nyala.Database) -> None:
    schema = db.table("t").schema
    for text in ("SELECT id FROM t WHERE x > 0.5", "SELECT d * 1.5 FROM t WHERE d > 5", "SELECT 1.5"):
        assert exact_numbers(text, {"t": schema}) == text
