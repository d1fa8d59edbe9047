"""Queries that the store answers alone: they mean what DataFusion makes of them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.sql import engine
from nyala.clients.sql.statement import statement
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import StoreError

NAN = float("nan")


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    database = Database(store)
    rows = 400
    chosen = random.Random(5)
    data = {
        "id": pa.array(range(rows), pa.int64()),
        "small": pa.array([chosen.choice([None, -128, -1, 0, 3, 127]) for _ in range(rows)], pa.int8()),
        "big": pa.array([chosen.choice([None, -(2**40), 0, 2**53 + 1]) for _ in range(rows)], pa.int64()),
        "x": pa.array([chosen.choice([None, NAN, -0.0, 0.0, 2.5]) for _ in range(rows)]),
        "s": pa.array([chosen.choice([None, "", "a", "B", "\u00e4"]) for _ in range(rows)]),
        "d": pa.array(
            [chosen.choice([None, Decimal("1.25"), Decimal("-3.50")]) for _ in range(rows)], pa.decimal128(9, 2)
        ),
        "ok": pa.array([chosen.choice([None, True, False]) for _ in range(rows)]),
        "day": pa.array([chosen.choice([None, 0, 9_000]) for _ in range(rows)], pa.date32()),
        "u8": pa.array([chosen.choice([None, 0, 255]) for _ in range(rows)], pa.uint8()),
        "u64": pa.array([chosen.choice([None, 0, 255]) for _ in range(rows)], pa.uint64()),
        "tags": pa.array([chosen.choice([None, [], ["a"], ["b", None]]) for _ in range(rows)], pa.list_(pa.string())),
        "at": pa.array([chosen.choice([None, {"city": "Oslo"}, {"city": None}]) for _ in range(rows)]),
        "span": pa.array([chosen.choice([None, (1, 2, 3)]) for _ in range(rows)], pa.month_day_nano_interval()),
    }
    table = database.create_table("t", primary_key="id", data=pa.table(data))
    table.maintain("flush")
    table.update_where({"small": "5", "s": "'new'"}, "id % 9 = 0")
    table.delete_where("id % 13 = 5")
    database.create_table(
        "none", primary_key="id", data=pa.table({"id": pa.array([], pa.int64()), "x": pa.array([], pa.int32())})
    )
    yield database
    store.close()


def _answer(db: Database, text: str, params: list[Any] | None) -> Any:
    try:
        table = db.sql(text, params).to_arrow()
    except StoreError as error:
        return error.code, error.message
    return table.schema, sorted(map(repr, table.to_pylist()))


def _check(db: Database, monkeypatch: pytest.MonkeyPatch, text: str, params: list[Any] | None = None) -> None:
    alone = _answer(db, text, params)
    assert not isinstance(alone[0], pa.Schema) or db._engine().describe(text, params).schema == alone[0]
    with monkeypatch.context() as patched:
        patched.setattr(engine, "statement", lambda given: dataclasses.replace(statement(given), one_table=None))
        assert alone == _answer(db, text, params), text


ALONE: list[tuple[str, list[Any] | None]] = [
    ("SELECT * FROM t", None),
    ("SELECT s AS \"Odd one\", ID FROM t WHERE 5 > id", None),
    ("SELECT t.id, small FROM t WHERE t.small >= -1 AND s = 'a'", None),
    ("SELECT a.id FROM public.t a WHERE a.s > ''", None),
    ("SELECT id FROM t WHERE small = 1000", None),
    ("SELECT id FROM t WHERE id = ? AND small <= ?", [3, 127]),
    ("SELECT id FROM t WHERE s = $2 AND id < $1", [100, "new"]),
    ("SELECT id FROM t WHERE s = $s", None),
    ("SELECT count(*) FROM t", None),
    ("SELECT count(*), count(small), sum(small), min(small), max(small), avg(small) FROM t", None),
    ("SELECT sum(big) AS total, avg(big) AS mean FROM t", None),
    ("SELECT sum(d), min(d), max(d), min(s), max(day), count(ok) FROM t", None),
    ("SELECT s, count(*) AS n, sum(small) FROM t GROUP BY s", None),
    ("SELECT count(*) AS n, ok, day FROM t WHERE id > 7 GROUP BY day, ok", None),
    ("SELECT id, id AS k, s, id AS l FROM t WHERE id < 9", None),
    ("SELECT s, s AS k, count(*), count(*) AS n FROM t GROUP BY s", None),
    ("SELECT sum(u8), max(u8) FROM t", None),
    ("SELECT count(*), sum(x), min(x), avg(x) FROM none", None),
    ("SELECT x, count(*) FROM none GROUP BY x", None),
]  # fmt: skip
FOR_DATAFUSION: list[tuple[str, list[Any] | None]] = [
    ("SELECT min(x), max(x) FROM t", None),
    ("SELECT x, count(*) FROM t GROUP BY x", None),
    ("SELECT id FROM t WHERE x > 1", None),
    ("SELECT id FROM t WHERE x = 'NaN'", None),
    ("SELECT id FROM t WHERE id = 2.5", None),
    ("SELECT id FROM t WHERE s = 5", None),
    ("SELECT id FROM t WHERE id = '5'", None),
    ("SELECT id FROM t WHERE id = ?", [2.5]),
    ("SELECT id FROM t WHERE id = ?", [None]),
    ("SELECT id FROM t WHERE day = '1970-01-01'", None),
    ("SELECT id, id FROM t", None),
    ("SELECT id AS a, s AS a FROM t", None),
    ("SELECT nope FROM t", None),
    ("SELECT other.id FROM t", None),
    ("SELECT s FROM t GROUP BY s", None),
    ("SELECT s, count(*) FROM t", None),
    ("SELECT id AS s, count(*) FROM t GROUP BY s", None),
    ("SELECT s, count(*) FROM t GROUP BY ROLLUP (s)", None),
    ("SELECT count(DISTINCT s) FROM t", None),
    ("SELECT count(s) FILTER (WHERE id > 3) FROM t", None),
    ("SELECT sum(id) OVER () FROM t WHERE id < 3", None),
    ("SELECT max(ok) FROM t", None),
    ("SELECT sum(u64) FROM t", None),
    ("SELECT tags, count(*) FROM t GROUP BY tags", None),
    ("SELECT at, count(*) FROM t GROUP BY at", None),
    ("SELECT span, count(*) FROM t GROUP BY span", None),
    ("SELECT max(tags), min(at), max(span) FROM t", None),
    ("SELECT avg(d) FROM t", None),
    ("SELECT id FROM t LIMIT 0", None),
    ("SELECT DISTINCT s FROM t", None),
    ("SELECT id FROM t WHERE id < 3 OR s = 'a'", None),
]


@pytest.mark.parametrize(
    ("text", "params"), [*ALONE, *FOR_DATAFUSION], ids=[text for text, _ in [*ALONE, *FOR_DATAFUSION]]
)
def test_both_ways_mean_the_same(
    db: Database, monkeypatch: pytest.MonkeyPatch, text: str, params: list[Any] | None
) -> None:
    _check(db, monkeypatch, text, params)


def test_the_simple_ones_are_for_the_store() -> None:
    for text, _ in ALONE:
        assert statement(text).one_table is not None, text


def test_lists_and_structs_make_groups(db: Database) -> None:
    for column in ("tags", "at", "span"):
        assert db.sql(f"SELECT {column}, count(*) AS n FROM t GROUP BY {column}").rows > 1
    assert db.sql("SELECT id, id AS k FROM t WHERE id = 2").to_pylist() == [{"id": 2, "k": 2}]


def test_a_sum_beyond_64_bits_means_the_same(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.create_table("large", primary_key="id", data=pa.table({"id": [1, 2], "n": [2**62, 2**62]}))
    _check(db, monkeypatch, "SELECT sum(n) FROM large")


def test_other_columns_than_the_schema_has_are_refused(db: Database) -> None:
    with pytest.raises(StoreError, match="there is no column 'smal', perhaps 'small'"):
        db.sql("SELECT smal FROM t").to_arrow()


def test_an_explanation_says_that_the_store_answers(db: Database) -> None:
    lines = db.sql("EXPLAIN SELECT s, count(*) FROM t GROUP BY s").to_arrow()["plan"].to_pylist()
    assert "  an aggregate in the store" in lines
