"""Random batches of thousands of rows over many pages and chunks, against a plain dictionary.

The model tests use few keys, so that rows meet; this one uses many, so that blocks, pages, sorted tails and gathers do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.protocol.service import MaintenanceKind
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.dose import dose

OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 20, scan_threads=2, scan_batch_bytes=256 << 10)
FIRST_ROWS, KEYS, STEPS = 70_000, 80_000, 50
"""More rows than a page holds."""
Cells = tuple[int | None, str | None]


@dataclass
class Subject:
    """A store, the dictionary that it must equal, and copies of the dictionary at earlier moments."""

    store: Store
    fs: MemoryFileSystem
    key: Callable[[int], Any]
    schema: pa.Schema
    rows: dict[Any, Cells] = field(default_factory=dict)
    moments: list[tuple[int, dict[Any, Cells]]] = field(default_factory=list)

    def upsert(self, numbers: list[int], cells: list[Cells]) -> None:
        keys = [self.key(number) for number in numbers]
        values, texts = [list(column) for column in zip(*cells, strict=True)]
        self._write("upsert", {"k": keys, "v": values, "s": texts})
        self.rows.update(zip(keys, cells, strict=True))

    def update_values(self, numbers: list[int], value: int) -> None:
        keys = [self.key(number) for number in numbers]
        found = self._write("update_ignore", {"k": keys, "v": [value] * len(keys)})
        present = [key for key in keys if key in self.rows]
        assert found == len(present)
        self.rows.update({key: (value, self.rows[key][1]) for key in present})

    def delete(self, numbers: list[int]) -> None:
        keys = list(dict.fromkeys(self.key(number) for number in numbers))
        found = self._write("delete_ignore", {"k": keys})
        assert found == sum(self.rows.pop(key, None) is not None for key in keys)

    def _write(self, op: str, columns: dict[str, list]) -> int:
        batch = pa.RecordBatch.from_pydict(columns, pa.schema([self.schema.field(name) for name in columns]))
        result = self.store.write(WriteCommand(table="t", op=Operation(op)), batch)
        assert not result.errors
        return result.applied

    def note(self) -> None:
        """Remember this moment; forget the oldest of many."""
        self.moments = [*self.moments[-4:], (self.store.now(), dict(self.rows))]

    def check(self, rows: dict[Any, Cells], ordered: bool, as_of: int | None = None) -> None:
        found = self._read(ordered=ordered, as_of=as_of)
        assert found.equals(self._table(rows))

    def check_where(self, low: int, high: int) -> None:
        lower, upper = sorted((self.key(low), self.key(high)))
        found = self._read(where=f"k >= {lower!r} and k < {upper!r} and v > 50")
        chosen = {key: cells for key, cells in self.rows.items() if lower <= key < upper and (cells[0] or 0) > 50}
        assert found.equals(self._table(chosen))

    def check_get(self, numbers: list[int]) -> None:
        keys = [self.key(number) for number in numbers]
        batch = pa.RecordBatch.from_pydict({"k": keys}, pa.schema([self.schema.field("k")]))
        found = self.store.get("t", batch)
        assert list(zip(*found.to_pydict().values(), strict=True)) == [
            (key, *self.rows[key]) for key in keys if key in self.rows
        ]

    def _read(self, ordered: bool = True, **spec: Any) -> pa.Table:
        table = self.store.scan(ScanSpec(table="t", ordered=ordered, **spec)).to_reader().read_all()
        return table.combine_chunks() if ordered else table.sort_by("k").combine_chunks()

    def _table(self, rows: dict[Any, Cells]) -> pa.Table:
        ordered = sorted(rows.items())
        columns = [[key for key, _ in ordered], [cells[0] for _, cells in ordered], [cells[1] for _, cells in ordered]]
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema).combine_chunks()


def integer_key(number: int) -> int:
    return (number * 7_919 - 100_000_000) * (1 << 20)


def text_key(number: int) -> str:
    return f"key/{number % 7}/{number:07d}" + "x" * (number % 13)


def step(subject: Subject, random: Random) -> str:
    """Do one thing; return what, for the report of a failure."""
    kind = random.choice(["upsert", "update", "update", "delete", "maintain", "maintain", "reopen"])
    count = random.choice([1, 100, 1_500, 5_000])
    start = random.randrange(KEYS)
    numbers = (
        [(start + place) % KEYS for place in range(count)]
        if random.random() < 0.5
        else random.choices(range(KEYS), k=count)
    )
    if kind == "upsert":
        subject.upsert(numbers, [_cells(random) for _ in numbers])
    elif kind == "update":
        subject.update_values(numbers, random.randrange(100))
    elif kind == "delete":
        subject.delete(numbers)
    elif kind == "maintain":
        op = random.choice(list(MaintenanceKind))
        subject.store.maintain("t", op)
        return op
    else:
        subject.store.close()
        subject.store = Store.open(subject.fs, OPTIONS)
    return f"{kind} {count}"


def _cells(random: Random) -> Cells:
    return random.choice([None, random.randrange(100)]), random.choice([None, "", f"text {random.randrange(1_000)}"])


@pytest.mark.parametrize("seed", dose([0], [0, 1]))
@pytest.mark.parametrize(("key", "kind"), [(integer_key, pa.int64()), (text_key, pa.string())], ids=["u64", "text"])
def test_many_rows_are_a_dictionary(key: Callable[[int], Any], kind: pa.DataType, seed: int) -> None:
    schema = pa.schema([pa.field("k", kind, False), pa.field("v", pa.int32()), pa.field("s", pa.string())])
    fs = MemoryFileSystem()
    subject = Subject(Store.open(fs, OPTIONS), fs, key, schema)
    subject.store.create_table(TableDefinition.from_arrow("t", schema, ["k"]))
    random = Random(seed)
    subject.upsert(list(range(FIRST_ROWS)), [_cells(random) for _ in range(FIRST_ROWS)])
    subject.note()
    done: list[str] = []
    for number in range(STEPS):
        done.append(step(subject, random))
        try:
            subject.check_where(random.randrange(KEYS), random.randrange(KEYS))
            subject.check_get(random.choices(range(KEYS), k=50))
            if number % 3 == 0:
                subject.note()
                subject.check(subject.rows, ordered=number % 2 == 0)
                timestamp, rows = random.choice(subject.moments)
                subject.check(rows, ordered=number % 2 == 1, as_of=timestamp)
        except AssertionError as error:
            error.add_note(f"seed {seed}, after {done}")
            raise
    for timestamp, rows in subject.moments:
        subject.check(rows, ordered=False, as_of=timestamp)
    subject.store.close()
