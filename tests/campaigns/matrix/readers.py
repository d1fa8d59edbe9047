"""Every way to read the rows of a table, each compared with the rows that it should find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import FileSystem
from nyala.engine.offload.direct.reader import PinnedReader, files_in_bucket
from nyala.engine.scan.read.pool import ScanPool
from nyala.engine.vectors.physical import PhysicalType, physical_of
from nyala.jobs import export
from nyala.schemas.errors import NotFoundError
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.store.direct import PinnedTable, PinSnapshot
from tests.campaigns.matrix.test_matrix import check_cells
from tests.doubles.machines import Machine
from tests.engine.replica.replicas import Follower

_NOT_FOLDED = (PhysicalType.BYTES, PhysicalType.INT128)
"""Their bounds are found on vectors."""


@dataclass
class Reading:
    """What to read, and what should be found: ``rows`` now, in the order of ids, and those of ``past`` moments."""

    database: Database
    table: Table
    rows: pa.Table
    past: Sequence[tuple[int, pa.Table]]
    turn: int
    """Another number each time: readers that look at a part of the columns or rows look at another part then."""
    folder: Path
    files: FileSystem | Machine
    """Where the store is: on a disk, or in a bucket."""
    follower: Follower | None
    """A replica of a store in a bucket."""

    def scan(self, **spec: Any) -> pa.Table:
        asked = ScanSpec(table=self.table.name, **spec).checked()
        return self.database._store.scan(asked).to_reader().read_all()

    def moments(self) -> list[tuple[int | None, pa.Table]]:
        """Return now, the last moment before, and another one."""
        others = self.past[:-1]
        return [(None, self.rows), *self.past[-1:], *others[self.turn % max(len(others), 1) :][:1]]

    def some(self, step: int) -> list[str]:
        """Return the name of every ``step``-th column."""
        return self.rows.schema.names[1 + self.turn % step :: step]

    def ids(self, step: int) -> list[int]:
        return self.rows["id"].to_pylist()[self.turn % step :: step]


def by_id(found: pa.Table) -> pa.Table:
    return found.sort_by("id").combine_chunks()


def literal(cell: Any) -> str:
    if isinstance(cell, str):
        return f"'{cell}'"
    return f"{cell:f}" if isinstance(cell, Decimal) else repr(cell)


# --- the readers ---


def scan(reading: Reading) -> None:
    for moment, rows in reading.moments():
        check_cells(by_id(reading.scan(as_of=moment)), rows)
    for name in reading.some(9):
        check_cells(by_id(reading.scan(columns=["id", name], marks=True)), reading.rows.select(["id", name]))


def scan_in_key_order(reading: Reading) -> None:
    for moment, rows in reading.moments()[:2]:
        check_cells(reading.scan(as_of=moment, ordered=True), rows)
    check_cells(reading.scan(ordered=True, offset=700, limit=1_500), reading.rows.slice(700, 1_500))


def scan_in_another_order(reading: Reading) -> None:
    for name in reading.some(37):
        found = reading.scan(order_by=[{"column": name}, {"column": "id", "descending": True}], limit=2_000)
        order = pc.sort_indices(reading.rows, [(name, "ascending"), ("id", "descending")])
        check_cells(found, reading.rows.take(order[:2_000]).combine_chunks())


def scan_with_a_filter(reading: Reading) -> None:
    moments = reading.moments()
    for number, name in enumerate(reading.some(4)):
        moment, rows = moments[number % len(moments)]
        cells = rows[name].combine_chunks()
        known = cells.drop_null()
        some = known.take(pa.array(np.arange(reading.turn, len(known), len(known) // 9 + 1)))
        wheres: list[tuple[str, pa.Array]] = [(f"{name} IS NULL", pc.is_null(cells))]
        if len(some):
            words = [literal(cell) for cell in some.to_pylist()]
            wheres += [
                (f"{name} = {words[0]}", pc.equal(cells, some[0])),
                (f"{name} IN ({', '.join(words)})", reduce(pc.or_, [pc.equal(cells, cell) for cell in some])),
                (f"{name} >= {words[-1]}", pc.greater_equal(cells, some[-1])),
            ]
        where, mask = wheres[(number + reading.turn) % len(wheres)]
        found = reading.scan(columns=["id", name], where=where, as_of=moment)
        check_cells(by_id(found), rows.select(["id", name]).filter(mask).combine_chunks())


def scan_of_few_rows(reading: Reading) -> None:
    ids = reading.rows["id"]
    for first in (2_200 + 37 * reading.turn, 6_000):
        some = range(first, first + 90), (first, first + 2, first + 4, first + 8)
        wheres = f"id >= {first} AND id < {first + 90}", f"id IN ({', '.join(map(str, some[1]))})"
        for where, wanted in zip(wheres, some, strict=True):
            expected = reading.rows.filter(pc.is_in(ids, pa.array(wanted, pa.int64()))).combine_chunks()
            check_cells(by_id(reading.scan(where=where)), expected)


def aggregate(reading: Reading) -> None:
    """All columns, in two scans that kernels fold, and a few in one that they do not, now and before."""
    names = reading.rows.schema.names[1:]
    for number, (moment, rows) in enumerate(reading.moments()):
        is_narrow = {name: physical_of(rows.schema.field(name).type) not in _NOT_FOLDED for name in names}
        for part, chosen in enumerate((names[::2], names[1::2], reading.some(9))[: 2 if moment else 3]):
            first = 1_001 if (number + part + reading.turn) % 2 else 0  # without a filter zone maps may tell
            wanted = rows.filter(pc.greater_equal(rows["id"], first))
            expected, measures = {}, {}
            for name in chosen:
                cells = wanted[name].combine_chunks()
                numbers = {"count": len(cells) - cells.null_count}
                if is_narrow[name] or part == 2:
                    numbers |= pc.min_max(cells).as_py()
                if first and pa.types.is_integer(cells.type):
                    numbers["sum"] = pc.sum(pc.cast(cells, pa.decimal128(38, 0))).as_py()
                measures |= {f"{function} {name}": (name, function) for function in numbers}
                expected |= {f"{function} {name}": number for function, number in numbers.items()}
            where = f"id >= {first}" if first else None
            assert reading.scan(aggregate=measures, where=where, as_of=moment).to_pylist() == [expected]


def aggregate_in_groups(reading: Reading) -> None:
    moments = reading.moments()
    measures = {"n": ("*", "count"), "least": ("id", "min")}
    for number, name in enumerate(reading.some(5)):
        moment, rows = moments[number % len(moments)]
        where, last = (None, 1 << 62) if number % 2 else ("id < 5003", 5_003)
        how = {"group_by": [name], "where": where, "as_of": moment, "partial": number % 3 == 0}
        found = reading.scan(aggregate=measures, **how)
        if how["partial"]:
            found = found.group_by(name).aggregate([("n", "sum"), ("least", "min")]).select(range(3))
            found = found.rename_columns([name, "n", "least"])
        groups = rows.filter(pc.less(rows["id"], last)).group_by(name).aggregate([([], "count_all"), ("id", "min")])
        expected = groups.rename_columns([name, "n", "least"]).select(found.schema.names).cast(found.schema)
        order = [("least", "ascending")]
        check_cells(found.sort_by(order).combine_chunks(), expected.sort_by(order).combine_chunks())


def get(reading: Reading) -> None:
    for key in reading.ids(311):
        place = pc.index(reading.rows["id"], key).as_py()
        assert reading.table.get(key) == reading.rows.slice(place, 1).to_pylist()[0], key
    assert reading.table.get(-1) is None


def get_many(reading: Reading) -> None:
    for step, turned in ((1, 1), (53, -1)):
        keys = reading.ids(step)[::turned]
        found = reading.table.get_many([-1, *keys])
        places = pc.index_in(pa.array(keys), reading.rows["id"].combine_chunks())
        check_cells(found.combine_chunks(), reading.rows.take(places).combine_chunks())


def changes(reading: Reading) -> None:
    """What was, with the changes since, is what is."""
    if not reading.past:
        return
    since, old = reading.past[reading.turn % len(reading.past)]
    feed = reading.table.changes(since, before=True, ordered=True).to_arrow().combine_chunks()
    is_gone = pc.equal(feed["_op"], "delete")
    was_there = pc.not_equal(feed["_op"], "insert")
    names = old.schema.names
    before = feed.filter(was_there).select([f"_before_{name}" for name in names]).rename_columns(names)
    places = pc.index_in(before["id"].combine_chunks(), old["id"].combine_chunks())
    check_cells(before.cast(old.schema).combine_chunks(), old.take(places).combine_chunks())
    same = old.filter(pc.invert(pc.is_in(old["id"], feed["id"].combine_chunks())))
    after = feed.filter(pc.invert(is_gone)).select(names).cast(old.schema)
    check_cells(by_id(pa.concat_tables([same, after])), reading.rows)


def sql(reading: Reading) -> None:
    """A whole table, and one column where a filter on the id holds. Columns of results may be NULL."""
    name = reading.table.name
    for moment, rows in reading.moments()[:2]:
        found = reading.database.sql(f"SELECT * FROM {name}", as_of=moment).to_arrow()
        check_cells(by_id(found.cast(rows.schema)), rows)
    for column in reading.some(37):
        text = f"SELECT id, {column} FROM {name} WHERE id >= 1001 AND id % 3 <> 1"
        is_chosen = [cell >= 1_001 and cell % 3 != 1 for cell in reading.rows["id"].to_pylist()]
        expected = reading.rows.select(["id", column]).filter(pa.array(is_chosen)).combine_chunks()
        check_cells(by_id(reading.database.sql(text).to_arrow().cast(expected.schema)), expected)


def export_to_parquet(reading: Reading) -> None:
    folder = reading.folder / f"export {reading.turn}"
    result = export(reading.database, reading.table.name, folder, show="off", split_bytes=1 << 20)
    found = pa.concat_tables([pq.read_table(folder / part.file) for part in result.parts])
    check_cells(by_id(found.cast(reading.rows.schema)), reading.rows)


def replica(reading: Reading) -> None:
    follower = reading.follower
    assert follower is not None
    follower.catch_up()
    for ordered in (False, True):
        spec = ScanSpec(table=reading.table.name, as_of=follower.replica.safe, ordered=ordered)
        found = follower.replica.scan(spec).to_reader().read_all()
        check_cells(found.combine_chunks() if ordered else by_id(found), reading.rows)


def direct_read(reading: Reading) -> None:
    """The last one: the server flushes the table for it."""
    store = reading.database._store
    pinned = store.pin_snapshot(PinSnapshot(table=reading.table.name))
    spec = ScanSpec(table=reading.table.name).pinned(pinned.snapshot)
    with _files(pinned, reading.files) as files, ScanPool(0) as pool:
        reader = PinnedReader(pinned, files)
        found = pa.Table.from_batches(reader.scan(spec, pool, 0).batches, reading.rows.schema)
        reader.close()
    with suppress(NotFoundError):
        store.release_pin(pinned.pin_id)
    check_cells(by_id(found), reading.rows)


@contextmanager
def _files(pinned: PinnedTable, where: FileSystem | Machine) -> Iterator[FileSystem]:
    if not isinstance(where, Machine):
        yield where
        return
    assert pinned.bucket is not None
    files = files_in_bucket(pinned.bucket, where.other().bucket)
    try:
        yield files
    finally:
        files.close()


Reader = Callable[[Reading], None]
READERS: tuple[Reader, ...] = (
    scan,
    aggregate,
    scan_in_key_order,
    scan_in_another_order,
    scan_with_a_filter,
    scan_of_few_rows,
    aggregate_in_groups,
    get,
    get_many,
    changes,
    sql,
    export_to_parquet,
    direct_read,
)
"""In this order: the last one changes where deltas are."""
READERS_OF_A_BUCKET: tuple[Reader, ...] = (scan, aggregate, get_many, replica, direct_read)
"""Those that read other files there, or in another way."""


def readers_in(turn: int, readers: Sequence[Reader]) -> list[Reader]:
    """Return the first two, and every other one of the rest: deltas are in each store in even turns and in odd ones."""
    return [reader for number, reader in enumerate(readers) if number < 2 or (number + turn) % 2]
