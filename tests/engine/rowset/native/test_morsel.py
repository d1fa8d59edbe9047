"""Scans that read all columns in one kernel call, beside a read of vectors: the same rows, whatever was done before."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.delta.cells import DeltaCells
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.kernels.reads import morsel as kernels
from nyala.engine.options import StoreOptions
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.rowset.native import morsel_column
from nyala.engine.rowset.rowset import RowSet
from nyala.engine.store import Store
from nyala.engine.vectors.vector import FixedVector
from nyala.schemas.errors import CorruptionError
from nyala.schemas.table.column import ColumnOptions
from tests.campaigns.matrix.test_matrix import check_cells
from tests.engine.table.test_point_plan import KEYS, STEPS, Subject

OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 20)
PAGE = 1 << 16


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(MemoryFileSystem(), OPTIONS) as store:
        yield store


@pytest.fixture
def read_by_kernel(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The forms of the columns that the kernel read."""
    forms: list[int] = []
    result = morsel_column.MorselColumn.result
    monkeypatch.setattr(
        morsel_column.MorselColumn, "result", lambda self, size: forms.append(self.form) or result(self, size)
    )
    return forms


def both_ways(read: Callable[[], pa.Table], monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """Return what ``read`` gives, after comparing it with a read of vectors."""
    found = read()
    with monkeypatch.context() as patched:
        for name in ("read_many", "choose", "fold"):
            patched.setattr(DiskRowSet, name, getattr(RowSet, name))
        expected = read()
    for batch in found.to_batches():
        batch.validate(full=True)
    check_cells(found, expected)
    return found


def some_scan(table: Table, random: Random, snapshots: list[int]) -> Callable[[], pa.Table]:
    """Return a scan with a random projection and filter, or of all rows at one of the snapshots."""
    names = table.schema.names
    if random.random() < 0.3:
        moment = random.choice(snapshots)
        return lambda: table.scan(as_of=moment).to_arrow()
    columns = random.sample(names, random.randrange(1, len(names)))
    where = random.choice([None, f"{random.choice(names)} is not null"])
    ordered = random.random() < 0.3
    return lambda: table.scan(columns, where=where, ordered=ordered).to_arrow()


@pytest.mark.parametrize("rows", [300, 3000])
@pytest.mark.parametrize("kinds", [KEYS["one integer"], KEYS["mixed"]], ids=["one integer", "mixed"])
def test_both_ways_agree_on_random_tables(
    store: Store, kinds: tuple[str, ...], rows: int, read_by_kernel: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = Random().randrange(1 << 30)
    print("seed", seed)
    subject = Subject(store, kinds, seed, rows=rows, tablets=1)
    snapshots: list[int] = []
    for step in ("upsert", "flush", *subject.random.choices(STEPS, k=10)):
        subject.step(step)
        snapshots.append(store.now())
        for _ in range(4):
            both_ways(some_scan(subject.table, subject.random, snapshots), monkeypatch)
    assert {kernels.AS_NUMBERS, kernels.AS_STRINGS} <= set(read_by_kernel)


def many_rows(store: Store, count: int) -> Table:
    """Return a table of several pages with every kind of page, NULLs in most columns."""
    random = Random(3)
    rows = pa.table({
        "k": pa.array(range(0, 2 * count, 2), pa.int64()),
        "v": pa.array([n % 1000 if n % 5 else None for n in range(count)], pa.int32()),
        "few": pa.array([f"text {n % 70}" if n % 7 else None for n in range(count)]),
        "many": pa.array([f"text {n}" if n > PAGE else "one" for n in range(count)]),
        "plain": pa.array([f"{n}" * (n % 3) if n % 11 else None for n in range(count)]),
        "uneven": pa.array([("x" if n < PAGE else "y") * (n // PAGE * 99) + str(n % 3) for n in range(count)]),
        "long": pa.array([["short", "l" * 999, None][n % 3] for n in range(count)]),
        "run": pa.array([n // 1000 for n in range(count)], pa.int16()),
        "flag": pa.array([random.random() < 0.5 for n in range(count)]),
        "none": pa.nulls(count, pa.string()),
        "late": pa.array([None if n < PAGE else n / 3 for n in range(count)], pa.float64()),
        "rising": pa.array([3 * n + n % 7 if n % 13 else None for n in range(count)], pa.int64()),
        "sorted": pa.array([f"key {n:09d}" * (1 + n % 3) if n % 19 else None for n in range(count)]),
        "symbols": pa.array([f"http://{n * 7919 % count}.org" * (1 + n % 3) if n % 23 else None for n in range(count)]),
        "cents": pa.array([n % 9999 / 100 if n % 17 else None for n in range(count)], pa.float64()),
    })  # fmt: skip
    fields = [field.with_nullable(field.name != "k") for field in rows.schema]
    options = {
        "plain": ColumnOptions(encoding="plain"),
        "run": ColumnOptions(encoding="run_length", block_rows=4096),
        "flag": ColumnOptions(encoding="plain"),
        "v": ColumnOptions(compression="lz4"),
        "rising": ColumnOptions(encoding="frame_of_reference"),
        "cents": ColumnOptions(encoding="alp"),
        "sorted": ColumnOptions(encoding="prefix"),
        "symbols": ColumnOptions(encoding="fsst"),
    }
    table = Database(store).create_table("t", pa.schema(fields), ["k"], column_options=options)
    table.upsert(rows.cast(table.schema))
    table.maintain("flush")
    return table


def test_rows_of_many_pages(store: Store, read_by_kernel: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    count = 2 * PAGE + 5000
    table = many_rows(store, count)

    def check() -> None:
        both_ways(table.scan().to_arrow, monkeypatch)
        both_ways(table.scan(where="run = 1 or run = 70").to_arrow, monkeypatch)
        both_ways(table.scan(where="few is not null").to_arrow, monkeypatch)
        both_ways(table.scan(where=f"k >= 1002 and k < {2 * PAGE + 77}").to_arrow, monkeypatch)
        measures = {"n": ("many", "count"), "total": ("v", "sum"), "most": ("uneven", "max")}
        both_ways(lambda: table.scan().aggregate(measures, ["few"]).sort_by("few"), monkeypatch)

    check()
    assert len(read_by_kernel) > 5 * 15
    numbers = range(0, 2 * count, 600)
    changes = {name: [text] * len(numbers) for name, text in (("few", "new"), ("many", ""), ("sorted", "s"))}
    changes |= {"v": [None] * len(numbers), "symbols": [None] * len(numbers)}
    table.update({"k": list(numbers), "flag": [True] * len(numbers), **changes, "plain": ["p"] * len(numbers)})
    check()
    table.update({"k": list(numbers)[::3], "few": [None] * len(numbers[::3]), "uneven": ["u"] * len(numbers[::3])})
    check()
    table.maintain("flush_deltas")
    table.delete({"k": list(numbers)[::4]})
    check()


@pytest.mark.parametrize("encoding", ["dictionary", "auto"])
def test_updates_of_a_page_of_nulls_beside_codes_are_read(store: Store, encoding: str) -> None:
    """Their patches come as codes, though their page has none."""
    schema = pa.schema([pa.field("k", pa.int64(), False), ("s", pa.string())])
    options = {"s": ColumnOptions(encoding=encoding, block_rows=1024)}
    table = Database(store).create_table("t", schema, ["k"], column_options=options)
    cells = [None] * 1024 + ["a", "b"] * 512 + [None] * 1030
    table.insert({"k": list(range(len(cells))), "s": cells})
    table.maintain("flush")
    for first, new in ((0, ["new"] * 1024), (500, [None, "b", "new and longer"] * 400), (3000, ["last"] * 20)):
        table.update({"k": list(range(first, first + len(new))), "s": new})
        cells[first : first + len(new)] = new
        for ordered in (False, True):
            assert table.scan(ordered=ordered).to_arrow()["s"].to_pylist() == cells


def test_a_damaged_block_is_reported(store: Store) -> None:
    table = many_rows(store, 3000)
    (tablet,) = store._catalog.table("t").tablets
    (rowset,) = tablet.version.on_disk
    for name in ("v", "few"):
        stream = rowset.base_stream(store._catalog.table("t").schema.column(name).id)
        stored = stream.page(0).stored
        kept = stored[-9:].copy()
        stored[-9:] = 0xFF  # in memory: its checksum was right
        with pytest.raises(CorruptionError, match="block 2 is not a valid LZ4 block"):
            table.scan().to_arrow()
        stored[-9:] = kept
    assert table.scan().to_arrow().num_rows == 3000


def test_codes_without_symbols_are_reported(store: Store) -> None:
    table = many_rows(store, 3000)
    (tablet,) = store._catalog.table("t").tablets
    (rowset,) = tablet.version.on_disk
    stored = rowset.base_stream(store._catalog.table("t").schema.column("symbols").id).page(0).stored
    stored[-9:-8] = 0xFF  # an escape, and nothing behind it
    for read in (table.scan().to_arrow, lambda: table.get(2 * 2999), lambda: table.get_many([1, 2 * 2999])):
        with pytest.raises(CorruptionError, match="the codes of block 2 do not decode to its strings"):
            read()
    assert table.get(0) is not None


def test_deltas_in_another_width_stay_while_a_kernel_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that reads them in another width, or at the same time, replaces those that were kept."""
    database = Database(Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")))
    table = database.create_table("t", pa.schema([("k", pa.int64()), ("v", pa.int32())]), ["k"])
    keys = list(range(3_000))
    table.insert({"k": keys, "v": [7] * len(keys)})
    table.maintain("flush")
    past = database.now()
    table.update({"k": keys, "v": [9] * len(keys)})
    for work in ("flush_deltas", "major_compact"):
        table.maintain(work)
    table.alter().widen_column("v", "int64").apply()
    table.update({"k": keys, "v": [11] * len(keys)})
    for work in ("flush_deltas", "major_compact"):
        table.maintain(work)
    made: list[weakref.ref[np.ndarray]] = []
    real, plan = DeltaCells.of, morsel_column.MorselColumn._plan_numbers

    def of(cells: DeltaCells, dtype: np.dtype) -> DeltaCells:
        resized = real(cells, dtype)
        cells._resized = None
        if resized is not cells:
            assert isinstance(resized.values, FixedVector)
            made.append(weakref.ref(resized.values.values))
        return resized

    def planned(column: morsel_column.MorselColumn, *what: Any) -> None:
        plan(column, *what)
        assert all(ref() is not None for ref in made)
        made.clear()
        looked.append(len(column.patches))

    looked: list[int] = []
    monkeypatch.setattr(DeltaCells, "of", of)
    monkeypatch.setattr(morsel_column.MorselColumn, "_plan_numbers", planned)
    found = table.scan(as_of=past).aggregate({"sum": ("v", "sum")}).to_pylist()
    assert found == [{"sum": 7 * len(keys)}] and any(looked)
    database.close()
