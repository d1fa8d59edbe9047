"""Leaves first: a query is planned, the store reads what each of its tables needs, and the query runs over these rows.

So DataFusion knows the exact number of rows of each table, which decides the order and the sides of joins, and a filter
that the store has applied may be weaker than the query's, which filters again. A table of too many bytes streams while
the query runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from datafusion import DataFrame, SessionContext

from ....schemas.rows.changes import ChangeSpec, feed_schema
from ....schemas.rows.scan import ScanSpec
from ....schemas.store.description import TableDescription
from ..source.begun import BegunRead
from ..source.bounds import NOTHING, Tree, fits, joined
from ..source.dataset import NyalaDataset
from ..source.parts import columns_of, conjuncts, part_of
from ..source.pushed import read_pushed
from ..source.reading import ScanService, view_of
from ..text.names import quoted
from .restrictions import ScanPlace, places_of


@dataclass(frozen=True, slots=True)
class LeafTable:
    """A leaf: a table as an SQL query reads it: as of ``snapshot``, or its changes up to then."""

    description: TableDescription
    snapshot: int
    since: int | None = None
    """Of changes: after which timestamp."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, as the store has them."""
        columns = [column.field for column in self.description.columns]
        return pa.schema(columns) if self.since is None else feed_schema(columns, before=False)

    def scan(self, columns: Sequence[str], where: Tree | None) -> ScanSpec:
        """Return the scan of some columns of the rows that match a filter; of changes, of all."""
        name = self.description.name
        if self.since is None:
            return ScanSpec(table=name, columns=list(columns), where=where, as_of=self.snapshot)
        own = [each for each in columns if each not in ("_op", "_timestamp")]
        return ScanSpec(table=name, columns=own, changes=ChangeSpec(since=self.since, until=self.snapshot))


@dataclass(slots=True)
class Need:
    """What an SQL query needs of a table: columns, and the rows that match ``where``."""

    columns: list[str] = field(default_factory=list)
    wheres: list[Tree | None] = field(default_factory=list)
    scans: int = 0
    """Places where the plan reads it."""
    places: Sequence[ScanPlace] = ()
    """These places. Empty: some are not known."""

    @property
    def pushed(self) -> Tree | None:
        """The filter that DataFusion has pushed, in any of the places where the query reads the table; None: all."""
        return _either(self.wheres)

    @property
    def where(self) -> Tree | None:
        """The filter of all that is known of these places; None: all."""
        pushed = self.pushed
        unpushed = _either([joined("and", place.trees) if place.trees else None for place in self.places])
        if pushed is None or unpushed is None:
            return unpushed if pushed is None else pushed
        return joined("and", [pushed, unpushed]) if fits(pushed, unpushed) else pushed


def _either(wheres: Sequence[Tree | None]) -> Tree | None:
    trees = [tree for tree in wheres if tree is not None]
    if not trees or len(trees) < len(wheres):
        return None
    either = joined("or", trees)
    return either if fits(either) else None


@dataclass(slots=True)
class Leaf:
    """A leaf: a table of an SQL query that was read, or that streams while the query runs."""

    need: Need
    batches: list[pa.RecordBatch] | None = None
    """None: it streams."""
    rows: int = 0
    nbytes: int = 0
    begun: BegunRead | None = None
    """Of one that streams: what was read before it was too large, and the rest."""
    restricted: tuple[str, ...] = ()
    """The tables whose keys restricted what was read."""

    def close(self) -> None:
        """End a read that was begun."""
        if self.begun is not None:
            self.begun.close()


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
        self._need.scans += 1
        if where not in self._need.wheres:
            self._need.wheres.append(where)
        more = [] if filter is None else columns_of(conjuncts(part_of(filter)))
        self._need.columns += [name for name in dict.fromkeys([*names, *more]) if name not in self._need.columns]
        return super().scanner(columns=names)

    def get_fragments(self, filter: Any = None) -> Iterator[Any]:
        yield self  # DataFusion takes a source without parts for one that is broken


def unread(table: LeafTable) -> ds.Dataset:
    """Return a leaf that is not read: a source with the columns of a table, as a query sees them, and no rows."""
    return _Recorder(pa.schema([field.with_nullable(True) for field in table.schema]), Need())


def needs(
    session: SessionContext, tables: Mapping[str, LeafTable], planned: Callable[[], tuple[DataFrame, Any]]
) -> dict[str, Need]:
    """Plan an SQL query in a session of DataFusion, and return what it needs of each table that it reads; ``planned``
    returns the query and its optimized plan."""
    by_name = {name: Need() for name in tables}
    for name, table in tables.items():
        session.register_dataset(quoted(name), _Recorder(table.schema, by_name[name]))
    frame, plan = planned()
    by_place = places_of(plan)
    if not _may_plan(by_place):
        return {name: _whole_need(table, by_place.get(name, [])) for name, table in tables.items()}
    frame.execution_plan()
    needed = {name: need for name, need in by_name.items() if need.wheres}
    for name, places in by_place.items():
        if name in needed and len(places) == needed[name].scans:  # else a subquery hides some of them
            needed[name].places = places
    return needed


def plan_lines(frame: DataFrame) -> str:
    """Return DataFusion's plan of a query over the sources that ``needs`` has registered."""
    plan = frame.optimized_logical_plan()
    return str((frame.execution_plan() if _may_plan(places_of(plan)) else plan).display_indent())


def _may_plan(by_place: Mapping[str, Sequence[ScanPlace]]) -> bool:
    """Whether DataFusion hands its filters to sources: it joins them by ``&``, which a literal NULL does not have."""
    return all(place.has_rows for places in by_place.values() for place in places)


def _whole_need(table: LeafTable, places: Sequence[ScanPlace]) -> Need:
    is_empty = bool(places) and not any(place.has_rows for place in places)
    return Need(list(table.schema.names), [NOTHING if is_empty else None])


def register(
    session: SessionContext, store: ScanService, name: str, table: LeafTable, leaf: Leaf | None, partitions: int
) -> None:
    """Give a session of DataFusion a leaf: the rows that were read, or a source that streams. What the query does not
    read of it is NULL."""
    if leaf is None:
        session.register_record_batches(quoted(name), [[_whole([], table.schema)[0]]])
    elif leaf.batches is None:
        source = NyalaDataset(store, table.description, table.snapshot, views=True, begun=leaf.begun)
        session.register_dataset(quoted(name), source)
    else:
        batches = _whole(leaf.batches, table.schema)
        session.register_record_batches(quoted(name), [part for part in _dealt(batches, partitions) if part])


def register_rows(session: SessionContext, name: str, rows: pa.Table) -> None:
    """Give a session of DataFusion a leaf that is in memory."""
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
        is_read = leaf is not None and (leaf.batches is not None or leaf.begun is not None)
        if leaf is not None and is_read and not set(columns) <= set(leaf.need.columns):
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
