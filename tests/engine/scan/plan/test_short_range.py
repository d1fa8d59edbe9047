"""Scans of a short range of keys are read like gets: the same rows, in the same order, as chunk by chunk."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.filter.prune import key_range
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.rowset.row_run import KeyRuns
from nyala.engine.scan.plan import choose, range_scan, short_range
from nyala.engine.scan.plan.range_scan import RangeScans
from nyala.engine.scan.plan.short_range import ROWS_MAX
from nyala.engine.store import Store
from nyala.engine.vectors.keys.keys import U64Keys
from nyala.schemas.errors import StoreError
from tests.dose import dose

TYPES = {"n": pa.int16(), "s": pa.string(), "x": pa.decimal128(20, 2), "v": pa.int64(), "t": pa.string()}
NAMES = ["", "a", "a\0", "ab", "b", "\u00e4"]
STEPS = ("flush", "flush_deltas", "minor_compact", "major_compact", "compact", "gc")


def key_cell(name: str, random: Random) -> Any:
    if name == "n":
        return random.randrange(-40, 40)
    return random.choice(NAMES) if name == "s" else random.randrange(-3, 3)


def literal(cell: Any) -> str:
    return f"'{cell}'" if isinstance(cell, str) else str(cell)


@pytest.fixture(params=[("n",), ("s", "n"), ("n", "s"), ("x", "n")], ids=str)
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    key: tuple[str, ...] = request.param
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        names = [*key, *(name for name in TYPES if name not in key)]
        schema = pa.schema([pa.field(name, TYPES[name], name not in key) for name in names])
        levels = [nyala.hash("n", buckets=3)] if key[0] == "s" else []
        if key == ("n", "s"):
            levels = [nyala.range("n", splits=[-10, 5, 20])]
        yield Database(store).create_table("t", schema, list(key), partition_by=levels)


def a_filter(key: tuple[str, ...], random: Random) -> str | list[tuple[str, str, Any]]:
    """Return comparisons of leading columns of the key, some of them of others, as text or as tuples."""
    parts: list[tuple[str, str, Any]] = []
    for name in key[: random.choice((1, 1, len(key)))]:
        is_last = random.random() < 0.6
        ops = random.sample(["<", "<=", ">", ">="], random.choice((1, 2))) if is_last else ["="]
        parts += [(name, op, key_cell(name, random)) for op in ops]
        if is_last:
            break
    if random.random() < 0.1:
        parts.append(("v", ">=", 1))
    if random.random() < 0.5 or any("\0" in str(cell) for _, _, cell in parts):
        return parts
    return " AND ".join(f"{name} {op} {literal(cell)}" for name, op, cell in parts)


def rows_or_error(table: Table, **how: Any) -> tuple[Any, Any]:
    try:
        found = table.scan(**how).to_arrow()
    except StoreError as error:
        return None, str(error)
    found.validate(full=True)
    return found.schema, found.to_pylist()


def compare(table: Table, **how: Any) -> str | None:
    """Compare a scan with itself by the other ways; return the way of a short range that read it, if one did."""
    ways: list[str] = []

    def noting(way: str, read: Any) -> Any:
        def noted(*given: Any) -> Any:
            if (rows := read(*given)) is not None:
                ways.append(way)
            return rows

        return noted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RangeScans, "scan", noting("plan", RangeScans.scan))
        patch.setattr(choose, "rows_of_short_range", noting("resolved", choose.rows_of_short_range))
        patch.setattr(choose, "rows_of_few_keys", noting("few", choose.rows_of_few_keys))
        found = rows_or_error(table, **how)
        taken = ways[0] if ways else None
        patch.setattr(RangeScans, "scan", lambda *_: None)
        assert rows_or_error(table, **how) == found, how
        assert taken is None or ways[1] in ("resolved", "few"), how
        patch.setattr(choose, "rows_of_short_range", lambda *_: None)
        patch.setattr(choose, "rows_of_few_keys", lambda *_: None)
        expected = rows_or_error(table, **how)
    if not how.get("ordered") and isinstance(expected[1], list):
        expected, found = ((each[0], sorted(map(repr, each[1]))) for each in (expected, found))
    assert found == expected, how
    return taken


def test_the_rows_are_those_of_chunks(table: Table) -> None:
    random = Random(7)
    key, moments = tuple(table.primary_key), []
    taken: Counter[str | None] = Counter()
    for step in [None, *random.choices(STEPS, k=dose(14, 60)), "flush", None]:
        keys = {tuple(key_cell(name, random) for name in key) for _ in range(random.randrange(60))}
        rows = [dict(zip(key, each, strict=True)) for each in keys]
        cells = {name: [None, 1, 2] if kind != pa.string() else [None, "x"] for name, kind in TYPES.items()}
        others = [name for name in TYPES if name not in key]
        table.upsert([row | {name: random.choice(cells[name]) for name in others} for row in rows[::2]])
        table.delete_ignore(rows[::3])
        moments.append(table._store.now())
        if step:
            table.maintain(step)
        for _ in range(dose(12, 30)):
            how: dict[str, Any] = {"where": random.choice([None, *[a_filter(key, random)] * 7])}
            how["ordered"] = random.random() < 0.8
            if random.random() < 0.7 and how["ordered"]:
                how["limit"] = random.choice([0, 1, 2, 7, 30, ROWS_MAX, ROWS_MAX + 1])
            how["columns"] = random.choice([None, None, ["v"], ["t", key[-1]], [*TYPES][::-1], []])
            if random.random() < 0.2:
                how["as_of"] = random.choice(moments)
            if random.random() < 0.1:
                how["offset"] = 3
            taken[compare(table, **how)] += 1
    ways = ("resolved", None) if key[0] == "x" else ("plan", "resolved", None)  # literals in SQL are no decimals
    assert min(taken[way] for way in ways) > dose(10, 50), taken


def test_rows_that_are_dead_are_passed_over() -> None:
    """Some rounds of them; many are left to chunks."""
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        table = Database(store).create_table("t", pa.schema([("k", pa.int64()), ("v", pa.int64())]), ["k"])
        table.insert({"k": range(0, 6_000, 2), "v": range(3_000)})
        table.maintain("flush")
        table.insert({"k": range(1, 6_000, 2), "v": range(3_000)})
        table.delete({"k": [*range(10, 40), *range(1_000, 5_000)]})
        assert compare(table, where="k >= 5", ordered=True, limit=20) == "plan"
        assert table.scan(where="k >= 5", ordered=True, limit=6).to_arrow()["k"].to_pylist() == [5, 6, 7, 8, 9, 40]
        assert compare(table, where="k >= 990", ordered=True, limit=20) is None
        assert compare(table, where="k >= 990 AND k < 1200") == "plan"
        assert compare(table, where="k >= 4990 AND k <= 5005", ordered=True) == "plan"
        assert compare(table, where="k >= 100 AND k <= 900") is None


def test_long_rows_are_read_by_chunks() -> None:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        table = Database(store).create_table("t", pa.schema([("k", pa.int64()), ("text", pa.string())]), ["k"])
        table.insert({"k": range(40), "text": [str(k % 10) * 60_000 for k in range(40)]})
        for _ in range(2):
            assert compare(table, where="k >= 5", ordered=True, limit=30) is None
            assert compare(table, where="k >= 5", ordered=True, limit=5) == "plan"
            table.maintain("flush")


def test_a_file_that_is_gone_is_noticed(tmp_path: Path) -> None:
    """Though its pages are in memory. Short ranges look for it only now and then."""
    with nyala.open(tmp_path, maintenance="off") as database:
        table = database.create_table("t", pa.schema([("k", pa.int64()), ("v", pa.int64())]), ["k"])
        table.insert({"k": range(5_000), "v": range(5_000)})
        table.maintain("flush")
        assert compare(table, where="k >= 10", ordered=True, limit=5) == "plan"
        (lost,) = tmp_path.glob("tablets/**/*.base")
        lost.unlink()
        time.sleep(short_range.LOOK_SECONDS)
        asked: tuple[dict[str, Any], ...] = (
            {"where": "k >= 10 AND k < 20"},
            {"where": "k >= 10", "ordered": True, "limit": 5},
        )
        for how in asked:
            with pytest.raises(nyala.CorruptionError, match="removed"):
                table.scan(**how).to_arrow()
        assert database.health().status == "degraded"


def test_a_range_that_is_not_short_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[bool] = []
    for owner in (range_scan, short_range):
        monkeypatch.setattr(owner, "short_rows", lambda *_: tries.append(True))
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        table = Database(store).create_table("t", pa.schema([("k", pa.int64())]), ["k"])
        table.insert({"k": range(500)})
        assert table.scan(where="k >= 10 AND k < 400").to_arrow().num_rows == 390
    assert tries == [True]


def test_a_plan_is_of_one_version_of_the_table() -> None:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        database = Database(store)
        table = database.create_table("t", pa.schema([("k", pa.int64()), ("v", pa.int64())]), ["k"])
        table.insert({"k": range(50), "v": range(50)})
        asked = {"where": "k >= 7", "ordered": True, "limit": 1}
        assert table.scan(**asked).to_arrow().to_pylist() == [{"k": 7, "v": 7}]
        table.alter().add_column("w", pa.string(), write_default="x").apply()
        table = database.table("t")
        assert table.scan(**asked).to_arrow().to_pylist() == [{"k": 7, "v": 7, "w": None}]
        table.alter().rename_column("k", "id").rename_column("v", "k").apply()
        table = database.table("t")
        table.update({"id": [7], "k": [-1]})
        assert table.scan(**asked).to_arrow().to_pylist() == [{"id": 8, "k": 8, "w": None}]
        assert compare(table, **(asked | {"where": "id >= 7"})) == "plan"


def test_literals_that_are_no_cells_of_the_key(table: Table) -> None:
    """They go to the filter, which knows what they mean, or refuses them."""
    table.upsert([{name: key_cell(name, Random(n)) for name in table.primary_key} for n in range(9)])
    name = table.primary_key[0]
    for op in ("<", ">="):
        for cell in (1 << 40, -(1 << 40), 1.5, "7", True, None, [1], {"a": 1}):
            where = {"op": "and", "args": [{"op": op, "column": name, "value": cell}]}
            compare(table, where=where, ordered=True, limit=5)
            compare(table, where=where["args"][0], ordered=True, limit=5)
        compare(table, where=f"{name} {op} 99999999999999999999", ordered=True)


@pytest.mark.parametrize(
    ("where", "is_by_place"),
    [
        ("a >= 4", True),
        ("a > 4", True),
        ("a <= 4", True),
        ("a > 2 AND a < 8", True),
        ("a < 8 AND a > 8", True),
        ("a >= 4 AND a <= 4", True),
        ("a > 4 AND a <= 4", True),
        ("a = 4", True),
        ("b > 'b' AND a = 4", True),
        ("a = 4 AND b > 'b' AND b <= 'd'", True),
        ("a = 4 AND b >= 'b' AND b < 'b'", True),
        ("a > 2 AND a >= 3", False),
        ("a = 4 AND a = 5", False),
        ("a = 4 AND a < 9", False),
        ("a = 4 AND b = 'b' AND b <= 'b'", False),
    ],
)
def test_the_ends_of_a_range_are_known_by_their_places(where: str, is_by_place: bool) -> None:
    """Those of a second filter of a form; an end that is given several times has to be worked out."""
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        schema = pa.schema([pa.field("a", pa.int8(), False), pa.field("b", pa.string(), False), ("v", pa.int8())])
        table = Database(store).create_table("t", schema, ["a", "b"])
        table.insert([{"a": a, "b": b} for a in range(10) for b in "abcde"])
        how = {"where": where, "ordered": True, "limit": 30}
        assert compare(table, **how) == "plan"
        with pytest.MonkeyPatch.context() as patch:
            worked_out: list[Any] = []
            patch.setattr(range_scan, "key_range", lambda *given: worked_out.append(given) or key_range(*given))
            rows = table.scan(**how).to_arrow().to_pylist()
        assert (not worked_out) == is_by_place
        words = where.replace(" = ", " == ").replace("AND", "and")
        expected = [row for row in table.scan(ordered=True).to_arrow().to_pylist() if eval(words, {}, row)]
        assert rows == expected[:30]


def test_the_runs_of_a_memrowset_are_few_and_whole() -> None:
    random, keys = np.random.default_rng(1), np.empty(0, np.uint64)
    runs = KeyRuns()
    for size in [1, 1, 700, *[1] * 60, 90, 1, 3_000, *[5] * 100]:
        keys = np.concatenate((keys, random.integers(0, 1 << 60, size).astype(np.uint64)))
        orders = runs.of(U64Keys(keys, 8))
        assert sorted(np.concatenate(orders).tolist()) == list(range(len(keys)))
        assert all((np.diff(keys[order].astype(np.int64)) >= 0).all() for order in orders)
        assert len(orders) <= 6
    whole = runs.whole(U64Keys(keys, 8))
    assert (keys[whole] == np.sort(keys)).all()
    assert runs.of(U64Keys(keys, 8)) == (whole,)


def test_ranges_are_read_beside_a_writer() -> None:
    """A scan sees all rows that were acknowledged before it began, in key order."""
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        table = Database(store).create_table("t", pa.schema([("k", pa.int64()), ("v", pa.int64())]), ["k"])
        written, count, wrong = [0], dose(1_500, 6_000), list[Any]()
        keys = np.random.default_rng(2).permutation(count).tolist()

        def write() -> None:
            for place, k in enumerate(keys, 1):
                table.insert([{"k": k, "v": place}])
                written[0] = place
                if place % 500 == 0:
                    table.maintain("flush")

        def read() -> None:
            try:
                read_all()
            except Exception as error:
                wrong.append(error)

        def read_all() -> None:
            while written[0] < count:
                before = written[0]
                rows = table.scan(where=[("k", ">=", keys[before // 2])], ordered=True, limit=20).to_arrow()
                found = rows["k"].to_pylist()
                sure = sorted(k for k in keys[:before] if k >= keys[before // 2])[:20]
                missing = [k for k in sure if k not in found and (len(found) < 20 or k < found[-1])]
                if found != sorted(set(found)) or missing:
                    wrong.append((found, missing))

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        write()
        for thread in threads:
            thread.join()
        assert not wrong
