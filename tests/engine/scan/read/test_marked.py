"""Marked scans: what came before a mark and what a scan from its key on gives are all rows, each once."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.scan.read import marked, ordered
from nyala.engine.store import Store
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition

KEYS = {
    "a number": (pa.schema([("k", pa.int64()), ("v", pa.int64())]), ["k"], lambda n: (n,)),
    "text": (pa.schema([("k", pa.string()), ("v", pa.int64())]), ["k"], lambda n: (f"{n % 7}-{n}" * (n % 3 + 1),)),
    "two": (
        pa.schema([("k", pa.int32()), ("l", pa.string()), ("v", pa.int64())]),
        ["k", "l"],
        lambda n: (n // 100, f"{n}\0"),
    ),
}
ROWS = 12_000


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", scan_batch_bytes=16 << 10))
    yield opened
    opened.close()


@pytest.fixture(params=list(KEYS))
def loaded(request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch) -> int:
    """A table of rowsets that overlap, some that do not, rows in memory, updates and deletes; returns a moment before
    the last of these."""
    monkeypatch.setattr(marked, "BAND_BYTES", 24 << 10)
    monkeypatch.setattr(ordered, "_BATCH_BYTES", 5 << 10)
    schema, key, key_of = KEYS[request.param]
    store.create_table(TableDefinition.from_arrow("t", schema, key, None, False, {}, True, ()))
    random = Random(1)

    def write(op: Operation, numbers: list[int], value: int) -> int:
        rows = [(*key_of(number), value) for number in numbers]
        columns = list(zip(*rows, strict=True))[: len(schema) if op is not Operation.DELETE_IGNORE else len(key)]
        fields = list(schema)[: len(columns)]
        batch = pa.record_batch(
            [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)],
            schema=pa.schema(fields),
        )
        return store.write(WriteCommand(table="t", op=op), batch).timestamp

    numbers = list(range(ROWS))
    random.shuffle(numbers)
    for part in range(4):
        write(Operation.INSERT, numbers[part::5], part)
        store.maintain("t", "flush")
    before = write(Operation.UPDATE_IGNORE, random.sample(numbers, 2_000), 77)
    write(Operation.DELETE_IGNORE, random.sample(numbers, 1_000), 0)
    write(Operation.INSERT, [ROWS + number for number in range(3_000)], 5)
    store.maintain("t", "flush")
    write(Operation.UPSERT, numbers[4::5], 6)
    write(Operation.UPDATE_IGNORE, random.sample(numbers, 2_000), 78)
    return before


SCANS: dict[str, dict[str, Any]] = {
    "rows": {},
    "in order": {"ordered": True},
    "without the key": {"columns": ["v"]},
    "without columns": {"columns": []},
    "a filter": {"where": "v in (1, 5, 77)"},
    "a filter in order": {"where": "v = 77", "ordered": True, "columns": ["v"]},
    "changes": {"changes": {}},
    "every change": {"changes": {"every": True}},
    "every change in order": {"changes": {"every": True, "before": True}, "ordered": True},
    "a limit": {"limit": 70_000},
}


@pytest.mark.parametrize("name", list(SCANS))
def test_a_scan_goes_on_at_any_mark(store: Store, loaded: int, name: str) -> None:
    wanted = dict(SCANS[name])
    until = store.now()
    if "changes" in wanted:
        wanted["changes"] = {"since": loaded, "until": until, **wanted["changes"]}
    else:
        wanted["as_of"] = until
    spec = ScanSpec.model_validate({"table": "t", **wanted})
    plain = rows_of(store.scan(spec).batches)
    items = list(store.scan(spec.model_copy(update={"marks": True})).marked or ())
    seen = rows_of(batch for batch, _ in items if batch is not None)
    assert seen == plain if spec.ordered else sorted(seen, key=repr) == sorted(plain, key=repr)
    at = [number for number, (_, below) in enumerate(items) if below is not None]
    assert len(at) > (3 if name == "rows" else 0)
    keys = [below for _, below in items if below is not None]
    assert keys == sorted(keys)

    def check(number: int) -> None:
        begun = rows_of(batch for batch, _ in items[: number + 1] if batch is not None)
        below = items[number].below
        assert below is not None
        rest = spec.model_copy(update={"key_lower": below.hex(), "marks": True})
        going_on = begun + rows_of(store.scan(rest).batches)
        assert going_on == plain if spec.ordered else sorted(going_on, key=repr) == sorted(plain, key=repr), number

    for number in at[:: max(len(at) // 4, 1)]:
        check(number)
    for work in ("flush", "flush_deltas", "compact"):
        store.maintain("t", work)
        check(at[len(at) // 2])


@pytest.mark.parametrize(("is_ordered", "few"), [(False, 6_000), (True, 1_100)])
def test_rows_that_wait_for_a_mark_are_few(store: Store, loaded: int, is_ordered: bool, few: int) -> None:
    rows = most = 0
    for batch, below in store.scan(ScanSpec(table="t", marks=True, ordered=is_ordered)).marked or ():
        rows = (rows + batch.num_rows) if batch else rows
        most = max(most, rows)
        rows = 0 if below is not None else rows
    assert 0 < most < few


def test_rowsets_that_do_not_overlap_are_marked_after_every_chunk(store: Store, loaded: int) -> None:
    store.maintain("t", "flush")
    store.maintain("t", "compact")
    items = list(store.scan(ScanSpec(table="t", marks=True)).marked or ())
    assert len(items) > 10 and all(below is not None for _, below in items)


def test_a_short_scan_has_no_marks(store: Store, loaded: int) -> None:
    items = list(store.scan(ScanSpec(table="t", marks=True, limit=10)).marked or ())
    assert sum(batch.num_rows for batch, _ in items if batch) == 10 and all(below is None for _, below in items)


def rows_of(batches: Any) -> list[Any]:
    found: list[Any] = []
    for batch in batches:
        found += batch.to_pylist() if batch.num_columns else [()] * batch.num_rows
    return found
