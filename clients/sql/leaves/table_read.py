"""The read of a table of a query, for all places that read it as of one time by one filter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from ....schemas.protocol.service import ScanStream
from ....schemas.rows.scan import ScanSpec
from ..source.begun import BegunRead
from ..source.bounds import Tree, joined
from ..source.pushed import one_nan
from ..source.reading import ScanService
from .planning import Leaf, LeafTable, Need
from .restrictions import ScanPlace


class RowsInMemory:
    """Rows that a query has in memory, whose keys restrict its leaves as those of a leaf that was read."""

    is_whole = has_shrunk = True

    def __init__(self, name: str, rows: pa.Table) -> None:
        self.name = name
        self.names = [name]
        self.schema = rows.schema
        self.batches = rows.to_batches()
        self.rows = rows.num_rows
        self.places: list[ScanPlace] = []


class TableRead:
    """The read of a leaf of a query: batches that come, until it is whole, or until it is known to stream while the
    query runs."""

    def __init__(self, table: LeafTable, where: Tree | None) -> None:
        self.table = table
        self.where = where
        """The filter of the query."""
        self.names: list[str] = []
        """The query's names of the table."""
        self.places: list[ScanPlace] = []
        """The places of the query. Empty: some are not known."""
        self.batches: list[pa.RecordBatch] = []
        self.rows = self.nbytes = 0
        self.is_whole = self.streams = False
        self.restricted: tuple[str, ...] = ()
        """The tables whose keys restrict it."""
        self._columns: list[str] = []
        self._scans = 0
        self._filter = where
        self._stream: ScanStream | None = None
        self._rest: Iterator[pa.RecordBatch] = iter(())

    @property
    def name(self) -> str:
        """The table."""
        return self.table.description.name

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self.table.schema

    @property
    def has_shrunk(self) -> bool:
        """Whether rows of the table are left out."""
        return self.where is not None or bool(self.restricted)

    def also_for(self, name: str, need: Need) -> None:
        """Read for a name of the query."""
        self.names.append(name)
        self._columns += [column for column in need.columns if column not in self._columns]
        is_known = bool(need.places) and (self.places or not self._scans)
        self.places = [*self.places, *need.places] if is_known else []
        self._scans += need.scans

    @property
    def spec(self) -> ScanSpec:
        """The scan."""
        return self.table.scan(self._columns, self._filter)

    def next(self, store: ScanService) -> pa.RecordBatch | None:
        """Return more rows; None: there are no more."""
        if self._stream is None:
            self._stream = store.scan(self.spec)
            self._rest = iter(self._stream.batches)
        batch = next(self._rest, None)
        return None if batch is None else one_nan(batch)

    def keep(self, batch: pa.RecordBatch) -> None:
        """Keep rows in memory."""
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.nbytes += batch.nbytes

    def begin_again(self, keys: Tree, sources: Sequence[str]) -> None:
        """Forget what was read: only rows with keys of other tables are needed."""
        self.close()
        self._filter = keys if self._filter is None else joined("and", [self._filter, keys])
        self.restricted = tuple(dict.fromkeys([*self.restricted, *sources]))
        self.forget()

    def forget(self) -> None:
        """Drop what was read."""
        self.batches, self.rows, self.nbytes = [], 0, 0

    @property
    def may_go_on(self) -> bool:
        """Whether the query can take what was read, and then the rest: one place that takes it once."""
        return self._scans == 1 and self.table.since is None

    def leaves(self, needs: Mapping[str, Need]) -> Iterator[tuple[str, Leaf]]:
        """Yield what was read for each name of the query."""
        begun = None
        if self.streams and self.batches and self._stream is not None:
            pushed = needs[self.names[0]].pushed
            begun = BegunRead(pushed, self._columns, self.batches, self._stream, self._rest)
        for name in self.names:
            if self.streams:
                yield name, Leaf(needs[name], begun=begun, restricted=self.restricted if begun else ())
            else:
                yield name, Leaf(needs[name], self.batches, self.rows, self.nbytes, restricted=self.restricted)

    def close(self) -> None:
        """End the scan."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
