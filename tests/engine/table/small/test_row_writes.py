"""Rows written by their plan leave what the batch lane leaves: answers, errors, log and rows, after a restart too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import nyala
from nyala.clients.api.database import Database
from nyala.clients.convert.cells import python_rows
from nyala.engine.commit.commit_log import CommitLog
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.store import Store
from nyala.engine.table.small.row_commit import RowWrite
from nyala.engine.table.small.row_writes import RowWrites
from nyala.schemas.errors import StoreError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from tests.campaigns.model.machine import writes
from tests.campaigns.model.shapes import (
    ALL_TYPES,
    IMMUTABLE,
    NO_INDEX,
    PARTITIONED,
    SMALL_INDEX,
    STRING_KEY,
    TABLE,
    U64,
    Shape,
)
from tests.campaigns.model.subjects import crashed
from tests.dose import dose
from tests.doubles.clock import ManualClock

OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 16)
FORMS = ["dict", "queued", "batch", "numbered", "os"]
PHASES = [phase for phase in Phase if phase is not Phase.shrink]
WORK = ["flush", "flush_deltas", "compact", "restart"]


class Way:
    """A store whose writes of one row and of a few all go one way."""

    def __init__(self, shape: Shape, is_general: bool) -> None:
        self.shape = shape
        self._is_general = is_general
        self._fs = MemoryFileSystem()
        self._microseconds = 1_700_000_000_000_000
        self.log: list[Any] = []
        self._planned: list[RowWrite] = []
        self.several_by_plan = 0
        self._open()
        self.store.create_table(shape.definition)

    def _open(self) -> None:
        self._microseconds += 1_000_000
        limit = self.shape.key_index_bytes
        options = OPTIONS if limit is None else OPTIONS.model_copy(update={"key_index_bytes": limit})
        self.store = Store.open(self._fs, options, ManualClock(self._microseconds))
        self._watch(self.store._writes._rows)
        writer = self.store._wal.writer
        real = writer._enqueue

        def enqueue(payloads: Any, stamp: Any, *how: Any) -> int:
            timestamps: list[int] = []
            lsn = real(payloads, lambda count: timestamps.extend(stamp(count)) or timestamps, *how)
            self.log += zip(timestamps, [b"".join(map(bytes, payload)) for payload in payloads], strict=True)
            return lsn

        writer._enqueue = enqueue  # pyright: ignore[reportAttributeAccessIssue]

    def _watch(self, rows: RowWrites) -> None:
        real = rows._planned

        def planned(*how: Any) -> Any:
            found = None if self._is_general else real(*how)
            self._planned += [found] if found else []
            return found

        rows._planned = planned  # pyright: ignore[reportAttributeAccessIssue]
        real_rows = rows._begin_rows

        def begin_rows(*how: Any) -> Any:
            found = None if self._is_general else real_rows(*how)
            self.several_by_plan += found is not None
            return found

        rows._begin_rows = begin_rows  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def by_plan(self) -> int:
        return sum(write.timestamp > 0 for write in self._planned)

    def write(self, form: str, op: str, columns: tuple[str, ...], rows: list[tuple], number: int) -> object:
        batch = self.shape.batch(columns, [dict(zip(columns, row, strict=True)) for row in rows])
        try:
            if form in ("dict", "queued"):
                table = Database(self.store).table(TABLE)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(CommitLog, "is_crowded", form == "queued")
                    return table.write(list(python_rows(batch)), op, on_error="return")
            durability = "os" if form == "os" else None
            writer = "w" if form == "numbered" else None
            command = WriteCommand(table=TABLE, op=Operation(op), durability=durability, writer=writer)  # pyright: ignore
            if form == "numbered" and batch.num_rows == 1:
                result = self.store.write_row(command, next(iter(python_rows(batch))), number)
                if result is not None:
                    return result
            return self.store.write(command, batch, number if writer else None)
        except StoreError as error:
            return repr(error)

    def work(self, what: str) -> None:
        if what == "restart":
            self._fs = crashed(self.store, self._fs, None)
            self._open()
        else:
            self.store.maintain(TABLE, what)

    def state(self) -> object:
        spec = ScanSpec(table=TABLE, ordered=True)
        rows = self.store.scan(spec).to_reader().read_all()
        stats = self.store.table_stats(TABLE)
        assert stats.live_rows == rows.num_rows
        told = [repr(row) for batch in rows.to_batches() for row in python_rows(batch)]  # NaN is not itself
        return told, self.store.last_change(TABLE), stats.live_rows


def without_repeats(shape: Shape) -> Callable[[Any], Any]:
    """Return a function that leaves most writes without a second row of a key: others are no plain ones."""
    width = len(shape.model.key)

    def cut(write: tuple[str, tuple[str, ...], list[tuple]]) -> Any:
        op, columns, rows = write
        firsts = list({row[:width]: row for row in reversed(rows)}.values())
        return (op, columns, rows) if len(rows) > 4 else (op, columns, firsts)

    return cut


def steps_of(shape: Shape) -> st.SearchStrategy[list[Any]]:
    one = writes(shape).map(lambda write: (write[0], write[1], write[2][:1]))
    written = st.tuples(st.sampled_from(FORMS), st.one_of(one, writes(shape).map(without_repeats(shape))))
    return st.lists(st.one_of(written, written, written, st.sampled_from(WORK)), min_size=10, max_size=25)


def compared(shape: Shape, steps: list[Any]) -> tuple[int, int]:
    """Do the steps in both ways; return how many single rows and how many writes of several went by their plans."""
    ways = [Way(shape, is_general=False), Way(shape, is_general=True)]
    plain, general = ways
    try:
        for number, step in enumerate(steps):
            if isinstance(step, str):
                for way in ways:
                    way.work(step)
                assert plain.state() == general.state()
            else:
                form, (op, columns, rows) = step
                answers = [way.write(form, op, columns, rows, number) for way in ways]
                assert answers[0] == answers[1]
            assert plain.log == general.log
        assert plain.state() == general.state()
    finally:
        for way in ways:
            way.store.close()
    assert general.by_plan == general.several_by_plan == 0
    return plain.by_plan, plain.several_by_plan


SHAPES = {
    "u64": U64,
    "all types": ALL_TYPES,
    "string key": STRING_KEY,
    "immutable columns": IMMUTABLE,
    "hash and range": PARTITIONED,
    "no key index": NO_INDEX,
    "small key index": SMALL_INDEX,
}


_TEXT_KEY = STRING_KEY.model.key
GAPS = replace(
    STRING_KEY,
    partition_by=(nyala.hash(*_TEXT_KEY, buckets=2), nyala.range(_TEXT_KEY[0], bounds=[(None, "a\0"), ("b", None)])),
)
"""Some keys have no tablet."""


def single_rows(shape: Shape) -> list[Any]:
    """Rows of all columns and some keys, written one by one."""
    keys = list(product(*(shape.cells[name] for name in shape.model.key)))
    rest = tuple(next(cell for cell in shape.cells[name] if cell is not None) for name in shape.model.defaults)
    return [("dict", ("insert", shape.model.columns, [key + rest])) for key in keys]


@pytest.mark.parametrize("shape", [*SHAPES.values(), GAPS], ids=[*SHAPES, "gaps"])
def test_both_ways_leave_the_same(shape: Shape) -> None:
    written: list[tuple[int, int]] = []

    @settings(max_examples=dose(5, 15), deadline=None, phases=PHASES)
    @given(steps=steps_of(shape))
    @example(steps=single_rows(shape))  # by few others, chance may have no plain row
    def run(steps: list[Any]) -> None:
        written.append(compared(shape, steps))

    run()
    assert sum(single for single, _ in written), "some rows are plain"


@pytest.mark.parametrize("form", ["dict", "batch", "numbered", "os"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_plain_rows_go_together_by_their_plan(shape: Shape, form: str) -> None:
    model = shape.model
    keys = list(product(*(shape.cells[name] for name in model.key)))[:4]
    cells = {name: [cell for cell in shape.cells[name] if cell is not None] for name in model.defaults}
    nothing = {name: None for name in model.defaults if name not in model.not_null}
    full = [key + tuple(cells[name][i % len(cells[name])] for name in cells) for i, key in enumerate(keys)]
    empty = [key + tuple(nothing.get(name, cells[name][0]) for name in cells) for key in keys]
    needed = tuple(name for name in cells if name in model.not_null)
    short = [key + tuple(cells[name][-1] for name in needed) for key in keys]
    by_key = model.key
    steps: list[Any] = [
        (form, ("insert", model.columns, full[:3])),
        (form, ("upsert", model.columns, empty)),  # both kinds at once
        (form, ("delete", by_key, keys[:2])),
        (form, ("insert", by_key + needed, short[:2])),  # dead rows come back, with defaults
        "flush",
        (form, ("update", by_key + needed, short)),
        (form, ("delete_ignore", by_key, keys[1:])),
        (form, ("insert", model.columns, empty[1:])),
    ]
    assert compared(shape, [*steps, "restart", *steps[1:]])[1] >= 11 - 4 * bool(model.immutable)


def test_rows_of_many_forms_share_the_pages_of_the_key() -> None:
    """Each form had columns of the key of its own, and a file keeps the pages of few of them."""
    names = [f"v{i}" for i in range(40)]
    schema = pa.schema([pa.field("k", pa.int64(), False), *((name, pa.int64()) for name in names)])
    with Store.open(MemoryFileSystem(), OPTIONS) as store:
        table = Database(store).create_table("t", schema, ["k"])
        table.insert([{"k": k, **dict.fromkeys(names, 0)} for k in range(3)])
        table.maintain("flush")
        version = store._catalog.table("t").tablets[0].version
        (rowset,) = (rowset for rowset in version.rowsets() if isinstance(rowset, DiskRowSet))
        table.update([{"k": 0, names[0]: 1}])
        made = dict(rowset._page_rows)
        for i, name in enumerate(names):
            table.update([{"k": i % 3, name: i}])
        assert made and rowset._page_rows == made
        assert [row["v39"] for row in table.scan(ordered=True).to_arrow().to_pylist()] == [39, 0, 0]
