"""Leaves first: a query is planned, the store reads what each of its tables needs, and the query runs over these rows.

So DataFusion knows the exact number of rows of each table, which decides the order and the sides of joins, and a filter
that the store has applied may be weaker than the query's, which filters again. A table of too many bytes streams while
the query runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from datafusion import DataFrame, SessionContext

from ...schemas.protocol.request import carried
from ...schemas.rows.changes import ChangeSpec, feed_schema
from ...schemas.rows.scan import ScanSpec
from ...schemas.store.description import TableDescription
from .bounds import Tree, fits, joined
from .dataset import NyalaDataset
from .parts import columns_of, conjuncts, part_of
from .pushed import one_nan, read_pushed
from .reading import Reads, view_of
from .statement import quoted

_AT_ONCE = 4
"""Tables that are read at the same time; each scan has threads of its own."""


@dataclass(frozen=True, slots=True)
class LeafTable:
    """A table as a query reads it: as of ``snapshot``, or its changes up to then."""

    description: TableDescription
    snapshot: int
    since: int | None = None
    """Of changes: after which timestamp."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, as the store has them."""
        columns = [column.field for column in self.description.columns]
        return pa.schema(columns) if self.since is None else feed_schema(columns, before=False)


@dataclass(slots=True)
class Need:
    """What a query needs of a table: columns, and the rows that match ``where``; None: all."""

    columns: list[str] = field(default_factory=list)
    wheres: list[Tree | None] = field(default_factory=list)

    @property
    def where(self) -> Tree | None:
        """The filter of all places where the query reads the table."""
        trees = [tree for tree in self.wheres if tree is not None]
        if not trees or len(trees) < len(self.wheres):
            return None
        either = joined("or", trees)
        return either if fits(either) else None


@dataclass(slots=True)
class Leaf:
    """A table of a query that was read, or that streams while the query runs."""

    need: Need
    batches: list[pa.RecordBatch] | None = None
    """None: it streams."""
    rows: int = 0
    nbytes: int = 0


class _Recorder(ds.InMemoryDataset):
    """A source that only notes what a plan asks of it."""

    def __new__(cls, *_: Any) -> _Recorder:
        return super().__new__(cls)

    def __init__(self, schema: pa.Schema, need: Need) -> None:
        super().__init__(schema.empty_table())
        self._columns = schema
        self._need = need

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> Any:
        names = self._columns.names if columns is None else list(columns)
        pushed = None if filter is None else read_pushed(filter, self._columns)
        where = None if pushed is None else pushed.where
        if where not in self._need.wheres:
            self._need.wheres.append(where)
        more = [] if filter is None else columns_of(conjuncts(part_of(filter)))
        self._need.columns += [name for name in dict.fromkeys([*names, *more]) if name not in self._need.columns]
        return super().scanner(columns=names)

    def get_fragments(self, filter: Any = None) -> Iterator[Any]:
        yield self  # DataFusion takes a source without parts for one that is broken


def unread(table: LeafTable) -> ds.Dataset:
    """Return a source with the columns of a table, as a query sees them, and no rows."""
    return _Recorder(pa.schema([field.with_nullable(True) for field in table.schema]), Need())


def needs(
    session: SessionContext, tables: Mapping[str, LeafTable], planned: Callable[[], DataFrame]
) -> dict[str, Need]:
    """Plan a query in a session, and return what it needs of each table that it reads; ``planned`` is the query."""
    by_name = {name: Need() for name in tables}
    for name, table in tables.items():
        session.register_dataset(quoted(name), _Recorder(table.schema, by_name[name]))
    planned().execution_plan()
    return {name: need for name, need in by_name.items() if need.wheres}


@dataclass(slots=True)
class _SharedRead:
    """A read of a table, and the names that the query has for it."""

    table: LeafTable
    need: Need
    names: list[str]


def _shared(tables: Mapping[str, LeafTable], wanted: Mapping[str, Need]) -> list[_SharedRead]:
    """Return the reads of a query: one for all places that read a table as of one time by one filter."""
    reads: list[_SharedRead] = []
    for name, need in wanted.items():
        table, where = tables[name], need.where
        for each in reads:
            if each.table == table and each.need.where == where:
                each.need.columns += [column for column in need.columns if column not in each.need.columns]
                each.names.append(name)
                break
        else:
            reads.append(_SharedRead(table, Need(list(need.columns), [where]), [name]))
    return reads


class LeafReader:
    """Reads the tables of one query."""

    def __init__(self, store: Reads, leaf_bytes: int, check: Callable[[], None]) -> None:
        """``check`` raises if the query is not wanted any more."""
        self._store = store
        self._left = leaf_bytes
        self._lock = Lock()
        self._check = check

    def read(self, tables: Mapping[str, LeafTable], wanted: Mapping[str, Need]) -> dict[str, Leaf]:
        """Read what a query needs, but for tables with too many bytes. A table that it reads twice by one filter is
        read once."""
        reads = _shared(tables, wanted)
        if len(reads) < 2:
            leaves = [self._read(each.table, each.need) for each in reads]
        else:
            with ThreadPoolExecutor(min(len(reads), _AT_ONCE), "nyala-sql") as pool:
                run = carried(self._read)
                running = [pool.submit(copy_context().run, run, each.table, each.need) for each in reads]
                leaves = [future.result() for future in running]
        return {name: leaf for each, leaf in zip(reads, leaves, strict=True) for name in each.names}

    def _read(self, table: LeafTable, need: Need) -> Leaf:
        leaf = Leaf(need, [])
        assert leaf.batches is not None
        stream = self._store.scan(spec_of(table, need))
        try:
            for batch in stream.batches:
                self._check()
                if not batch.num_rows:
                    continue
                leaf.nbytes += batch.nbytes
                leaf.rows += batch.num_rows
                if not self._take(batch.nbytes) and table.since is None:
                    self._give_back(leaf.nbytes)
                    return Leaf(need)
                leaf.batches.append(one_nan(batch))
        finally:
            stream.close()
        return leaf

    def _take(self, size: int) -> bool:
        with self._lock:
            self._left -= size
            return self._left >= 0

    def _give_back(self, size: int) -> None:
        with self._lock:
            self._left += size


def spec_of(table: LeafTable, need: Need) -> ScanSpec:
    """Return the scan of what a query needs of a table."""
    name = table.description.name
    if table.since is None:
        return ScanSpec(table=name, columns=need.columns, where=need.where, as_of=table.snapshot)
    own = [each for each in need.columns if each not in ("_op", "_timestamp")]
    return ScanSpec(table=name, columns=own, changes=ChangeSpec(since=table.since, until=table.snapshot))


def register(
    session: SessionContext, store: Reads, name: str, table: LeafTable, leaf: Leaf | None, partitions: int
) -> None:
    """Give a session a table: the rows that were read, or a source that streams. What the query does not read of it is
    NULL."""
    if leaf is None:
        session.register_record_batches(quoted(name), [[_whole([], table.schema)[0]]])
    elif leaf.batches is None:
        session.register_dataset(quoted(name), NyalaDataset(store, table.description, table.snapshot, views=True))
    else:
        batches = _whole(leaf.batches, table.schema)
        session.register_record_batches(quoted(name), [part for part in _dealt(batches, partitions) if part])


def register_rows(session: SessionContext, name: str, rows: pa.Table) -> None:
    """Give a session a table in memory."""
    session.register_record_batches(quoted(name), [_whole(rows.combine_chunks().to_batches(), rows.schema)])


def _dealt(batches: Sequence[pa.RecordBatch], partitions: int) -> Iterator[list[pa.RecordBatch]]:
    for part in range(partitions):
        yield list(batches[part::partitions])


def _whole(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return batches with all columns of a table, texts as views; those that were not read are NULL."""
    shown = pa.schema([field.with_type(view_of(field.type)).with_nullable(True) for field in schema])
    read = set(batches[0].schema.names) if batches else set(schema.names)
    most = max((batch.num_rows for batch in batches), default=0)
    nothing = {field.name: pa.nulls(most, field.type) for field in shown if field.name not in read}
    if not batches:
        return [pa.RecordBatch.from_arrays([pa.array([], field.type) for field in shown], schema=shown)]
    return [_one(batch, shown, nothing) for batch in batches]


def _one(batch: pa.RecordBatch, shown: pa.Schema, nothing: Mapping[str, pa.Array]) -> pa.RecordBatch:
    columns = [
        nothing[field.name].slice(0, batch.num_rows)
        if field.name in nothing
        else _shown(batch.column(field.name), field.type)
        for field in shown
    ]
    return pa.RecordBatch.from_arrays(columns, schema=shown)


def _shown(cells: pa.Array, kind: pa.DataType) -> pa.Array:
    return cells if cells.type == kind else cells.cast(kind)


def reads_only(frame: DataFrame, leaves: Mapping[str, Leaf]) -> bool:
    """Whether a planned query reads no column of a leaf that was left out."""
    for name, columns in _scans(frame.optimized_logical_plan()):
        leaf = leaves.get(name)
        if leaf is not None and leaf.batches is not None and not set(columns) <= set(leaf.need.columns):
            return False
    return True


def _scans(plan: Any) -> Iterable[tuple[str, list[str]]]:
    """Yield the tables that a plan scans, and the columns of each; also those of subqueries, which plans have within
    expressions, as far as the optimizer has left any."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        variant = node.to_variant()
        if type(variant).__name__ == "TableScan":
            yield variant.table_name(), [name for _, name in variant.projection()]
        waiting += node.inputs()
